//! What can go wrong with a trail, in the operator's words: what happened, where, what to do.

use std::io;
use std::path::{Path, PathBuf};

use holdfast_types::{Epoch, Lsn};

use crate::shipped::ShippedFlaw;

#[derive(Debug, thiserror::Error)]
pub enum TrailError {
    #[error("cannot {what} {path}: {source}", path = .path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },

    #[error("the trail in {} is in use by another process; stop that one first", .dir.display())]
    InUse { dir: PathBuf },

    /// Damage below the proven durable position: acknowledged commits would be lost by opening.
    #[error(
        "the trail is damaged: {file} at byte {offset} (LSN {lsn}): {what}. Commits acknowledged up to LSN {proven} \
         need it. Nothing was changed. Restore this file from a copy of the trail (standby or archive), or roll \
         forward from a dump",
        file = .file.display()
    )]
    Damaged { file: PathBuf, offset: u64, lsn: Lsn, proven: Lsn, what: String },

    #[error("{} is damaged: {what}. {advice}", .file.display())]
    File { file: PathBuf, what: String, advice: &'static str },

    #[error(
        "{} was written in format {found}; this program knows formats up to {known}. Use the newer program",
        .file.display()
    )]
    Newer { file: PathBuf, found: u16, known: u16 },

    #[error(
        "{} belongs to trail {found}, this directory holds trail {expected}; a file was copied from another node. \
         Move it away and put back the right one",
        .file.display()
    )]
    OtherTrail { file: PathBuf, found: String, expected: String },

    #[error("LSN {lsn} is no longer in the trail: it begins at LSN {first}. Take it from the archive")]
    Gone { lsn: Lsn, first: Lsn },

    #[error("LSN {lsn} is not the start of a boxcar; read from a position that the trail handed out")]
    NotABoundary { lsn: Lsn },

    #[error(
        "there is no trail in {} to follow with: no base copy has come to its end there. Give the command again that began \
         it: holdfast standby create, or holdfast rejoin", .dir.display()
    )]
    NothingToFollow { dir: PathBuf },

    #[error("there is a trail in {} already; move it away first", .dir.display())]
    Exists { dir: PathBuf },

    #[error("trail option {name}: {what}")]
    Option { name: &'static str, what: String },
}

impl TrailError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TrailError {
        move |source| TrailError::Io { what, path: path.to_path_buf(), source }
    }
}

/// No room for a transaction's audit, or none is given: the statement fails before anything changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReserveError {
    #[error(
        "no room in the trail for {bytes} more bytes: the disk of {} is full. Free space there, or remove what keeps \
         old segments (a standby that is behind, an archive that does not run)",
        .dir.display()
    )]
    TrailFull { bytes: u64, dir: PathBuf },

    /// Asked for by the trail's owner, in its words: see [`Trail::refuse_reservations`](crate::Trail::refuse_reservations).
    #[error("{why}")]
    Refused { why: String },

    #[error("{bytes} bytes of audit in one piece; a boxcar takes {bytes_max}. Send it in fragments")]
    TooLarge { bytes: u64, bytes_max: u64 },

    #[error("the trail is closed")]
    Closed,

    #[error("this node is a standby: its trail follows another and takes no appends")]
    Following,
}

/// Why boxcars were not received. But for `Failed` nothing was written, and the trail can go on receiving.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReceiveError {
    #[error("this node's trail follows no other; open it following first")]
    NotFollowing,

    #[error("the trail is closed")]
    Closed,

    /// A write or sync failed before: the process ends.
    #[error("the trail has failed; what was received last may not be durable")]
    Failed,

    #[error(
        "no room for the next trail segment: the disk of {} is full. Free space there and receive again; the master \
         keeps what is missing",
        .dir.display()
    )]
    Full { dir: PathBuf },

    #[error("refused at LSN {lsn}: {flaw}")]
    Flaw { lsn: Lsn, flaw: ShippedFlaw },

    #[error("refused: a boxcar at LSN {found}, the trail goes on at LSN {expected}")]
    Position { found: Lsn, expected: Lsn },

    #[error(
        "refused: the boxcar at LSN {lsn} is of epoch {found}, and the trail has one of epoch {last} in front of it: a \
         deposed master sent it"
    )]
    OldEpoch { lsn: Lsn, found: Epoch, last: Epoch },

    /// The two trails differ: the common point must be found again.
    #[error(
        "refused: the boxcar at LSN {lsn} follows one with checksum {found:08x}, this trail's last has {expected:08x}"
    )]
    Chain { lsn: Lsn, found: u32, expected: u32 },
}
