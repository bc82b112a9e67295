//! Raft's log, as openraft wants it, over the [`Journal`].
//!
//! Writes are made where they are asked for and block the control plane's own thread for one sync; everything is
//! durable before openraft gets the confirmation.
//!
//! Failure: a write that fails stops Raft on this node, which no longer takes part until it is started again; the other
//! two go on.

use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{AnyError, LogState, OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::error::ControlError;
use crate::journal::Journal;
use crate::raft::{Entry, LogId, StorageError, StorageIoError, Types, Vote};
use crate::starts::LogEnd;
use crate::voter_feed::VoterFeed;

/// Shared by its clones.
#[derive(Clone)]
pub struct LogStore {
    journal: Arc<Mutex<Journal>>,
    /// How far the snapshot on disk reaches.
    covered: watch::Receiver<Result<Option<LogId>, ()>>,
    feed: VoterFeed,
}

impl LogStore {
    pub fn new(journal: Journal, covered: watch::Receiver<Result<Option<LogId>, ()>>, feed: VoterFeed) -> LogStore {
        LogStore { journal: Arc::new(Mutex::new(journal)), covered, feed }
    }

    /// The last entry, also when it has been purged.
    pub fn end(&self) -> LogEnd {
        LogEnd { last: self.journal.lock().content.last() }
    }

    /// The last entry that this member knows to be committed.
    pub fn committed(&self) -> Option<LogId> {
        self.journal.lock().content.committed
    }
}

/// For `map_err`: stops Raft.
fn failed(error: ControlError) -> StorageError {
    tracing::error!("cannot write the control journal: {error}");
    StorageIoError::write_logs(AnyError::new(&error)).into()
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError> {
        let journal = self.journal.lock();
        Ok(journal.content.entries.range(range).map(|(_, entry)| entry.clone()).collect())
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let journal = self.journal.lock();
        Ok(LogState { last_purged_log_id: journal.content.purged, last_log_id: journal.content.last() })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        self.journal.lock().save_vote(*vote).map_err(failed)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(self.journal.lock().content.vote)
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        self.journal.lock().save_committed(committed).map_err(failed)
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        Ok(self.journal.lock().content.committed)
    }

    async fn append<I>(&mut self, entries: I, flushed: LogFlushed<Types>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let last = entries.last().map(|entry| entry.log_id);
        self.feed.appended(&entries);
        // The guard is gone before the confirmation.
        let saved = self.journal.lock().save_entries(entries);
        match saved {
            Ok(()) => {
                self.feed.durable(last);
                flushed.log_io_completed(Ok(()));
                Ok(())
            }
            Err(error) => {
                flushed.log_io_completed(Err(io::Error::other(error.to_string())));
                Err(failed(error))
            }
        }
    }

    async fn truncate(&mut self, position: LogId) -> Result<(), StorageError> {
        self.journal.lock().truncate(position.index).map_err(failed)?;
        self.feed.truncated(position.index);
        Ok(())
    }

    /// Waits for the snapshot that makes the entries needless: a crash in between would leave neither.
    async fn purge(&mut self, position: LogId) -> Result<(), StorageError> {
        let needless = |covered: &Result<Option<LogId>, ()>| covered.is_err() || *covered >= Ok(Some(position));
        let reached = self.covered.wait_for(needless).await.is_ok_and(|covered| covered.is_ok());
        if !reached {
            return Err(failed(ControlError::Stopped("its snapshot cannot be written".to_owned())));
        }
        self.journal.lock().purge(position).map_err(failed)
    }
}
