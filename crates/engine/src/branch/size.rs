//! How large a branch may become.
//!
//! Its images are in memory, and are put on again whenever a statement must see a newer snapshot. On MAIN neither is so,
//! but nobody else writes there until the transaction ends, for as long as its client takes.
//!
//! | images | and | it |
//! |---|---|---|
//! | up to [`BRANCH_BYTES_MAX`] | | stays |
//! | more, up to half of `transaction_bytes_max` | one of [`LARGE_MAX`] places is free, or it has one | stays |
//! | more than [`BRANCH_BYTES_MAX`] | most of its time so far, and more than [`REPLAYS_TIME_MAX`], went into putting them on again | goes on on MAIN |
//! | else | | goes on on MAIN |
//!
//! One statement's images count alone while it runs: it is stopped, and run again where it may go on.

use crate::engine::Shared;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Any branch may have so many bytes of images.
pub const BRANCH_BYTES_MAX: usize = 64 << 20;

/// So many of an engine's branches may have more at a time; together they then hold no more than one transaction on MAIN.
const LARGE_MAX: usize = 2;

/// A statement that changes whole tables a little at a time would take time with the square of its transaction's length.
const REPLAYS_TIME_MAX: Duration = Duration::from_secs(10);

/// So many times the time that it takes to put the images on again a snapshot may be used.
const SNAPSHOT_TIME_PER_REPLAY: u32 = 10;

/// How many of something there are.
#[derive(Clone, Default)]
pub struct Places(Arc<AtomicUsize>);

/// The place of one; given back when dropped.
pub struct Place(Places);

impl Places {
    /// `None`: there are as many as there may be.
    pub fn take(&self, max: usize) -> Option<Place> {
        let more = |taken: usize| (taken < max).then_some(taken + 1);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Place(self.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What one branch may have, and what its images have cost so far.
pub struct Size {
    pub bytes_max: usize,
    place: Option<Place>,
    began: Instant,
    replays_time: Duration,
    last_replay_time: Duration,
}

impl Size {
    pub fn new() -> Size {
        let (bytes_max, replays_time, last_replay_time) = (BRANCH_BYTES_MAX, Duration::ZERO, Duration::ZERO);
        Size { bytes_max, place: None, began: Instant::now(), replays_time, last_replay_time }
    }

    /// Takes a place among the large ones. False: there is none, or it has one, or was given less than others may have.
    pub fn grow(&mut self, shared: &Arc<Shared>) -> bool {
        let large = (shared.options.transaction_bytes_max / LARGE_MAX as u64) as usize;
        if self.bytes_max != BRANCH_BYTES_MAX || large <= BRANCH_BYTES_MAX {
            return false;
        }
        self.place = shared.large_branches.take(LARGE_MAX);
        if self.place.is_some() {
            self.bytes_max = large;
        }
        self.place.is_some()
    }

    /// Its images were put on again.
    pub fn replayed(&mut self, time: Duration) {
        self.replays_time += time;
        self.last_replay_time = time;
    }

    /// Nothing but putting them on again is what it mostly does.
    pub fn replays_too_much(&self) -> bool {
        self.place.is_some() && self.replays_time > REPLAYS_TIME_MAX.max(self.began.elapsed() / 2)
    }

    /// So long a snapshot is worth keeping.
    pub fn snapshot_time(&self) -> Duration {
        self.last_replay_time * SNAPSHOT_TIME_PER_REPLAY
    }
}
