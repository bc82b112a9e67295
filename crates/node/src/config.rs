//! `holdfast.toml` in the data directory.
//!
//! The first start writes it with every default commented out. An unknown setting is refused with its line and the nearest
//! known one: a misspelt setting that is ignored is noticed only when it is needed. Command-line options override the file.
//!
//! The file is written under another name, synced and renamed, as is every file that a start needs: a torn file would keep
//! the server from starting after a power cut.

mod backups;
mod listen;
mod log_files;
mod parameters;
mod restored;
mod transport;
mod values;

pub use backups::{DrillSettings, DumpSettings, KeepSettings};
pub use listen::{Listen, ListenAddress};
pub use log_files::LogFiles;
pub use restored::RestoredDisk;
pub use transport::{TLS_CERTIFICATE, TLS_CLIENT_CA, TLS_KEY, TlsVersionName};

use crate::data_dir::{self, DataDirError};
use crate::settings;
use holdfast_archive::{ArchiveLocation, Keys};
use holdfast_engine::{ArchiveKeep, BeyondKeep, CommitDelay, Options};
use holdfast_replication::settings::Away;
use holdfast_seams::{Disk, RealDisk, SyncMethod, replace};
use holdfast_standby::packing::Packing;
use serde::Deserialize;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the file in the data directory.
pub use holdfast_replication::settings::FILE_NAME;

/// The file that the first start writes. Each commented line is the default; a test compares it with [`Config::default`].
pub const TEMPLATE: &str = include_str!("holdfast.toml");

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: String, source: std::io::Error },
    #[error("{path}: {message}")]
    Content { path: String, message: String },
    #[error("node_listen = {0:?} is not ADDRESS:PORT")]
    NodeListen(String),
    #[error("http_listen = {0:?} is not ADDRESS:PORT")]
    HttpListen(String),
    #[error(transparent)]
    Directory(#[from] DataDirError),
}

/// How the trail is made durable.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum SyncMethodName {
    OpenDirectDsync,
    OpenSync,
    Fdatasync,
    Fsync,
}

impl From<SyncMethodName> for SyncMethod {
    fn from(name: SyncMethodName) -> SyncMethod {
        match name {
            SyncMethodName::OpenDirectDsync => SyncMethod::OpenDirectDsync,
            SyncMethodName::OpenSync => SyncMethod::OpenSync,
            SyncMethodName::Fdatasync => SyncMethod::Fdatasync,
            SyncMethodName::Fsync => SyncMethod::Fsync,
        }
    }
}

/// The server's configuration.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Serve as the master although this directory is known to lack acknowledged commits. Of the command, not of the file.
    #[serde(skip)]
    pub accept_divergence: bool,
    /// The directory is a restore under way, which is served for reading. Of the command, not of the file.
    #[serde(skip)]
    pub restored: Option<RestoredDisk>,
    pub listen: Listen,
    /// Empty: none.
    pub unix_socket_directory: PathBuf,
    /// Empty: no TLS.
    pub tls_certificate: PathBuf,
    pub tls_key: PathBuf,
    /// Empty: clients are not asked for certificates.
    pub tls_client_ca: PathBuf,
    /// Empty: none.
    pub tls_crl: PathBuf,
    pub tls_min_version: TlsVersionName,
    /// 0: one per processor.
    #[serde(deserialize_with = "values::count")]
    pub workers: usize,
    #[serde(deserialize_with = "values::count")]
    pub connections_max: usize,
    #[serde(deserialize_with = "values::count")]
    pub superuser_reserved_connections: usize,
    /// 0: no limit.
    #[serde(deserialize_with = "values::count")]
    pub connections_per_address_max: usize,
    #[serde(deserialize_with = "values::ms")]
    pub authentication_failure_delay_max_ms: u64,
    #[serde(deserialize_with = "values::count")]
    pub half_open_max: usize,
    #[serde(deserialize_with = "values::ms", alias = "authentication_timeout_ms")]
    pub startup_timeout_ms: u64,
    #[serde(deserialize_with = "values::ms")]
    pub tcp_keepalives_idle_ms: u64,
    #[serde(deserialize_with = "values::ms")]
    pub tcp_keepalives_interval_ms: u64,
    #[serde(deserialize_with = "values::count")]
    pub tcp_keepalives_count: u32,
    #[serde(deserialize_with = "values::ms")]
    pub client_connection_check_interval_ms: u64,
    #[serde(deserialize_with = "values::bytes")]
    pub message_bytes_max: usize,
    #[serde(deserialize_with = "values::count")]
    pub prepared_statements_max: usize,
    #[serde(deserialize_with = "values::count")]
    pub portals_max: usize,
    #[serde(deserialize_with = "values::count")]
    pub batch_steps_max: usize,
    #[serde(deserialize_with = "values::bytes")]
    pub buffered_rows_bytes_max: usize,
    #[serde(deserialize_with = "values::ms")]
    pub statement_timeout_ms: u64,
    #[serde(deserialize_with = "values::ms")]
    pub idle_session_timeout_ms: u64,
    pub log_connections: bool,
    pub log_disconnections: bool,
    /// As PostgreSQL writes it: `-1` for off, `250ms`.
    pub log_min_duration_statement: String,
    pub log_min_error_statement: String,
    pub log_statement: String,
    #[serde(deserialize_with = "values::count")]
    pub statements_kept: usize,
    #[serde(deserialize_with = "values::ms")]
    pub lock_timeout_ms: u64,
    #[serde(deserialize_with = "values::ms")]
    pub idle_in_transaction_session_timeout_ms: u64,
    #[serde(deserialize_with = "values::ms")]
    pub only_writer_idle_timeout_ms: u64,
    pub auto_transaction: bool,
    #[serde(deserialize_with = "values::ms")]
    pub auto_transaction_time_max_ms: u64,
    #[serde(deserialize_with = "values::count")]
    pub auto_transaction_rows_max: u64,
    #[serde(deserialize_with = "values::ms")]
    pub auto_transaction_idle_ms: u64,
    pub sync_method: SyncMethodName,
    #[serde(deserialize_with = "values::delay_us")]
    pub commit_delay_us: DelayUs,
    #[serde(deserialize_with = "values::count")]
    pub commit_siblings: usize,
    #[serde(deserialize_with = "values::bytes")]
    pub segment_bytes: u64,
    #[serde(deserialize_with = "values::bytes")]
    pub memory_bytes_max: u64,
    #[serde(deserialize_with = "values::bytes")]
    pub scratch_bytes_max: u64,
    #[serde(deserialize_with = "values::ms")]
    pub redo_time_max_ms: u64,
    #[serde(deserialize_with = "values::bytes")]
    pub redo_bytes_max: u64,
    #[serde(deserialize_with = "values::count")]
    pub boxcar_requests_max: usize,
    #[serde(deserialize_with = "values::bytes")]
    pub transaction_bytes_max: u64,
    #[serde(deserialize_with = "values::count")]
    pub branch_locks_max: usize,
    pub level: LevelName,
    pub synchronous_standby_names: String,
    pub synchronous_standby_away: Away,
    #[serde(deserialize_with = "values::ms")]
    pub standby_timeout_ms: u64,
    #[serde(deserialize_with = "values::bytes")]
    pub standby_lag_bytes_max: u64,
    #[serde(deserialize_with = "values::bytes")]
    pub standby_keep_bytes_max: u64,
    pub archive: String,
    #[serde(deserialize_with = "values::bytes")]
    pub archive_keep_bytes_max: u64,
    pub archive_keep_beyond: KeepBeyond,
    /// Recipients in the age format, separated by blanks; empty: the archive is not encrypted.
    pub archive_encrypt_to: String,
    /// The file with an identity that opens the archive; empty: none.
    pub archive_identity: PathBuf,
    #[serde(deserialize_with = "values::ms")]
    pub archive_timeout_ms: u64,
    pub dump: DumpSettings,
    pub drill: DrillSettings,
    pub node_name: String,
    pub node_listen: String,
    /// Empty: none.
    pub http_listen: String,
    pub http_token_file: PathBuf,
    pub notify_command: String,
    pub level_raising: bool,
    pub standby_packing: PackingName,
    /// What is logged, as the environment variable HOLDFAST_LOG, which overrides it. Empty: the default.
    pub log: String,
    pub log_directory: String,
    #[serde(deserialize_with = "values::bytes")]
    pub log_file_bytes_max: u64,
    #[serde(deserialize_with = "values::count")]
    pub log_files_kept: u32,
    pub control_members: String,
    pub control_witness: String,
    /// Empty: none.
    pub mirror: PathBuf,
    pub mirror_away: Away,
}

/// `level`, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LevelName {
    #[serde(alias = "cold")]
    Local,
    Warm,
    Hot,
    Commit,
}

impl LevelName {
    /// As `holdfast.level` is set to.
    fn name(self) -> &'static str {
        match self {
            LevelName::Local => "local",
            LevelName::Warm => "warm",
            LevelName::Hot => "hot",
            LevelName::Commit => "commit",
        }
    }
}

/// `standby_packing`: whether boxcars are sent to standbys compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PackingName {
    Off,
    On,
    Auto,
}

impl From<PackingName> for Packing {
    fn from(name: PackingName) -> Packing {
        match name {
            PackingName::Off => Packing::Off,
            PackingName::On => Packing::On,
            PackingName::Auto => Packing::Auto,
        }
    }
}

/// `archive_keep_beyond`: what happens when more of the trail waits for the archive than `archive_keep_bytes_max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepBeyond {
    Warn,
    Refuse,
}

/// `commit_delay_us`: microseconds, or "auto".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayUs {
    Fixed(u64),
    Auto(Auto),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auto {
    Auto,
}

impl std::fmt::Display for DelayUs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DelayUs::Fixed(us) => us.fmt(f),
            DelayUs::Auto(Auto::Auto) => "auto".fmt(f),
        }
    }
}

const LOG_FILES_KEPT_MAX: u32 = 1000;

/// Each network thread takes file descriptors and threads of its own; more threads than processors gain nothing.
const WORKERS_MAX: usize = 512;

/// A waiting connection holds a place among those that have not completed their start-up.
const FAILURE_DELAY_MAX_MS: u64 = 30_000;

/// PostgreSQL's largest.
const COMMIT_DELAY_MAX_US: u64 = 100_000;

impl Default for Config {
    fn default() -> Config {
        Config {
            accept_divergence: false,
            restored: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 5433)).into(),
            unix_socket_directory: transport::UNIX_SOCKET_DIRECTORY.into(),
            tls_certificate: TLS_CERTIFICATE.into(),
            tls_key: TLS_KEY.into(),
            tls_client_ca: TLS_CLIENT_CA.into(),
            tls_crl: PathBuf::new(),
            tls_min_version: TlsVersionName::V12,
            workers: 0,
            connections_max: 2_500,
            superuser_reserved_connections: 3,
            connections_per_address_max: 0,
            authentication_failure_delay_max_ms: 5_000,
            half_open_max: 1_000,
            startup_timeout_ms: 60_000,
            tcp_keepalives_idle_ms: 60_000,
            tcp_keepalives_interval_ms: 10_000,
            tcp_keepalives_count: 6,
            client_connection_check_interval_ms: 0,
            message_bytes_max: 256 << 20,
            prepared_statements_max: 10_000,
            portals_max: 1_000,
            batch_steps_max: 100_000,
            buffered_rows_bytes_max: 256 << 20,
            statement_timeout_ms: 0,
            idle_session_timeout_ms: 0,
            log_connections: false,
            log_disconnections: false,
            log_min_duration_statement: "-1".into(),
            log_min_error_statement: "panic".into(),
            log_statement: "none".into(),
            statements_kept: 5000,
            lock_timeout_ms: 0,
            idle_in_transaction_session_timeout_ms: 0,
            only_writer_idle_timeout_ms: 5_000,
            auto_transaction: false,
            auto_transaction_time_max_ms: 100,
            auto_transaction_rows_max: 1_000,
            auto_transaction_idle_ms: 10,
            sync_method: SyncMethodName::OpenDirectDsync,
            commit_delay_us: DelayUs::Auto(Auto::Auto),
            commit_siblings: 5,
            segment_bytes: 64 << 20,
            memory_bytes_max: 256 << 20,
            scratch_bytes_max: 16 << 30,
            redo_time_max_ms: 1_500,
            redo_bytes_max: 1 << 30,
            boxcar_requests_max: 200,
            transaction_bytes_max: 1 << 30,
            branch_locks_max: 2_000_000,
            level: LevelName::Local,
            synchronous_standby_names: String::new(),
            synchronous_standby_away: Away::Wait,
            standby_timeout_ms: 5_000,
            standby_lag_bytes_max: 64 << 20,
            standby_keep_bytes_max: 16 << 30,
            archive: String::new(),
            archive_keep_bytes_max: 16 << 30,
            archive_keep_beyond: KeepBeyond::Warn,
            archive_encrypt_to: String::new(),
            archive_identity: PathBuf::new(),
            archive_timeout_ms: 300_000,
            dump: DumpSettings::default(),
            drill: DrillSettings::default(),
            node_name: String::new(),
            node_listen: String::new(),
            http_listen: String::new(),
            http_token_file: PathBuf::new(),
            notify_command: String::new(),
            level_raising: false,
            standby_packing: PackingName::Auto,
            log: String::new(),
            log_directory: String::new(),
            log_file_bytes_max: 16 << 20,
            log_files_kept: 4,
            control_members: String::new(),
            control_witness: String::new(),
            mirror: PathBuf::new(),
            mirror_away: Away::Wait,
        }
    }
}

impl Config {
    /// Reads the data directory's file; if there is none, makes the directory and writes the file.
    pub fn load(dir: &Path) -> Result<Config, ConfigError> {
        let path = dir.join(FILE_NAME);
        let io = |what, path: &PathBuf| {
            let path = path.display().to_string();
            move |source| ConfigError::Io { what, path, source }
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => Config::parse(&text)
                .map_err(|message| ConfigError::Content { path: path.display().to_string(), message }),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                data_dir::refuse_foreign(dir)?;
                data_dir::refuse_lost(dir)?;
                let disk = RealDisk::new();
                disk.create_dir(dir).map_err(io("create", &dir.to_owned()))?;
                write_text(&disk, dir, TEMPLATE).map_err(io("write", &path))?;
                Ok(Config::default())
            }
            Err(e) => Err(io("read", &path)(e)),
        }
    }

    /// Parses a file's text; the message names line and key.
    pub fn parse(text: &str) -> Result<Config, String> {
        let config: Config = toml::from_str(text).map_err(|error| values::explain(text, &error))?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        let at_least = |name: &str, value: u64, min: u64| {
            if value < min { Err(format!("{name} = {value} is too small, the least is {min}")) } else { Ok(()) }
        };
        settings::check_logging(&self.parameters())?;
        at_least("connections_max", self.connections_max as u64, 1)?;
        at_least("half_open_max", self.half_open_max as u64, 10)?;
        at_least("startup_timeout_ms", self.startup_timeout_ms, 100)?;
        self.check_transport()?;
        at_least("message_bytes_max", self.message_bytes_max as u64, 1 << 16)?;
        at_least("batch_steps_max", self.batch_steps_max as u64, 1)?;
        at_least("segment_bytes", self.segment_bytes, 1 << 20)?;
        at_least("memory_bytes_max", self.memory_bytes_max, 8 << 20)?;
        at_least("redo_time_max_ms", self.redo_time_max_ms, 10)?;
        at_least("redo_bytes_max", self.redo_bytes_max, 1 << 20)?;
        at_least("branch_locks_max", self.branch_locks_max as u64, 1000)?;
        at_least("boxcar_requests_max", self.boxcar_requests_max as u64, 1)?;
        at_least("log_file_bytes_max", self.log_file_bytes_max, 1 << 16)?;
        let at_most = |name: &str, value: u64, max: u64| {
            if value > max { Err(format!("{name} = {value} is too large, the most is {max}")) } else { Ok(()) }
        };
        at_most("authentication_failure_delay_max_ms", self.authentication_failure_delay_max_ms, FAILURE_DELAY_MAX_MS)?;
        at_most("workers", self.workers as u64, WORKERS_MAX as u64)?;
        at_most("log_files_kept", u64::from(self.log_files_kept), u64::from(LOG_FILES_KEPT_MAX))?;
        at_least("standby_timeout_ms", self.standby_timeout_ms, 100)?;
        at_least("standby_keep_bytes_max", self.standby_keep_bytes_max, 1 << 20)?;
        at_least("archive_keep_bytes_max", self.archive_keep_bytes_max, 1 << 20)?;
        ArchiveLocation::parse(&self.archive).map_err(|error| error.to_string())?;
        self.check_backups()?;
        if self.standby_lag_bytes_max > 0 {
            at_least("standby_lag_bytes_max", self.standby_lag_bytes_max, 1 << 20)?;
        }
        if self.has_mirror() && !self.control_members.trim().is_empty() {
            return Err(
                "mirror and control_members do not go together: a mirror has no vote of its own, and could not be \
                        promoted without deceiving the group"
                    .to_owned(),
            );
        }
        let within = |name: &str, value: u64, (least, most): (i64, i64)| match i64::try_from(value) {
            Ok(n) if (least..=most).contains(&n) => Ok(()),
            _ => Err(format!("{name} = {value} is not between {least} and {most}")),
        };
        within("auto_transaction_time_max_ms", self.auto_transaction_time_max_ms, settings::AUTO_TIME_MS)?;
        within("auto_transaction_rows_max", self.auto_transaction_rows_max, settings::AUTO_ROWS)?;
        within("auto_transaction_idle_ms", self.auto_transaction_idle_ms, settings::AUTO_IDLE_MS)?;
        if let DelayUs::Fixed(us) = self.commit_delay_us {
            at_most("commit_delay_us", us, COMMIT_DELAY_MAX_US)?;
        }
        if self.message_bytes_max > 0x3fff_ffff {
            return Err(format!("message_bytes_max = {} is too large, the most is 1 GB", self.message_bytes_max));
        }
        if !self.segment_bytes.is_multiple_of(4096) {
            return Err(format!("segment_bytes = {} is not a multiple of 4096", self.segment_bytes));
        }
        self.http_listen().map_err(|e| e.to_string())?;
        self.node_listen().map(|_| ()).map_err(|e| e.to_string())
    }

    /// Where metrics, health and the console are served; `None`: nowhere.
    pub fn http_listen(&self) -> Result<Option<SocketAddr>, ConfigError> {
        let text = self.http_listen.trim();
        let wrong = |_| ConfigError::HttpListen(text.to_owned());
        let address = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        match text {
            "" => Ok(None),
            _ => address.as_deref().unwrap_or(text).parse().map(Some).map_err(wrong),
        }
    }

    /// The address for links of other nodes, where it is not the clients' port.
    pub fn node_listen(&self) -> Result<Option<SocketAddr>, ConfigError> {
        let text = self.node_listen.trim();
        let wrong = |_| ConfigError::NodeListen(text.to_owned());
        if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(wrong) }
    }

    pub fn has_mirror(&self) -> bool {
        !self.mirror.as_os_str().is_empty()
    }

    /// Sets the directory of `--mirror`; empty: none.
    pub fn set_mirror(&mut self, mirror: PathBuf) -> Result<(), ConfigError> {
        self.mirror = mirror;
        let path = "--mirror".to_owned();
        self.check().map_err(|message| ConfigError::Content { path, message })
    }

    /// The engine's options.
    pub fn options(&self) -> Options {
        Options {
            sync_method: self.sync_method.into(),
            commit_delay: self.commit_delay(),
            segment_bytes: self.segment_bytes,
            memory_bytes_max: self.memory_bytes_max,
            scratch_bytes_max: self.scratch_bytes_max,
            redo_time_max: Duration::from_millis(self.redo_time_max_ms),
            redo_bytes_max: self.redo_bytes_max,
            boxcar_requests_max: self.boxcar_requests_max,
            transaction_bytes_max: self.transaction_bytes_max,
            branch_locks_max: self.branch_locks_max,
            standby_keep_bytes_max: self.standby_keep_bytes_max,
            idle_in_transaction_timeout: Duration::from_millis(self.only_writer_idle_timeout_ms),
            archive: self.archive_keep(),
            ..Options::default()
        }
    }

    /// A warning where the file sets another size of segments than the trail in `dir` has.
    pub fn segment_bytes_ignored(&self, dir: &Path, trail_has: u64) -> Option<String> {
        let (wanted, path) = (self.segment_bytes, dir.join(FILE_NAME));
        // A copy has its master's size of segments, and a file that does not set it.
        let is_set = || {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            toml::from_str::<toml::Table>(&text).is_ok_and(|table| table.contains_key("segment_bytes"))
        };
        (wanted != trail_has && is_set()).then(|| {
            format!(
                "segment_bytes = {wanted} in {} has no effect: the trail was made with segments of {trail_has} bytes and \
                 keeps that size for good. Write segment_bytes = {trail_has} there, or remove the line",
                path.display()
            )
        })
    }

    /// How the archive is encrypted and read.
    pub fn archive_keys(&self) -> Keys {
        let path = &self.archive_identity;
        Keys {
            encrypt_to: self.archive_encrypt_to.split_whitespace().map(str::to_owned).collect(),
            identity: (!path.as_os_str().is_empty()).then(|| path.clone()),
        }
    }

    fn archive_keep(&self) -> Option<ArchiveKeep> {
        let beyond = match self.archive_keep_beyond {
            KeepBeyond::Warn => BeyondKeep::Warn,
            KeepBeyond::Refuse => BeyondKeep::Refuse,
        };
        (!self.archive.is_empty()).then_some(ArchiveKeep { bytes_max: self.archive_keep_bytes_max, beyond })
    }

    fn commit_delay(&self) -> CommitDelay {
        match self.commit_delay_us {
            DelayUs::Auto(Auto::Auto) => CommitDelay::Auto,
            DelayUs::Fixed(0) => CommitDelay::Off,
            DelayUs::Fixed(us) => {
                CommitDelay::Fixed { delay: Duration::from_micros(us), siblings: self.commit_siblings }
            }
        }
    }
}

/// Writes the file of a directory that has none yet, for a node of that name: a standby keeps it when it is promoted.
pub fn write_for(dir: &Path, node_name: &str) -> io::Result<()> {
    if dir.join(FILE_NAME).exists() {
        return Ok(());
    }
    let text = TEMPLATE.replacen("#node_name = \"\"", &format!("node_name = \"{node_name}\""), 1);
    write_text(&RealDisk::new(), dir, &text)
}

/// Writes the file durably: after a power cut it is whole or absent.
fn write_text(disk: &dyn Disk, dir: &Path, text: &str) -> io::Result<()> {
    Ok(replace(disk, &dir.join(FILE_NAME), text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_seams::testing::FaultDisk;

    #[test]
    fn the_template_is_whole_or_absent_after_a_power_cut() {
        let path = Path::new("/data").join(FILE_NAME);
        let mut found = [0, 0];
        for seed in 0..40 {
            for operation in 1..6 {
                let disk = FaultDisk::new(seed);
                disk.cut_power_after(operation);
                let written = write_text(&disk, Path::new("/data"), TEMPLATE).is_ok();
                disk.restore_power();
                let content = disk.contents(&path);
                assert!(content.iter().all(|bytes| bytes == TEMPLATE.as_bytes()), "seed {seed}, operation {operation}");
                assert!(content.is_some() || !written);
                found[usize::from(content.is_some())] += 1;
            }
        }
        assert!(found.iter().all(|n| *n > 0), "{found:?}");
    }

    #[test]
    fn the_template_lists_every_default() {
        assert_eq!(Config::parse(TEMPLATE).unwrap(), Config::default(), "as written: all commented out");
        let setting =
            |line: &str| line.strip_prefix("#").filter(|l| l.contains(" = ") && !l.starts_with(' ')).map(str::to_owned);
        let all: Vec<String> = TEMPLATE.lines().filter_map(setting).collect();
        assert_eq!(all.len(), 86, "one line for each key");
        assert_eq!(Config::parse(&all.join("\n")).unwrap(), Config::default());
    }

    #[test]
    fn what_the_trail_is_kept_for_reaches_the_engine() {
        let config = Config::parse("standby_keep_bytes_max = 2097152").unwrap();
        assert_eq!(config.options().standby_keep_bytes_max, 2 << 20);
    }

    #[test]
    fn unknown_keys_and_bad_values_name_their_place() {
        let message = Config::parse("workers = 1\nlisten_on = \"127.0.0.1:1\"\n").unwrap_err();
        assert!(message.contains("line 2") && message.contains("listen_on"), "{message}");
        let message = Config::parse("workers = \"many\"").unwrap_err();
        assert!(message.contains("line 1") && message.contains("workers"), "{message}");
        assert_eq!(Config::parse("workers = 100000").unwrap_err(), "workers = 100000 is too large, the most is 512");
        assert!(Config::parse("auto_transaction_rows_max = 0").unwrap_err().contains("rows_max = 0"));
        let delay = |text: &str| Config::parse(text).map(|c| c.commit_delay());
        assert_eq!(delay("commit_delay_us = 0"), Ok(CommitDelay::Off));
        assert!(delay("commit_delay_us = 200000").unwrap_err().contains("the most is 100000"));
        assert!(delay("commit_delay_us = \"soon\"").unwrap_err().contains("or \"auto\""));
        let message = Config::parse("archive = \"ftp://x/y\"").unwrap_err();
        assert!(message.contains("ftp") && message.contains("archive"), "{message}");
        assert!(Config::parse("http_listen = \"8008\"").unwrap_err().contains("not ADDRESS:PORT"));
        let local = Config::parse("http_listen = \"localhost:8008\"").unwrap().http_listen().unwrap();
        assert_eq!(local, Some(SocketAddr::from(([127, 0, 0, 1], 8008))));
        assert!(Config::parse("connections_max = 0").unwrap_err().contains("connections_max"));
    }
}
