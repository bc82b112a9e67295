//! How long requests take, of all sessions.

use holdfast_types::histogram::Histogram;

/// From the arrival of a request to its answer, in microseconds.
#[derive(Debug, Default)]
pub struct Latencies {
    pub requests: Histogram,
    /// Of requests that waited for a commit.
    pub commits: Histogram,
}

impl Latencies {
    /// A request was answered.
    pub fn answered(&self, us: i64, committed: bool) {
        let us = u64::try_from(us).unwrap_or_default();
        self.requests.observe(us);
        if committed {
            self.commits.observe(us);
        }
    }
}
