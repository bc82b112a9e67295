//! Is the commit delay a good one?
//!
//! Commits that come while a sync runs share the next one, so that none is needed for sharing. The automatic delay waits
//! for at most half a sync, while that pays. The paper: a small delay helps, a large one hurts where a sync is fast. A
//! fixed one longer than a sync is a warning.

use super::Case;
use super::latency::shown;
use crate::report::Finding;
use crate::report::Verdict::{Good, Warn};
use crate::settings::Delay;

const NAME: &str = "commit delay";

pub fn check(case: &Case) -> Finding {
    let writing = case.measured.and_then(|measured| measured.writing.as_ref());
    let sync_us = writing.and_then(|writing| writing.of(case.settings.sync_method)).map(|times| times.p50_us);
    let lone = sync_us.map_or(String::new(), |sync_us| {
        format!("; a lone client gets at most {:.0} commits/s", 1e6 / sync_us.max(1.0))
    });
    match (case.settings.commit_delay, sync_us) {
        (Delay::Auto, _) => Finding::new(
            NAME,
            Good,
            format!("auto{lone}"),
            "It waits for at most half a sync, and only while that pays.",
        ),
        (Delay::Off, _) => {
            Finding::new(NAME, Good, format!("none{lone}"), "Commits that come while a sync runs share the next one.")
        }
        (Delay::Fixed { us }, Some(sync_us)) if us as f64 > sync_us => {
            let why =
                format!("It is longer than a sync takes here ({}): waiting costs more than it saves.", shown(sync_us));
            Finding::new(NAME, Warn, format!("{us} us{lone}"), why)
                .with_advice("Set commit_delay_us = \"auto\", and try --workload with your own transactions.")
        }
        (Delay::Fixed { us }, _) => {
            Finding::new(NAME, Good, format!("{us} us{lone}"), "It is shorter than a sync takes, as far as is known.")
        }
    }
}
