//! The two clocks of a machine: each has its rate, both may jump ahead, and both may stand still.

use crate::grant::Reading;

#[derive(Clone, Debug)]
pub struct Clocks {
    /// The last change, in real time, and what the clocks showed then.
    since_ns: u64,
    shown: Reading,
    /// How much faster than real time, in millionths.
    pub boot_ppm: i64,
    pub raw_ppm: i64,
    pub stands: bool,
}

impl Clocks {
    pub fn new(start_ns: u64) -> Clocks {
        let shown = Reading { boot_ns: start_ns, raw_ns: start_ns };
        Clocks { since_ns: 0, shown, boot_ppm: 0, raw_ppm: 0, stands: false }
    }

    pub fn read(&self, now_ns: u64) -> Reading {
        let passed = |ppm: i64| {
            let passed_ns = i128::from(if self.stands { 0 } else { now_ns - self.since_ns });
            (passed_ns * i128::from(1_000_000 + ppm) / 1_000_000) as u64
        };
        Reading {
            boot_ns: self.shown.boot_ns + passed(self.boot_ppm),
            raw_ns: self.shown.raw_ns + passed(self.raw_ppm),
        }
    }

    /// Changes something from now on.
    pub fn change(&mut self, now_ns: u64, change: impl FnOnce(&mut Clocks)) {
        self.shown = self.read(now_ns);
        self.since_ns = now_ns;
        change(self);
    }

    pub fn jump(&mut self, now_ns: u64, ns: u64) {
        self.change(now_ns, |clocks| clocks.shown = clocks.shown.plus(ns));
    }
}
