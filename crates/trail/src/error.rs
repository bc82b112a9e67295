//! Errors of a trail, worded for the operator: what happened, where, and what to do.

use std::io;
use std::path::{Path, PathBuf};

use holdfast_seams::ReplaceError;
use holdfast_types::{Epoch, Lsn};

use crate::shipped::ShippedFlaw;

#[derive(Debug, thiserror::Error)]
pub enum TrailError {
    #[error("cannot {what} {path}: {source}", path = .path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },

    #[error("the trail in {} is in use by another process; stop that one first", .dir.display())]
    InUse { dir: PathBuf },

    /// Damage below the proven durable position: opening would lose acknowledged commits.
    #[error(
        "the trail is damaged: {file} at byte {offset} (LSN {lsn}): {what}. Commits acknowledged up to LSN {proven} \
         need this boxcar. Nothing was changed. Restore this file from a copy of the trail (standby or archive), or restore \
         from a dump with `holdfast restore`",
        file = .file.display()
    )]
    Damaged { file: PathBuf, offset: u64, lsn: Lsn, proven: Lsn, what: String },

    #[error("{} is damaged: {what}. {advice}", .file.display())]
    File { file: PathBuf, what: String, advice: &'static str },

    #[error(
        "{} has format {found}; this program reads formats up to {known}. Use a newer program",
        .file.display()
    )]
    Newer { file: PathBuf, found: u16, known: u16 },

    #[error(
        "{} belongs to trail {found}; this directory holds trail {expected}: a file was copied from another node. \
         Move it away and put back the right one",
        .file.display()
    )]
    OtherTrail { file: PathBuf, found: String, expected: String },

    #[error("LSN {lsn} is no longer in the trail, which begins at LSN {first}. Take it from the archive")]
    Gone { lsn: Lsn, first: Lsn },

    #[error("LSN {lsn} is not the start of a boxcar; read from a position that the trail returned")]
    NotABoundary { lsn: Lsn },

    #[error(
        "there is no trail to follow with in {}: no base copy was completed there. Repeat the command that began it: \
         holdfast standby create, or holdfast rejoin", .dir.display()
    )]
    NothingToFollow { dir: PathBuf },

    #[error("{} already has a trail; move it away first", .dir.display())]
    Exists { dir: PathBuf },

    #[error("trail option {name}: {what}")]
    Option { name: &'static str, what: String },
}

impl TrailError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TrailError {
        move |source| TrailError::Io { what, path: path.to_path_buf(), source }
    }
}

impl From<ReplaceError> for TrailError {
    fn from(ReplaceError { what, path, source }: ReplaceError) -> TrailError {
        TrailError::Io { what, path, source }
    }
}

/// No room for a transaction's records, or reservations are refused: the statement fails before anything changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReserveError {
    #[error(
        "cannot reserve {bytes} bytes in the trail: the disk of {} is full. Free space there, or remove what keeps \
         old segments (a standby that lags behind, an archive that does not run)",
        .dir.display()
    )]
    TrailFull { bytes: u64, dir: PathBuf },

    /// Set by the trail's owner, in its words: see [`Trail::refuse_reservations`](crate::Trail::refuse_reservations).
    #[error("{why}")]
    Refused { why: String },

    #[error("the append has {bytes} bytes; the limit of a boxcar is {bytes_max} bytes. Send it in fragments")]
    TooLarge { bytes: u64, bytes_max: u64 },

    #[error("the trail is closed")]
    Closed,

    #[error("this node is a standby: its trail follows another one and accepts no appends")]
    Following,
}

/// Why boxcars were not received. Unless it is `Failed`, nothing was written, and the trail can continue to receive.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReceiveError {
    #[error("this node's trail does not follow another one; open it with `follow` first")]
    NotFollowing,

    #[error("the trail is closed")]
    Closed,

    /// An earlier write or sync failed: the process is about to end.
    #[error("the trail has failed; the boxcars received last may not be durable")]
    Failed,

    #[error(
        "no room for the next trail segment: the disk of {} is full. Free space there and receive again; the master \
         keeps the missing boxcars",
        .dir.display()
    )]
    Full { dir: PathBuf },

    #[error("refused at LSN {lsn}: {flaw}")]
    Flaw { lsn: Lsn, flaw: ShippedFlaw },

    #[error("refused: the boxcar is at LSN {found}; the trail continues at LSN {expected}")]
    Position { found: Lsn, expected: Lsn },

    #[error(
        "refused: the boxcar at LSN {lsn} has epoch {found}, but the boxcar before it has epoch {last}: a deposed master \
         sent it"
    )]
    OldEpoch { lsn: Lsn, found: Epoch, last: Epoch },

    /// The two trails differ: their common point must be searched for again.
    #[error(
        "refused: the boxcar at LSN {lsn} follows one with checksum {found:08x}; this trail's last boxcar has {expected:08x}"
    )]
    Chain { lsn: Lsn, found: u32, expected: u32 },
}
