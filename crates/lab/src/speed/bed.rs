//! The servers under measurement: started, filled with the study's files, and measured by turns.
//!
//! Failure: a server that cannot be started, and a turn that fails, are reasons that the rows show; the rest continues.

use super::results::{Floor, Line, Results, Turn};
use super::row::{Row, Sizes, Unit};
use super::{arithmetic, floor, pause};
use crate::interactive::{Stand, kinds};
use crate::pg_client::Client;
use crate::pgbench_run::{self, Run, whole_seconds};
use crate::progress::Progress;
use crate::results::PgbenchResult;
use crate::server::{Kind, server_name};
use crate::study_results::ServerSettings;
use crate::{Study, interrupt};
use std::path::Path;

/// See the module's description.
pub struct Bed<'a> {
    study: &'a Study,
    sizes: &'a Sizes,
    scratch: &'a Path,
    progress: &'a Progress,
    stands: Vec<Stand>,
    /// Servers that are not there, and why.
    missing: Vec<String>,
}

impl<'a> Bed<'a> {
    /// Starts and fills the servers.
    pub fn make(
        study: &'a Study,
        sizes: &'a Sizes,
        scratch: &'a Path,
        progress: &'a Progress,
        results: &mut Results,
    ) -> anyhow::Result<Bed<'a>> {
        let mut bed = Bed { study, sizes, scratch, progress, stands: Vec::new(), missing: Vec::new() };
        for kind in kinds(study) {
            match bed.start(kind) {
                Ok(stand) => {
                    let (server, settings) = (kind.name().to_string(), stand.peer.settings.clone());
                    results.servers.push(ServerSettings { server, settings });
                    bed.stands.push(stand);
                }
                Err(e) => bed.missing.push(format!("{}: {:#}", server_name(kind.name()), interrupt::unless(e)?)),
            }
        }
        results.failures.extend(bed.missing.clone());
        Ok(bed)
    }

    fn start(&self, kind: Kind) -> anyhow::Result<Stand> {
        self.progress.part(&format!("starting and filling {}", server_name(kind.name())));
        let stand = Stand::start(kind, &self.study.program, self.scratch)?;
        stand.peer.load(self.sizes.log_rows, &|rows| {
            let name = server_name(kind.name());
            self.progress.now(format!("filling {name}: {rows} of {} log rows", self.sizes.log_rows));
        })?;
        Ok(stand)
    }

    /// Measures a row, and what it needs before it.
    pub fn row(&self, row: Row) -> anyhow::Result<Line> {
        let mut line = Line::empty(row, row.what(self.sizes));
        line.missing.clone_from(&self.missing);
        self.progress.part(&format!("{}, {}", line.what, crate::text::clients(line.clients)));
        self.each(0, &mut line, |stand, _| self.prepare(row, stand))?;
        if line.missing.len() == self.missing.len() {
            let mut floors = Vec::new();
            for round in 0..self.sizes.rounds {
                self.each(round, &mut line, |stand, line| self.turn(row, round, stand, line))?;
                arithmetic::conclude(&mut line);
                self.floor(row, &mut line, &mut floors)?;
            }
            line.floor = floor::medians(&floors);
        }
        Ok(line)
    }

    /// What no server can do better; a failure becomes the row's reason.
    fn floor(&self, row: Row, line: &mut Line, floors: &mut Vec<Floor>) -> anyhow::Result<()> {
        interrupt::check()?;
        match floor::measure(row, line, self.sizes, whole_seconds(self.study.seconds), self.scratch) {
            Ok(floor) => floors.extend(floor),
            Err(e) => line.missing.push(format!("the physical floor: {:#}", interrupt::unless(e)?)),
        }
        self.progress.advance(whole_seconds(self.study.seconds) as f64);
        Ok(())
    }

    /// Does something at each server, in the other order in every second round. A failure becomes the row's reason.
    fn each(
        &self,
        round: usize,
        line: &mut Line,
        act: impl Fn(&Stand, &mut Line) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut stands: Vec<&Stand> = self.stands.iter().collect();
        if round % 2 == 1 {
            stands.reverse();
        }
        for stand in stands {
            interrupt::check()?;
            if let Err(e) = act(stand, line) {
                line.missing.push(format!("{}: {:#}", server_name(stand.name()), interrupt::unless(e)?));
            }
        }
        Ok(())
    }

    /// The tables or the load that a row needs.
    fn prepare(&self, row: Row, stand: &Stand) -> anyhow::Result<()> {
        if let Some(scale) = row.scale(self.sizes) {
            pgbench_run::fill(&stand.peer, scale)?;
            stand.peer.settle(&mut Client::connect(stand.peer.addr)?)?;
        }
        if row == Row::FiveMessagesLoaded {
            run(row, stand, self.sizes.load_seconds).start()?.finish()?;
            self.progress.advance(self.sizes.load_seconds as f64);
        }
        Ok(())
    }

    fn turn(&self, row: Row, round: usize, stand: &Stand, line: &mut Line) -> anyhow::Result<()> {
        let turn = match row.unit() {
            Unit::PerSecond => self.rate(row, stand)?,
            Unit::Seconds => {
                let value = pause::measure(stand, self.sizes.large_bytes, row.clients(), 1 + round as u64)?;
                Turn { value, ..Turn::default() }
            }
        };
        self.progress.advance(whole_seconds(self.study.seconds) as f64);
        line.turns.push(Turn { server: stand.name().to_string(), round, ..turn });
        Ok(())
    }

    /// One run of pgbench.
    fn rate(&self, row: Row, stand: &Stand) -> anyhow::Result<Turn> {
        let mut result = PgbenchResult::empty(stand.name(), row.name(), row.clients());
        let before = stand.peer.log_bytes()?;
        let printed = run(row, stand, whole_seconds(self.study.seconds)).measure(&stand.peer, &mut result)?;
        let grown = stand.peer.log_bytes()? - before;
        let all = printed.transactions + printed.failed;
        anyhow::ensure!(printed.failed == 0, "{} of {all} transactions failed", printed.failed);
        Ok(Turn {
            value: result.tps,
            cpu_us: result.server_cpu_us,
            syncs_per_transaction: result.syncs_per_transaction,
            log_bytes_per_transaction: crate::ratios::quotient(grown, all as f64),
            ..Turn::default()
        })
    }
}

fn run(row: Row, stand: &Stand, seconds: u64) -> Run<'_> {
    let (mode, script) = row.script();
    Run { addr: stand.peer.addr, mode, clients: row.clients(), seconds, script, dir: stand.dir.path() }
}

/// Seconds of load that a run takes, at all its servers and for the floors.
pub fn seconds_planned(study: &Study, sizes: &Sizes) -> f64 {
    let (servers, seconds) = (kinds(study).len() as u64, whole_seconds(study.seconds));
    let of = |row: Row| {
        let before = if row == Row::FiveMessagesLoaded { sizes.load_seconds } else { 0 };
        servers * before + (servers + 1) * seconds * sizes.rounds as u64
    };
    Row::ALL.into_iter().filter(|row| study.wants_row(*row)).map(of).sum::<u64>() as f64
}
