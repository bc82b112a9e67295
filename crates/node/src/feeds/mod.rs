//! Logical replication slots and the feeds that read them.
//!
//! A slot is a row of its database's internal table ([`holdfast_sites::slot`]). Its positions are kept in memory while the server
//! runs, and written when they let the trail recycle a segment, at most every [`WRITE_EVERY`] otherwise, and at a clean stop: a
//! row for each status update would make an idle subscriber and the server answer each other without end. What is in the row
//! decides what the trail keeps, because a crash goes back to it.
//!
//! | slot | then |
//! |---|---|
//! | a session reads it | other sessions are refused it, 55006 |
//! | of another trail, because the server was restored | invalid, 55000 |
//! | begins in front of what the trail still has, and the archive has the rest | is read from there ([`boxcars`]) |
//! | begins in front of what trail and archive have | lost, 55000 |
//! | its subscriber has what a promotion has taken back | its position is refused, 55000 ([`epoch`]) |
//!
//! The trail is kept for a slot up to `slot_keep_bytes_max`. Where there is an archive, it has what is then recycled: the trail
//! recycles nothing that the archive lacks. Only the removal of objects loses a slot then; [`keeper`] looks for that.
//!
//! A standby keeps the trail for the slots that its databases have, so that it can be promoted.
//!
//! Failure: a position that cannot be written is logged, and written later; the subscriber is then sent again what it has.

mod archived;
mod boxcars;
mod epoch;
mod keeper;
mod reader;
mod types;

pub use archived::Archive;
pub use keeper::keep;
pub use reader::{Chunk, Reached, Reading, read};

use holdfast_changes::Position;
use holdfast_engine::{Database, Engine};
use holdfast_sites::slot::{SELECT, Slot};
use holdfast_sql::catalogue::WalStatus;
use holdfast_standby::Hub;
use holdfast_types::{Epoch, Lsn, SqlError, SqlResult, SqlState, VolumeId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Slots of a server.
pub const SLOTS_MAX: usize = 100;

/// Longest time that a position stays in memory only.
pub const WRITE_EVERY: Duration = Duration::from_secs(10);

/// See the module.
pub struct Feeds {
    engine: Engine,
    hub: Arc<Hub>,
    /// Commits are to wait for standbys: the operator has named some, or a group agrees on them.
    waits_for_standbys: bool,
    archive: Option<Archive>,
    state: Mutex<State>,
}

/// The slots of the databases that were looked at, by database and name.
#[derive(Default)]
struct State {
    loaded: BTreeMap<VolumeId, BTreeMap<String, Kept>>,
    /// Slots whose rows are being written.
    creating: BTreeSet<(VolumeId, String)>,
    /// Databases in which the commit of a slot's row failed: it may be there all the same.
    unsure: BTreeSet<VolumeId>,
}

/// A slot.
struct Kept {
    slot: Slot,
    /// As its row is, and since when.
    written: Slot,
    written_at: Instant,
    reader: Option<Subscriber>,
    /// The archive lacked what the slot needs when it was last looked at.
    is_missing: bool,
}

/// The session that reads a slot, for the views.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscriber {
    pub pid: i32,
    /// Everything before was sent to it.
    pub sent: u64,
    /// What it has said last.
    pub status: holdfast_sites::link::Status,
    pub answered_us: i64,
}

/// A slot as the views show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotReport {
    pub volume: VolumeId,
    pub slot: Slot,
    pub reader: Option<Subscriber>,
    pub wal_status: WalStatus,
}

/// A session's hold of a slot; dropping it lets the slot go.
pub struct Reader {
    feeds: Arc<Feeds>,
    volume: VolumeId,
    name: String,
}

/// A slot whose row is being written; where that fails, nothing is kept for it.
pub struct Creation {
    feeds: Arc<Feeds>,
    volume: VolumeId,
    slot: Slot,
    is_done: bool,
}

impl Creation {
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    /// The row is committed. The subscriber begins at `begin`, which is not in front of where the slot begins.
    pub fn done(mut self, begin: Lsn) {
        self.is_done = true;
        let mut kept = Kept::new(self.slot.clone());
        kept.slot.confirmed = kept.slot.confirmed.max(Position { boxcar: begin, offset: 0 });
        self.feeds.state.lock().loaded.entry(self.volume).or_default().insert(self.slot.name.clone(), kept);
    }
}

impl Drop for Creation {
    fn drop(&mut self) {
        if !self.is_done {
            self.feeds.let_go(self.volume, &self.slot.name);
        }
        let mut state = self.feeds.state.lock();
        state.creating.remove(&(self.volume, self.slot.name.clone()));
        if !self.is_done {
            state.unsure.insert(self.volume);
        }
    }
}

/// Under which name the engine keeps the trail for a slot.
fn feed_name(volume: VolumeId, slot: &str) -> String {
    format!("{}/{slot}", volume.0)
}

impl Feeds {
    pub fn new(engine: Engine, hub: Arc<Hub>, waits_for_standbys: bool, archive: Option<Archive>) -> Arc<Feeds> {
        Arc::new(Feeds { engine, hub, waits_for_standbys, archive, state: Mutex::default() })
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The end of what may be sent: everything below is durable here, on the mirror and on the standbys of the sync set, so that
    /// no promotion loses what a subscriber has. Nothing is sent while this server may not answer.
    pub fn limit(&self) -> Lsn {
        if !self.engine.has_right() {
            return Lsn(0);
        }
        let shown = self.engine.shown();
        let waits = self.waits_for_standbys || self.hub.is_in_sync();
        if waits { shown.min(self.engine.reached_hot()) } else { shown }
    }

    /// The id of this server's trail, as slots have it.
    pub fn trail(&self) -> String {
        self.engine.trail().trail_id().0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads the slots of a database, unless they are known.
    fn load(&self, db: &Database) -> SqlResult<()> {
        {
            let mut state = self.state.lock();
            if !state.unsure.remove(&db.volume()) && state.loaded.contains_key(&db.volume()) {
                return Ok(());
            }
        }
        let slots = stored(db)?;
        // This server may have become the master, or got the row, without having kept the trail for it.
        slots.iter().try_for_each(|slot| self.hold(db.volume(), slot))?;
        let mut state = self.state.lock();
        let of_database = state.loaded.entry(db.volume()).or_default();
        for slot in slots {
            of_database.entry(slot.name.clone()).or_insert_with(|| Kept::new(slot));
        }
        Ok(())
    }

    /// Begins to keep the trail for a new slot. It exists when its row is committed: see [`Creation::done`].
    pub fn begin_slot(self: &Arc<Self>, db: &Database, name: &str, plugin: &str) -> SqlResult<Creation> {
        self.load(db)?;
        {
            let mut state = self.state.lock();
            let exists = state.loaded.get(&db.volume()).is_some_and(|slots| slots.contains_key(name));
            if exists || state.creating.contains(&(db.volume(), name.to_owned())) {
                let message = format!("replication slot \"{name}\" already exists");
                return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
            }
            if state.loaded.values().map(BTreeMap::len).sum::<usize>() + state.creating.len() >= SLOTS_MAX {
                return Err(SqlError::new(SqlState("53400"), "all replication slots are in use")
                    .with_hint(format!("Drop one of the {SLOTS_MAX} that pg_replication_slots lists.")));
            }
            state.creating.insert((db.volume(), name.to_owned()));
        }
        let (name, plugin, trail) = (name.to_owned(), plugin.to_owned(), self.trail());
        let (confirmed, restart) = (Position::default(), Position::default());
        let epoch = self.engine.trail().epoch();
        let slot = Slot { name, plugin, trail, confirmed, restart, epoch };
        let mut creation = Creation { feeds: self.clone(), volume: db.volume(), slot, is_done: false };
        let begun = self.engine.begin_feed(&feed_name(db.volume(), &creation.slot.name)).map_err(unwritten)?;
        let position = |boxcar| Position { boxcar, offset: 0 };
        (creation.slot.restart, creation.slot.confirmed) = (position(begun.0), position(begun.1));
        Ok(creation)
    }

    /// A slot's row is gone.
    pub fn dropped(&self, db: &Database, name: &str) {
        self.state.lock().loaded.entry(db.volume()).or_default().remove(name);
        self.let_go(db.volume(), name);
    }

    /// Refuses to drop a database while a session has one of its slots, as PostgreSQL does. Slots that no session has go with it.
    pub fn refuse_to_drop(&self, database: &str) -> SqlResult<()> {
        let volume = self.engine.databases().into_iter().find(|known| known.name == database).map(|known| known.volume);
        let count = {
            let state = self.state.lock();
            let slots = volume.and_then(|volume| state.loaded.get(&volume));
            slots.map_or(0, |slots| slots.values().filter(|kept| kept.reader.is_some()).count())
        };
        let detail = match count {
            0 => return Ok(()),
            1 => "There is 1 active slot.".to_owned(),
            count => format!("There are {count} active slots."),
        };
        let message = format!("database \"{database}\" is used by an active logical replication slot");
        Err(SqlError::new(SqlState::OBJECT_IN_USE, message)
            .with_detail(detail)
            .with_hint("pg_replication_slots lists the slots. End their subscribers first."))
    }

    fn let_go(&self, volume: VolumeId, name: &str) {
        if let Err(error) = self.engine.release_feed(&feed_name(volume, name)) {
            tracing::warn!("the list of feeds cannot be written: {error}");
        }
    }

    /// Takes a slot for a session, which reads it or drops it.
    pub fn take(self: &Arc<Self>, db: &Database, name: &str, pid: i32) -> SqlResult<(Reader, Slot)> {
        self.load(db)?;
        let mut state = self.state.lock();
        let kept = state.free(db.volume(), name)?;
        let sent = kept.slot.confirmed.lsn().0;
        kept.reader = Some(Subscriber { pid, sent, status: Default::default(), answered_us: 0 });
        let reader = Reader { feeds: self.clone(), volume: db.volume(), name: name.to_owned() };
        Ok((reader, kept.slot.clone()))
    }

    /// Refuses a slot that can no longer be read; keeps the trail for any other one.
    pub fn check_readable(&self, db: &Database, slot: &Slot) -> SqlResult<()> {
        self.hold(db.volume(), slot)?;
        let (restart, first) = (slot.restart.boxcar, self.engine.trail().first());
        let why = if slot.trail != self.trail() {
            "It belongs to the trail of another server, or of this one before it was restored.".to_owned()
        } else if restart >= first || (self.archive.is_some() && self.look_in_archive(db.volume(), slot)?) {
            return Ok(());
        } else {
            format!("It needs the trail from LSN {restart} on; {}", lacking(first, self.archive.is_some()))
        };
        let message = format!("can no longer get changes from replication slot \"{}\"", slot.name);
        Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            .with_detail(why)
            .with_hint("Drop the slot, create it again, and copy the tables again."))
    }

    /// Whether the archive has what a slot needs that the trail has recycled; noted for the views.
    fn look_in_archive(&self, volume: VolumeId, slot: &Slot) -> SqlResult<bool> {
        let Some(archive) = &self.archive else { return Ok(false) };
        let (restart, first) = (slot.restart.boxcar, self.engine.trail().first());
        let is_missing = restart < first && !archive.has(restart)?;
        let was_missing = {
            let mut state = self.state.lock();
            let kept = state.loaded.get_mut(&volume).and_then(|slots| slots.get_mut(&slot.name));
            kept.is_some_and(|kept| std::mem::replace(&mut kept.is_missing, is_missing))
        };
        if is_missing && !was_missing {
            tracing::error!(
                slot = slot.name,
                "replication slot {} is lost: it needs the trail from LSN {restart} on; {}",
                slot.name,
                lacking(first, true)
            );
        }
        Ok(!is_missing)
    }

    fn wal_status(&self, kept: &Kept, trail: &str, first: Lsn) -> WalStatus {
        match (&kept.slot, &self.archive) {
            (slot, _) if slot.trail != trail => WalStatus::Lost,
            (slot, _) if slot.restart.boxcar >= first => WalStatus::Reserved,
            (_, Some(_)) if !kept.is_missing => WalStatus::Extended,
            _ => WalStatus::Lost,
        }
    }

    /// All slots of the databases that are known.
    pub fn report(&self) -> Vec<SlotReport> {
        let (trail, first) = (self.trail(), self.engine.trail().first());
        let state = self.state.lock();
        let all = state.loaded.iter().flat_map(|(volume, slots)| slots.values().map(move |kept| (*volume, kept)));
        all.map(|(volume, kept)| SlotReport {
            volume,
            slot: kept.slot.clone(),
            reader: kept.reader.clone(),
            wal_status: self.wal_status(kept, &trail, first),
        })
        .collect()
    }
}

/// What is not there of what a slot needs, as the end of a sentence.
fn lacking(first: Lsn, is_archived: bool) -> String {
    let archive = "the archive lacks a segment before that. If objects were moved out of the archive, put them back";
    match is_archived {
        true => format!("the trail begins at LSN {first}, and {archive}."),
        false => format!("the trail begins at LSN {first}."),
    }
}

fn unwritten(error: std::io::Error) -> SqlError {
    SqlError::new(SqlState::IO_ERROR, format!("the replication slot cannot be noted in the data directory: {error}"))
}

/// The slots in the rows of a database.
fn stored(db: &Database) -> SqlResult<Vec<Slot>> {
    let damaged = || SqlError::internal("a row of holdfast_slots cannot be read");
    db.slot_rows(SELECT)?.iter().map(|row| Slot::of(row).ok_or_else(damaged)).collect()
}

impl State {
    fn free(&mut self, volume: VolumeId, name: &str) -> SqlResult<&mut Kept> {
        let found = self.loaded.get_mut(&volume).and_then(|slots| slots.get_mut(name));
        let missing =
            || SqlError::new(SqlState::UNDEFINED_OBJECT, format!("replication slot \"{name}\" does not exist"));
        let kept = found.ok_or_else(missing)?;
        match &kept.reader {
            None => Ok(kept),
            Some(reader) => {
                let message = format!("replication slot \"{name}\" is active for PID {}", reader.pid);
                Err(SqlError::new(SqlState("55006"), message))
            }
        }
    }
}

impl Kept {
    fn new(slot: Slot) -> Kept {
        Kept { written: slot.clone(), slot, written_at: Instant::now(), reader: None, is_missing: false }
    }
}

impl Reader {
    fn with(&self, change: impl FnOnce(&mut Kept)) {
        let mut state = self.feeds.state.lock();
        let kept = state.loaded.get_mut(&self.volume).and_then(|slots| slots.get_mut(&self.name));
        if let Some(kept) = kept {
            change(kept);
        }
    }

    /// The subscriber has everything before `confirmed`; then reading would begin at `restart`. It never goes back.
    pub fn confirm(&self, confirmed: Position, restart: Position) {
        self.with(|kept| {
            if confirmed > kept.slot.confirmed {
                (kept.slot.confirmed, kept.slot.restart) = (confirmed, restart.max(kept.slot.restart));
            }
        });
    }

    /// From now on the subscriber is sent what this epoch has.
    fn enter(&self, epoch: Epoch) {
        self.with(|kept| kept.slot.epoch = epoch);
    }

    /// What the views show of it.
    pub fn show(&self, change: impl FnOnce(&mut Subscriber)) {
        self.with(|kept| {
            if let Some(reader) = &mut kept.reader {
                change(reader);
            }
        });
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.with(|kept| kept.reader = None);
    }
}
