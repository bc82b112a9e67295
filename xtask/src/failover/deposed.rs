//! A master hangs (SIGSTOP), another server is promoted, and the deposed master continues (SIGCONT).
//!
//! | asked | must answer |
//! |---|---|
//! | the deposed master, for a row that the new master committed before the question | nothing, or that row |
//! | the third server, which followed the deposed master | only transactions that the new master has |
//!
//! Anything else is a stale answer. Without a control plane a deposed master cannot know that it is one, so it is not asked.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::bail;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::failover::arrival;
use crate::failover::bed::{Bed, ended};
use crate::failover::fault::Fault;
use crate::failover::group::Settled;
use crate::failover::rounds::{Found, first};
use crate::kill_test::Random;
use crate::recorder::{DATABASE, connect};
use crate::server::Address;

/// How long a master that hung continues after the promotion.
const RESUMED: Duration = Duration::from_millis(300);

/// How long the third server is watched.
const WATCHED: Duration = Duration::from_secs(2);

/// Sessions that ask the deposed master.
const READERS: usize = 4;

impl Bed {
    /// Hangs the master under load, promotes the standby, and lets the old master continue, except after [`Fault::Hung`].
    pub fn hang_master(
        &mut self,
        round: u32,
        fault: Fault,
        standby: usize,
        random: &mut Random,
        runtime: &Runtime,
        found: &mut Found,
    ) -> anyhow::Result<Settled> {
        let mut running = self.load(random, runtime)?;
        let old = self.group.master;
        let readers = match self.plan.setup.has_control() {
            true => runtime.block_on(sessions(self.group.address(old)))?,
            false => Vec::new(),
        };
        self.group.nodes[old].running()?.hang()?;
        let settled = self.promote_while_it_hangs(standby)?;
        if fault != Fault::Hung {
            runtime.block_on(arrival::leave_mark(self.group.address(settled.master), round))?;
            let asked: Vec<_> = readers.into_iter().map(|reader| runtime.spawn(ask(reader, round))).collect();
            self.group.nodes[old].running()?.resume()?;
            match fault {
                Fault::ThirdServer => self.watch_third(old, settled.master, runtime, found)?,
                Fault::Clients => self.arrive(old, settled.master, round, runtime, found)?,
                _ => std::thread::sleep(RESUMED),
            }
            self.group.nodes[old].kill()?;
            found.note_stale_answers(asked, runtime);
        } else {
            self.group.nodes[old].kill()?;
        }
        ended(&mut running, runtime)?;
        Ok(settled)
    }

    fn promote_while_it_hangs(&mut self, standby: usize) -> anyhow::Result<Settled> {
        if self.plan.setup.has_control() {
            return self.group.promote_as_told(standby, None);
        }
        if self.group.promote(standby, false).is_ok() {
            bail!("promoted without proof that the old master, which hangs, is stopped");
        }
        let promotion = Some(self.group.promote(standby, true)?);
        Ok(Settled { master: standby, promotion, refusals: Vec::new() })
    }

    /// Looks at the third server while the deposed master continues.
    fn watch_third(&self, old: usize, new: usize, runtime: &Runtime, found: &mut Found) -> anyhow::Result<()> {
        let Some(third) = (0..self.group.nodes.len()).find(|node| *node != old && *node != new) else {
            bail!("there is no third server");
        };
        let (mut shown, started) = (HashSet::new(), Instant::now());
        while started.elapsed() < WATCHED {
            shown.extend(runtime.block_on(self.recorder.shown(self.group.address(third)))?);
            std::thread::sleep(Duration::from_millis(20));
        }
        let right = runtime.block_on(self.recorder.shown(self.group.address(new)))?;
        let wrong: HashSet<i64> = shown.difference(&right).copied().collect();
        found.stale += wrong.len();
        if !wrong.is_empty() {
            let (name, wrong_count) = (self.group.nodes[third].name, wrong.len());
            found.damage.push(format!(
                "{name}, the third server, showed {wrong_count} transactions of the deposed master, first {:?}",
                first(&wrong)
            ));
        }
        Ok(())
    }
}

impl Found {
    fn note_stale_answers(&mut self, asked: Vec<JoinHandle<Option<String>>>, runtime: &Runtime) {
        let answers = asked.into_iter().filter_map(|answer| runtime.block_on(answer).ok().flatten());
        let stale: Vec<String> = answers.collect();
        self.stale += stale.len();
        if let Some(answer) = stale.first() {
            self.damage.push(format!("the deposed master gave {} stale answers: {answer}", stale.len()));
        }
    }
}

async fn sessions(master: Address) -> anyhow::Result<Vec<Client>> {
    let mut sessions = Vec::new();
    for _ in 0..READERS {
        sessions.push(connect(&master.hosts(), DATABASE).await?);
    }
    Ok(sessions)
}

/// Asks for a mark that the new master has committed; an answer of a master without it is stale.
async fn ask(reader: Client, mark: u32) -> Option<String> {
    let question = format!("SELECT pg_is_in_recovery(), count(*) FROM mark WHERE id = {mark}");
    let answer = reader.simple_query(&question).await.ok()?;
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some((row.get(0)?.to_owned(), row.get(1)?.to_owned())),
        _ => None,
    })?;
    (row == ("f".to_owned(), "0".to_owned())).then(|| format!("it is the master and does not have mark {mark}"))
}
