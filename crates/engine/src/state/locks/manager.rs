//! Locks, their holders and their queues.

use super::deadlock::{self, Edge};
use super::holders::{Holder, HolderId, Holders};
use super::mode::{LockId, LockMode, OwnerId, Target};
use super::released::Behind;
use super::versions::{Versions, id};
use holdfast_store::locking::Touch;
use holdfast_types::{SqlError, SqlState, TableId, TableLockMode, VolumeId};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;

/// Locks released before other owners get a turn.
const RELEASED_AT_ONCE: usize = 4096;

/// One lock: its holders, and the owners that wait for it, in order.
#[derive(Default)]
struct Lock {
    holders: Vec<(OwnerId, LockMode)>,
    queue: VecDeque<Waiter>,
}

struct Waiter {
    owner: OwnerId,
    mode: LockMode,
    granted: oneshot::Sender<()>,
}

/// The state of one owner.
#[derive(Default)]
struct Owner {
    /// In the order in which they were taken.
    held: Vec<(LockId, LockMode)>,
    waits_for: Option<(LockId, LockMode)>,
    /// When that wait began.
    waits_since: Option<Instant>,
    /// The server process number its client knows, for messages; 0 when it has none.
    pid: i32,
    /// A client's session; otherwise a transaction, and a client's previous one may still be ending.
    is_session: bool,
    /// The first part of a transaction over several databases, which the other parts belong to.
    whole: u64,
    behind: Behind,
}

impl Owner {
    fn got(&mut self, id: LockId, mode: LockMode, volumes: &FxHashMap<VolumeId, Versions>) {
        self.held.push((id, mode));
        if let Some(versions) = volumes.get(&id.volume) {
            self.behind.raise(id, versions.before(id.target, mode));
        }
    }
}

#[derive(Default)]
pub(super) struct State {
    locks: FxHashMap<LockId, Lock>,
    owners: FxHashMap<OwnerId, Owner>,
    volumes: FxHashMap<VolumeId, Versions>,
    /// Branches that wait for the end of the writer's current batch.
    for_batch: HashMap<VolumeId, Vec<oneshot::Sender<()>>>,
    /// The holders of snapshots.
    holders: Holders,
    next_owner: u64,
    deadlocks: u64,
    timeouts: u64,
}

/// The locks: see the module's description.
#[derive(Default)]
pub struct LockManager(pub(super) Mutex<State>);

/// Locks taken so far; everything after it can be released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark(usize);

/// The outcome of requesting a lock without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    Granted,
    Blocked,
}

/// The outcome of locking what a change touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    Fresh,
    /// Locked, but changed by this batch after the snapshot.
    Stale(u64),
    Blocked(LockId, LockMode),
    /// Locked, but the owner holds more locks than allowed.
    TooMany,
}

/// The writer may not change it: another transaction holds a lock on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterConflict;

/// A wait for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitInfo {
    /// As `pg_locks` shows it.
    pub mode: &'static str,
    /// What is locked, as messages name it.
    pub on: String,
    pub since: Instant,
    /// The process numbers of those that hold the lock, and of those that wait for it, in their order.
    pub holders: Vec<i32>,
    pub queue: Vec<i32>,
}

/// A place in a queue; dropping it leaves the queue.
pub struct Wait {
    manager: Arc<LockManager>,
    owner: OwnerId,
    /// Completes when the lock is granted.
    pub(crate) granted: oneshot::Receiver<()>,
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.manager.0.lock().leave_queue(self.owner);
    }
}

impl State {
    fn add_owner(&mut self, owner: Owner) -> OwnerId {
        self.next_owner += 1;
        let id = OwnerId(self.next_owner);
        let whole = if owner.whole == 0 { id.0 } else { owner.whole };
        self.owners.insert(id, Owner { whole, ..owner });
        id
    }

    /// What a client waits for: its transaction in one of its databases, or its session for an advisory lock.
    pub(super) fn waits_of(&self, client: OwnerId) -> Vec<(OwnerId, LockId, LockMode)> {
        let Some(of) = self.owners.get(&client) else { return Vec::new() };
        let waits = |(owner, o): (&OwnerId, &Owner)| o.waits_for.map(|(id, mode)| (*owner, id, mode));
        let theirs = |o: &Owner| o.whole == of.whole || (of.pid != 0 && o.pid == of.pid);
        self.owners.iter().filter(|(_, o)| theirs(o)).filter_map(waits).collect()
    }

    /// Whether one owner waits for itself when it waits for the other: parts of one transaction, or a transaction and
    /// its client's session, but not an earlier transaction of that client, which will end shortly.
    pub(super) fn same_client(&self, a: OwnerId, b: OwnerId) -> bool {
        let (Some(one), Some(other)) = (self.owners.get(&a), self.owners.get(&b)) else { return a == b };
        let one_client = one.pid != 0 && one.pid == other.pid && one.is_session != other.is_session;
        one.whole == other.whole || one_client
    }

    /// The owners that must go first before `owner` gets the lock it waits for.
    pub(super) fn blockers(&self, owner: OwnerId, id: LockId, mode: LockMode) -> Vec<OwnerId> {
        let Some(lock) = self.locks.get(&id) else { return Vec::new() };
        let holders = lock.holders.iter().filter(|(o, m)| *o != owner && m.conflicts(mode)).map(|(o, _)| *o);
        let earlier = lock.queue.iter().take_while(|w| w.owner != owner).filter(|w| w.mode.conflicts(mode));
        holders.chain(earlier.map(|w| w.owner)).collect()
    }

    /// Takes the lock if it is free for the owner.
    fn try_lock(&mut self, owner: OwnerId, id: LockId, mode: LockMode) -> Grant {
        let lock = self.locks.entry(id).or_default();
        let mut holds = false;
        for (holder, held) in &lock.holders {
            if *holder == owner {
                if held.covers(mode) {
                    return Grant::Granted;
                }
                holds = true;
            } else if held.conflicts(mode) {
                return Grant::Blocked;
            }
        }
        // An owner that holds it already does not queue behind those that wait for it.
        if !holds && lock.queue.iter().any(|w| w.mode.conflicts(mode)) {
            return Grant::Blocked;
        }
        self.grant(owner, id, mode);
        Grant::Granted
    }

    /// The owner has the lock from now on.
    pub(super) fn grant(&mut self, owner: OwnerId, id: LockId, mode: LockMode) {
        self.locks.entry(id).or_default().holders.push((owner, mode));
        self.owners.entry(owner).or_default().got(id, mode, &self.volumes);
    }

    /// Whether another owner than this one holds it in a mode that conflicts.
    pub(super) fn is_held_against(&self, owner: Option<OwnerId>, id: LockId, mode: LockMode) -> bool {
        let Some(lock) = self.locks.get(&id) else { return false };
        lock.holders.iter().any(|(o, m)| Some(*o) != owner && m.conflicts(mode))
    }

    /// Whether the owner holds this, and nothing else.
    pub(super) fn holds_only(&self, owner: OwnerId, id: LockId, mode: LockMode) -> bool {
        self.owners.get(&owner).is_some_and(|o| o.held == [(id, mode)])
    }

    /// Releases one lock; false if the owner does not hold it.
    pub(super) fn unlock(&mut self, owner: OwnerId, id: LockId, mode: LockMode) -> bool {
        let Some(o) = self.owners.get_mut(&owner) else { return false };
        let Some(at) = o.held.iter().rposition(|h| *h == (id, mode)) else { return false };
        o.held.remove(at);
        self.release(owner, id, mode);
        true
    }

    fn release(&mut self, owner: OwnerId, id: LockId, mode: LockMode) {
        let Some(lock) = self.locks.get_mut(&id) else { return };
        if let Some(at) = lock.holders.iter().position(|h| *h == (owner, mode)) {
            lock.holders.swap_remove(at);
        }
        if let Some(versions) = self.volumes.get_mut(&id.volume) {
            versions.release(id.target, mode);
        }
        self.hand_over(id);
    }

    /// Grants to those in the queue that can have it now, in order.
    fn hand_over(&mut self, id: LockId) {
        let Some(lock) = self.locks.get_mut(&id) else { return };
        let mut waiting: Vec<LockMode> = Vec::new();
        let mut left = VecDeque::new();
        while let Some(w) = lock.queue.pop_front() {
            let free = !lock.holders.iter().any(|(o, m)| *o != w.owner && m.conflicts(w.mode));
            if !free || waiting.iter().any(|m| m.conflicts(w.mode)) {
                waiting.push(w.mode);
                left.push_back(w);
            } else if w.granted.send(()).is_ok() {
                lock.holders.push((w.owner, w.mode));
                let owner = self.owners.entry(w.owner).or_default();
                owner.got(id, w.mode, &self.volumes);
                owner.waits_for = None;
            }
        }
        lock.queue = left;
        if lock.holders.is_empty() && lock.queue.is_empty() {
            self.locks.remove(&id);
        }
    }

    fn leave_queue(&mut self, owner: OwnerId) {
        let Some((id, _)) = self.owners.get_mut(&owner).and_then(|o| o.waits_for.take()) else { return };
        if let Some(lock) = self.locks.get_mut(&id) {
            lock.queue.retain(|w| w.owner != owner);
        }
        self.hand_over(id);
    }

    fn release_to(&mut self, owner: OwnerId, mark: Mark) {
        let Some(held) = self.owners.get_mut(&owner).map(|o| o.held.split_off(mark.0.min(o.held.len()))) else {
            return;
        };
        held.into_iter().rev().for_each(|(id, mode)| self.release(owner, id, mode));
    }

    fn deadlock(&mut self, cycle: &[Edge]) -> SqlError {
        self.deadlocks += 1;
        let pid = |owner: OwnerId| self.owners.get(&owner).map_or(0, |o| o.pid);
        let line = |e: &Edge| {
            let (waiter, blocker) = (pid(e.waiter), pid(e.blocker));
            format!("Process {waiter} waits for {} on {}; blocked by process {blocker}.", e.mode.name(), e.id.shown())
        };
        let detail: Vec<String> = cycle.iter().map(line).collect();
        SqlError::new(SqlState("40P01"), "deadlock detected").with_detail(detail.join("\n"))
    }
}

impl LockManager {
    /// A new owner on behalf of the client that knows itself as process `pid`.
    /// `part_of`: another part of the same transaction.
    pub fn new_owner(&self, pid: i32, part_of: Option<OwnerId>) -> OwnerId {
        let mut s = self.0.lock();
        let whole = part_of.and_then(|other| s.owners.get(&other)).map_or(0, |o| o.whole);
        s.add_owner(Owner { pid, whole, ..Owner::default() })
    }

    /// Registers the session of that client.
    pub fn new_session(&self, pid: i32) -> OwnerId {
        self.0.lock().add_owner(Owner { pid, is_session: true, ..Owner::default() })
    }

    /// The owner is gone: everything it held goes to the owners that wait.
    pub fn end(&self, owner: OwnerId) {
        loop {
            // Other owners get a turn in between: there may be a million locks.
            let mut s = self.0.lock();
            s.leave_queue(owner);
            let held = s.owners.get(&owner).map_or(0, |o| o.held.len());
            s.release_to(owner, Mark(held.saturating_sub(RELEASED_AT_ONCE)));
            if held <= RELEASED_AT_ONCE {
                s.owners.remove(&owner);
                return;
            }
        }
    }

    /// The locks that an owner holds, each once.
    pub fn held(&self, owner: OwnerId) -> Vec<(Target, LockMode)> {
        let s = self.0.lock();
        let mut held: Vec<_> =
            s.owners.get(&owner).map_or(&[][..], |o| &o.held).iter().map(|(id, mode)| (id.target, *mode)).collect();
        held.sort_unstable();
        held.dedup();
        held
    }

    /// Detaches the owner from its client.
    pub fn forget_client(&self, owner: OwnerId) {
        if let Some(o) = self.0.lock().owners.get_mut(&owner) {
            o.pid = 0;
        }
    }

    pub fn mark(&self, owner: OwnerId) -> Mark {
        Mark(self.0.lock().owners.get(&owner).map_or(0, |o| o.held.len()))
    }

    /// Releases what was taken since the mark.
    pub fn release_to(&self, owner: OwnerId, mark: Mark) {
        self.0.lock().release_to(owner, mark);
    }

    pub fn try_lock(&self, owner: OwnerId, id: LockId, mode: LockMode) -> Grant {
        self.0.lock().try_lock(owner, id, mode)
    }

    /// Takes the lock if it is free for the owner, again if the owner holds it: it has to be released as often.
    pub fn lock_once_more(&self, owner: OwnerId, id: LockId, mode: LockMode) -> Grant {
        let mut s = self.0.lock();
        let held = s.owners.get(&owner).is_some_and(|o| o.held.contains(&(id, mode)));
        if !held {
            return s.try_lock(owner, id, mode);
        }
        s.locks.entry(id).or_default().holders.push((owner, mode));
        s.owners.entry(owner).or_default().held.push((id, mode));
        Grant::Granted
    }

    /// The batch that must be visible before the owners answer: the one before them that held one of their locks has published it.
    pub fn behind(&self, volume: VolumeId, owners: impl IntoIterator<Item = OwnerId>) -> u64 {
        let s = self.0.lock();
        let of = owners.into_iter().filter_map(|owner| s.owners.get(&owner));
        of.map(|owner| owner.behind.of(volume)).max().unwrap_or_default()
    }

    /// Gives back everything an owner holds; the owner stays.
    pub fn release_all(&self, owner: OwnerId) {
        self.0.lock().release_to(owner, Mark::default());
    }

    /// Releases one lock; false if the owner does not hold it.
    pub fn unlock(&self, owner: OwnerId, id: LockId, mode: LockMode) -> bool {
        self.0.lock().unlock(owner, id, mode)
    }

    /// Takes the lock, or a place in its queue; 40P01 when that would close a cycle.
    pub fn lock_or_wait(
        self: &Arc<Self>,
        owner: OwnerId,
        id: LockId,
        mode: LockMode,
    ) -> Result<Option<Wait>, SqlError> {
        let mut s = self.0.lock();
        if s.try_lock(owner, id, mode) == Grant::Granted {
            return Ok(None);
        }
        let (sender, granted) = oneshot::channel();
        let waiter = Waiter { owner, mode, granted: sender };
        let Some(lock) = s.locks.get_mut(&id) else { return Ok(None) };
        // An owner that only strengthens what it holds goes first: those in the queue wait for it anyway.
        if lock.holders.iter().any(|(o, _)| *o == owner) {
            lock.queue.push_front(waiter);
        } else {
            lock.queue.push_back(waiter);
        }
        let waiting = s.owners.entry(owner).or_default();
        (waiting.waits_for, waiting.waits_since) = (Some((id, mode)), Some(Instant::now()));
        if let Some(cycle) = deadlock::find(&s, owner) {
            let error = s.deadlock(&cycle);
            s.leave_queue(owner);
            return Err(error);
        }
        Ok(Some(Wait { manager: self.clone(), owner, granted }))
    }

    /// Whether the owner has locked a table so that no other transaction can change or lock its rows.
    pub fn holds_whole(&self, owner: OwnerId, table: LockId) -> bool {
        let s = self.0.lock();
        s.locks.get(&table).is_some_and(|l| l.holders.iter().any(|(o, m)| *o == owner && m.is_whole()))
    }

    /// Locks what a branch that reads `snapshot` is about to change, and compares versions. Rows of the tables in `whole`, which the
    /// owner has locked as a whole, need no lock of their own: a load of a million rows would take as many.
    pub fn lock_touches(
        &self,
        owner: OwnerId,
        volume: VolumeId,
        touches: &[Touch],
        snapshot: u64,
        locks_max: usize,
        whole: &[TableId],
    ) -> Checked {
        let mut s = self.0.lock();
        let mut stale = None;
        for t in touches {
            let lock = id(volume, Target::Row { class: t.class, table: t.table, hash: t.hash });
            let mode = LockMode::Row(t.mode);
            if !whole.contains(&t.table) && s.try_lock(owner, lock, mode) == Grant::Blocked {
                return Checked::Blocked(lock, mode);
            }
            let Some(versions) = s.volumes.get(&volume) else { continue };
            for &class in t.checks {
                let target = Target::Row { class, table: t.table, hash: t.hash };
                stale = stale.max(versions.newer(&target, snapshot));
            }
        }
        if s.owners.get(&owner).is_some_and(|o| o.held.len() > locks_max) {
            return Checked::TooMany;
        }
        stale.map_or(Checked::Fresh, Checked::Stale)
    }

    /// The writer is about to change something, on behalf of `owner` where it merges a branch: refuses where another transaction
    /// holds a lock, and registers the new versions.
    pub fn writer_touches(
        &self,
        owner: Option<OwnerId>,
        volume: VolumeId,
        table: TableId,
        touches: &[Touch],
    ) -> Result<(), WriterConflict> {
        let mut s = self.0.lock();
        let held = |target, mode| s.is_held_against(owner, id(volume, target), mode);
        if held(Target::Table(table), LockMode::Table(TableLockMode::RowExclusive)) {
            return Err(WriterConflict);
        }
        for t in touches {
            let refers = t.table != table;
            if refers && held(Target::Table(t.table), LockMode::Table(TableLockMode::RowShare)) {
                return Err(WriterConflict);
            }
            if held(Target::Row { class: t.class, table: t.table, hash: t.hash }, LockMode::Row(t.mode)) {
                return Err(WriterConflict);
            }
        }
        let versions = s.volumes.entry(volume).or_default();
        for t in touches {
            for &class in t.raises {
                versions.raise(Target::Row { class, table: t.table, hash: t.hash });
            }
        }
        Ok(())
    }

    /// The writer takes over what a transaction has changed on a side copy; the transaction holds the locks.
    pub fn adopt(&self, volume: VolumeId, raised: FxHashSet<Target>) {
        self.0.lock().volumes.entry(volume).or_default().adopt(raised);
    }

    /// Whether a statement of the writer may change this without disturbing a branch.
    pub fn is_free(&self, id: LockId, mode: LockMode) -> bool {
        !self.0.lock().is_held_against(None, id, mode)
    }

    /// Begins the writer's batch `number`. Returns whether the writer has to register its changes.
    pub fn begin_batch(&self, volume: VolumeId, number: u64, visible: u64) -> bool {
        self.0.lock().volumes.entry(volume).or_default().begin_batch(number, visible)
    }

    /// An open transaction has locked a row or a key, or all of a table.
    pub fn has_row_locks(&self, volume: VolumeId) -> bool {
        let locks_rows = |id: &LockId, lock: &Lock| match id.target {
            Target::Row { .. } => true,
            Target::Table(_) => lock.holders.iter().any(|(_, mode)| mode.is_whole()),
            _ => false,
        };
        self.0.lock().locks.iter().any(|(id, lock)| id.volume == volume && locks_rows(id, lock))
    }

    /// Ends the batch: it is published.
    pub fn end_batch(&self, volume: VolumeId) {
        self.after_batch(volume, Versions::end_batch);
    }

    /// Ends the batch: it was rolled back, and what was registered in it is dropped.
    pub fn undo_batch(&self, volume: VolumeId) {
        self.after_batch(volume, Versions::undo_batch);
    }

    fn after_batch(&self, volume: VolumeId, end: impl FnOnce(&mut Versions)) {
        let mut s = self.0.lock();
        if let Some(versions) = s.volumes.get_mut(&volume) {
            end(versions);
        }
        let waiting = s.for_batch.remove(&volume).unwrap_or_default();
        // The receiver is gone when the waiter gave up.
        waiting.into_iter().for_each(|w| w.send(()).unwrap_or_default());
    }

    /// Waits until batch `number`, or the one at which the writer works, is published or rolled back; `None` if that has happened.
    pub fn wait_for_batch(&self, volume: VolumeId, number: Option<u64>) -> Option<oneshot::Receiver<()>> {
        let mut s = self.0.lock();
        if !s.volumes.get(&volume).is_some_and(|v| v.is_working(number)) {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        s.for_batch.entry(volume).or_default().push(sender);
        Some(receiver)
    }

    /// Enters with a snapshot that is taken within the critical section: what is newer than it cannot be forgotten before.
    /// On behalf of the client that knows itself as process `pid`.
    pub fn enter_with(&self, volume: VolumeId, pid: i32, take: impl FnOnce() -> u64) -> (u64, HolderId) {
        let mut s = self.0.lock();
        let number = take();
        s.volumes.entry(volume).or_default().enter(number);
        (number, s.holders.add(Holder { volume, number, pid, since: Instant::now() }))
    }

    /// Ends what [`LockManager::enter_with`] began.
    pub fn leave_as(&self, holder: HolderId, volume: VolumeId, snapshot: u64) {
        let mut s = self.0.lock();
        s.holders.remove(holder);
        if let Some(versions) = s.volumes.get_mut(&volume) {
            versions.leave(snapshot);
        }
    }

    /// The holder that has held a snapshot the longest.
    pub fn oldest_holder(&self) -> Option<Holder> {
        self.0.lock().holders.oldest()
    }

    /// Enters a transaction that works on this snapshot from now on: versions newer than it are kept.
    pub fn enter(&self, volume: VolumeId, snapshot: u64) {
        self.0.lock().volumes.entry(volume).or_default().enter(snapshot);
    }

    pub fn leave(&self, volume: VolumeId, snapshot: u64) {
        if let Some(versions) = self.0.lock().volumes.get_mut(&volume) {
            versions.leave(snapshot);
        }
    }

    /// Versions kept at the moment, of all volumes.
    pub fn versions_kept(&self) -> usize {
        self.0.lock().volumes.values().map(Versions::len).sum()
    }

    /// A transaction has waited for as long as lock_timeout allows.
    pub fn timed_out(&self) {
        self.0.lock().timeouts += 1;
    }

    /// Waits ended by lock_timeout since the start.
    pub fn timeouts(&self) -> u64 {
        self.0.lock().timeouts
    }

    /// Deadlocks found since the start.
    pub fn deadlocks(&self) -> u64 {
        self.0.lock().deadlocks
    }

    /// Shows every wait: whose, for what, and which owners must go first.
    pub(super) fn each_wait(&self, mut show: impl FnMut(i32, LockId, Vec<i32>)) {
        let s = self.0.lock();
        for (id, owner) in &s.owners {
            let Some((lock, mode)) = owner.waits_for else { continue };
            let by = s.blockers(*id, lock, mode).into_iter().filter_map(|b| s.owners.get(&b)).map(|b| b.pid).collect();
            show(owner.pid, lock, by);
        }
    }

    /// What the client with this process number waits for.
    pub fn wait_of(&self, pid: i32) -> Option<WaitInfo> {
        let s = self.0.lock();
        let of_client = s.owners.values().filter(|owner| owner.pid == pid);
        let (id, mode, since) =
            of_client.filter_map(|o| Some((o.waits_for?, o.waits_since?))).map(|((i, m), s)| (i, m, s)).next()?;
        let lock = s.locks.get(&id)?;
        let pid_of = |owner: &OwnerId| s.owners.get(owner).map_or(0, |o| o.pid);
        let holders = lock.holders.iter().map(|(owner, _)| pid_of(owner)).filter(|holder| *holder != pid).collect();
        let queue = lock.queue.iter().map(|waiter| pid_of(&waiter.owner)).collect();
        Some(WaitInfo { mode: mode.name(), on: id.shown(), since, holders, queue })
    }

    /// Lists every lock: its mode, its owner, and whether it is granted.
    pub(super) fn each(&self, mut show: impl FnMut(LockId, LockMode, i32, bool)) {
        for owner in self.0.lock().owners.values() {
            owner.held.iter().for_each(|(id, mode)| show(*id, *mode, owner.pid, true));
            owner.waits_for.iter().for_each(|(id, mode)| show(*id, *mode, owner.pid, false));
        }
    }
}
