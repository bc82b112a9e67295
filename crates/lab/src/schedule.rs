//! When requests arrive, and which loads are offered.
//!
//! Each client offers a fixed rate on a fixed schedule that does not wait for answers (an open loop): a request that
//! arrives while the client is still busy is late from its scheduled time on, so a stall counts against every
//! request that should have run meanwhile (no coordinated omission). Clients are added until all are in, then each
//! one's rate rises.

use std::time::Duration;

/// Rate at which one client works until all clients are in, requests a second.
pub const CLIENT_RATE: f64 = 25.0;

/// How requests are offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// `rate` requests a second in all, spread evenly over `clients`.
    Open { rate: f64, clients: usize },
    /// Every client sends its next request as soon as it has an answer.
    Closed { clients: usize },
}

impl Load {
    /// An open load with as many clients as the rate asks for, at most `clients_max`.
    pub fn open(rate: f64, clients_max: usize) -> Load {
        Load::Open { rate, clients: ((rate / CLIENT_RATE).ceil() as usize).clamp(1, clients_max) }
    }

    /// Clients at work.
    pub fn clients(&self) -> usize {
        match *self {
            Load::Open { clients, .. } | Load::Closed { clients } => clients,
        }
    }

    /// When request `k` (from 0) of `client` arrives, counted from the start; nothing in a closed loop. The clients
    /// take turns, so that arrivals are evenly spaced over all of them.
    pub fn arrival(&self, client: usize, k: u64) -> Option<Duration> {
        match *self {
            Load::Open { rate, clients } => {
                Some(Duration::from_secs_f64((k * clients as u64 + client as u64) as f64 / rate))
            }
            Load::Closed { .. } => None,
        }
    }
}

/// The offered loads for a configuration whose peak is known: a 1-2-5 ladder shared by all configurations, so that
/// their points stand above each other (far below the peak its tens only), and points around the peak where the knee
/// is. Rising, without near-twins.
pub fn ladder(peak: f64) -> Vec<f64> {
    const AROUND_PEAK: [f64; 4] = [0.7, 0.9, 1.05, 1.3];
    /// A ladder point nearer than this factor to a peak point is left out.
    const APART: f64 = 1.12;
    let around: Vec<f64> = AROUND_PEAK.iter().map(|f| tidy(f * peak)).collect();
    let is_ten = |rate: f64| rate >= 100.0 && rate.log10().fract() == 0.0;
    let far = |rate: f64| around.iter().all(|a| rate / a > APART || a / rate > APART);
    let mut rates: Vec<f64> = (0..7)
        .flat_map(|decade| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(decade)))
        .filter(|&rate| rate < peak && far(rate) && (rate >= peak / 60.0 || is_ten(rate)))
        .chain(around.iter().copied())
        .collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    rates
}

/// Two significant digits, at least 1.
fn tidy(rate: f64) -> f64 {
    let unit = 10f64.powf(rate.max(1.0).log10().floor() - 1.0);
    ((rate / unit).round() * unit).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_evenly_spaced_over_the_clients() {
        let load = Load::Open { rate: 100.0, clients: 4 };
        let mut all: Vec<Duration> = (0..4).flat_map(|c| (0..5).map(move |k| load.arrival(c, k).unwrap())).collect();
        all.sort();
        let expected: Vec<Duration> = (0..20).map(|i| Duration::from_millis(i * 10)).collect();
        assert_eq!(all, expected);
        assert_eq!(Load::Closed { clients: 4 }.arrival(0, 0), None);
    }

    #[test]
    fn clients_are_added_then_work_faster() {
        assert_eq!(Load::open(10.0, 40).clients(), 1);
        assert_eq!(Load::open(100.0, 40).clients(), 4);
        assert_eq!(Load::open(1000.0, 40).clients(), 40);
        assert_eq!(Load::open(50_000.0, 40).clients(), 40);
    }

    #[test]
    fn the_ladder_rises_past_the_peak() {
        assert_eq!(ladder(1000.0), [20.0, 50.0, 100.0, 200.0, 500.0, 700.0, 900.0, 1100.0, 1300.0]);
        for peak in [0.4, 3.0, 17.0, 812.0, 45_678.0, 2e6] {
            let rates = ladder(peak);
            assert!(rates.windows(2).all(|w| w[0] < w[1]), "{peak}: {rates:?}");
            assert!(*rates.last().unwrap() >= peak, "{peak}: {rates:?}");
            assert!(rates.len() <= 14, "{peak}: {rates:?}");
        }
    }
}
