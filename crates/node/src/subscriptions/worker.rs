//! The worker of one subscription: connects, copies the tables that were not copied yet, and follows the feed.
//!
//! | what | then |
//! |---|---|
//! | the connection is lost, the publisher is not there | again after [`RETRY`] |
//! | a change cannot be applied | the error is logged and shown, and the same again after [`RETRY`]; with `disable_on_error` not |
//! | the subscription is changed or dropped, the server stops | it ends at the next transaction |
//!
//! A position is confirmed to the publisher when everything before it is committed here, at this server's level.
//!
//! Failure: see the table; what was applied stays applied, and nothing is applied twice, because the position is in the same transaction.

use super::apply::{Applied, Applier, Foreign, Submitted};
use super::copy::{Copy, copy_table};
use super::disable::disable;
use super::incoming::{Arrived, Incoming};
use super::positions::Positions;
use super::progress::{Phase, Progress};
use super::publisher::{CopySlots, answered, as_sql, connect, drop_copy_slots, named};
use crate::clock::now_us;
use holdfast_client::{Received, ReplicationLink};
use holdfast_engine::{Database, WriteTxn};
use holdfast_sites::link::{Status, status_update};
use holdfast_types::lsn::lsn_text;
use holdfast_types::subscription::Subscription;
use holdfast_types::{Level, SqlError, SqlResult, SqlState};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Pause before a subscription that failed is tried again, as PostgreSQL's `wal_retrieve_retry_interval`.
pub const RETRY: Duration = Duration::from_secs(5);

/// How often the publisher hears from an idle subscriber, when it is asked to answer, and how long it may be silent.
const STATUS_EVERY: Duration = Duration::from_secs(10);
const ASKED_AFTER: Duration = Duration::from_secs(30);
const SILENT_MAX: Duration = Duration::from_secs(60);

/// Changes, and bytes of them, that become one transaction; and what waits for the writer before reading pauses.
const GROUP_CHANGES_MAX: usize = 500;
const GROUP_BYTES_MAX: usize = 1 << 20;
const QUEUE_BYTES_MAX: usize = 8 << 20;

/// A worker.
pub struct Worker {
    pub db: Database,
    pub subscription: Subscription,
    pub level: Level,
    /// What makes the names of its slots differ from those of other servers.
    pub system: String,
    pub progress: Arc<Progress>,
    pub stop: watch::Receiver<bool>,
}

/// The names of the slots of a subscription's copies.
pub fn copy_slots(system: &str, db: &Database, number: u32) -> CopySlots {
    CopySlots { before: format!("holdfast_{number}_sync_"), behind: format!("_{}_{system}", db.oid()) }
}

impl Worker {
    /// Works until it is stopped, or has disabled the subscription.
    pub async fn run(mut self) {
        loop {
            self.progress.enters(Phase::Connecting);
            let mut stop = self.stop.clone();
            let ended = tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                ended = self.follow() => ended,
            };
            let Err(error) = ended else { return };
            let name = &self.subscription.name;
            self.progress.failed(&text_of(&error));
            tracing::warn!(subscription = %name, "the subscription stopped: {}", text_of(&error));
            if self.subscription.options.disable_on_error && !passes_by_itself(&error) {
                match disable(&self.db, self.subscription.number, self.level).await {
                    Ok(()) => return tracing::warn!(subscription = %name, "it was disabled because of the error"),
                    Err(error) => tracing::warn!(subscription = %name, "it cannot be disabled: {error}"),
                }
            }
            if tokio::time::timeout(RETRY, self.stop.wait_for(|stop| *stop)).await.is_ok() {
                return;
            }
        }
    }

    async fn follow(&self) -> SqlResult<()> {
        let Subscription { number, name, connection, publications, slot, tables, .. } = &self.subscription;
        let positions = Positions::of(&self.db, *number).await?;
        let mut applier = Applier::new(&self.db, positions, self.level, &self.subscription);
        let (schema, slots) = (self.db.schema(), copy_slots(&self.system, &self.db, *number));
        for oid in tables {
            let Some(table) = schema.by_oid(*oid).filter(|_| !applier.positions.copied.contains_key(oid)) else {
                continue;
            };
            let slot = slots.of(*oid);
            let copy = Copy { connection, publications, slot, table: &table.name, oid: *oid };
            copy_table(&copy, &mut applier, &self.progress).await?;
        }
        let Some(slot) = slot else { return Err(SqlError::internal("the subscription has no slot")) };
        let mut link = connect(connection, name).await.map_err(as_sql)?;
        answered(link.query("IDENTIFY_SYSTEM")).await.map_err(as_sql)?;
        // A crash or a cut between the commit of a copy and the end of its slot leaves that behind, and it would keep the publisher's
        // trail. All tables are copied now, so none is needed.
        drop_copy_slots(&mut link, &slots).await.map_err(as_sql)?;
        let publications: Vec<String> = publications.iter().map(|name| named(name)).collect();
        let start = format!(
            "START_REPLICATION SLOT {} LOGICAL {} (proto_version '1', publication_names '{}')",
            named(slot),
            lsn_text(applier.positions.applied),
            publications.join(",").replace('\'', "''")
        );
        answered(link.start(&start)).await.map_err(as_sql)?;
        let confirmed = applier.positions.applied;
        self.progress.change(|figures| {
            figures.phase = Phase::Following;
            (figures.received, figures.applied) = (confirmed, confirmed);
        });
        let progress = self.progress.clone();
        let following = Following {
            incoming: Incoming::default(),
            applier,
            link,
            progress,
            queue: VecDeque::new(),
            queue_bytes: 0,
            submitted: None,
            singly: 0,
            large: None,
            confirmed,
            heard: Instant::now(),
            answered: Instant::now(),
            asked: false,
        };
        following.run().await
    }
}

/// Whether an error is one of the connection or of a server's means (authentication, memory, disk, archive, a slot that is in use),
/// and not of a change: no reason to disable the subscription.
fn passes_by_itself(error: &SqlError) -> bool {
    let state = error.state();
    ["08", "28", "40", "53", "57", "58"].iter().any(|class| state.0.starts_with(class))
        || state == SqlState::OBJECT_IN_USE
}

/// An error with its detail, as one line.
fn text_of(error: &SqlError) -> String {
    let parts = error.parts();
    let more = [("DETAIL", &parts.detail), ("HINT", &parts.hint)];
    let more = more.into_iter().filter_map(|(name, text)| text.as_ref().map(|text| format!(" {name}: {text}")));
    format!("{} ({}){}", parts.message, parts.state.0, more.collect::<String>())
}

/// A transaction that is applied while it arrives.
struct Large {
    txn: WriteTxn,
    /// Changes that were made, and those of them that found no row.
    changes: (u64, u64),
}

impl Large {
    async fn run(&mut self, applier: &mut Applier, part: &Foreign) -> SqlResult<()> {
        let (changes, missing) = applier.run_part(&mut self.txn, part).await?;
        self.changes = (self.changes.0 + changes, self.changes.1 + missing);
        Ok(())
    }
}

/// A feed that is being followed.
struct Following {
    link: ReplicationLink,
    incoming: Incoming,
    applier: Applier,
    progress: Arc<Progress>,
    /// Whole transactions that wait for the writer, and bytes that they came in.
    queue: VecDeque<(Foreign, usize)>,
    queue_bytes: usize,
    submitted: Option<Submitted>,
    /// So many transactions of the queue run one by one, because a group of them failed.
    singly: usize,
    large: Option<Large>,
    /// Everything below is committed here.
    confirmed: u64,
    heard: Instant,
    answered: Instant,
    /// It was asked to answer and has said nothing since.
    asked: bool,
}

impl Following {
    async fn run(mut self) -> SqlResult<()> {
        let mut turn = tokio::time::interval(Duration::from_secs(1));
        self.answer().await?;
        loop {
            if self.submitted.is_none() && !self.queue.is_empty() {
                let group = self.group();
                self.submitted = Some(self.applier.submit(group)?);
            }
            let may_read = self.queue_bytes < QUEUE_BYTES_MAX;
            tokio::select! {
                done = finished(&mut self.applier, &mut self.submitted, &self.progress) => self.done(done?).await?,
                received = self.link.received(), if may_read => {
                    let Received::Data(data) = received.map_err(as_sql)? else {
                        return Err(SqlError::new(holdfast_types::SqlState::CONNECTION_FAILURE, "the publisher ended the feed"));
                    };
                    self.take(&data).await?;
                    self.take_waiting().await?;
                }
                _ = turn.tick() => self.turn(may_read).await?,
            }
        }
    }

    /// Takes what has arrived already: what comes together becomes one transaction here.
    async fn take_waiting(&mut self) -> SqlResult<()> {
        while self.queue_bytes < QUEUE_BYTES_MAX {
            match self.link.received_now().map_err(as_sql)? {
                Some(Received::Data(data)) => self.take(&data).await?,
                Some(Received::End) | None => return Ok(()),
            }
        }
        Ok(())
    }

    async fn take(&mut self, data: &[u8]) -> SqlResult<()> {
        (self.heard, self.asked) = (Instant::now(), false);
        self.progress.heard(data.len());
        match self.incoming.take(data)? {
            Arrived::Nothing => {}
            Arrived::Asked => self.answer().await?,
            Arrived::Part => self.part().await?,
            Arrived::Whole(foreign, bytes) => match self.large.take() {
                Some(large) => self.finish_large(large, foreign).await?,
                None => {
                    self.queue_bytes += bytes;
                    self.queue.push_back((foreign, bytes));
                }
            },
        }
        self.progress.change(|figures| figures.received = self.incoming.received);
        Ok(())
    }

    /// A large transaction goes to its branch as it comes, behind everything before it.
    async fn part(&mut self) -> SqlResult<()> {
        self.drain().await?;
        let mut large = match self.large.take() {
            Some(large) => large,
            None => {
                let txn = answering(&mut self.link, self.confirmed, self.applier.begin_large()).await?;
                Large { txn, changes: (0, 0) }
            }
        };
        let part = self.incoming.take_part();
        answering(&mut self.link, self.confirmed, large.run(&mut self.applier, &part)).await?;
        self.large = Some(large);
        Ok(())
    }

    async fn finish_large(&mut self, mut large: Large, last: Foreign) -> SqlResult<()> {
        answering(&mut self.link, self.confirmed, large.run(&mut self.applier, &last)).await?;
        let finish = self.applier.finish_large(large.txn, &last, large.changes, &self.progress);
        answering(&mut self.link, self.confirmed, finish).await?;
        self.confirmed = last.end;
        self.answer().await
    }

    /// Waits until the queue is empty and committed.
    async fn drain(&mut self) -> SqlResult<()> {
        while self.submitted.is_some() || !self.queue.is_empty() {
            if self.submitted.is_none() {
                let group = self.group();
                self.submitted = Some(self.applier.submit(group)?);
            }
            let done = finished(&mut self.applier, &mut self.submitted, &self.progress);
            let done = answering(&mut self.link, self.confirmed, done).await?;
            self.done(done).await?;
        }
        Ok(())
    }

    /// The transactions of the queue that run together next.
    fn group(&mut self) -> Vec<Foreign> {
        let (mut group, mut changes, mut bytes) = (Vec::new(), 0, 0);
        while let Some((foreign, of)) = self.queue.pop_front() {
            changes += foreign.changes.len();
            bytes += of;
            self.queue_bytes -= of;
            group.push(foreign);
            let is_single = self.singly > 0;
            self.singly = self.singly.saturating_sub(1);
            if is_single || changes >= GROUP_CHANGES_MAX || bytes >= GROUP_BYTES_MAX {
                break;
            }
        }
        group
    }

    async fn done(&mut self, done: Applied) -> SqlResult<()> {
        match done {
            Applied::Done(end) => {
                self.confirmed = end;
                self.answer().await
            }
            Applied::Again(group) => {
                self.singly = group.len();
                group.into_iter().rev().for_each(|foreign| self.queue.push_front((foreign, 0)));
                Ok(())
            }
        }
    }

    async fn turn(&mut self, may_read: bool) -> SqlResult<()> {
        if may_read && self.heard.elapsed() > SILENT_MAX {
            let message = format!("the publisher has sent nothing for {} s", SILENT_MAX.as_secs());
            return Err(SqlError::new(holdfast_types::SqlState::CONNECTION_FAILURE, message));
        }
        // A publisher that hears from its subscriber has no need to speak.
        if may_read && self.heard.elapsed() > ASKED_AFTER && !self.asked {
            self.asked = true;
            return self.say(true).await;
        }
        if self.answered.elapsed() >= STATUS_EVERY { self.answer().await } else { Ok(()) }
    }

    /// Says how far this side is. What brought no change counts when nothing before it waits.
    async fn answer(&mut self) -> SqlResult<()> {
        if self.submitted.is_none() && self.queue.is_empty() && self.large.is_none() && self.incoming.is_between() {
            self.confirmed = self.confirmed.max(self.incoming.received);
        }
        self.say(false).await
    }

    async fn say(&mut self, wants_answer: bool) -> SqlResult<()> {
        let confirmed = self.confirmed;
        self.progress.change(|figures| figures.applied = figures.applied.max(confirmed));
        self.answered = Instant::now();
        confirm(&mut self.link, self.confirmed, wants_answer).await
    }
}

/// Confirms everything below `at`.
async fn confirm(link: &mut ReplicationLink, at: u64, wants_answer: bool) -> SqlResult<()> {
    let mut out = Vec::with_capacity(34);
    status_update(&mut out, &Status { written: at, flushed: at, applied: at, wants_answer }, now_us());
    link.send(&out).await.map_err(as_sql)
}

/// Waits for work of this server during which nothing is read. A publisher that hears nothing for `wal_sender_timeout` would end
/// the feed: a commit may wait longer for a standby.
async fn answering<T>(link: &mut ReplicationLink, at: u64, work: impl Future<Output = SqlResult<T>>) -> SqlResult<T> {
    let mut work = std::pin::pin!(work);
    loop {
        match tokio::time::timeout(STATUS_EVERY, &mut work).await {
            Ok(done) => return done,
            Err(_) => confirm(link, at, false).await?,
        }
    }
}

/// Waits for the group that the writer has; indefinitely where it has none.
async fn finished(applier: &mut Applier, submitted: &mut Option<Submitted>, progress: &Progress) -> SqlResult<Applied> {
    let Some(group) = submitted else { return std::future::pending().await };
    let done = applier.finish(group, progress).await;
    *submitted = None;
    done
}
