//! A standby: its trail is its master's, and a thread of applying puts that on its volumes.
//!
//! | the boxcar | is |
//! |---|---|
//! | received, durable here | in the trail; acknowledged to the master |
//! | known to be durable at the master (the one behind it has come, or the master has said so) | applied |
//! | applied | what readers see |
//!
//! Readers work on snapshots of the page store: however long one lasts, applying goes on. Whatever would change something
//! is refused with 25006. Checkpoints bring the files up to what was applied; they are noted in the file `checkpoints`,
//! as the trail's own records are the master's.
//!
//! Failure: a boxcar that cannot be applied ends the applying, not the receiving, and not the readers, who stay where
//! they are; [`Engine::apply_failure`] says why. A restart begins again where the files are.

mod apply;
mod catalogue;

use super::*;
use crate::local::LocalCheckpoint;
use crate::recovery::{LastBoxcar, Survey};
use apply::Apply;
use holdfast_store::schema_map::{SchemaError, TableMap, read_map};
use holdfast_store::schema_read::read_schema;
use holdfast_trail::{ReceiveError, Shipped};
use parking_lot::Condvar;
use std::collections::VecDeque;

/// Called when more has been applied, with where; it must not block.
pub type OnApplied = Arc<dyn Fn(Lsn) + Send + Sync>;

/// What a standby has beside a master.
#[derive(Default)]
pub struct Follow {
    state: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    /// Everything below is durable at the master.
    allowed: Lsn,
    /// Everything below is applied and seen by readers.
    applied: Lsn,
    /// Readers are let in from here on: before, the volumes may show different moments. The trail's last boxcar begins here,
    /// unless a base copy ends later: whether that one is durable at the master is known from the master only. Readers may
    /// have seen it before the restart, and see it again as soon as the master is back.
    whole_from: Lsn,
    /// Each volume's last boxcar in the trail when it was opened.
    last: BTreeMap<VolumeId, LastBoxcar>,
    /// Boxcar numbers that were published, and where they end in the trail, since each volume's last checkpoint.
    ends: BTreeMap<VolumeId, VecDeque<(u64, Lsn)>>,
    stop: bool,
    failure: Option<String>,
    on_applied: Option<OnApplied>,
    /// The file `checkpoints` could not be written: the trail keeps what it has.
    unwritten: bool,
}

impl Follow {
    /// Waits until there is something to apply behind `position`; returns up to where. `None`: the end.
    fn wait(&self, shared: &Shared, position: Lsn) -> Option<Lsn> {
        let mut state = self.state.lock();
        loop {
            let until = state.allowed.min(shared.trail.durable());
            if state.stop {
                return None;
            }
            if until > position {
                return Some(until);
            }
            self.changed.wait(&mut state);
        }
    }

    fn stops(&self) -> bool {
        self.state.lock().stop
    }

    fn allow(&self, lsn: Lsn) {
        let mut state = self.state.lock();
        state.allowed = lsn.max(state.allowed);
        drop(state);
        self.changed.notify_all();
    }

    fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }

    fn applied_to(&self, lsn: Lsn) {
        let mut state = self.state.lock();
        if lsn <= state.applied {
            return;
        }
        state.applied = lsn;
        let tell = state.on_applied.clone();
        drop(state);
        self.changed.notify_all();
        if let Some(tell) = tell {
            tell(lsn);
        }
    }

    /// Boxcar `number` of a volume was published; it ends at `end`.
    fn published(&self, id: VolumeId, number: u64, end: Lsn) {
        self.state.lock().ends.entry(id).or_default().push_back((number, end));
    }

    /// Where the boxcar ends that a file stands at, or, for one that was there before this start, a place behind that end
    /// up to which the master cannot have lost anything. 0: in front of the trail.
    fn end_of(&self, id: VolumeId, number: u64) -> Lsn {
        let mut state = self.state.lock();
        let mut end = found_end(&state.last, id, number);
        if let Some(ends) = state.ends.get_mut(&id) {
            while let Some((n, lsn)) = ends.front().copied().filter(|(n, _)| *n <= number) {
                end = lsn;
                // The last one stays: the next checkpoint may find nothing newer.
                if n == number || ends.get(1).is_none_or(|(next, _)| *next > number) {
                    break;
                }
                ends.pop_front();
            }
        }
        end
    }

    /// 57P03 while the volumes do not show one moment.
    pub(super) fn refuse_before_whole(&self) -> SqlResult<()> {
        let state = self.state.lock();
        if state.applied >= state.whole_from {
            return Ok(());
        }
        let message = match &state.failure {
            Some(why) => format!("the standby cannot apply what it has received: {why}"),
            None => "the database system is starting up".to_owned(),
        };
        Err(SqlError::new(SqlState::CANNOT_CONNECT_NOW, message)
            .with_detail(format!("Applied up to LSN {}, readers are let in at {}.", state.applied, state.whole_from)))
    }

    /// Why the trail must keep everything: the standby's own checkpoints are not noted.
    pub fn is_unwritten(&self) -> bool {
        self.state.lock().unwritten
    }
}

/// See [`Follow::end_of`]: by the last boxcars of the trail as it was found.
fn found_end(last: &BTreeMap<VolumeId, LastBoxcar>, id: VolumeId, number: u64) -> Lsn {
    match last.get(&id) {
        Some(last) if number >= last.number => last.end,
        // What stands before a boxcar was durable at the master before that one was written.
        Some(last) if number > 0 => last.start,
        _ => Lsn(0),
    }
}

impl Shared {
    /// Refuses what would change something on a standby.
    pub fn refuse_on_standby(&self, what: &str) -> SqlResult<()> {
        if self.follow.is_none() {
            return Ok(());
        }
        let message = format!("cannot execute {what} in a read-only transaction");
        Err(SqlError::new(SqlState::READ_ONLY_SQL_TRANSACTION, message)
            .with_hint("This server is a standby; send changes to its master."))
    }

    /// Notes checkpoints of a standby's own volumes in its file.
    pub fn list_locally(&self, follow: &Follow, checkpoints: &[Checkpoint]) {
        let mut local = self.local.lock();
        let Some(local) = local.as_mut() else { return };
        for checkpoint in checkpoints {
            let of_copy = local.volumes.get(&checkpoint.volume).filter(|v| v.end == Lsn(0));
            let end = match of_copy {
                // Still the base copy's file, perhaps ahead of the trail.
                Some(copied) if copied.checkpoint.number == checkpoint.number => Lsn(0),
                _ => follow.end_of(checkpoint.volume, checkpoint.number),
            };
            local.volumes.insert(checkpoint.volume, LocalCheckpoint { checkpoint: *checkpoint, end });
        }
        // All that the thread of applying has gone through, so that a restart need not look at it again.
        local.listed_to = local.listed_to.max(self.redo.told());
        let written = local.write(&*self.options.disk, &self.dir);
        follow.state.lock().unwritten = written.is_err();
        match written {
            Ok(()) => {
                let mut state = self.state.lock();
                checkpoints.iter().for_each(|c| _ = state.checkpoints.insert(c.volume, (*c, Lsn(u64::MAX))));
            }
            Err(e) => {
                tracing::error!(target: "holdfast::apply", "the checkpoints of this standby cannot be noted, its trail keeps everything: {e}")
            }
        }
    }
}

impl Engine {
    pub fn is_standby(&self) -> bool {
        self.0.shared.follow.is_some()
    }

    /// Takes boxcars of the master in; blocks until they are durable here. All but the last are then known to be durable
    /// at the master. Only on a standby.
    pub fn receive(&self, boxcars: &[Shipped]) -> Result<(), ReceiveError> {
        let shared = &self.0.shared;
        shared.trail.receive(boxcars)?;
        if let (Some(follow), Some(last)) = (&shared.follow, boxcars.last()) {
            follow.allow(last.lsn);
        }
        Ok(())
    }

    /// The master says that everything below is durable there. Only on a standby.
    pub fn allow_apply(&self, lsn: Lsn) {
        self.0.shared.follow.iter().for_each(|follow| follow.allow(lsn));
    }

    /// Everything below is applied, and seen by whoever begins to read now. On a master: is durable.
    pub fn applied(&self) -> Lsn {
        let shared = &self.0.shared;
        shared.follow.as_ref().map_or_else(|| shared.trail.durable(), |follow| follow.state.lock().applied)
    }

    /// Everything below is in this node's databases, or may be seen by its readers: a trail that is cut back below cannot
    /// be followed on from. More than [`Engine::applied`] after a restart, when applying begins where the oldest file is.
    pub fn settled(&self) -> Lsn {
        let shared = &self.0.shared;
        let Some(follow) = &shared.follow else { return shared.trail.durable() };
        let (listed_to, in_files) =
            shared.local.lock().as_ref().map_or((Lsn(0), Lsn(0)), |local| (local.listed_to, local.files_end()));
        let end = shared.trail.durable();
        let state = follow.state.lock();
        // A base copy that is not whole is settled by what it was taken at; a list may be ahead of the trail only there.
        let copied = state.whole_from > end;
        let whole = if copied { Lsn(0) } else { state.whole_from.max(listed_to) };
        state.applied.max(state.allowed.min(end)).max(whole).max(in_files)
    }

    /// Sets who is told when more has been applied. Only on a standby.
    pub fn on_applied(&self, tell: OnApplied) {
        self.0.shared.follow.iter().for_each(|follow| follow.state.lock().on_applied = Some(tell.clone()));
    }

    /// Waits until everything below `lsn` is applied. False: the time is up, or applying has ended.
    pub fn wait_applied(&self, lsn: Lsn, timeout: std::time::Duration) -> bool {
        let Some(follow) = &self.0.shared.follow else { return true };
        let until = std::time::Instant::now() + timeout;
        let mut state = follow.state.lock();
        while state.applied < lsn && state.failure.is_none() && !state.stop {
            if follow.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        state.applied >= lsn
    }

    /// Why nothing more is applied.
    pub fn apply_failure(&self) -> Option<String> {
        self.0.shared.follow.as_ref().and_then(|follow| follow.state.lock().failure.clone())
    }

    /// The start of a standby: learns where its files are and begins to apply from there.
    pub(super) fn begin_to_follow(&self) -> Result<(), OpenError> {
        let shared = &self.0.shared;
        let Some(follow) = &shared.follow else { return Ok(()) };
        let (first, end) = (self.0.recovered.first, self.0.recovered.end);
        let local = shared.local.lock().clone();
        if let Some(local) = &local {
            local.refuse_ahead(&shared.dir, end)?;
        }
        let manifest = shared.state.lock().manifest.clone();
        let found = recovery::survey(&shared.trail, first, &manifest, local.as_ref())?;
        *shared.clock.lock() = found.clock;
        shared.state.lock().checkpoints = found.checkpoints.clone();
        let starts: BTreeMap<VolumeId, Lsn> =
            manifest.databases.iter().map(|e| (e.volume(), found.start_to_follow(e.volume()).unwrap_or(end))).collect();
        let listed_to = local.as_ref().map_or(first, |local| local.listed_to.max(first));
        let from = starts.values().copied().chain([end, listed_to]).min().unwrap_or(end);
        follow.state.lock().last = found.last.clone();
        shared.redo.tell(from);
        if local.as_ref().is_none_or(|local| !local.is_standby()) {
            self.stop_being_master(&manifest, &found)?;
        }
        self.look_at_changed_files(&manifest)?;
        // What is in a file was durable at the master, or the file would not have it; and readers have seen it.
        let in_files = shared.local.lock().as_ref().map_or(Lsn(0), Local::files_end);
        {
            let mut state = follow.state.lock();
            state.applied = from;
            state.allowed = found.last_boxcar.max(in_files);
            let whole_from = local.as_ref().map_or(Lsn(0), |local| local.whole_from);
            state.whole_from = whole_from.max(found.last_boxcar.min(end)).max(in_files);
        }
        let apply = Apply::new(shared.clone(), from, starts, found.ended())?;
        let thread = std::thread::Builder::new().name("apply".into()).spawn(move || apply.run());
        let io = |source| OpenError::Io { what: "start a thread for", path: shared.dir.display().to_string(), source };
        self.0.threads.lock().push(thread.map_err(io)?);
        Ok(())
    }

    /// A master that becomes a standby: from now on its own checkpoints stand in the file. Every file is opened, because
    /// one that is ahead of the trail, which may have been cut back, would not be noticed later.
    fn stop_being_master(&self, manifest: &Manifest, found: &Survey) -> Result<(), OpenError> {
        let shared = &self.0.shared;
        let listed = |(id, (checkpoint, _)): (&VolumeId, &(Checkpoint, Lsn))| {
            let end = found_end(&found.last, *id, checkpoint.number);
            (*id, LocalCheckpoint { checkpoint: *checkpoint, end })
        };
        let volumes = found.checkpoints.iter().map(listed).collect();
        *shared.local.lock() = Some(Local { volumes, ..Local::default() });
        for entry in &manifest.databases {
            open_volume(shared, entry)?;
        }
        let mut local = shared.local.lock();
        let written = local.as_mut().map_or(Ok(()), |local| local.write(&*shared.options.disk, &shared.dir));
        let path = crate::local::path(&shared.dir).display().to_string();
        written.map_err(|source| OpenError::Io { what: "write", path, source })
    }

    /// The promotion of a standby's directory; nothing on one that was a master's already.
    pub(super) fn take_over(&self) -> Result<(), OpenError> {
        let shared = &self.0.shared;
        let end = self.0.recovered.end;
        let Some(listed_to) = shared.local.lock().as_ref().filter(|l| l.is_standby()).map(|l| l.listed_to) else {
            return Ok(());
        };
        catalogue::catch_up(shared, listed_to.max(self.0.recovered.first))?;
        let mut local = shared.local.lock();
        let Some(local) = local.as_mut() else { return Ok(()) };
        local.own_from = Some(end);
        let path = crate::local::path(&shared.dir).display().to_string();
        let written = local.write(&*shared.options.disk, &shared.dir);
        written.map_err(|source| OpenError::Io { what: "write", path, source })
    }

    /// Ends the thread of applying, when the engine is closed.
    pub(super) fn stop_following(shared: &Shared) {
        shared.follow.iter().for_each(Follow::stop);
    }
}

/// Opens a volume of a standby for readers; somebody holds the lock of the lifecycle.
pub(super) fn open_volume(shared: &Arc<Shared>, entry: &Entry) -> Result<Arc<Inner>, OpenError> {
    if let Some(open) = shared.state.lock().open.get(&entry.volume()) {
        return Ok(open.inner.clone());
    }
    let last = shared.follow.as_ref().and_then(|f| f.state.lock().last.get(&entry.volume()).map(|last| last.number));
    let redone = recovery::open_clean(shared, entry, last)?;
    shared.list_again(&redone);
    let number = redone.volume.store().durable();
    let (name, dialect) = (entry.name.clone(), entry.dialect.into());
    let inner = Inner::new(entry.volume(), name, dialect, shared.clone(), redone.volume, Schema::default());
    let (map, schema) = read_published(&inner)?;
    *inner.schema.write() = schema;
    inner.publish_map(map, number);
    let mut state = shared.state.lock();
    if state.closed {
        return Err(SqlError::new(SqlState::ADMIN_SHUTDOWN, "the server is stopping").into());
    }
    state.open.insert(entry.volume(), Open { inner: inner.clone(), main: None });
    Ok(inner)
}

/// Tables and schema of the newest published snapshot. Not on the connection that applies images (RULE 19).
fn read_published(inner: &Arc<Inner>) -> Result<(Arc<TableMap>, Arc<Schema>), OpenError> {
    let volume = inner.volume();
    let (snapshot, _) = volume.store().acquire_newest();
    let read = || {
        let mut conn = volume.open_branch()?;
        conn.choose_snapshot(snapshot);
        inner.register(&mut conn)?;
        let schema = |source: SchemaError| OpenError::Schema { name: inner.name.clone(), source };
        let map = read_map(&mut conn).map_err(schema)?;
        let sqlite = |source| OpenError::Sqlite { name: inner.name.clone(), source };
        let schema = read_schema(&mut conn, &map).map_err(sqlite)?;
        Ok((Arc::new(map), Arc::new(schema)))
    };
    let published = read();
    volume.store().release(snapshot);
    published
}
