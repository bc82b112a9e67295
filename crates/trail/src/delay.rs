//! Commit delay: whether the writer waits briefly before a boxcar, so that more commits share its sync.
//!
//! Natural batching alone splits many clients into two groups that take turns: while one group is being synced, the
//! other one queues up. A client that was just answered usually commits again soon, so the writer expects as many
//! commits as the last boxcar had plus those queued when it ended. It waits for them for at most the delay, and not at
//! all when they are already queued.
//!
//! | setting | delay |
//! |---|---|
//! | off | none |
//! | fixed | as given, while at least `siblings` others are expected (PostgreSQL's commit_delay and commit_siblings) |
//! | auto | half of the time of a sync, as long as recent waits have paid |
//!
//! Waiting `w` for `j` commits to join `n` pays when the boxcar grows by more than the time does: `j / n > w / sync`.
//! When a wait has not paid, the next boxcars are written without a wait: twice as many after each failed attempt, up
//! to [`PAUSE_MAX`].
//!
//! Nothing here can fail: this module only decides how long to wait.

use std::time::Duration;

/// The setting of the commit delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommitDelay {
    Off,
    Fixed {
        delay: Duration,
        /// Number of other commits that must be expected.
        siblings: usize,
    },
    #[default]
    Auto,
}

/// A shorter wait costs more to wake up from than it can save.
const SHORTEST: Duration = Duration::from_micros(100);

/// Maximum number of boxcars written without a wait after a series of waits that did not pay.
const PAUSE_MAX: u32 = 64;

/// Weight of the newest sync in the moving average.
const NEWEST: f64 = 0.1;

/// How long to wait, and for how many commits in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub delay: Duration,
    pub commits: usize,
}

/// What the writer knows about the commits around it.
#[derive(Debug, Default)]
pub struct Delay {
    setting: CommitDelay,
    /// Moving average of the time of a write and sync.
    sync: Duration,
    /// Number of commits that are likely to come.
    expected: usize,
    /// Number of boxcars that are still written without a wait.
    pausing: u32,
    /// Number of boxcars without a wait after the last wait that did not pay.
    pause: u32,
}

impl Delay {
    pub fn new(setting: CommitDelay) -> Delay {
        Delay { setting, ..Delay::default() }
    }

    /// Time of a write and sync; zero before the first one.
    pub fn sync(&self) -> Duration {
        self.sync
    }

    /// What to wait for when `queued` commits are queued; `None` to write without a wait.
    pub fn plan(&self, queued: usize) -> Option<Plan> {
        if queued == 0 || queued >= self.expected {
            return None;
        }
        let delay = match self.setting {
            CommitDelay::Off => return None,
            CommitDelay::Fixed { delay, siblings } if self.expected > siblings => delay,
            CommitDelay::Fixed { .. } => return None,
            CommitDelay::Auto if self.pausing > 0 => return None,
            CommitDelay::Auto => self.sync / 2,
        };
        (delay >= SHORTEST || matches!(self.setting, CommitDelay::Fixed { .. }) && !delay.is_zero())
            .then_some(Plan { delay, commits: self.expected })
    }

    /// Records a wait of `time`, in which the number of queued commits grew from `from` to `to`.
    pub fn waited(&mut self, time: Duration, from: usize, to: usize) {
        let grown = (to - from) as f64 / from.max(1) as f64;
        let slowed = time.as_secs_f64() / self.sync.as_secs_f64().max(1e-6);
        if grown > slowed {
            self.pause = 0;
        } else {
            self.pause = (self.pause * 2).clamp(1, PAUSE_MAX);
            self.pausing = self.pause;
        }
    }

    /// Records that a boxcar of `commits` was written and synced in `time`; `queued` commits are queued by then.
    pub fn wrote(&mut self, commits: usize, queued: usize, time: Duration) {
        if commits == 0 {
            return;
        }
        self.sync = match self.sync.is_zero() {
            true => time,
            false => self.sync.mul_f64(1.0 - NEWEST) + time.mul_f64(NEWEST),
        };
        self.expected = commits + queued;
        self.pausing = self.pausing.saturating_sub(1);
    }

    /// Records that `commits` more commits wait for their turn before they can be queued here.
    pub fn behind(&mut self, commits: usize) {
        self.expected += commits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn auto() -> Delay {
        let mut delay = Delay::new(CommitDelay::Auto);
        delay.wrote(10, 10, 10 * MS);
        delay
    }

    #[test]
    fn it_waits_for_clients_that_committed_recently() {
        let delay = auto();
        assert_eq!(delay.plan(10), Some(Plan { delay: 5 * MS, commits: 20 }));
        assert_eq!(delay.plan(20), None, "all are there");
        assert_eq!(delay.plan(0), None, "no client is kept waiting");
        let mut alone = Delay::new(CommitDelay::Auto);
        alone.wrote(1, 0, 10 * MS);
        assert_eq!(alone.plan(1), None, "a lone client");
        let mut fast = Delay::new(CommitDelay::Auto);
        fast.wrote(10, 10, MS / 10);
        assert_eq!(fast.plan(10), None, "the disk is faster than a wait");
    }

    #[test]
    fn two_clients_that_take_turns_share_a_boxcar() {
        let mut delay = Delay::new(CommitDelay::Auto);
        // The thread that wrote one client's commit also runs the other client's.
        delay.wrote(1, 0, 10 * MS);
        delay.behind(1);
        assert_eq!(delay.plan(1), Some(Plan { delay: 5 * MS, commits: 2 }));
        delay.waited(MS, 1, 2);
        delay.wrote(2, 0, 10 * MS);
        assert!(delay.plan(1).is_some());
        // The other client has left: only one wait is in vain.
        delay.waited(5 * MS, 1, 1);
        delay.wrote(1, 0, 10 * MS);
        delay.behind(0);
        assert_eq!(delay.plan(1), None);
    }

    #[test]
    fn a_wait_that_does_not_pay_is_not_repeated_soon() {
        let mut delay = auto();
        let mut waits = 0;
        for _ in 0..1000 {
            if delay.plan(10).is_some() {
                waits += 1;
                delay.waited(5 * MS, 10, 11);
            }
            delay.wrote(10, 10, 10 * MS);
        }
        assert!((10..30).contains(&waits), "{waits}");
        // After a wait that pays, it waits every time again.
        delay.waited(MS, 10, 20);
        delay.pausing = 0;
        assert!((0..10).all(|_| {
            let waits = delay.plan(10).is_some();
            delay.waited(MS, 10, 20);
            delay.wrote(20, 0, 10 * MS);
            waits
        }));
    }

    #[test]
    fn a_fixed_one_asks_for_siblings() {
        let mut delay = Delay::new(CommitDelay::Fixed { delay: MS, siblings: 5 });
        delay.wrote(5, 0, 10 * MS);
        assert_eq!(delay.plan(1), None);
        delay.wrote(5, 1, 10 * MS);
        assert_eq!(delay.plan(1), Some(Plan { delay: MS, commits: 6 }));
        delay.waited(MS, 1, 1);
        delay.wrote(5, 1, 10 * MS);
        assert!(delay.plan(1).is_some(), "as asked, whether it pays or not");
        assert_eq!(Delay::new(CommitDelay::Off).plan(1), None);
    }
}
