//! The rows of the table: what each one is, how it is driven, its goals, and the sizes of a run.

use crate::pgbench_run::Script;
use crate::ratios::Goal;
use crate::{Study, pgbench, text, workload};
use serde::{Deserialize, Serialize};

/// A row of the table, as `--only` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Row {
    /// The authorization in one simple message.
    OneMessage,
    /// The authorization as one pipeline of prepared statements.
    Pipeline,
    /// The authorization in five messages, on servers that have just been filled.
    FiveMessages,
    /// The authorization in five messages, after a long load on the same servers.
    FiveMessagesLoaded,
    /// pgbench's TPC-B at scale 1, where every transaction changes the same branch.
    #[serde(rename = "tpcb-1")]
    TpcbSmall,
    /// pgbench's TPC-B at a scale with as many branches as clients.
    #[serde(rename = "tpcb-40")]
    TpcbLarge,
    /// One durable insert by one client.
    #[serde(rename = "insert-1")]
    InsertOne,
    /// Durable inserts by many clients.
    #[serde(rename = "insert-80")]
    InsertMany,
    /// One row read by its key.
    RowByKey,
    /// A report over the whole log.
    GroupBy,
    /// The longest pause of other clients at a large commit.
    Pause,
}

/// What a row's figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Transactions a second: the more, the better.
    PerSecond,
    /// A time: the shorter, the better.
    Seconds,
}

/// The goals of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Goals {
    /// Of its rate against PostgreSQL's in the same run.
    pub rate: Option<Goal>,
    /// Of the processor time of the whole server a transaction, against PostgreSQL's in the same run.
    pub cpu: Option<Goal>,
    /// Of a time, in seconds.
    pub seconds: Option<Goal>,
}

impl Row {
    /// All, in the order of the table.
    pub const ALL: [Row; 11] = [
        Row::OneMessage,
        Row::Pipeline,
        Row::FiveMessages,
        Row::FiveMessagesLoaded,
        Row::TpcbSmall,
        Row::TpcbLarge,
        Row::InsertOne,
        Row::InsertMany,
        Row::RowByKey,
        Row::GroupBy,
        Row::Pause,
    ];

    /// All, in the order they are measured: first what needs the log as it was filled, at both servers equally long;
    /// last what needs a load before it.
    pub const MEASURED: [Row; 11] = [
        Row::GroupBy,
        Row::FiveMessages,
        Row::OneMessage,
        Row::Pipeline,
        Row::InsertOne,
        Row::InsertMany,
        Row::RowByKey,
        Row::TpcbSmall,
        Row::TpcbLarge,
        Row::FiveMessagesLoaded,
        Row::Pause,
    ];

    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Row::OneMessage => "one-message",
            Row::Pipeline => "pipeline",
            Row::FiveMessages => "five-messages",
            Row::FiveMessagesLoaded => "five-messages-loaded",
            Row::TpcbSmall => "tpcb-1",
            Row::TpcbLarge => "tpcb-40",
            Row::InsertOne => "insert-1",
            Row::InsertMany => "insert-80",
            Row::RowByKey => "row-by-key",
            Row::GroupBy => "group-by",
            Row::Pause => "pause",
        }
    }

    /// What it is, for people.
    pub fn what(self, sizes: &Sizes) -> String {
        match self {
            Row::OneMessage => pgbench::ONE_MESSAGE.into(),
            Row::Pipeline => pgbench::PIPELINE.into(),
            Row::FiveMessages => format!("{}, fresh", pgbench::FIVE_MESSAGES),
            Row::FiveMessagesLoaded => format!("{}, after {} s of load", pgbench::FIVE_MESSAGES, sizes.load_seconds),
            Row::TpcbSmall => "TPC-B, prepared, scale 1".into(),
            Row::TpcbLarge => format!("TPC-B, prepared, scale {}", sizes.scale),
            Row::InsertOne | Row::InsertMany => pgbench::INSERT.into(),
            Row::RowByKey => pgbench::SELECT.into(),
            Row::GroupBy => "group by over the log, prepared".into(),
            Row::Pause => {
                format!("longest pause of others at a commit of {}", text::bytes(sizes.large_bytes))
            }
        }
    }

    /// What its figure is.
    pub fn unit(self) -> Unit {
        if self == Row::Pause { Unit::Seconds } else { Unit::PerSecond }
    }

    /// Its figure as a reader wants it.
    pub fn show(self, value: f64) -> String {
        match self.unit() {
            Unit::PerSecond => text::number(value),
            Unit::Seconds => text::time(value * 1e6),
        }
    }

    /// How many connections work at the same time.
    pub fn clients(self) -> usize {
        match self {
            Row::InsertOne | Row::GroupBy => 1,
            Row::InsertMany => 80,
            Row::RowByKey => 8,
            _ => 40,
        }
    }

    /// The product's goals.
    pub fn goals(self) -> Goals {
        let (rate, cpu) = match self {
            Row::Pause => return Goals { seconds: Some(Goal::AtMost(0.1)), ..Goals::default() },
            Row::OneMessage => (2.5, Some(0.25)),
            Row::Pipeline => (2.0, Some(0.35)),
            Row::FiveMessages => (1.6, Some(0.5)),
            Row::FiveMessagesLoaded => (1.5, Some(0.5)),
            Row::TpcbSmall | Row::TpcbLarge => (1.5, None),
            Row::InsertOne => (1.1, Some(1.0)),
            Row::InsertMany => (4.0, Some(0.2)),
            Row::RowByKey => (1.6, Some(0.5)),
            Row::GroupBy => (1.0, None),
        };
        Goals { rate: Some(Goal::AtLeast(rate)), cpu: cpu.map(Goal::AtMost), seconds: None }
    }

    /// pgbench's -M and its script.
    pub fn script(self) -> (&'static str, Script) {
        let prepared = |text: String| ("prepared", Script::Text(text));
        match self {
            Row::OneMessage => ("simple", Script::Text(pgbench::one_message())),
            Row::Pipeline => prepared(pgbench::pipeline()),
            Row::FiveMessages | Row::FiveMessagesLoaded => prepared(pgbench::five_messages()),
            Row::TpcbSmall | Row::TpcbLarge => ("prepared", Script::Builtin("tpcb-like")),
            Row::InsertOne | Row::InsertMany => prepared(pgbench::insert()),
            Row::RowByKey => prepared(pgbench::select()),
            Row::GroupBy => prepared(format!("{};\n", workload::REPORT_SQL)),
            Row::Pause => ("simple", Script::Text(pgbench::one_message())),
        }
    }

    /// The scale at which pgbench's tables are filled before it.
    pub fn scale(self, sizes: &Sizes) -> Option<u32> {
        match self {
            Row::TpcbSmall => Some(1),
            Row::TpcbLarge => Some(sizes.scale),
            _ => None,
        }
    }
}

/// Sizes the goals are defined with, or small ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// Rows in the log before the first row of the table.
    pub log_rows: u64,
    /// The larger scale of TPC-B.
    pub scale: u32,
    /// Seconds of load before [`Row::FiveMessagesLoaded`].
    pub load_seconds: u64,
    /// Bytes of the large transaction of [`Row::Pause`].
    pub large_bytes: u64,
    /// Turns of each server in each row.
    pub rounds: usize,
}

impl Sizes {
    /// Those that the options ask for.
    pub fn of(study: &Study) -> Sizes {
        let small = study.quick;
        Sizes {
            log_rows: study.log_rows.unwrap_or(if small { 5_000 } else { 300_000 }),
            scale: study.scale.unwrap_or(if small { 2 } else { 40 }),
            load_seconds: study.load_seconds.map_or(if small { 1 } else { 180 }, crate::pgbench_run::whole_seconds),
            large_bytes: if small { 2 << 20 } else { 174 << 20 },
            rounds: if small { 1 } else { 3 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_measured_once_under_a_name_of_its_own() {
        let mut names: Vec<&str> = Row::ALL.map(Row::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Row::ALL.len());
        for row in Row::ALL {
            assert_eq!(serde_json::to_value(row).unwrap(), row.name());
            assert_eq!(Row::MEASURED.iter().filter(|measured| **measured == row).count(), 1, "{row:?}");
        }
    }
}
