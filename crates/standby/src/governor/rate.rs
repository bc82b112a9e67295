//! The apply rate of a standby: an exponentially weighted mean from its acks.
//!
//! Only time in which it had work counts: a standby that waits for the master does not show how fast it could apply.

/// The weight of the past falls to 1/e in this time. A shorter time follows noise; a longer one reacts late to a
/// change.
const MEMORY_US: f64 = 3e6;

/// Samples closer together than this are combined into one.
const SAMPLE_US: u64 = 20_000;

#[derive(Clone, Debug, Default)]
pub struct Rate {
    bytes_per_us: Option<f64>,
    /// The time at which the current sample began, and the applied position then; `None` while there is no backlog.
    since: Option<(u64, u64)>,
}

impl Rate {
    /// Records an ack: everything below `applied` is applied, everything below `sent` was sent.
    pub fn sample(&mut self, now_us: u64, sent: u64, applied: u64) {
        let backlog = sent > applied;
        let Some((start_us, start)) = self.since else {
            self.since = backlog.then_some((now_us, applied));
            return;
        };
        let time_us = now_us.saturating_sub(start_us);
        if time_us >= SAMPLE_US {
            let newest = applied.saturating_sub(start) as f64 / time_us as f64;
            let weight = 1.0 - (-(time_us as f64) / MEMORY_US).exp();
            self.bytes_per_us = Some(self.bytes_per_us.map_or(newest, |mean| mean + weight * (newest - mean)));
            self.since = backlog.then_some((now_us, applied));
        } else if !backlog {
            // The backlog ended within the sample, at an unknown time.
            self.since = None;
        }
    }

    /// Bytes per microsecond; `None` before the first sample.
    pub fn bytes_per_us(&self) -> Option<f64> {
        self.bytes_per_us.filter(|rate| *rate > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_with_backlog_counts() {
        let mut rate = Rate::default();
        for step in 0..200u64 {
            rate.sample(step * 20_000, 1 << 40, step * 20_000 * 7);
        }
        assert!((rate.bytes_per_us().unwrap() - 7.0).abs() < 1e-9);
        // Ten idle seconds with everything applied do not change the rate.
        let applied = 199 * 20_000 * 7;
        for step in 0..500u64 {
            rate.sample(4_000_000 + step * 20_000, applied, applied);
        }
        assert!((rate.bytes_per_us().unwrap() - 7.0).abs() < 0.1);
    }

    #[test]
    fn follows_a_change_within_seconds() {
        let mut rate = Rate::default();
        let mut applied = 0;
        for step in 1..1000u64 {
            applied += if step < 500 { 20_000 * 8 } else { 20_000 * 4 };
            rate.sample(step * 20_000, u64::MAX, applied);
        }
        let now = rate.bytes_per_us().unwrap();
        assert!((4.0..4.2).contains(&now), "{now} ten seconds after the step from 8 to 4");
    }
}
