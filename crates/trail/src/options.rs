//! How a trail is laid out and written.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_seams::{BLOCK_BYTES, SyncMethod, round_up_to_block};

use crate::boxcar::HEAD_BYTES;
use crate::delay::CommitDelay;
use crate::error::TrailError;
use crate::layout::{SEGMENT_BYTES_MAX, TrailId};

/// Why the writer stopped: nothing may be acknowledged after it, and the failed sync must never be retried, because
/// the kernel marks pages clean that it could not write (Rebello and others, "Can Applications Recover from fsync
/// Failures?", USENIX ATC 2020).
#[derive(Debug)]
pub struct Failure {
    pub what: &'static str,
    pub file: PathBuf,
    pub offset: u64,
    pub error: io::Error,
}

/// Called once by a trail thread when a write or sync failed. Only tests return from it.
pub type FailureHook = Arc<dyn Fn(&Failure) + Send + Sync>;

#[derive(Clone)]
pub struct TrailOptions {
    /// The trail's own directory; created when missing.
    pub dir: PathBuf,
    /// Size of a segment file of a new trail; an existing trail keeps its own.
    pub segment_bytes: u64,
    /// Most body bytes in one boxcar, and so in one append.
    pub boxcar_bytes_max: u64,
    pub sync_method: SyncMethod,
    /// Segments kept prepared ahead of the one being written.
    pub segments_ready: usize,
    /// Whether the writer waits for more commits before a boxcar.
    pub commit_delay: CommitDelay,
    /// How long after the last boxcar an idle trail writes the proof that it is durable.
    pub proof_delay: Duration,
    /// Prepared room that only [`crate::Trail::append_kept`] may use: checkpoint and recovery records.
    pub kept_back_bytes: u64,
    /// What a failed write or sync does after it has been logged; ends the process by default.
    pub on_failure: FailureHook,
    /// The id of a new trail; random when `None`.
    pub new_trail_id: Option<TrailId>,
}

impl TrailOptions {
    pub fn new(dir: impl Into<PathBuf>) -> TrailOptions {
        TrailOptions {
            dir: dir.into(),
            segment_bytes: 64 << 20,
            boxcar_bytes_max: 8 << 20,
            sync_method: SyncMethod::default(),
            segments_ready: 2,
            commit_delay: CommitDelay::default(),
            proof_delay: Duration::from_millis(10),
            kept_back_bytes: 1 << 20,
            on_failure: Arc::new(|_| std::process::abort()),
            new_trail_id: None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), TrailError> {
        let refuse = |name, what: String| Err(TrailError::Option { name, what });
        if !self.segment_bytes.is_multiple_of(BLOCK_BYTES as u64) || self.segment_bytes > SEGMENT_BYTES_MAX {
            return refuse("segment_bytes", format!("{} is not whole blocks up to 4 GiB", self.segment_bytes));
        }
        self.check_fit(self.segment_bytes)?;
        if self.segments_ready == 0 {
            return refuse("segments_ready", "at least one segment must be prepared ahead".to_owned());
        }
        Ok(())
    }

    /// The same with boxcars no larger than segments of that size take.
    pub(crate) fn fit_to(self, segment_bytes: u64) -> TrailOptions {
        let boxcar_bytes_max = self.boxcar_bytes_max.min(segment_bytes / 4);
        TrailOptions { boxcar_bytes_max, ..self }
    }

    /// A segment must hold some of the largest boxcars, else most of it would be left empty.
    pub(crate) fn check_fit(&self, segment_bytes: u64) -> Result<(), TrailError> {
        let largest = round_up_to_block(self.boxcar_bytes_max.saturating_add(HEAD_BYTES as u64));
        if self.boxcar_bytes_max == 0 || largest > segment_bytes / 3 {
            let what = format!("{} is not between 1 and a third of a segment", self.boxcar_bytes_max);
            return Err(TrailError::Option { name: "boxcar_bytes_max", what });
        }
        if self.kept_back_bytes < 2 * BLOCK_BYTES as u64 || self.kept_back_bytes > segment_bytes / 2 {
            let what = format!("{} is not between two blocks and half a segment", self.kept_back_bytes);
            return Err(TrailError::Option { name: "kept_back_bytes", what });
        }
        Ok(())
    }
}
