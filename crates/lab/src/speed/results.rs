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
    /// How each server was set up.
    pub servers: Vec<ServerSettings>,
    /// The rows of the table.
    pub lines: Vec<Line>,
    /// Earlier runs that can be compared with this one, in the order of time.
    pub history: Vec<Earlier>,
    /// Ratios with their goals.
    pub findings: Vec<Finding>,
    /// What was asked for and could not be measured, with the reason.
    pub failures: Vec<String>,
    /// What a reader must know to judge the figures.
    pub notes: Vec<String>,
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Which row it is.
    pub row: Row,
    /// What it is, for people.
    pub what: String,
    /// Connections that work at the same time.
    pub clients: usize,
    /// Every measurement, in the order of time.
    pub turns: Vec<Turn>,
    /// Why figures are missing: `PostgreSQL: there is no PostgreSQL here`.
    pub missing: Vec<String>,
    /// The medians of each server's turns.
    pub holdfast: Option<Figures>,
    /// As `holdfast`, of PostgreSQL.
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
    /// Where the server counts them.
    pub syncs_per_transaction: Option<f64>,
    /// What the log or trail took.
    pub log_bytes_per_transaction: Option<f64>,
}

/// The medians of a server's turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// As in [`Turn`].
    pub value: f64,
    /// As in [`Turn`].
    pub cpu_us: Option<f64>,
    /// As in [`Turn`].
    pub syncs_per_transaction: Option<f64>,
    /// As in [`Turn`].
    pub log_bytes_per_transaction: Option<f64>,
}

/// The ratios of the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The one that counts.
    pub median: f64,
    /// Of all rounds.
    pub lowest: f64,
    /// Of all rounds.
    pub highest: f64,
}

/// The physical floor of a row on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// In the row's unit: the best that can be reached.
    pub value: f64,
    /// Transactions a second at a server that does nothing.
    pub echo_rate: Option<f64>,
    /// Its processor time for each, in microseconds.
    pub echo_cpu_us: Option<f64>,
    /// Nothing where a row makes nothing durable.
    pub sync: Option<SyncFloor>,
}

/// Writes that are made durable one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SyncFloor {
    /// Of each write.
    pub bytes: u64,
    /// How many such writes the disk takes.
    pub syncs_a_second: f64,
    /// Transactions a second, one of each client in each write.
    pub rate: f64,
}

/// An earlier run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Earlier {
    /// UTC, `YYYY-MM-DD HH:MM`.
    pub started_at: String,
    /// Holdfast's.
    pub product_version: String,
    /// The rows that it measured.
    pub lines: Vec<EarlierLine>,
}

/// A row of an earlier run, also one that this version does not have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EarlierLine {
    /// Its name on the command line.
    pub row: String,
    /// Holdfast's figure.
    pub value: Option<f64>,
    /// The median of the rounds.
    pub ratio: Option<f64>,
    /// The median of the rounds.
    pub cpu_ratio: Option<f64>,
}

/// A figure against the median of the earlier runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// `ratio`, `CPU ratio`, `rate` or `pause`.
    pub what: String,
    /// The median of the earlier runs.
    pub before: f64,
    /// Of this run.
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
