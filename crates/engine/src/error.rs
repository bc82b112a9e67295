//! Why an engine cannot be opened, used or closed.

use holdfast_store::schema_map::SchemaError;
use holdfast_store::sqlite::{FlagMissing, SqliteError};
use holdfast_store::volume::VolumeError;
use holdfast_trail::TrailError;
use holdfast_types::record::DecodeError;
use holdfast_types::{Lsn, SqlError, VolumeId};

/// Opening failed. Nothing was lost; the message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: String, source: std::io::Error },
    #[error(transparent)]
    Flags(#[from] FlagMissing),
    #[error(transparent)]
    Trail(#[from] TrailError),
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error("{path}: {message}")]
    Manifest { path: String, message: String },
    #[error("database {name}: {source}")]
    Schema { name: String, source: SchemaError },
    #[error("database {name}: {source}")]
    Sqlite { name: String, source: SqliteError },
    #[error("the trail at LSN {lsn} cannot be read: {source}")]
    Record { lsn: Lsn, source: DecodeError },
    /// Redo and store contradict each other.
    #[error("database {name}: {message}; restore it from a backup, or run `holdfast check` for the whole picture")]
    Redo { name: String, message: String },
    /// RULE 6: an older copy of a volume was put in place.
    #[error(
        "database {name} stands at change {found} but the trail says {expected}: an older file was put in its place; put the right one back, or make this one the start of a new history with `holdfast import FILE --adopt`"
    )]
    OlderFile { name: String, found: u64, expected: u64 },
    #[error("volume {0} has records in the trail but is not in the list of databases")]
    UnknownVolume(VolumeId),
    #[error(transparent)]
    Sql(#[from] SqlError),
}

/// The clean stop did not complete. Nothing acknowledged is lost; the next start recovers.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    #[error("database {name}: the last checkpoint failed: {message}")]
    Checkpoint { name: String, message: String },
    #[error(transparent)]
    Trail(#[from] TrailError),
}
