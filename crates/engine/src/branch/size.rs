//! How large a branch may become.
//!
//! Its images are in memory, and are replayed whenever a statement must see a newer snapshot. In the writer neither is so,
//! but no other transaction writes there until the transaction ends, for as long as its client takes.
//!
//! | images | and | it |
//! |---|---|---|
//! | up to [`BRANCH_BYTES_MAX`] | | stays |
//! | more, up to half of `transaction_bytes_max` | one of [`LARGE_MAX`] permits is free, or it has one | stays |
//! | more than [`BRANCH_BYTES_MAX`] | most of its time so far, and more than [`REPLAYS_TIME_MAX`], went into replaying them | continues in the writer |
//! | else | | continues in the writer |
//!
//! While a statement runs its own images are counted by themselves: it is stopped, and run again where the branch may
//! grow.

use crate::state::engine::EngineState;
use crate::state::semaphore::Permit;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Any branch may have this many bytes of images.
pub const BRANCH_BYTES_MAX: usize = 64 << 20;

/// This many of an engine's branches may have more at a time; together they then hold no more than one transaction in the writer.
const LARGE_MAX: usize = 2;

/// A statement that changes whole tables in small steps would take time with the square of its transaction's length.
const REPLAYS_TIME_MAX: Duration = Duration::from_secs(10);

/// A snapshot may be used for this many times the time that it takes to replay the images.
const SNAPSHOT_TIME_PER_REPLAY: u32 = 10;

/// The limit of one branch, and what its images have cost so far.
pub struct Size {
    pub bytes_max: usize,
    permit: Option<Permit>,
    began: Instant,
    replays_time: Duration,
    last_replay_time: Duration,
}

impl Size {
    pub fn new() -> Size {
        let (bytes_max, replays_time, last_replay_time) = (BRANCH_BYTES_MAX, Duration::ZERO, Duration::ZERO);
        Size { bytes_max, permit: None, began: Instant::now(), replays_time, last_replay_time }
    }

    /// Takes a permit for a large branch. False: there is none, or it has one, or was given less than others may have.
    pub fn grow(&mut self, engine: &Arc<EngineState>) -> bool {
        let large = (engine.options.transaction_bytes_max / LARGE_MAX as u64) as usize;
        if self.bytes_max != BRANCH_BYTES_MAX || large <= BRANCH_BYTES_MAX {
            return false;
        }
        self.permit = engine.large_branches.take(LARGE_MAX);
        if self.permit.is_some() {
            self.bytes_max = large;
        }
        self.permit.is_some()
    }

    /// Its images were replayed.
    pub fn replayed(&mut self, time: Duration) {
        self.replays_time += time;
        self.last_replay_time = time;
    }

    /// It has spent most of its time on replaying them.
    pub fn replays_too_much(&self) -> bool {
        self.permit.is_some() && self.replays_time > REPLAYS_TIME_MAX.max(self.began.elapsed() / 2)
    }

    /// How long a snapshot is worth keeping.
    pub fn snapshot_time(&self) -> Duration {
        self.last_replay_time * SNAPSHOT_TIME_PER_REPLAY
    }
}
