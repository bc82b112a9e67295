//! `results.json` of the study. The schema's name carries its version; a field that changes meaning or goes away
//! raises it, a new field does not.

use crate::results::PgbenchResult;
use crate::study_results::{Check, Finding, Head, ServerSettings};
use serde::{Deserialize, Serialize};

/// Name and version of the format.
pub const SCHEMA: &str = "holdfast-lab-interactive/1";

/// One run of the study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Its schema is [`SCHEMA`].
    #[serde(flatten)]
    pub head: Head,
    pub servers: Vec<ServerSettings>,
    /// The authorization, TPC-B and think time.
    pub rates: Vec<PgbenchResult>,
    pub sleepers: Vec<Sleeper>,
    pub memory: Vec<MemoryUse>,
    pub long_transactions: Vec<LongTransaction>,
    /// What must hold after the measurements.
    pub checks: Vec<Check>,
    /// Figures with their goals, and Holdfast's compared with its peer's.
    pub findings: Vec<Finding>,
    /// What was asked for and could not be measured, and what did not hold, with the reason.
    pub failures: Vec<String>,
    pub notes: Vec<String>,
}

/// Rates of the others while no client sleeps and while one client sleeps inside a transaction, by turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sleeper {
    /// `holdfast` or `postgres`, here and below.
    pub server: String,
    pub sleep_seconds: u64,
    pub clients: usize,
    pub tps_without: Vec<f64>,
    pub tps_with: Vec<f64>,
}

impl Sleeper {
    /// How much the sleeper changes the rate of the others: 0.1 is 10 % more, -0.1 is 10 % less.
    pub fn change(&self) -> f64 {
        let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        mean(&self.tps_with) / mean(&self.tps_without) - 1.0
    }
}

/// Memory of all processes of a server, what they share counted once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryUse {
    pub server: String,
    pub connections: usize,
    pub before_bytes: u64,
    /// The first of the connections, idle, and memory then: what the first ones set off counts for none of them.
    pub first_connections: usize,
    pub first_bytes: u64,
    /// Every connection has run a statement and waits.
    pub idle_bytes: u64,
    /// Every connection has a transaction open that has changed a row.
    pub open_bytes: u64,
}

impl MemoryUse {
    pub fn bytes_per_idle_connection(&self) -> f64 {
        let connections = self.connections.saturating_sub(self.first_connections).max(1);
        self.idle_bytes.saturating_sub(self.first_bytes) as f64 / connections as f64
    }
}

/// One transaction of many inserts while others write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LongTransaction {
    pub server: String,
    pub statements: usize,
    /// Milliseconds for each tenth of its statements.
    pub tenths_ms: Vec<f64>,
    pub commit_ms: f64,
    /// Authorizations of the others meanwhile.
    pub foreign_tps: f64,
}

impl LongTransaction {
    /// The last tenth as a multiple of the first.
    pub fn growth(&self) -> Option<f64> {
        crate::ratios::quotient(*self.tenths_ms.last()?, *self.tenths_ms.first()?)
    }
}
