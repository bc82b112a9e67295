//! What can go wrong, and what to do about it.

use std::io;
use std::path::PathBuf;

use crate::id::NodeId;
use crate::record::Refusal;

/// Why the control plane does not start, or did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("cannot {what} {}: {source}", file.display())]
    Io { what: &'static str, file: PathBuf, source: io::Error },
    #[error(
        "{} is damaged at offset {offset}: {what}. Nothing was changed. Move the control directory away and start \
         again: the node is taken in anew by the other two",
        file.display()
    )]
    Damage { file: PathBuf, offset: u64, what: String },
    #[error("{} has format version {found}; this program knows {known}. Use the newer release", file.display())]
    Newer { file: PathBuf, found: u16, known: u16 },
    #[error("{} is in use by another process", .0.display())]
    InUse(PathBuf),
    #[error("the control directory {} belongs to node {found}, not to {expected}", dir.display())]
    OtherNode { dir: PathBuf, found: NodeId, expected: NodeId },
    #[error("members: {0}")]
    Members(String),
    #[error("no majority of the members answered in time; what was asked for may still happen: look at the status")]
    NoQuorum,
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("{node} may lack acknowledged commits: {ahead} has more of the trail; promote {ahead}")]
    Behind { node: NodeId, ahead: NodeId },
    #[error(
        "{node} may lack acknowledged commits: its trail and that of {other} have parted, and which of them has what was \
         acknowledged cannot be told"
    )]
    Parted { node: NodeId, other: NodeId },
    #[error(
        "{node} may lack acknowledged commits: commits wait for some of the standbys only, and those that could show that it \
         lacks nothing cannot be asked: {others}"
    )]
    NotCompared { node: NodeId, others: String },
    #[error("the control plane of this node has stopped: {0}")]
    Stopped(String),
}

impl ControlError {
    /// PostgreSQL's code for it.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            ControlError::Refused(_)
            | ControlError::Behind { .. }
            | ControlError::Parted { .. }
            | ControlError::NotCompared { .. } => "55000",
            ControlError::NoQuorum => "57P03",
            ControlError::Members(_) => "F0000",
            ControlError::Damage { .. } | ControlError::Newer { .. } => "XX001",
            ControlError::InUse(_) | ControlError::OtherNode { .. } => "55006",
            ControlError::Io { .. } | ControlError::Stopped(_) => "58030",
        }
    }

    /// For `map_err`: an I/O error of that file.
    pub fn io(what: &'static str, file: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> ControlError {
        let file = file.into();
        move |source| ControlError::Io { what, file, source }
    }
}
