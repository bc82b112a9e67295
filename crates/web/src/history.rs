//! The last 15 minutes, one point a second: what the console's charts show, kept here so that a fresh page has them.
//!
//! A point is the difference of two readings of the counters. The positions of the trail at past seconds also tell how old what a
//! standby lacks is. Failure: none; after a change of role the counters begin again, and so does the difference.

use crate::figures::Figures;
use crate::limits::HISTORY_POINTS;
use crate::metrics::{Lags, levels};
use holdfast_types::histogram::HistogramFigures;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Instant;

/// One second.
#[derive(Clone, Debug, Default)]
struct Point {
    number: u64,
    unix_ms: u64,
    values: Vec<(&'static str, Option<f64>)>,
    /// Name, lag in bytes, lag in seconds.
    standbys: Vec<(String, Option<f64>, Option<f64>)>,
}

/// The ring.
#[derive(Default)]
pub struct History {
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    points: VecDeque<Point>,
    /// When everything below the position was durable here.
    positions: VecDeque<(Instant, u64)>,
    before: Option<(Instant, Figures)>,
    number: u64,
}

impl History {
    /// Adds the figures of this second.
    pub fn add(&self, figures: &Figures, unix_ms: u64) {
        let now = Instant::now();
        let mut ring = self.ring.lock();
        ring.positions.push_back((now, figures.sent_lsn));
        let lags = ring.lags(figures, now);
        if let Some((at, before)) = ring.before.take() {
            let seconds = now.duration_since(at).as_secs_f64().max(1e-3);
            ring.number += 1;
            let number = ring.number;
            let values = values(figures, &before, seconds);
            let standbys = figures.standbys.iter().map(|standby| {
                let bytes = figures.lag_bytes(standby.applied_lsn.or(standby.durable_lsn));
                let key = |level| lags.seconds.get(&(standby.name.clone(), level)).copied();
                (standby.name.clone(), bytes.map(|bytes| bytes as f64), key("commit").or_else(|| key("hot")))
            });
            ring.points.push_back(Point { number, unix_ms, values, standbys: standbys.collect() });
        }
        ring.before = Some((now, figures.clone()));
        while ring.points.len() > HISTORY_POINTS {
            ring.points.pop_front();
        }
        while ring.positions.len() > HISTORY_POINTS {
            ring.positions.pop_front();
        }
    }

    /// How old what each standby lacks is.
    pub fn lags(&self, figures: &Figures) -> Lags {
        self.ring.lock().lags(figures, Instant::now())
    }

    /// Points with a higher number than `after`, oldest first.
    pub fn json(&self, after: u64) -> Vec<Value> {
        let ring = self.ring.lock();
        // A server that has started again counts from the start.
        let after = if after > ring.number { 0 } else { after };
        ring.points.iter().filter(|point| point.number > after).map(Point::json).collect()
    }
}

impl Ring {
    fn lags(&self, figures: &Figures, now: Instant) -> Lags {
        let mut lags = Lags::default();
        for standby in &figures.standbys {
            for (level, position) in levels(standby) {
                let Some(position) = position else { continue };
                // The first change that it lacks was durable here at the first second with a higher position.
                let lacks = self.positions.iter().find(|(_, durable)| *durable > position);
                let age = match lacks {
                    Some((at, _)) if figures.sent_lsn > position => now.duration_since(*at).as_secs_f64(),
                    _ => 0.0,
                };
                lags.seconds.insert((standby.name.clone(), level), age);
            }
        }
        lags
    }
}

impl Point {
    fn json(&self) -> Value {
        let mut point = serde_json::Map::new();
        point.insert("n".to_owned(), self.number.into());
        point.insert("t".to_owned(), self.unix_ms.into());
        for (name, value) in &self.values {
            point.insert((*name).to_owned(), value.map_or(Value::Null, |value| json!(rounded(value))));
        }
        let standbys = self.standbys.iter().map(|(name, bytes, seconds)| json!([name, bytes, seconds.map(rounded)]));
        point.insert("standbys".to_owned(), standbys.collect());
        Value::Object(point)
    }
}

/// Four digits are more than a chart shows.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10_f64.powi(3 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

fn values(now: &Figures, before: &Figures, seconds: f64) -> Vec<(&'static str, Option<f64>)> {
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
    let (e, was) = (&now.engine, &before.engine);
    let requests = now.requests.since(&before.requests);
    let commits = now.commits.since(&before.commits);
    let syncs = e.sync_times.since(&was.sync_times);
    let boxcars = e.boxcar_commits.since(&was.boxcar_commits);
    let ms = |of: &HistogramFigures, quantile| of.quantile(quantile).map(|us| us / 1e3);
    let errors = |of: &Figures| of.errors.iter().map(|(_, count)| count).sum();
    let sessions = |of: &Figures, state: &str| {
        of.sessions.iter().filter(|row| state.is_empty() || row.state == state).map(|row| row.count).sum::<u64>()
    };
    vec![
        ("tps", Some(rate(e.transactions, was.transactions))),
        ("rps", Some(requests.count() as f64 / seconds)),
        ("eps", Some(rate(errors(now), errors(before)))),
        ("req50", ms(&requests, 0.5)),
        ("req99", ms(&requests, 0.99)),
        ("com50", ms(&commits, 0.5)),
        ("com99", ms(&commits, 0.99)),
        ("sync50", ms(&syncs, 0.5)),
        ("sync99", ms(&syncs, 0.99)),
        ("boxcars", Some(rate(e.boxcars, was.boxcars))),
        ("boxcar", boxcars.mean()),
        ("trail_bps", Some(rate(e.trail_disk_bytes, was.trail_disk_bytes))),
        ("active", Some(sessions(now, "active") as f64)),
        ("sessions", Some(sessions(now, "") as f64)),
        ("waiting", Some(now.locks_waiting as f64)),
        ("governor_ms", Some(rate(e.governed_us, was.governed_us) / 1e3)),
        ("cpu", Some(((now.process.cpu_seconds - before.process.cpu_seconds) / seconds).max(0.0))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::StandbyFigures;
    use std::time::Duration;

    #[test]
    fn the_history_is_bounded_and_a_page_gets_what_it_lacks() {
        let history = History::default();
        (0..HISTORY_POINTS as u64 + 10).for_each(|second| history.add(&Figures::default(), second));
        let all = history.json(0);
        assert_eq!((all.len(), all[0]["n"].as_u64()), (HISTORY_POINTS, Some(10)));
        let last = all[HISTORY_POINTS - 1]["n"].as_u64().unwrap();
        assert!(history.json(last).is_empty());
        assert_eq!(history.json(last - 1).len(), 1);
        assert_eq!(history.json(last + 1).len(), HISTORY_POINTS, "numbers of an earlier process");
    }

    #[test]
    fn what_a_standby_lacks_is_as_old_as_the_first_position_beyond_it() {
        let history = History::default();
        let at = |sent_lsn, applied| Figures {
            sent_lsn,
            standbys: vec![StandbyFigures { name: "s".into(), applied_lsn: Some(applied), ..Default::default() }],
            ..Figures::default()
        };
        history.add(&at(100, 100), 0);
        std::thread::sleep(Duration::from_millis(20));
        history.add(&at(200, 100), 1);
        std::thread::sleep(Duration::from_millis(20));
        let key = ("s".to_owned(), "commit");
        let age = history.lags(&at(300, 100)).seconds[&key];
        assert!(age >= 0.02, "{age}");
        assert_eq!(history.lags(&at(200, 200)).seconds[&key], 0.0);
        assert!(!history.lags(&at(200, 200)).seconds.contains_key(&("s".to_owned(), "hot")), "not known");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!((rounded(123_456.7), rounded(0.000_123_456), rounded(0.0)), (123_500.0, 0.000_123_5, 0.0));
    }
}
