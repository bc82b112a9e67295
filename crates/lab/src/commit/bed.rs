//! The servers' data directories, and servers started on a disk with settings.
//!
//! Each server has a directory for each disk, made and filled once on the real one; the unsafe disk is then mounted over
//! it. So an `initdb` does not have to run on a disk whose every write takes 13 ms.

use super::load::Clients;
use super::plan::{Condition, Delay, DiskKind, Plan, Step};
use super::results::{Rate, Results};
use crate::drive::Span;
use crate::pg_client::Client;
use crate::progress::Progress;
use crate::server::{Kind, Peer};
use crate::{Study, peer_holdfast, peer_postgres};
use anyhow::Context;
use holdfast_unsafe_disk::{Options, UnsafeDisk};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What a sync takes on the paper's disk: its single client made 76 to 79 commits a second.
pub const PAPER_SYNC_US: u64 = 13_000;
/// PostgreSQL's default.
const SIBLINGS: u32 = 5;

/// See the module's description.
pub struct Bed<'a> {
    pub study: &'a Study,
    scratch: &'a Path,
    pub progress: &'a Progress,
    clients_max: usize,
}

impl<'a> Bed<'a> {
    /// Makes the directories and fills them.
    pub fn make(study: &'a Study, plan: &Plan, scratch: &'a Path, progress: &'a Progress) -> anyhow::Result<Bed<'a>> {
        let bed = Bed { study, scratch, progress, clients_max: plan.clients_max() };
        // PostgreSQL does not run as root and has to get through; the name cannot be guessed.
        fs::set_permissions(scratch, fs::Permissions::from_mode(0o711))?;
        for place in ["mount", "logs"] {
            fs::create_dir(scratch.join(place))?;
        }
        for disk in &plan.disks {
            fs::create_dir(scratch.join(disk.name()))?;
            fs::set_permissions(scratch.join(disk.name()), fs::Permissions::from_mode(0o711))?;
            let servers = [Some(Kind::Holdfast), study.peer.map(|_| Kind::Postgres)];
            for server in servers.into_iter().flatten() {
                progress.part(&format!("making the files of {} for {}", server.name(), disk.title()));
                bed.fill(server, *disk).with_context(|| format!("cannot create the files of {}", server.name()))?;
            }
        }
        Ok(bed)
    }

    fn fill(&self, server: Kind, disk: DiskKind) -> anyhow::Result<()> {
        let peer = Peer::start(server, &self.study.program, &self.scratch.join(disk.name()))?;
        let mut client = Client::connect(peer.addr)?;
        client.run("create table account (id integer primary key, n integer not null)")?;
        let rows = (0..self.clients_max).map(|id| format!("{id}\t0"));
        client.copy_in("copy account from stdin", rows)?;
        peer.settle(&mut client)
    }

    /// Runs `work` in a directory on the disk.
    pub fn on_disk<T>(&self, condition: Condition, work: impl FnOnce(&Path) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let backing = self.scratch.join(condition.disk.name());
        if condition.disk == DiskKind::Real {
            return work(&backing);
        }
        let mut options = Options::new(backing);
        options.sync_us = PAPER_SYNC_US;
        options.cache = condition.cache;
        options.barrier = condition.barrier;
        options.allow_other = true;
        let disk = UnsafeDisk::mount(&self.scratch.join("mount"), options)?;
        work(disk.mountpoint())
    }

    /// Starts the server of a step and measures it with each number of clients.
    pub fn measure(&self, step: &Step, results: &mut Results) -> anyhow::Result<()> {
        self.on_disk(step.condition, |dir| {
            let peer = self.start(step, dir)?;
            let before = total(&peer)?;
            let mut clients = Clients::open(peer.addr, self.clients_max)?;
            let mut answered = 0;
            for &count in &step.clients {
                let (rate, more) = self.point(step, &peer, &mut clients, count)?;
                answered += more;
                results.rates.push(rate);
                self.progress.advance(self.study.seconds);
            }
            let written = total(&peer)? - before;
            anyhow::ensure!(
                written == answered as f64,
                "{answered} commits were acknowledged and {written} are in the table"
            );
            Ok(())
        })
    }

    fn point(&self, step: &Step, peer: &Peer, clients: &mut Clients, count: usize) -> anyhow::Result<(Rate, u64)> {
        let syncs = || trail_syncs(peer);
        let syncs_before = syncs();
        let measured = clients.drive(count, Span::of(self.study.seconds))?;
        let syncs = syncs().zip(syncs_before).map(|(after, before)| (after - before) / measured.answered.max(1) as f64);
        let Condition { disk, cache, barrier } = step.condition;
        let rate = Rate {
            server: step.server.name().into(),
            disk: disk.name().into(),
            cache,
            barrier,
            delay: step.delay.name(),
            method: step.method.name().into(),
            clients: count,
            tps: measured.completed_rate,
            runs: vec![measured.completed_rate],
            mean_us: measured.response.mean_us,
            p99_us: measured.response.p99_us,
            syncs_per_commit: syncs,
        };
        Ok((rate, measured.answered))
    }

    fn start(&self, step: &Step, dir: &Path) -> anyhow::Result<Peer> {
        let log: PathBuf = self.scratch.join("logs");
        match (step.server, step.delay) {
            (Kind::Holdfast, delay) => {
                let delay = match delay {
                    Delay::Auto => "\"auto\"".to_string(),
                    Delay::Us(us) => us.to_string(),
                };
                let method = step.method.name();
                let settings =
                    format!("commit_delay_us = {delay}\ncommit_siblings = {SIBLINGS}\nsync_method = \"{method}\"\n");
                peer_holdfast::start_logging(&self.study.program, dir, &settings, &log)
            }
            (Kind::Postgres, Delay::Us(us)) => {
                let settings = [("commit_delay", us.to_string()), ("commit_siblings", SIBLINGS.to_string())];
                peer_postgres::serve(dir, &log, &settings)
            }
            (Kind::Postgres, Delay::Auto) => anyhow::bail!("PostgreSQL has no automatic commit delay"),
        }
    }
}

/// Commits that the table holds.
fn total(peer: &Peer) -> anyhow::Result<f64> {
    Client::connect(peer.addr)?.number("select sum(n) from account")
}

/// Syncs of Holdfast's trail so far. PostgreSQL's processes tell theirs only later.
fn trail_syncs(peer: &Peer) -> Option<f64> {
    let sql = "select value from holdfast_stat_trail where name = 'syncs'";
    (peer.kind == Kind::Holdfast).then(|| Client::connect(peer.addr)?.number(sql)).and_then(Result::ok)
}
