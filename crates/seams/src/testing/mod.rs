//! Fakes for the tests of every crate: a disk that fails and loses power on command, a clock that stands still, and
//! seeded random numbers that make a run repeatable. For tests with real servers: ports, and patience.

mod fault_disk;
mod file;
mod fired;
mod handles;
mod names;
mod patience;
mod port;
mod skip;
mod state;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub use fault_disk::FaultDisk;
pub use fired::Fired;
pub use patience::Patience;
pub use port::port;
pub use skip::{SKIPPED_FILE, skipped};

use crate::clock::Clock;

/// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014): one seed always gives
/// one and the same sequence.
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    pub fn new(seed: u64) -> Seeded {
        Seeded(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// True once in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A clock that moves one millisecond whenever the wall time is read.
pub struct StepClock {
    unix_ms: AtomicU64,
    origin: Instant,
}

impl StepClock {
    pub fn starting_at(unix_ms: u64) -> StepClock {
        StepClock { unix_ms: AtomicU64::new(unix_ms), origin: Instant::now() }
    }
}

impl Clock for StepClock {
    fn unix_ms(&self) -> u64 {
        self.unix_ms.fetch_add(1, Ordering::Relaxed)
    }

    fn monotonic(&self) -> Instant {
        self.origin
    }
}
