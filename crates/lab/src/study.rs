//! What a run of the lab is asked to do.

use crate::commit::DiskChoice;
use crate::configuration::Configuration;
use crate::interactive::Case;
use crate::speed::Row;
use crate::standby::Part;
use std::path::PathBuf;

/// The studies there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StudyName {
    /// Audited transactions: the card authorization.
    Authorization,
    /// Transactions of several messages.
    Interactive,
    /// Commits a second by commit delay, write cache, barrier and sync method.
    Commit,
    /// A master with a standby.
    Standby,
    /// The table of speed against PostgreSQL.
    Speed,
}

/// A server to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A private PostgreSQL, from the programs found on this machine.
    Postgres,
}

impl Peer {
    pub fn name(self) -> &'static str {
        match self {
            Peer::Postgres => "postgres",
        }
    }
}

/// A study with its options.
#[derive(Clone, Debug)]
pub struct Study {
    pub name: StudyName,
    /// Seconds each point is measured, warm-up included.
    pub seconds: f64,
    /// Client counts of the peak measurements; the rising load uses the largest. Empty leaves it to the study.
    pub clients: Vec<usize>,
    /// Log rows at the start; nothing leaves it to the study.
    pub log_rows: Option<u64>,
    pub peer: Option<Peer>,
    /// Added to every sync of the in-process configurations.
    pub disk_sync_ms: u64,
    /// Configurations of the authorization study to measure; empty is all.
    pub only: Vec<Configuration>,
    /// Cases of the interactive study to measure; empty is all.
    pub only_cases: Vec<Case>,
    /// Parts of the standby study to measure; empty is all.
    pub only_parts: Vec<Part>,
    /// Rows of the speed study to measure; empty is all.
    pub only_rows: Vec<Row>,
    /// Seconds of load before the speed study's rows that follow a load; nothing leaves it to the study.
    pub load_seconds: Option<f64>,
    /// The larger scale of TPC-B; nothing leaves it to the study.
    pub scale: Option<u32>,
    /// The disks of the commit study.
    pub disks: DiskChoice,
    /// Everything the commit study can measure.
    pub full: bool,
    /// Small sizes, to see that the study runs.
    pub quick: bool,
    /// Where the report goes.
    pub out: PathBuf,
    /// Where the databases are made; they are removed afterwards.
    pub data_dir: PathBuf,
    /// Print the results instead of a summary.
    pub json: bool,
    /// The `holdfast` program to start as a server.
    pub program: PathBuf,
    /// The command line, for the report.
    pub command: String,
}

impl Study {
    /// Shortest and longest time of a point.
    pub const SECONDS: std::ops::RangeInclusive<f64> = 0.2..=3600.0;
    /// Fewest and most clients.
    pub const CLIENTS: std::ops::RangeInclusive<usize> = 1..=1000;
    /// Most log rows to start with.
    pub const LOG_ROWS_MAX: u64 = 100_000_000;
    /// Smallest and largest scale.
    pub const SCALES: std::ops::RangeInclusive<u32> = 2..=1000;
    /// Longest delay of a sync.
    pub const DISK_SYNC_MS_MAX: u64 = 1000;

    /// Refuses options outside their limits.
    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            Self::SECONDS.contains(&self.seconds),
            "--seconds is {}; it must be between {} and {}",
            self.seconds,
            Self::SECONDS.start(),
            Self::SECONDS.end()
        );
        for clients in &self.clients {
            anyhow::ensure!(
                Self::CLIENTS.contains(clients),
                "--clients holds {clients}; a count must be between {} and {}",
                Self::CLIENTS.start(),
                Self::CLIENTS.end()
            );
        }
        anyhow::ensure!(
            self.log_rows.is_none_or(|rows| rows <= Self::LOG_ROWS_MAX),
            "--log-rows is more than {}",
            Self::LOG_ROWS_MAX
        );
        anyhow::ensure!(
            self.load_seconds.is_none_or(|seconds| Self::SECONDS.contains(&seconds)),
            "--load-seconds must be between {} and {}",
            Self::SECONDS.start(),
            Self::SECONDS.end()
        );
        anyhow::ensure!(
            self.scale.is_none_or(|scale| Self::SCALES.contains(&scale)),
            "--scale must be between {} and {}",
            Self::SCALES.start(),
            Self::SCALES.end()
        );
        anyhow::ensure!(
            self.disk_sync_ms <= Self::DISK_SYNC_MS_MAX,
            "--disk-sync-ms is more than {}",
            Self::DISK_SYNC_MS_MAX
        );
        anyhow::ensure!(
            self.data_dir.is_dir(),
            "--data {} is not a directory; make it first, on the disk to be measured",
            self.data_dir.display()
        );
        Ok(())
    }

    /// The case is to be measured.
    pub fn wants_case(&self, case: Case) -> bool {
        self.only_cases.is_empty() || self.only_cases.contains(&case)
    }

    /// The part is to be measured.
    pub fn wants_part(&self, part: Part) -> bool {
        self.only_parts.is_empty() || self.only_parts.contains(&part)
    }

    /// The row is to be measured.
    pub fn wants_row(&self, row: Row) -> bool {
        self.only_rows.is_empty() || self.only_rows.contains(&row)
    }

    /// The configuration is to be measured.
    pub fn wants(&self, configuration: Configuration) -> bool {
        let named = self.only.is_empty() || self.only.contains(&configuration);
        let needs_peer = matches!(configuration, Configuration::PostgresSimple | Configuration::PostgresPipeline);
        named && (!needs_peer || self.peer == Some(Peer::Postgres))
    }
}
