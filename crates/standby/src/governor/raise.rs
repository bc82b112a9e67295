//! The paper's governor, an option: the level rises while a standby lags and falls when it has caught up.
//!
//! A higher level slows each client more and promises more; the level never falls below the configured one. It rises at
//! 0.5, 0.65 and 0.8 of the bound (to warm, hot, commit) after the lag has stayed there for a second. It falls by one
//! level after the lag has stayed 0.2 below that for five seconds. The gap and the dwell time keep it from oscillating.

use holdfast_types::Level;

const STEPS: [(Level, f64); 3] = [(Level::Warm, 0.5), (Level::Hot, 0.65), (Level::Commit, 0.8)];
const GAP_SHARE: f64 = 0.2;
const DWELL_UP_US: u64 = 1_000_000;
const DWELL_DOWN_US: u64 = 5_000_000;

/// The current level and the pending change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Raised {
    pub level: Level,
    /// The level that the lag calls for, and since when.
    pending: Option<(Level, u64)>,
}

impl Raised {
    pub fn at(level: Level) -> Raised {
        Raised { level, pending: None }
    }

    /// The next state for this lag, given as a share of its bound. `asked` is the configured level.
    pub fn next(self, asked: Level, lag_share: f64, now_us: u64) -> Raised {
        let up = STEPS.iter().rev().find(|(_, at)| lag_share >= *at).map(|(level, _)| *level);
        let wanted = match up.filter(|up| *up > self.level) {
            Some(up) => up,
            None => self.lower(asked, lag_share),
        };
        if wanted == self.level.max(asked) {
            return Raised::at(wanted);
        }
        let since_us = match self.pending {
            Some((level, since_us)) if (level > self.level) == (wanted > self.level) => since_us,
            _ => now_us,
        };
        let dwell_us = if wanted > self.level { DWELL_UP_US } else { DWELL_DOWN_US };
        if now_us.saturating_sub(since_us) >= dwell_us {
            return Raised::at(wanted);
        }
        Raised { pending: Some((wanted, since_us)), ..self }
    }

    /// The level below, if the lag has fallen far enough.
    fn lower(self, asked: Level, lag_share: f64) -> Level {
        let held = STEPS.iter().position(|(level, _)| *level == self.level);
        match held {
            Some(step) if lag_share < STEPS[step].1 - GAP_SHARE => {
                let below = if step == 0 { Level::Local } else { STEPS[step - 1].0 };
                below.max(asked)
            }
            _ => self.level.max(asked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The levels for these lags, one second apart.
    fn levels(asked: Level, shares: &[f64]) -> Vec<Level> {
        let mut raised = Raised::at(asked);
        let mut now_us = 0;
        let look = |share: &f64| {
            raised = raised.next(asked, *share, now_us);
            now_us += 1_000_000;
            raised.level
        };
        shares.iter().map(look).collect()
    }

    #[test]
    fn rises_after_a_second_and_falls_after_five_step_by_step() {
        use Level::{Commit, Hot, Local, Warm};
        assert_eq!(levels(Local, &[0.4, 0.6, 0.6, 0.6]), [Local, Local, Warm, Warm]);
        assert_eq!(levels(Local, &[0.9, 0.9]), [Local, Commit]);
        assert_eq!(levels(Local, &[0.6, 0.4, 0.6, 0.4]), [Local; 4], "a moment's lag");
        let falling = levels(Local, &[&[0.9, 0.9][..], &[0.1; 18]].concat());
        assert_eq!(falling[6..8], [Commit, Hot]);
        assert_eq!(falling[19], Local);
        assert!(falling.contains(&Warm) && falling[1..].is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn the_gap_holds_the_level() {
        let shares: Vec<f64> = [0.6, 0.6].into_iter().chain((0..60).map(|i| [0.35, 0.49][i % 2])).collect();
        assert!(levels(Level::Local, &shares)[1..].iter().all(|level| *level == Level::Warm));
    }

    #[test]
    fn never_below_what_is_asked_for() {
        assert!(levels(Level::Hot, &[0.0; 30]).iter().all(|level| *level == Level::Hot));
        let mut raised = Raised::at(Level::Local);
        raised = raised.next(Level::Commit, 0.0, 0);
        assert_eq!(raised.level, Level::Commit, "the setting was changed");
    }
}
