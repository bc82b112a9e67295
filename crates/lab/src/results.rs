//! `results.json`: everything the report shows, for programs. The schema's name carries its version; a field that
//! changes meaning or goes away raises it, a new field does not.

use crate::configuration::Configuration;
use crate::histogram::Summary;
use crate::verdict::Verdict;
use serde::{Deserialize, Serialize};

/// Name and version of the format.
pub const SCHEMA: &str = "holdfast-lab-authorization/1";

/// One run of the study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// The paper whose study this is.
    #[serde(default)]
    pub paper: String,
    pub product_version: String,
    /// UTC, `YYYY-MM-DD HH:MM`.
    pub started_at: String,
    /// The command line that repeats the run.
    pub command: String,
    pub options: Options,
    pub machine: Vec<Fact>,
    pub configurations: Vec<ConfigurationResult>,
    /// The authorization driven by PostgreSQL's own pgbench.
    pub pgbench: Vec<PgbenchResult>,
    pub ratios: Vec<Ratio>,
    /// What was asked for and could not be measured, with the reason.
    pub failures: Vec<String>,
    pub notes: Vec<String>,
}

/// What the run was asked to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    pub seconds_per_point: f64,
    /// Client counts of the peak measurements; the open loop uses the largest.
    pub clients: Vec<usize>,
    pub disk_sync_ms: u64,
    pub log_rows_in_process: u64,
    pub log_rows_wire: u64,
    pub peer: Option<String>,
}

/// A named value: a machine fact, a setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    pub name: String,
    pub value: String,
}

impl Fact {
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Fact {
        Fact { name: name.into(), value: value.into() }
    }
}

/// One configuration at all loads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfigurationResult {
    pub configuration: Configuration,
    /// Why it was not measured; then the lists are empty.
    pub skipped: Option<String>,
    pub settings: Vec<Fact>,
    /// Log rows when its measurements began and ended.
    pub log_rows: (u64, u64),
    /// As fast as it goes: every client sends its next request when it has an answer.
    pub peaks: Vec<Point>,
    /// Rising offered load.
    pub points: Vec<Point>,
}

/// One load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Requests a second offered; none in a closed loop.
    pub offered_rate: Option<f64>,
    pub clients: usize,
    pub completed_rate: f64,
    pub response: Summary,
    /// Requests still waiting for their turn when the time was up.
    pub waiting: u64,
    pub syncs_per_transaction: Option<f64>,
    /// CPU time of the server's processes for each transaction, in microseconds.
    pub server_cpu_us: Option<f64>,
}

/// One pgbench run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PgbenchResult {
    /// `holdfast` or `postgres`.
    pub server: String,
    /// What each transaction does.
    pub case: String,
    pub clients: usize,
    /// Shown with the case: what to know when comparing.
    pub remark: Option<String>,
    /// Why there are no figures.
    pub skipped: Option<String>,
    pub tps: f64,
    pub latency_mean_ms: f64,
    pub failed: u64,
    pub syncs_per_transaction: Option<f64>,
    pub server_cpu_us: Option<f64>,
}

/// Two rates of this run compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// What is compared, as a sentence fragment.
    pub what: String,
    /// Nothing where it was not measured.
    pub value: Option<f64>,
    /// What the study or the product's goal expects, where there is such a figure.
    pub expected: Option<String>,
    /// Nothing where `expected` is not a goal of the product.
    pub verdict: Option<Verdict>,
    /// Shown large at the head of the report.
    pub headline: bool,
}

impl PgbenchResult {
    /// A run of which nothing is known yet.
    pub fn empty(server: &str, case: &str, clients: usize) -> PgbenchResult {
        PgbenchResult {
            server: server.into(),
            case: case.into(),
            clients,
            remark: None,
            skipped: None,
            tps: 0.0,
            latency_mean_ms: 0.0,
            failed: 0,
            syncs_per_transaction: None,
            server_cpu_us: None,
        }
    }
}

impl ConfigurationResult {
    /// A configuration that was not measured.
    pub fn skipped(configuration: Configuration, why: impl Into<String>) -> ConfigurationResult {
        ConfigurationResult {
            configuration,
            skipped: Some(why.into()),
            settings: Vec::new(),
            log_rows: (0, 0),
            peaks: Vec::new(),
            points: Vec::new(),
        }
    }

    /// The best closed-loop point.
    pub fn peak(&self) -> Option<&Point> {
        self.peaks.iter().max_by(|a, b| a.completed_rate.total_cmp(&b.completed_rate))
    }
}

impl Results {
    /// Records that configurations could not be measured.
    pub fn failed(&mut self, configurations: &[Configuration], error: anyhow::Error) {
        let why = format!("{error:#}");
        self.configurations.extend(configurations.iter().map(|c| ConfigurationResult::skipped(*c, why.clone())));
        self.failures.push(why);
    }

    /// A configuration's result.
    pub fn of(&self, configuration: Configuration) -> Option<&ConfigurationResult> {
        self.configurations.iter().find(|c| c.configuration == configuration)
    }

    /// A configuration's peak rate, if it was measured.
    pub fn peak_rate(&self, configuration: Configuration) -> Option<f64> {
        self.of(configuration)?.peak().map(|p| p.completed_rate)
    }
}
