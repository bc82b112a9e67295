//! Why an engine cannot be opened, used or closed.

use holdfast_store::schema_map::SchemaError;
use holdfast_store::sqlite::{FlagMissing, SqliteError, take_cause};
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
    #[error("not a data directory: {dir}")]
    NotADirectory { dir: String },
    #[error("{path}: {message}")]
    Manifest { path: String, message: String },
    /// A file describes the directory as one that this command must not open.
    #[error(
        "{path}: {message}; nothing was changed. Restore the file from a copy, or take a new base copy of the master"
    )]
    Local { path: String, message: String },
    /// The server would be one of two masters if it were started.
    #[error(
        "{path} belongs to a standby; start it as a standby, or promote it with `holdfast promote` when its master is stopped for good"
    )]
    Standby { path: String },
    #[error(
        "{path} holds a restore that did not complete; run `holdfast restore` again, or remove the directory and restore into \
         another one"
    )]
    Restoring { path: String },
    #[error(
        "{path}: {what} holds what stood in the trail up to LSN {holds}, and the trail ends at {trail}: what lies between \
         was cut off; take a new base copy of the master"
    )]
    AheadOfTrail { path: String, what: String, holds: Lsn, trail: Lsn },
    #[error(
        "{path} holds a base copy that is not whole before LSN {needed}, and its trail ends at {trail}; start it as a \
         standby until it has caught up, or take another base copy"
    )]
    NotWhole { path: String, needed: Lsn, trail: Lsn },
    #[error(
        "database {name} was brought in on the master with content that is not in the trail (an import); take a new base \
         copy of the master"
    )]
    NotInTheTrail { name: String },
    #[error("database {name}: {source}")]
    Schema { name: String, source: SchemaError },
    #[error("database {name}: {source}")]
    Sqlite { name: String, source: SqliteError },
    #[error("the trail at LSN {lsn} cannot be read: {source}")]
    Record { lsn: Lsn, source: DecodeError },
    /// Redo and store contradict each other.
    #[error(
        "database {name}: {message}; restore it from a backup (`holdfast restore`), or run `holdfast check` for a full report"
    )]
    Redo { name: String, message: String },
    /// RULE 6: an older copy of a volume was put in place.
    #[error(
        "database {name} is at change {found} but the trail requires {expected}: an older file was put in its place; put the right file back, or begin a new history from this one with `holdfast import FILE --adopt`"
    )]
    OlderFile { name: String, found: u64, expected: u64 },
    #[error("volume {0} has records in the trail but is not in the list of databases")]
    UnknownVolume(VolumeId),
    #[error(transparent)]
    Sql(#[from] SqlError),
}

impl OpenError {
    /// Converts the error, with its cause where a read of the file failed and SQLite reported only the failure: the
    /// cause names file and place.
    pub(crate) fn or_cause(self) -> OpenError {
        match self {
            OpenError::Schema { .. } | OpenError::Sqlite { .. } | OpenError::Redo { .. } => {
                take_cause().map_or(self, |cause| OpenError::Volume(cause.into()))
            }
            other => other,
        }
    }
}

/// The clean stop did not complete. Nothing acknowledged is lost; the next start recovers.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    #[error("database {name}: the last checkpoint failed: {message}")]
    Checkpoint { name: String, message: String },
    #[error(transparent)]
    Trail(#[from] TrailError),
}
