//! What the writer of a database publishes while a side copy ([`crate::state::side_copy`]) is being made: the copy repeats it.
//!
//! There is one side copy of a database at a time. The next one waits for its turn.
//!
//! Failure: a writer that publishes more than [`BYTES_MAX`] before the copy takes it: the copy is given up.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of records that may wait for the copy.
const BYTES_MAX: usize = 64 << 20;

/// How often a copy that waits for its turn looks whether the database is being closed.
const LOOKS: Duration = Duration::from_millis(100);

/// A batch's number and its record.
pub type Record = (u64, Vec<u8>);

#[derive(Default)]
struct Log {
    records: Vec<Record>,
    bytes: usize,
    lost: bool,
}

/// See the module.
#[derive(Default)]
pub struct SideLog {
    log: Mutex<Option<Log>>,
    free: Condvar,
}

impl SideLog {
    /// Begins to keep what is published, as soon as no other copy is being made. `None`: `may_wait` said no meanwhile.
    pub fn begin(self: &Arc<SideLog>, may_wait: impl Fn() -> bool) -> Option<Following> {
        let mut log = self.log.lock();
        while log.is_some() {
            if !may_wait() {
                return None;
            }
            self.free.wait_for(&mut log, LOOKS);
        }
        *log = Some(Log::default());
        Some(Following(self.clone()))
    }

    /// The writer has published the batch `number`.
    pub fn published(&self, number: u64, record: &[u8]) {
        let mut log = self.log.lock();
        let Some(log) = &mut *log else { return };
        log.bytes += record.len();
        if log.bytes > BYTES_MAX {
            *log = Log { lost: true, ..Log::default() };
        }
        if !log.lost {
            log.records.push((number, record.to_vec()));
        }
    }
}

/// Keeps what is published while it exists.
pub struct Following(Arc<SideLog>);

impl Following {
    /// What was published since the last call. `None`: some of it was dropped.
    pub fn take(&self) -> Option<Vec<Record>> {
        let mut log = self.0.log.lock();
        let log = log.as_mut().filter(|log| !log.lost)?;
        log.bytes = 0;
        Some(std::mem::take(&mut log.records))
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        *self.0.log.lock() = None;
        self.0.free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_kept_for_one_copy_at_a_time() {
        let log = Arc::new(SideLog::default());
        log.published(1, b"no copy is being made");
        let following = log.begin(|| true).unwrap();
        log.published(2, b"two");
        log.published(3, b"three");
        assert!(log.begin(|| false).is_none(), "another copy is being made");
        assert_eq!(following.take(), Some(vec![(2, b"two".to_vec()), (3, b"three".to_vec())]));
        assert_eq!(following.take(), Some(Vec::new()));
        drop(following);
        let next = log.begin(|| false).unwrap();
        assert_eq!(next.take(), Some(Vec::new()));
    }

    #[test]
    fn a_copy_that_does_not_keep_up_is_given_up() {
        let log = Arc::new(SideLog::default());
        let following = log.begin(|| true).unwrap();
        let record = vec![0; BYTES_MAX / 2];
        log.published(1, &record);
        log.published(2, &record);
        assert_eq!(following.take().map(|records| records.len()), Some(2));
        (3..6).for_each(|number| log.published(number, &record));
        log.published(6, b"after it");
        assert_eq!(following.take(), None, "the records before are missing");
    }
}
