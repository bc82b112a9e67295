//! The least and greatest value of each setting, and settings that exclude each other.
//!
//! Failure: the message names the setting, its value and the limit; the server does not start.

use super::{Config, DelayUs};
use crate::settings;
use holdfast_archive::ArchiveLocation;

const LOG_FILES_KEPT_MAX: u32 = 1000;

/// Each network thread takes file descriptors and threads of its own; more threads than processors gain nothing.
const WORKERS_MAX: usize = 512;

/// A waiting connection holds a place among those that have not completed their start-up.
const FAILURE_DELAY_MAX_MS: u64 = 30_000;

/// PostgreSQL's largest.
const COMMIT_DELAY_MAX_US: u64 = 100_000;

impl Config {
    /// Checks all settings.
    pub(super) fn check(&self) -> Result<(), String> {
        let at_least = |name: &str, value: u64, min: u64| {
            if value < min { Err(format!("{name} = {value} is too small, the least is {min}")) } else { Ok(()) }
        };
        settings::check_logging(&self.parameters())?;
        at_least("connections_max", self.connections_max as u64, 1)?;
        at_least("half_open_max", self.half_open_max as u64, 10)?;
        at_least("startup_timeout_ms", self.startup_timeout_ms, 100)?;
        self.check_transport()?;
        at_least("message_bytes_max", self.message_bytes_max as u64, 1 << 16)?;
        at_least("session_memory_bytes_max", self.session_memory_bytes_max as u64, 1 << 20)?;
        at_least("sessions_memory_bytes_max", self.sessions_memory_bytes_max as u64, 1 << 20)?;
        if self.statements_memory_bytes_max > 0 {
            at_least("statements_memory_bytes_max", self.statements_memory_bytes_max, 16 << 20)?;
        }
        at_least("batch_steps_max", self.batch_steps_max as u64, 1)?;
        at_least("segment_bytes", self.segment_bytes, 1 << 20)?;
        at_least("memory_bytes_max", self.memory_bytes_max, 8 << 20)?;
        at_least("redo_time_max_ms", self.redo_time_max_ms, 10)?;
        at_least("redo_bytes_max", self.redo_bytes_max, 1 << 20)?;
        at_least("branch_locks_max", self.branch_locks_max as u64, 1000)?;
        at_least("batch_requests_max", self.batch_requests_max as u64, 1)?;
        at_least("log_file_bytes_max", self.log_file_bytes_max, 1 << 16)?;
        let at_most = |name: &str, value: u64, max: u64| {
            if value > max { Err(format!("{name} = {value} is too large, the most is {max}")) } else { Ok(()) }
        };
        at_most("authentication_failure_delay_max_ms", self.authentication_failure_delay_max_ms, FAILURE_DELAY_MAX_MS)?;
        at_most("workers", self.workers as u64, WORKERS_MAX as u64)?;
        at_most("log_files_kept", u64::from(self.log_files_kept), u64::from(LOG_FILES_KEPT_MAX))?;
        at_least("standby_timeout_ms", self.standby_timeout_ms, 100)?;
        at_least("standby_keep_bytes_max", self.standby_keep_bytes_max, 1 << 20)?;
        at_least("slot_keep_bytes_max", self.slot_keep_bytes_max, 1 << 20)?;
        at_least("archive_keep_bytes_max", self.archive_keep_bytes_max, 1 << 20)?;
        ArchiveLocation::parse(&self.archive).map_err(|error| error.to_string())?;
        self.check_backups()?;
        if self.standby_lag_bytes_max > 0 {
            at_least("standby_lag_bytes_max", self.standby_lag_bytes_max, 1 << 20)?;
        }
        if self.has_mirror() && !self.control_members.trim().is_empty() {
            return Err(
                "mirror and control_members do not go together: a mirror has no vote of its own, and could not be \
                        promoted without deceiving the group"
                    .to_owned(),
            );
        }
        let within = |name: &str, value: u64, (least, most): (i64, i64)| match i64::try_from(value) {
            Ok(n) if (least..=most).contains(&n) => Ok(()),
            _ => Err(format!("{name} = {value} is not between {least} and {most}")),
        };
        within("auto_transaction_time_max_ms", self.auto_transaction_time_max_ms, settings::AUTO_TIME_MS)?;
        within("auto_transaction_rows_max", self.auto_transaction_rows_max, settings::AUTO_ROWS)?;
        within("auto_transaction_idle_ms", self.auto_transaction_idle_ms, settings::AUTO_IDLE_MS)?;
        if let DelayUs::Fixed(us) = self.commit_delay_us {
            at_most("commit_delay_us", us, COMMIT_DELAY_MAX_US)?;
        }
        if self.message_bytes_max > 0x3fff_ffff {
            return Err(format!("message_bytes_max = {} is too large, the most is 1 GB", self.message_bytes_max));
        }
        if !self.segment_bytes.is_multiple_of(4096) {
            return Err(format!("segment_bytes = {} is not a multiple of 4096", self.segment_bytes));
        }
        self.http_listen().map_err(|e| e.to_string())?;
        self.node_listen().map(|_| ()).map_err(|e| e.to_string())
    }
}
