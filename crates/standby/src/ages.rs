//! The age of positions in the trail, to report a standby's lag in time as well as in bytes.

use std::collections::VecDeque;
use std::time::Duration;

use holdfast_types::Lsn;
use tokio::time::Instant;

/// The shortest time between two recorded positions.
const APART: Duration = Duration::from_millis(10);

/// The largest number of recorded positions; beyond it, every second one is dropped.
const KEPT_MAX: usize = 1024;

/// The times at which the trail reached recorded positions.
#[derive(Default)]
pub struct Ages {
    noted: VecDeque<(Lsn, Instant)>,
}

impl Ages {
    /// Records that the trail now ends here.
    pub fn note(&mut self, end: Lsn, now: Instant) {
        let news = self.noted.back().is_none_or(|(last, at)| *last < end && now - *at >= APART);
        if !news {
            return;
        }
        if self.noted.len() == KEPT_MAX {
            let mut keep = false;
            self.noted.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.noted.push_back((end, now));
    }

    /// The age of the first change after `applied`, in a trail that ends at `end`.
    pub fn lag(&self, applied: Lsn, end: Lsn, now: Instant) -> Duration {
        if applied >= end {
            return Duration::ZERO;
        }
        let behind = self.noted.partition_point(|(lsn, _)| *lsn <= applied);
        self.noted.get(behind).map_or(Duration::ZERO, |(_, at)| now - *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_is_the_age_of_what_is_missing() {
        let (mut ages, start) = (Ages::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        for step in 1..=5000u64 {
            ages.note(Lsn(step * 4096), at(step * 10));
        }
        let end = Lsn(5000 * 4096);
        assert_eq!(ages.lag(end, end, at(60_000)), Duration::ZERO);
        assert_eq!(ages.lag(Lsn(4999 * 4096), end, at(50_000)), Duration::ZERO, "it was written just now");
        let lag = ages.lag(Lsn(4500 * 4096), end, at(50_000)).as_millis();
        assert!((4900..=5000).contains(&lag), "{lag} ms");
        assert!(ages.lag(Lsn(0), end, at(50_000)) > Duration::from_secs(45));
        assert!(ages.noted.len() <= KEPT_MAX);
    }
}
