//! Errors of a restore; each names the next step.

use super::target::Target;
use holdfast_mirror::MirrorRefused;
use std::io;

/// Why there is no restore.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("{dir} is not empty; restore into a new directory")]
    NotEmpty { dir: String },
    #[error("another restore is at work in {dir}; wait for it, or restore into another directory")]
    AtWork { dir: String },
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: String, source: io::Error },
    #[error(
        "{place} has dumps of {} trails: choose a trail with --trail, or a dump with --dump\n  {}",
        trails.len(),
        trails.join("\n  ")
    )]
    SeveralTrails { place: String, trails: Vec<String> },
    #[error("{place} has no dump that ends at or before {target}; the oldest one shows LSN {oldest_lsn}, {oldest}")]
    BeforeAllDumps { place: String, target: Target, oldest_lsn: u64, oldest: String },
    #[error("the dump {dump} shows LSN {lsn}, which is later than {target}; choose an older dump")]
    BeforeDump { dump: String, lsn: u64, target: Target },
    #[error("{target} needs the archive: name it with --archive")]
    NoArchive { target: Target },
    #[error(
        "segment {segment} is missing in {place}: there is no object {trail}/*-{segment:08x}-{before} for this history. What can \
         be reached is LSN {reached}, {moment}: restore that with --to-lsn {reached}, or put the object back"
    )]
    Gap { place: String, trail: String, segment: u32, before: String, reached: u64, moment: String },
    #[error(
        "{target} is not in {place}, which ends at LSN {reached}, {moment}. What was not archived is not there: restore what is \
         there with --to-lsn {reached}"
    )]
    Beyond { place: String, target: Target, reached: u64, moment: String },
    #[error("{target} is not in the archive {place}")]
    NoTransaction { place: String, target: Target },
    #[error(
        "the dump {dump} does not belong to the history in {place}: the object {object} continues another one at LSN {lsn}. It \
         was taken from a server that was replaced by another; use a dump of that one"
    )]
    OtherHistory { dump: String, place: String, object: String, lsn: u64 },
    #[error(
        "{what}. The directory is not complete; what was reached is LSN {reached}, {moment}: --to-lsn {reached} ends there"
    )]
    Stopped { what: String, reached: u64, moment: String },
    #[error("there is no database {database} at LSN {lsn}, {moment}")]
    NoDatabase { database: String, lsn: u64, moment: String },
    #[error(
        "database {database} is in no dump in {place}, so the number by which the trail calls it is not known: take a dump, or name \
         the transaction that `holdfast trail find --table {table}` shows with --before-transaction"
    )]
    NewDatabase { place: String, database: String, table: String },
    #[error("--before-drop needs the archive: name it with --archive")]
    NoArchiveForDrop,
    #[error(
        "no transaction in the archive {place} dropped the table {table} of database {database}. What was not archived yet is not \
         there: as a superuser, SELECT pg_switch_wal() has it archived"
    )]
    NoDrop { place: String, database: String, table: String },
    #[error("{dir} is not the data directory of a server that has been started: it has no trail; name it with --of")]
    NoMain { dir: String },
    #[error(transparent)]
    Mirror(#[from] Box<MirrorRefused>),
    #[error("the trail cannot be applied: {0}")]
    Apply(String),
    #[error("the settings in the dump cannot be read: {0}")]
    Settings(String),
}
