//! `results.json` of the study. The schema's name carries its version; a field that changes meaning or goes away raises
//! it, a new field does not.
//!
//! Failure: none; a part that was not measured is an empty list, and `failures` has the reason.

use super::timeline::Timeline;
use crate::study_results::{Check, Finding, Head, ServerSettings};
use serde::{Deserialize, Serialize};

/// Name and version of the format.
pub const SCHEMA: &str = "holdfast-lab-standby/1";

/// One run of the study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Its schema is [`SCHEMA`].
    #[serde(flatten)]
    pub head: Head,
    pub servers: Vec<ServerSettings>,
    pub levels: Vec<LevelRate>,
    pub distances: Vec<Distance>,
    pub own_cores: Vec<OwnCores>,
    pub catch_ups: Vec<CatchUp>,
    pub large: Vec<LargeTransaction>,
    pub reporting: Vec<Reporting>,
    pub shared_node: Vec<SharedNode>,
    pub governed: Vec<Governed>,
    /// What the governor's laws do in its simulation.
    pub laws: Vec<Law>,
    /// What must hold after the measurements.
    pub checks: Vec<Check>,
    /// Figures with their goals, and Holdfast's compared with its peer's.
    pub findings: Vec<Finding>,
    /// What was asked for and could not be measured, and what did not hold, with the reason.
    pub failures: Vec<String>,
    pub notes: Vec<String>,
}

/// A load at one level. Of several runs each figure is the median.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelRate {
    /// `holdfast` or `postgres`, here and below.
    pub server: String,
    /// `none`: the standby is stopped; else as in [`super::pair::Level`].
    pub level: String,
    pub clients: usize,
    /// Transactions a second offered; nothing where each client sends its next when it has the answer.
    pub offered_rate: Option<f64>,
    pub tps: f64,
    /// The rates of all runs, in their order.
    pub runs: Vec<f64>,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// Processor time for each transaction, in microseconds. The standby's counts until it has shown all of them.
    pub master_cpu_us: Option<f64>,
    pub standby_cpu_us: Option<f64>,
    /// Syncs of the master for each transaction.
    pub syncs_per_transaction: Option<f64>,
}

/// A load at one level with the standby so far away. Of several runs each figure is the median.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distance {
    pub server: String,
    /// What the link delays, there and back.
    pub round_trip_ms: f64,
    /// What a small message really takes through such a link and back, in microseconds.
    pub link_us: f64,
    /// A 4 KiB block made durable on this disk, before each round, when nothing else of this run writes.
    pub sync_us: f64,
    pub level: String,
    pub clients: usize,
    pub tps: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// The medians of all runs, in their order.
    pub runs_p50_us: Vec<f64>,
    /// The median against that at local by way of the same link with as many clients; nothing for local itself.
    pub added_us: Option<f64>,
    /// The added latency in measured round trips; nothing where the link delays nothing.
    pub added_round_trips: Option<f64>,
}

/// A load with each node on a core of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnCores {
    /// Who ran where.
    pub places: String,
    /// Level `none` or `local`.
    #[serde(flatten)]
    pub rate: LevelRate,
    /// The part of the time in which the master's core was busy, for whomever, and in which it was for the master.
    pub master_core_busy: f64,
    pub master_core_own: f64,
    /// How busy the standby's core was, for any process.
    pub standby_core_busy: f64,
}

/// Masters with an equal load each, whose standbys are on one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharedNode {
    pub server: String,
    pub masters: usize,
    /// Transactions a second offered to each.
    pub offered_rate: f64,
    /// Of all together.
    pub tps: f64,
    /// Of the slowest.
    pub p99_us: f64,
    /// Processor time of all masters, and of all standbys until they have shown everything, for each transaction.
    pub master_cpu_us: f64,
    pub standby_cpu_us: f64,
    /// Of each standby, over time and at most.
    pub lag_mean_bytes: u64,
    pub lag_most_bytes: u64,
}

/// A standby that was away while a load ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CatchUp {
    pub server: String,
    /// The load went on while it caught up, on the same processors.
    pub load_goes_on: bool,
    pub away_s: f64,
    /// What was written while it was away.
    pub missing_bytes: u64,
    pub missing_transactions: u64,
    /// Bytes that came over the link until it had all of it; nothing where the load went on.
    pub link_bytes: Option<u64>,
    /// What the first copy of the databases took.
    pub copy_bytes: u64,
    /// From the start of its process on; nothing when it had not caught up when the load ended.
    pub seconds: Option<f64>,
    /// From the first byte that came over the link on, or from the start of its process where the load went on.
    pub catch_up_bytes_rate: f64,
    pub catch_up_tps: f64,
    /// Processor time of the standby for each transaction it caught up with, its start included; nothing where the load
    /// went on.
    pub standby_cpu_us: Option<f64>,
    /// The load's own, while the standby was away, or while it caught up where the load went on.
    pub load_bytes_rate: f64,
    pub load_tps: f64,
    pub timeline: Timeline,
}

/// One large transaction in mid-load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LargeTransaction {
    pub server: String,
    pub rows: u64,
    pub row_bytes: u64,
    /// Seconds of the load: sent, acknowledged, shown to the standby's readers.
    pub began_s: f64,
    pub ended_s: f64,
    pub shown_s: f64,
    /// The others' rate.
    pub tps_before: Option<f64>,
    pub tps_meanwhile: Option<f64>,
    /// In the slowest second until it was shown.
    pub tps_slowest: Option<f64>,
    pub lag_most_bytes: Option<u64>,
    pub master_memory_before_bytes: Option<u64>,
    pub master_memory_most_bytes: Option<u64>,
    pub standby_memory_before_bytes: Option<u64>,
    pub standby_memory_most_bytes: Option<u64>,
    pub timeline: Timeline,
}

/// Queries on the standby during the load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reporting {
    pub server: String,
    /// Rows that each query reads, at the end.
    pub log_rows: u64,
    /// The query without any load.
    pub alone_ms: f64,
    /// Queries that ended during the load, and their mean time.
    pub queries: usize,
    pub mean_ms: f64,
    /// The load's rate and the standby's most lag, without and with the queries.
    pub tps_without: f64,
    pub tps_with: f64,
    pub lag_most_without_bytes: Option<u64>,
    pub lag_most_with_bytes: Option<u64>,
}

/// A load of more than the standby takes in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Governed {
    pub server: String,
    /// `on`, `off`, or `none` where the server has none.
    pub governor: String,
    /// The unlimited load as a multiple of the capacity.
    pub load_factor: f64,
    pub seconds: f64,
    /// How far the standby may fall behind; 0 is any distance.
    pub lag_bytes_max: u64,
    /// Bytes of the trail a second without a limit.
    pub load_bytes_rate: f64,
    /// Bytes of the trail a second that the link lets through.
    pub capacity_bytes_rate: f64,
    /// What follows is of the time after this.
    pub settled_s: f64,
    pub mean_tps: Option<f64>,
    /// Coefficient of variation of the rate of one second.
    pub variation: Option<f64>,
    /// The variation with the way up included.
    pub variation_whole: Option<f64>,
    /// The part of the seconds in which the load was too much: at their end the standby was behind by a quarter of a second
    /// of its capacity or more. And the variation in those.
    pub behind_share: Option<f64>,
    pub variation_behind: Option<f64>,
    /// The slowest second against the mean.
    pub slowest_share: Option<f64>,
    /// Bytes applied against the capacity.
    pub applied_share: Option<f64>,
    /// Of the whole run.
    pub lag_most_bytes: Option<u64>,
    pub lag_last_bytes: Option<u64>,
    pub timeline: Timeline,
}

/// A law of the governor in its simulation; figures are means over the seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Law {
    pub law: String,
    pub in_use: bool,
    pub variation: f64,
    pub slowest_share: f64,
    pub applied_share: f64,
    pub lag_most_share: f64,
    /// Bytes written in each second, of the first seed.
    pub bytes_rates: Vec<u64>,
}
