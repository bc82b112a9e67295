//! The time that a copy still takes, shown once there is enough behind the estimate: the first chunk arrives after a wait that says
//! nothing of the rate, and a small copy would be given hours.

use indicatif::{HumanDuration, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::time::Duration;

/// The least time that an estimate is made from.
const ELAPSED_MIN: Duration = Duration::from_secs(2);
/// The least part of the whole that must be done: one in so many.
const DONE_MIN: u64 = 100;

/// The time left, after `copied` of `copied + rest`.
pub fn time_left(copied: u64, rest: u64, elapsed: Duration) -> Option<Duration> {
    let is_enough = elapsed >= ELAPSED_MIN && copied > 0 && copied >= (copied.saturating_add(rest)) / DONE_MIN;
    let seconds = elapsed.as_secs_f64() / copied as f64 * rest as f64;
    (is_enough && rest > 0).then(|| Duration::from_secs_f64(seconds.min(1e9)))
}

/// `, 14 seconds left`, or nothing.
pub fn shown(copied: u64, rest: u64, elapsed: Duration) -> String {
    time_left(copied, rest, elapsed).map_or_else(String::new, |left| format!(", {} left", HumanDuration(left)))
}

/// A bar's style, where `{left}` is that text.
pub fn style(template: &str) -> anyhow::Result<ProgressStyle> {
    let left = |state: &ProgressState, out: &mut dyn Write| {
        let rest = state.len().unwrap_or_default().saturating_sub(state.pos());
        // The bar knows the present rate, which a copy that was interrupted has not had all the time.
        if time_left(state.pos(), rest, state.elapsed()).is_some() {
            // A bar that cannot be drawn is not an error of the copy.
            let _ = write!(out, ", {} left", HumanDuration(state.eta()));
        }
    };
    Ok(ProgressStyle::with_template(template)?.progress_chars("=> ").with_key("left", left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_once_enough_was_copied() {
        let seconds = Duration::from_secs;
        assert_eq!(time_left(0, 20_000, seconds(5)), None);
        assert_eq!(time_left(4096, 20_000, Duration::from_millis(3)), None);
        assert_eq!(time_left(4096, 1 << 30, seconds(5)), None);
        assert_eq!(time_left(1 << 30, 0, seconds(5)), None);
        assert_eq!(time_left(20 << 20, 70 << 20, seconds(4)), Some(seconds(14)));
        assert_eq!(time_left(u64::MAX, u64::MAX, seconds(4)), Some(seconds(4)));
        assert_eq!(shown(20 << 20, 70 << 20, seconds(4)), ", 14 seconds left");
        assert_eq!(shown(0, 20_000, seconds(5)), "");
    }
}
