//! Tells the person waiting what is measured and how long it will take: a bar on a terminal, a line for each part elsewhere.
//!
//! The time left is counted from the plan. What is not planned (filling tables, starting servers) makes a run longer than
//! its plan; so the plan is stretched by how much longer the run has taken so far, and little by little, as the first points
//! say little.

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The progress of a study, counted in tenths of seconds of planned time.
pub struct Progress {
    bar: ProgressBar,
    estimate: Arc<Mutex<Estimate>>,
}

impl Progress {
    /// Starts with the planned seconds.
    pub fn start(seconds: f64) -> Progress {
        let estimate = Arc::new(Mutex::new(Estimate::of(seconds)));
        let (of_bar, began) = (estimate.clone(), Instant::now());
        let bar = ProgressBar::new(tenths(seconds));
        let style = ProgressStyle::with_template("{elapsed_precise} {wide_bar:.cyan/blue} {left}\n{msg}")
            .expect("the template is constant and valid")
            .with_key("left", move |_: &ProgressState, to: &mut dyn Write| {
                let left = lock(&of_bar).shown(began.elapsed().as_secs_f64());
                // The bar's own text cannot fail to be written.
                let _ = write!(to, "{}", in_words(left));
            });
        bar.set_style(style);
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress { bar, estimate }
    }

    /// A new part of the study begins.
    pub fn part(&self, name: &str) {
        if self.bar.is_hidden() {
            eprintln!("{name}");
        }
        self.bar.set_message(name.to_string());
    }

    /// What is done now, within the part.
    pub fn now(&self, what: String) {
        self.bar.set_message(what);
    }

    /// Planned time has passed.
    pub fn advance(&self, seconds: f64) {
        self.bar.inc(tenths(seconds));
        let mut estimate = lock(&self.estimate);
        estimate.done += seconds;
        estimate.took = self.bar.elapsed().as_secs_f64();
    }

    /// The plan grew by that much, or shrank.
    pub fn plan(&self, seconds: f64) {
        let mut estimate = lock(&self.estimate);
        estimate.planned = (estimate.planned + seconds).max(0.0);
        self.bar.set_length(tenths(estimate.planned));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn lock(estimate: &Mutex<Estimate>) -> std::sync::MutexGuard<'_, Estimate> {
    estimate.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tenths(seconds: f64) -> u64 {
    (seconds * 10.0) as u64
}

/// What is planned and done, in seconds.
#[derive(Clone, Copy)]
struct Estimate {
    planned: f64,
    done: f64,
    /// How long what is done took.
    took: f64,
    /// What was shown last, and when.
    shown: (f64, f64),
}

/// The part of the plan that what is done is set against, so that one slow point does not count for the rest.
const PRIOR_SHARE: f64 = 0.5;
/// What is shown follows a new estimate within about this time, in seconds.
const FOLLOW: f64 = 20.0;

impl Estimate {
    fn of(planned: f64) -> Estimate {
        Estimate { planned, done: 0.0, took: 0.0, shown: (planned, 0.0) }
    }

    /// Seconds left as they are shown, `elapsed` after the start: without jumps.
    fn shown(&mut self, elapsed: f64) -> f64 {
        let (before, at) = self.shown;
        let passed = (elapsed - at).max(0.0);
        let expected = (before - passed).max(0.0);
        let now = expected + (self.left(elapsed) - expected) * (passed / FOLLOW).min(1.0);
        self.shown = (now, elapsed);
        now
    }

    /// Seconds left, `elapsed` after the start.
    fn left(&self, elapsed: f64) -> f64 {
        let prior = (self.planned * PRIOR_SHARE).max(1.0);
        let stretched = (self.took + prior) / (self.done + prior);
        let left = (self.planned - self.done) * stretched - (elapsed - self.took);
        left.max(0.0)
    }
}

fn in_words(left: f64) -> String {
    match left {
        s if s < 1.0 => "almost done".into(),
        s if s < 90.0 => format!("about {s:.0} s left"),
        s => format!("about {:.0} min left", s / 60.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_begins_with_the_plan_and_falls_as_it_passes() {
        let mut estimate = Estimate::of(120.0);
        assert_eq!(in_words(estimate.shown(0.0)), "about 2 min left");
        assert_eq!(estimate.shown(30.0), 90.0);
        (estimate.done, estimate.took) = (60.0, 60.0);
        assert_eq!(estimate.shown(60.0), 60.0);
        assert_eq!(in_words(estimate.shown(119.5)), "almost done");
    }

    #[test]
    fn a_run_that_takes_half_as_long_again_does_not_make_it_jump() {
        let mut estimate = Estimate::of(100.0);
        let mut before = estimate.shown(0.0);
        for second in 1..=150 {
            let elapsed = f64::from(second);
            // Each point of 5 planned seconds takes 7.5, after 10 that are not planned.
            while estimate.done + 5.0 <= (elapsed - 10.0).max(0.0) / 1.5 {
                estimate.done += 5.0;
                estimate.took = elapsed;
            }
            let now = estimate.shown(elapsed);
            assert!((now - before).abs() <= 5.0, "second {second}: {before} then {now}");
            before = now;
        }
    }
}
