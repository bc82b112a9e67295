//! The settings of a trail: how it is laid out and written.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_seams::{BLOCK_BYTES, SyncMethod, round_up_to_block};
use holdfast_types::Epoch;

use crate::boxcar::HEAD_BYTES;
use crate::closed::Closed;
use crate::delay::CommitDelay;
use crate::error::TrailError;
use crate::layout::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, TrailId};

/// Why the writer stopped. Nothing may be acknowledged after it, and the failed sync must never be retried, because the
/// kernel marks pages clean that it could not write (Rebello and others, "Can Applications Recover from fsync
/// Failures?", USENIX ATC 2020).
#[derive(Debug)]
pub struct Failure {
    pub what: &'static str,
    pub file: PathBuf,
    pub offset: u64,
    pub error: io::Error,
}

impl Failure {
    /// Makes a failure from an error in the trail's directory that a retry does not fix.
    pub(crate) fn of(error: TrailError, dir: &Path) -> Failure {
        match error {
            TrailError::Io { what, path, source } => Failure { what, file: path, offset: 0, error: source },
            other => Failure { what: "prepare", file: dir.to_path_buf(), offset: 0, error: io::Error::other(other) },
        }
    }
}

/// Called once by a trail thread when a write or sync failed. Only tests return from it.
pub type FailureHook = Arc<dyn Fn(&Failure) + Send + Sync>;

#[derive(Clone)]
pub struct TrailOptions {
    /// The trail's own directory; created if it does not exist.
    pub dir: PathBuf,
    /// Size of a segment file of a new trail; an existing trail keeps its own.
    pub segment_bytes: u64,
    /// Maximum body bytes in one boxcar, and therefore in one append.
    pub boxcar_bytes_max: u64,
    pub sync_method: SyncMethod,
    /// Number of segments kept prepared ahead of the one being written.
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
    /// Whether the trail follows another one: it takes that trail's boxcars by [`crate::Trail::receive`] and accepts no
    /// appends.
    pub follow: bool,
    /// Where this process closed the same trail: its end is not searched, unless the trail was opened since.
    pub closed: Option<Closed>,
    /// The highest epoch known elsewhere: a trail opened for appends begins a higher one.
    pub epoch_min: Epoch,
    /// Maximum bytes of boxcars kept in memory for taps, while there are any.
    pub tap_bytes_max: u64,
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
            follow: false,
            closed: None,
            epoch_min: Epoch(0),
            tap_bytes_max: 32 << 20,
        }
    }

    pub(crate) fn check(&self) -> Result<(), TrailError> {
        check_segment_bytes(self.segment_bytes)?;
        self.check_fit(self.segment_bytes)?;
        if self.segments_ready == 0 {
            let what = "at least one segment must be prepared ahead".to_owned();
            return Err(TrailError::Option { name: "segments_ready", what });
        }
        Ok(())
    }

    /// Returns the options with limits reduced to segments of this size: the largest boxcar and the kept-back room.
    pub(crate) fn fit_to(self, segment_bytes: u64) -> TrailOptions {
        let boxcar_bytes_max = self.boxcar_bytes_max.min(segment_bytes / 4);
        let kept_back_bytes = self.kept_back_bytes.min(segment_bytes / 4);
        TrailOptions { boxcar_bytes_max, kept_back_bytes, ..self }
    }

    /// Checks that a segment holds several of the largest boxcars; otherwise most of it would stay empty.
    pub(crate) fn check_fit(&self, segment_bytes: u64) -> Result<(), TrailError> {
        let largest = round_up_to_block(self.boxcar_bytes_max.saturating_add(HEAD_BYTES as u64));
        if self.boxcar_bytes_max == 0 || largest > segment_bytes / 3 {
            let what = format!("{} is not between 1 and a third of the segment size", self.boxcar_bytes_max);
            return Err(TrailError::Option { name: "boxcar_bytes_max", what });
        }
        if self.kept_back_bytes < 2 * BLOCK_BYTES as u64 || self.kept_back_bytes > segment_bytes / 2 {
            let what = format!("{} is not between two blocks and half of the segment size", self.kept_back_bytes);
            return Err(TrailError::Option { name: "kept_back_bytes", what });
        }
        Ok(())
    }
}

pub(crate) fn check_segment_bytes(bytes: u64) -> Result<(), TrailError> {
    if bytes.is_multiple_of(BLOCK_BYTES as u64) && (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes) {
        return Ok(());
    }
    let what = format!("{bytes} is not a multiple of the block size between 4 blocks and 4 GiB");
    Err(TrailError::Option { name: "segment_bytes", what })
}
