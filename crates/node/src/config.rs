//! `holdfast.toml` in the data directory.
//!
//! The first start writes it with every default commented out. An unknown setting is refused with its line and the nearest
//! known one: a misspelt setting that is ignored is noticed only when it is needed. Command-line options override the file.
//!
//! The file is written under another name, synced and renamed, as is every file that a start needs: a torn file would keep
//! the server from starting after a power cut.

mod backups;
mod defaults;
mod limits;
mod listen;
mod log_files;
mod names;
mod options;
mod parameters;
mod restored;
mod transport;
mod values;

pub use backups::{DrillSettings, DumpSettings, KeepSettings};
pub use listen::{Listen, ListenAddress};
pub use log_files::LogFiles;
pub use names::{Auto, DelayUs, KeepBeyond, LevelName, PackingName, SyncMethodName};
pub use restored::RestoredDisk;
pub use transport::{TLS_CERTIFICATE, TLS_CLIENT_CA, TLS_KEY, TlsVersionName};

use crate::data_dir::{self, DataDirError};
use holdfast_replication::settings::Away;
use holdfast_seams::{Disk, RealDisk, replace};
use serde::Deserialize;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

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
    #[serde(deserialize_with = "values::bytes", alias = "buffered_rows_bytes_max")]
    pub session_memory_bytes_max: usize,
    #[serde(deserialize_with = "values::bytes")]
    pub sessions_memory_bytes_max: usize,
    /// 0: half of the machine's memory.
    #[serde(deserialize_with = "values::bytes")]
    pub statements_memory_bytes_max: u64,
    #[serde(deserialize_with = "values::ms")]
    pub statement_timeout_ms: u64,
    #[serde(deserialize_with = "values::ms")]
    pub idle_session_timeout_ms: u64,
    /// 0: no limit, here and below.
    #[serde(deserialize_with = "values::count")]
    pub result_rows_max: u64,
    #[serde(deserialize_with = "values::bytes")]
    pub result_bytes_max: u64,
    pub log_connections: bool,
    pub log_disconnections: bool,
    pub log_lock_waits: bool,
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
    #[serde(deserialize_with = "values::count", alias = "boxcar_requests_max")]
    pub batch_requests_max: usize,
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
    #[serde(deserialize_with = "values::bytes")]
    pub slot_keep_bytes_max: u64,
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

    /// Whether the operator expects standbys: some are named, or commits wait for one by default.
    pub fn names_standbys(&self) -> bool {
        !self.synchronous_standby_names.trim().is_empty() || self.level != LevelName::Local
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
    use holdfast_engine::CommitDelay;
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
        assert_eq!(all.len(), 92, "one line for each key");
        assert_eq!(Config::parse(&all.join("\n")).unwrap(), Config::default());
    }

    #[test]
    fn what_the_trail_is_kept_for_reaches_the_engine() {
        let config = Config::parse("standby_keep_bytes_max = 2097152").unwrap();
        assert_eq!(config.options().standby_keep_bytes_max, 2 << 20);
    }

    #[test]
    fn former_names_of_settings_are_read() {
        let former = "authentication_timeout_ms = 5000\nbuffered_rows_bytes_max = 2097152\nboxcar_requests_max = 7";
        let config = Config::parse(former).unwrap();
        assert_eq!((config.startup_timeout_ms, config.session_memory_bytes_max), (5000, 2 << 20));
        assert_eq!((config.batch_requests_max, config.options().batch_requests_max), (7, 7));
        let both = Config::parse("boxcar_requests_max = 7\nbatch_requests_max = 8").unwrap_err();
        assert!(both.contains("batch_requests_max"), "{both}");
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
