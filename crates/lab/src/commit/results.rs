//! `results.json` of the study. The schema's name carries its version; a field that changes meaning or goes away
//! raises it, a new field does not.

use crate::study_results::{Finding, Head};
use serde::{Deserialize, Serialize};

/// Name and version of the format.
pub const SCHEMA: &str = "holdfast-lab-commit/1";

/// One run of the study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Its schema is [`SCHEMA`].
    #[serde(flatten)]
    pub head: Head,
    pub rates: Vec<Rate>,
    pub sync_methods: Vec<SyncMethodRate>,
    /// Figures compared with their goals, the paper's, and the peer's.
    pub findings: Vec<Finding>,
    /// What was asked for and could not be measured, with the reason.
    pub failures: Vec<String>,
    pub notes: Vec<String>,
}

/// Commits a second at one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// `holdfast` or `postgres`.
    pub server: String,
    /// `paper` or `real`.
    pub disk: String,
    /// The drive has a write cache that forgets.
    pub cache: bool,
    /// A sync flushes it.
    pub barrier: bool,
    /// Microseconds, or `auto`.
    pub delay: String,
    pub method: String,
    pub clients: usize,
    /// The middle one of `runs`, and the response times of that run.
    pub tps: f64,
    pub runs: Vec<f64>,
    pub mean_us: f64,
    pub p99_us: u64,
    /// Syncs of the trail for each commit, where the server counts them.
    pub syncs_per_commit: Option<f64>,
}

/// What a disk does by one sync method, without a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SyncMethodRate {
    /// `paper` or `real`.
    pub disk: String,
    pub method: String,
    /// Blocks written and made durable a second.
    pub syncs_rate: f64,
}

impl Rate {
    /// A run of the same point, whatever it measured.
    pub fn is_same_point(&self, other: &Rate) -> bool {
        let of = |r: &Rate| {
            (r.server.clone(), r.disk.clone(), r.cache, r.barrier, r.delay.clone(), r.method.clone(), r.clients)
        };
        of(self) == of(other)
    }
}
