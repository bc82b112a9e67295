//! The errors of the control plane, and what to do about them.

use std::io;
use std::path::PathBuf;

use holdfast_seams::ReplaceError;

use crate::id::NodeId;
use crate::record::{Position, Refusal};

/// Why the control plane does not start, or did not carry out a request.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("cannot {what} {}: {source}", file.display())]
    Io { what: &'static str, file: PathBuf, source: io::Error },
    #[error(
        "{} is damaged at offset {offset}: {what}. Nothing was changed. Move the control directory away and start the node \
         again: the other two members admit it again",
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
    #[error(
        "no majority of the members answered in time; the change may still be made: start the members that do not run, and \
         check the status"
    )]
    NoQuorum,
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("{node} may lack acknowledged commits: {ahead} has more of the trail; promote {ahead}")]
    Behind { node: NodeId, ahead: NodeId },
    #[error(
        "{node} may lack acknowledged commits: its trail and that of {other} have diverged, and it is unknown which of them \
         has the acknowledged commits"
    )]
    Parted { node: NodeId, other: NodeId },
    #[error(
        "{node} may lack acknowledged commits: commits wait for only some of the standbys, and those that could prove that it \
         has all of them cannot be reached: {others}"
    )]
    NotCompared { node: NodeId, others: String },
    #[error(
        "the directory of this node is older than it was: {why}. It was put back from a copy: it has forgotten its votes, and its \
         trail may lack acknowledged commits, so this node takes part in nothing. If it was the master, promote the server \
         named above (holdfast promote --at HOST:PORT). To bring this node back, move {} away, which makes it a new member; \
         then make a data node the standby of the master (holdfast rejoin --from HOST:PORT), or start the witness again",
        dir.display()
    )]
    RolledBack { dir: PathBuf, why: String },
    #[error(
        "{node} lacks acknowledged commits: {end}, but it had everything up to {known}: its directory was put back from an older \
         copy. Promote {} (holdfast promote --at HOST:PORT), then bring {node} back with: holdfast rejoin. If all that no \
         other node has may be lost, {node} can serve what it has: --accept-divergence",
        if others.is_empty() { "a node that has everything" } else { others }
    )]
    RolledBackTrail { node: NodeId, end: String, known: Position, others: String },
    #[error(
        "{node} lacks acknowledged commits: its trail ends at {end}, but {ahead} has what was durable here up to {known}: the \
         directory of {node} was put back from an older copy. Promote {ahead} (holdfast promote --at HOST:PORT), then bring \
         {node} back with: holdfast rejoin. If what only {ahead} has may be lost, {node} can serve what it has: \
         --accept-divergence"
    )]
    RolledBackMaster { node: NodeId, end: Position, ahead: NodeId, known: Position },
    #[error(
        "{node} is not promoted: its clock could not be compared with that of another node, or runs at another rate than all \
         others. Start the other nodes, let UDP through between them, and look at the clock source of this machine; then \
         promote again"
    )]
    ClockNotCompared { node: NodeId },
    #[error("the control plane of this node has stopped: {0}")]
    Stopped(String),
    /// What another process of this node reported, which runs its part in the control plane.
    #[error("{text}")]
    Reported { sqlstate: String, text: String },
}

impl ControlError {
    /// PostgreSQL's SQLSTATE for the error.
    pub fn sqlstate(&self) -> &str {
        match self {
            ControlError::Refused(_)
            | ControlError::Behind { .. }
            | ControlError::Parted { .. }
            | ControlError::NotCompared { .. }
            | ControlError::ClockNotCompared { .. }
            | ControlError::RolledBackTrail { .. }
            | ControlError::RolledBackMaster { .. } => "55000",
            ControlError::NoQuorum => "57P03",
            ControlError::Members(_) => "F0000",
            ControlError::Damage { .. } | ControlError::Newer { .. } | ControlError::RolledBack { .. } => "XX001",
            ControlError::InUse(_) | ControlError::OtherNode { .. } => "55006",
            ControlError::Io { .. } | ControlError::Stopped(_) => "58030",
            ControlError::Reported { sqlstate, .. } => sqlstate,
        }
    }

    /// For `map_err`: an I/O error of that file.
    pub fn io(what: &'static str, file: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> ControlError {
        let file = file.into();
        move |source| ControlError::Io { what, file, source }
    }
}

impl From<ReplaceError> for ControlError {
    fn from(ReplaceError { what, path, source }: ReplaceError) -> ControlError {
        ControlError::Io { what, file: path, source }
    }
}
