//! What the engine gets of the settings.

use super::{Auto, Config, DelayUs, KeepBeyond};
use holdfast_archive::Keys;
use holdfast_engine::{ArchiveKeep, BeyondKeep, CommitDelay, Options};
use std::time::Duration;

/// Statements on branches beyond one for each session: the server's own.
const SPARE_STATEMENTS: usize = 16;

impl Config {
    /// The engine's options.
    pub fn options(&self) -> Options {
        Options {
            sync_method: self.sync_method.into(),
            commit_delay: self.commit_delay(),
            segment_bytes: self.segment_bytes,
            memory_bytes_max: self.memory_bytes_max,
            scratch_bytes_max: self.scratch_bytes_max,
            redo_time_max: Duration::from_millis(self.redo_time_max_ms),
            redo_bytes_max: self.redo_bytes_max,
            batch_requests_max: self.batch_requests_max,
            transaction_bytes_max: self.transaction_bytes_max,
            branch_locks_max: self.branch_locks_max,
            branch_statements_max: self.connections_max.saturating_add(SPARE_STATEMENTS),
            standby_keep_bytes_max: self.standby_keep_bytes_max,
            slot_keep_bytes_max: self.slot_keep_bytes_max,
            idle_in_transaction_timeout: Duration::from_millis(self.only_writer_idle_timeout_ms),
            archive: self.archive_keep(),
            ..Options::default()
        }
    }

    /// How the archive is encrypted and read.
    pub fn archive_keys(&self) -> Keys {
        let path = &self.archive_identity;
        Keys {
            encrypt_to: self.archive_encrypt_to.split_whitespace().map(str::to_owned).collect(),
            identity: (!path.as_os_str().is_empty()).then(|| path.clone()),
            ..Keys::default()
        }
    }

    fn archive_keep(&self) -> Option<ArchiveKeep> {
        let beyond = match self.archive_keep_beyond {
            KeepBeyond::Warn => BeyondKeep::Warn,
            KeepBeyond::Refuse => BeyondKeep::Refuse,
        };
        (!self.archive.is_empty()).then_some(ArchiveKeep { bytes_max: self.archive_keep_bytes_max, beyond })
    }

    pub(super) fn commit_delay(&self) -> CommitDelay {
        match self.commit_delay_us {
            DelayUs::Auto(Auto::Auto) => CommitDelay::Auto,
            DelayUs::Fixed(0) => CommitDelay::Off,
            DelayUs::Fixed(us) => {
                CommitDelay::Fixed { delay: Duration::from_micros(us), siblings: self.commit_siblings }
            }
        }
    }
}
