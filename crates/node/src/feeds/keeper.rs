//! Writes the positions of slots to their rows, and keeps the trail for them; on a standby only the latter.
//!
//! Failure: what could not be written is tried again at the next turn.

use super::{Feeds, Kept, WRITE_EVERY, feed_name, stored};
use holdfast_engine::{Collect, Database, Report, Step, Submission};
use holdfast_sites::slot::{Slot, UPDATE};
use holdfast_sql::facts;
use holdfast_types::{Level, SqlError, SqlResult, Value, VolumeId};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How often positions are looked at.
const TURN_EVERY: Duration = Duration::from_secs(1);

/// How often the archive is asked whether it still has what slots need of it.
const ARCHIVE_EVERY: Duration = Duration::from_secs(10);

/// Longest wait for a position to be durable: a server that may acknowledge nothing never answers.
const DURABLE_WITHIN: Duration = Duration::from_secs(5);

/// Runs until `stop`; what was not written by then [`Feeds::write_all`] writes.
pub async fn keep(feeds: Arc<Feeds>, mut stop: watch::Receiver<bool>) {
    let first = feeds.clone();
    // It may open databases.
    let opened = tokio::task::spawn_blocking(move || first.open_known()).await;
    opened.unwrap_or_else(|error| tracing::warn!("the replication slots were not looked at: {error}"));
    let turning = async {
        while tokio::time::timeout(TURN_EVERY, stop.wait_for(|stop| *stop)).await.is_err() {
            feeds.turn(false).await;
        }
    };
    tokio::select! {
        () = turning => {}
        () = watch_archive(&feeds) => {}
    }
}

/// Looks again and again whether the archive still has what slots need that the trail has recycled: objects may be removed. An
/// archive that does not answer holds up nothing else.
async fn watch_archive(feeds: &Arc<Feeds>) {
    loop {
        tokio::time::sleep(ARCHIVE_EVERY).await;
        let of = feeds.clone();
        let looked = tokio::task::spawn_blocking(move || of.look_for_slots_in_archive()).await;
        looked.unwrap_or_else(|error| {
            tracing::warn!("the archive was not asked for what replication slots need: {error}")
        });
    }
}

/// The database and the slot that a feed's name stands for.
fn parts_of(feed: &str) -> (Option<VolumeId>, &str) {
    let (volume, slot) = feed.split_once('/').unwrap_or_default();
    (volume.parse().ok().map(VolumeId), slot)
}

impl Feeds {
    /// Looks at the databases for whose slots the trail was kept before this start. A slot that has no row was being created, or
    /// dropped, when the server ended.
    fn open_known(&self) {
        for feed in self.engine.feeds() {
            let (volume, slot) = parts_of(&feed.name);
            let known = volume.map(|volume| self.engine.database_numbered(volume));
            match known {
                Some(Ok(Some(db))) => match self.load(&db) {
                    Ok(()) => {
                        let state = self.state.lock();
                        let has_row = state.loaded.get(&db.volume()).is_some_and(|slots| slots.contains_key(slot));
                        drop(state);
                        if !has_row {
                            self.let_go(db.volume(), slot);
                        }
                    }
                    Err(error) => {
                        tracing::warn!("the replication slots of database {} cannot be read: {error}", db.name());
                    }
                },
                // It was dropped.
                Some(Ok(None)) | None => drop(self.engine.release_feed(&feed.name)),
                Some(Err(error)) => tracing::warn!("a database with replication slots cannot be opened: {error}"),
            }
        }
    }

    /// Writes all positions, for a clean stop. Called while standbys still follow: what a stop writes behind them would be cut off
    /// when the server returns as a standby.
    pub async fn write_all(&self) {
        if self.engine.has_right() && !self.engine.is_standby() {
            self.turn(true).await;
        }
    }

    async fn turn(&self, all: bool) {
        let databases = self.engine.databases();
        for feed in self.engine.feeds() {
            let (volume, slot) = parts_of(&feed.name);
            if let Some(gone) = volume.filter(|volume| databases.iter().all(|database| database.volume != *volume)) {
                self.state.lock().loaded.remove(&gone);
                self.let_go(gone, slot);
            }
        }
        for db in self.engine.opened() {
            let done = match self.engine.is_standby() {
                true => self.follow(&db),
                false => self.write_positions(&db, all).await,
            };
            if let Err(error) = done {
                tracing::warn!("the replication slots of database {} cannot be kept: {error}", db.name());
            }
        }
    }

    fn look_for_slots_in_archive(&self) {
        let (trail, first) = (self.trail(), self.engine.trail().first());
        let needs = |slot: &Slot| slot.trail == trail && slot.restart.boxcar < first;
        let slots: Vec<(VolumeId, Slot)> = {
            let state = self.state.lock();
            let all = state.loaded.iter().flat_map(|(volume, slots)| slots.values().map(|kept| (*volume, &kept.slot)));
            all.filter(|(_, slot)| needs(slot)).map(|(volume, slot)| (volume, slot.clone())).collect()
        };
        for (volume, slot) in slots {
            // What cannot be asked now is asked again. The archiver reports an archive that does not answer.
            if let Err(error) = self.look_in_archive(volume, &slot) {
                return tracing::debug!("{error}");
            }
        }
    }

    /// A standby's slots are what its rows say.
    fn follow(&self, db: &Database) -> SqlResult<()> {
        let slots = stored(db)?;
        let of_database = format!("{}/", db.volume().0);
        for feed in self.engine.feeds().iter().filter(|feed| feed.name.starts_with(&of_database)) {
            if !slots.iter().any(|slot| feed_name(db.volume(), &slot.name) == feed.name) {
                self.let_go(db.volume(), &feed.name[of_database.len()..]);
            }
        }
        slots.iter().try_for_each(|slot| self.hold(db.volume(), slot))?;
        let mut state = self.state.lock();
        let before = state.loaded.remove(&db.volume()).unwrap_or_default();
        let is_missing = |slot: &Slot| before.get(&slot.name).is_some_and(|kept| kept.is_missing);
        let known = |slot: Slot| (slot.name.clone(), Kept { is_missing: is_missing(&slot), ..Kept::new(slot) });
        state.loaded.insert(db.volume(), slots.into_iter().map(known).collect());
        Ok(())
    }

    /// Keeps the trail from where a slot's row says that reading begins.
    pub(super) fn hold(&self, volume: VolumeId, slot: &Slot) -> SqlResult<()> {
        if slot.restart.boxcar < self.engine.trail().first() || slot.trail != self.trail() {
            return Ok(());
        }
        self.engine.hold_feed(&feed_name(volume, &slot.name), slot.restart.boxcar).map_err(super::unwritten)
    }

    async fn write_positions(&self, db: &Database, all: bool) -> SqlResult<()> {
        self.load(db)?;
        let segment = |slot: &Slot| self.engine.trail().segment_of(slot.restart.boxcar);
        let due: Vec<Slot> = {
            let state = self.state.lock();
            let slots = state.loaded.get(&db.volume()).into_iter().flat_map(|slots| slots.values());
            let is_due = |slot: &Slot, written: &Slot, since: Instant| {
                slot != written && (all || segment(slot) != segment(written) || since.elapsed() >= WRITE_EVERY)
            };
            slots.filter(|k| is_due(&k.slot, &k.written, k.written_at)).map(|k| k.slot.clone()).collect()
        };
        for slot in due {
            self.write_position(db, &slot).await?;
            self.hold(db.volume(), &slot)?;
            let mut state = self.state.lock();
            if let Some(kept) = state.loaded.get_mut(&db.volume()).and_then(|slots| slots.get_mut(&slot.name)) {
                (kept.written, kept.written_at) = (slot, Instant::now());
            }
        }
        Ok(())
    }

    async fn write_position(&self, db: &Database, slot: &Slot) -> SqlResult<()> {
        let written =
            tokio::time::timeout(DURABLE_WITHIN, self.write(db, UPDATE, slot.positions(), Level::Local)).await;
        written.map_err(|_| SqlError::internal("it is not durable yet"))?
    }

    /// Changes a row of the table of slots, as a transaction of the server's own; returns when it has reached its level.
    pub async fn write(&self, db: &Database, sql: &str, params: Vec<Value>, level: Level) -> SqlResult<()> {
        let stmt = db.prepare(
            sql,
            Report { verb: "UPDATE", counts: true, internal: true, facts: facts(sql), ..Report::default() },
        )?;
        let submission = Submission::new(vec![Step { stmt, params }], Box::new(Collect::new()));
        let done = db.submit(Submission { level, ..submission })?.await;
        done.ok_or_else(|| SqlError::internal("the server is stopping"))?.result
    }
}
