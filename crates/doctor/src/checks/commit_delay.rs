//! What is the best commit delay? None: commits that wait while a sync runs share the next one.
//!
//! The paper's delay collects commits for one log write. Here the sync itself collects: everything that is queued when
//! it returns goes into the next write. A lone client pays one sync for each commit, and many share it.

use super::Case;
use crate::report::Finding;
use crate::report::Verdict::Good;

const NAME: &str = "commit delay";

pub fn check(case: &Case) -> Finding {
    let writing = case.measured.and_then(|measured| measured.writing.as_ref());
    let times = writing.and_then(|writing| writing.of(case.settings.sync_method));
    let found = match times {
        Some(times) => format!("none needed; a lone client gets at most {:.0} commits/s", 1e6 / times.p50_us.max(1.0)),
        None => "none needed".to_owned(),
    };
    Finding::new(NAME, Good, found, "Commits that come while a sync runs share the next one.")
}
