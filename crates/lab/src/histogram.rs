//! Response times: recorded in an HDR histogram, summarised as mean and percentiles.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Longest response time that is counted exactly, in microseconds; longer ones count as this long.
const RESPONSE_US_MAX: u64 = 3_600_000_000;

/// Response times with three significant digits.
pub struct Responses(Histogram<u64>);

/// What is reported of them, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub count: u64,
    pub mean_us: f64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    pub max_us: u64,
}

impl Default for Responses {
    fn default() -> Responses {
        Responses(Histogram::new_with_bounds(1, RESPONSE_US_MAX, 3).expect("constant bounds are valid"))
    }
}

impl Responses {
    pub fn record(&mut self, response: Duration) {
        self.0.saturating_record((response.as_micros() as u64).clamp(1, RESPONSE_US_MAX));
    }

    /// Adds what another client recorded.
    pub fn merge(&mut self, other: &Responses) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    pub fn summary(&self) -> Summary {
        let h = &self.0;
        if h.is_empty() {
            return Summary::default();
        }
        Summary {
            count: h.len(),
            mean_us: h.mean(),
            p50_us: h.value_at_quantile(0.5),
            p99_us: h.value_at_quantile(0.99),
            p999_us: h.value_at_quantile(0.999),
            max_us: h.max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_known_times() {
        let mut all = Responses::default();
        for half in [1..=500u64, 501..=1000] {
            let mut one = Responses::default();
            half.for_each(|us| one.record(Duration::from_micros(us)));
            all.merge(&one);
        }
        let s = all.summary();
        assert_eq!((s.count, s.p50_us, s.p99_us, s.p999_us, s.max_us), (1000, 500, 990, 999, 1000));
        assert!((s.mean_us - 500.5).abs() < 0.5);
        assert_eq!(Responses::default().summary(), Summary::default());
    }
}
