//! `results.json` of the study. The schema's name carries its version; a field that changes meaning or goes away
//! raises it, a new field does not.

use super::row::{Row, Unit};
use crate::ratios::quotient;
use crate::study_results::{Finding, Head, ServerSettings};
use serde::{Deserialize, Serialize};

/// Name and version of the format.
pub const SCHEMA: &str = "holdfast-lab-speed/1";

/// One run of the study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Its schema is [`SCHEMA`].
    #[serde(flatten)]
    pub head: Head,
    pub servers: Vec<ServerSettings>,
    /// The rows of the table.
    pub lines: Vec<Line>,
    /// Earlier runs that can be compared with this one, in the order of time.
    pub history: Vec<Earlier>,
    /// Ratios with their goals.
    pub findings: Vec<Finding>,
    /// What was asked for and could not be measured, with the reason.
    pub failures: Vec<String>,
    pub notes: Vec<String>,
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    pub row: Row,
    /// What it is, for people.
    pub what: String,
    pub clients: usize,
    /// Every measurement, in the order of time.
    pub turns: Vec<Turn>,
    /// Why figures are missing: `PostgreSQL: there is no PostgreSQL here`.
    pub missing: Vec<String>,
    /// The medians of each server's turns.
    pub holdfast: Option<Figures>,
    pub postgres: Option<Figures>,
    /// Holdfast's figure as a multiple of PostgreSQL's.
    pub ratio: Option<Spread>,
    /// Holdfast's processor time a transaction as a multiple of PostgreSQL's.
    pub cpu_ratio: Option<Spread>,
    /// What no server can do better.
    pub floor: Option<Floor>,
    /// How it differs from the earlier runs.
    pub changes: Vec<Change>,
}

/// One measurement of one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// `holdfast` or `postgres`.
    pub server: String,
    /// Both servers take their turn in each round.
    pub round: usize,
    /// Transactions a second; of a pause, seconds.
    pub value: f64,
    /// User and system time of the server's processes for each transaction, in microseconds.
    pub cpu_us: Option<f64>,
    pub syncs_per_transaction: Option<f64>,
    /// What the log or trail took.
    pub log_bytes_per_transaction: Option<f64>,
}

/// The medians of a server's turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// As in [`Turn`].
    pub value: f64,
    pub cpu_us: Option<f64>,
    pub syncs_per_transaction: Option<f64>,
    pub log_bytes_per_transaction: Option<f64>,
}

/// The ratios of the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub lowest: f64,
    pub highest: f64,
}

/// The physical floor of a row on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// In the row's unit: the best that can be reached.
    pub value: f64,
    /// Transactions a second at a server that does nothing, and its processor time for each.
    pub echo_rate: Option<f64>,
    pub echo_cpu_us: Option<f64>,
    pub sync: Option<SyncFloor>,
}

/// Writes that are made durable one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SyncFloor {
    /// Of each write.
    pub bytes: u64,
    pub syncs_a_second: f64,
    /// Transactions a second, one of each client in each write.
    pub rate: f64,
}

/// An earlier run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Earlier {
    /// UTC, `YYYY-MM-DD HH:MM`.
    pub started_at: String,
    pub product_version: String,
    pub lines: Vec<EarlierLine>,
}

/// A row of an earlier run, also one that this version does not have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EarlierLine {
    pub row: String,
    /// Holdfast's figure.
    pub value: Option<f64>,
    pub ratio: Option<f64>,
    pub cpu_ratio: Option<f64>,
}

/// A figure against the median of the earlier runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// `ratio`, `CPU ratio`, `rate` or `pause`.
    pub what: String,
    pub before: f64,
    pub now: f64,
    /// 0.1 is 10 % more.
    pub growth: f64,
    /// It is worse by more than 5 %.
    pub worse: bool,
}

impl Floor {
    /// How near Holdfast is: 1 is the floor itself.
    pub fn share(&self, line: &Line) -> Option<f64> {
        let value = line.holdfast?.value;
        match line.row.unit() {
            Unit::PerSecond => quotient(value, self.value),
            Unit::Seconds => quotient(self.value, value),
        }
    }
}

impl Line {
    /// A row of which nothing is known yet.
    pub fn empty(row: Row, what: String) -> Line {
        Line {
            row,
            what,
            clients: row.clients(),
            turns: Vec::new(),
            missing: Vec::new(),
            holdfast: None,
            postgres: None,
            ratio: None,
            cpu_ratio: None,
            floor: None,
            changes: Vec::new(),
        }
    }
}
