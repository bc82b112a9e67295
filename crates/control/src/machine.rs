//! The state machine behind Raft's log: the record, applied entry by entry, and the file `snapshot`.
//!
//! The record is kept in memory and rebuilt at every start from the snapshot and the log behind it. The snapshot file
//! is one record (see [`crate::frames`]), written beside, synced and renamed. What is applied is published to
//! [`Published`], which never goes back.
//!
//! Failure: a snapshot file that is damaged keeps the node from starting; one that cannot be written stops Raft on this
//! node, before the log that it would replace is purged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_seams::Disk;
use openraft::storage::RaftStateMachine;
use openraft::{AnyError, EntryPayload, OptionalSend, RaftSnapshotBuilder};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::applied::Applied;
use crate::error::ControlError;
use crate::raft::{Entry, LogId, Membership, Snapshot, SnapshotMeta, State, StorageError, StorageIoError, Types};
use crate::record::{Answer, Mastership, RECORD_VERSION, Record, apply};
use crate::voter_feed::VoterFeed;
use crate::{files, frames};

/// The snapshot's file.
pub const NAME: &str = "snapshot";
/// The newest version of the file. Version 2 holds a record of version 2, which earlier releases do not understand.
const FORMAT_VERSION: u16 = 2;

/// The contents of the snapshot file.
#[derive(Clone, Serialize, Deserialize)]
struct Saved {
    version: u16,
    meta: SnapshotMeta,
    record: State,
}

/// The newest record that this node has applied, or was sent in the answer to a proposal: a node that does not reach the leader
/// applies nothing. It only moves forward.
#[derive(Clone)]
pub struct Published(watch::Sender<Option<Arc<Record>>>);

impl Published {
    pub fn new() -> Published {
        Published(watch::Sender::new(None))
    }

    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<Record>>> {
        self.0.subscribe()
    }

    pub fn get(&self) -> Option<Arc<Record>> {
        self.0.borrow().clone()
    }

    /// Publishes a record that the group has agreed on: applied here, or in an answer of the leader.
    pub fn publish(&self, record: &State) {
        let Some(record) = record else { return };
        self.0.send_if_modified(|shown| {
            let newer = shown.as_ref().is_none_or(|shown| shown.revision < record.revision);
            if newer {
                tell(shown.as_deref(), record);
                *shown = Some(Arc::new(record.clone()));
            }
            newer
        });
    }
}

/// Logs what changed, except renewals.
fn tell(old: Option<&Record>, new: &Record) {
    let same = |old: &Record| {
        let renewed =
            matches!((&old.mastership, &new.mastership), (Mastership::Serving { .. }, Mastership::Serving { .. }));
        (renewed || old.mastership == new.mastership) && old.epoch == new.epoch && old.sync_set == new.sync_set
    };
    if !old.is_some_and(same) {
        let (master, sync_set) = (new.master.map(|node| node.to_string()).unwrap_or_default(), &new.sync_set);
        tracing::info!(epoch = %new.epoch, %master, mastership = ?new.mastership, ?sync_set, "control record");
    }
}

/// How far the snapshot on disk reaches; `Err` when it could not be written. The log is purged only up to there: openraft
/// installs a snapshot and purges the log side by side.
pub type Covered = watch::Sender<Result<Option<LogId>, ()>>;

/// The record and how far the log is in it.
pub struct Machine {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    applied: Option<LogId>,
    membership: Membership,
    record: State,
    saved: Option<Saved>,
    published: Published,
    own: Applied,
    feed: VoterFeed,
    covered: Covered,
    #[cfg(test)]
    sabotage: crate::simulation::Sabotage,
}

impl Machine {
    /// `own` and `feed`: each entry goes to them when it is applied.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        published: Published,
        own: Applied,
        feed: VoterFeed,
    ) -> Result<Machine, ControlError> {
        let saved = read(&*disk, dir)?;
        let mut machine = Machine {
            disk,
            dir: dir.to_path_buf(),
            applied: None,
            membership: Membership::default(),
            record: None,
            saved: None,
            published,
            own,
            feed,
            covered: watch::Sender::new(Ok(None)),
            #[cfg(test)]
            sabotage: crate::simulation::Sabotage::None,
        };
        if let Some(saved) = saved {
            machine.covered.send_modify(|covered| *covered = Ok(saved.meta.last_log_id));
            machine.adopt(saved);
        }
        Ok(machine)
    }

    fn adopt(&mut self, saved: Saved) {
        self.applied = saved.meta.last_log_id;
        self.membership = saved.meta.last_membership.clone();
        self.record = saved.record.clone();
        self.published.publish(&self.record);
        self.own.whole(&self.record);
        self.feed.installed(self.applied, self.record.as_ref(), &self.membership);
        self.saved = Some(saved);
    }

    /// Told of every snapshot that is on disk.
    pub fn covered(&self) -> watch::Receiver<Result<Option<LogId>, ()>> {
        self.covered.subscribe()
    }

    /// Where the snapshot ends: the log must go on from there.
    pub fn applied(&self) -> Option<LogId> {
        self.applied
    }

    fn apply_entry(&mut self, entry: Entry) -> Answer {
        let (at, meaning) = (entry.log_id, self.feed.meaning(&entry));
        self.applied = Some(at);
        let mut refusal = None;
        match entry.payload {
            EntryPayload::Blank => {}
            EntryPayload::Normal(command) => {
                refusal = apply(&mut self.record, &command).err();
                self.applied_here();
            }
            EntryPayload::Membership(membership) => {
                self.membership = Membership::new(Some(at), membership);
            }
        }
        self.feed.applied(at, meaning, refusal.is_some(), self.record.as_ref(), &self.membership);
        Answer { record: self.record.clone(), refusal }
    }

    #[cfg(test)]
    pub fn sabotaged(self, sabotage: crate::simulation::Sabotage) -> Machine {
        Machine { sabotage, ..self }
    }

    fn applied_here(&self) {
        #[cfg(test)]
        if self.sabotage == crate::simulation::Sabotage::WaitFromPublished {
            return;
        }
        self.own.entry(&self.record);
    }

    fn current(&self) -> Saved {
        let snapshot_id = self.applied.map_or("0".to_owned(), |applied| applied.to_string());
        let meta = SnapshotMeta { last_log_id: self.applied, last_membership: self.membership.clone(), snapshot_id };
        Saved { version: format_of(&self.record), meta, record: self.record.clone() }
    }
}

/// The version of a file with that record: an earlier release reads what it understands.
fn format_of(record: &State) -> u16 {
    record.as_ref().map_or(RECORD_VERSION, |record| record.version)
}

fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Saved>, ControlError> {
    let path = dir.join(NAME);
    if disk.metadata(&path).map_err(ControlError::io("look at", &path))?.is_none() {
        return Ok(None);
    }
    let bytes = files::read(disk, &path)?;
    let damage = |what: String| ControlError::Damage { file: path.clone(), offset: 0, what };
    let frame = frames::get(&bytes, 0).ok_or_else(|| damage("its checksum does not match its bytes".to_owned()))?;
    let saved: Saved = serde_json::from_slice(frame.text).map_err(|error| damage(error.to_string()))?;
    if saved.version > FORMAT_VERSION {
        return Err(ControlError::Newer { file: path.clone(), found: saved.version, known: FORMAT_VERSION });
    }
    Ok(Some(saved))
}

/// Writes the snapshot and returns how far it reaches.
fn write(disk: &dyn Disk, dir: &Path, saved: &Saved, covered: &Covered) -> Result<(), ControlError> {
    let written = write_file(disk, dir, saved);
    let reached = written.as_ref().map(|()| saved.meta.last_log_id).map_err(|_| ());
    covered.send_modify(|covered| *covered = reached);
    written
}

/// For `map_err`: stops Raft.
fn failed(error: ControlError) -> StorageError {
    tracing::error!("cannot write the control snapshot: {error}");
    StorageIoError::write_snapshot(None, AnyError::new(&error)).into()
}

fn write_file(disk: &dyn Disk, dir: &Path, saved: &Saved) -> Result<(), ControlError> {
    let text = serde_json::to_vec(saved).map_err(|error| ControlError::Stopped(format!("encoding: {error}")))?;
    let mut bytes = Vec::new();
    frames::put(&mut bytes, 1, 0, &text);
    files::replace(disk, dir, NAME, &bytes)
}

impl From<Saved> for Snapshot {
    fn from(saved: Saved) -> Snapshot {
        Snapshot { meta: saved.meta, snapshot: Box::new(saved.record) }
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, Membership), StorageError> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Answer>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let answers = entries.into_iter().map(|entry| self.apply_entry(entry)).collect();
        self.published.publish(&self.record);
        #[cfg(test)]
        if self.sabotage == crate::simulation::Sabotage::WaitFromPublished {
            self.own.published(&self.record);
        }
        Ok(answers)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        // It may be sent to a follower before it is written here: all that it says is committed.
        self.saved = Some(self.current());
        Builder { disk: self.disk.clone(), dir: self.dir.clone(), saved: self.current(), covered: self.covered.clone() }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<State>, StorageError> {
        Ok(Box::new(None))
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: Box<State>) -> Result<(), StorageError> {
        let saved = Saved { version: format_of(&snapshot), meta: meta.clone(), record: *snapshot };
        write(&*self.disk, &self.dir, &saved, &self.covered).map_err(failed)?;
        self.adopt(saved);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, StorageError> {
        Ok(self.saved.clone().map(Snapshot::from))
    }
}

/// Writes one snapshot.
pub struct Builder {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    saved: Saved,
    covered: Covered,
}

impl RaftSnapshotBuilder<Types> for Builder {
    async fn build_snapshot(&mut self) -> Result<Snapshot, StorageError> {
        // A newer one may have been installed since this one was begun; it stays.
        let newer = |covered: &Result<Option<LogId>, ()>| *covered > Ok(self.saved.meta.last_log_id);
        if !newer(&self.covered.borrow()) {
            write(&*self.disk, &self.dir, &self.saved, &self.covered).map_err(failed)?;
        }
        Ok(self.saved.clone().into())
    }
}
