//! Why the group refuses a command.

use serde::{Deserialize, Serialize};

use crate::id::NodeId;
use crate::record::Position;

/// Why a command was refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    #[error("the group has no record yet; its members must all be reachable once for it to be founded")]
    NotFounded,
    #[error("another group was founded here; check the addresses of the members")]
    OtherGroup,
    #[error("cannot found the group: {0}")]
    Unusable(String),
    #[error("the record is at epoch {found}, not at {expected}; check the status and retry")]
    StaleEpoch { expected: u32, found: u32 },
    #[error("{0} is not a member that holds data")]
    NotData(NodeId),
    #[error("{0} may lack acknowledged commits: it is not in the sync set; promote a node that is, or accept the loss")]
    NotInSyncSet(NodeId),
    #[error(
        "{0} may lack acknowledged commits: it has not been compared with enough others of the sync set; try again, or \
         accept the loss"
    )]
    NotCompared(NodeId),
    #[error("{needed} of {standbys} standbys are not a quorum")]
    BadQuorum { needed: usize, standbys: usize },
    #[error("the record has changed since revision {seen}, it has revision {found}; decide again")]
    Moved { seen: u64, found: u64 },
    #[error("the master has not been deposed yet")]
    NotDeposed,
    #[error("{0} was named as the successor meanwhile; check the status and retry")]
    OtherSuccessor(NodeId),
    #[error("the old master's lease may last another {missing_ms} ms")]
    TooEarly { missing_ms: u64 },
    #[error("{by} is not the master of this epoch")]
    NotMaster { by: NodeId },
    #[error("the master has been deposed in favour of {successor}")]
    Deposed { successor: NodeId },
    #[error("the master has released its lease")]
    Released,
    #[error("the master is always in the sync set")]
    MasterStays,
    #[error("the master has since requested another change")]
    Superseded,
    #[error(
        "{by} lacks acknowledged commits: it has everything up to {told}, but it had everything up to {known} before; its \
         directory was put back from an older copy"
    )]
    WentBack { by: NodeId, told: Position, known: Position },
    #[error("no epoch is left")]
    NoEpochLeft,
    #[error("the record has version {found}, and this command belongs to version {needed}")]
    OtherRecord { needed: u16, found: u16 },
    #[error("the next epoch cannot have these terms: {0}")]
    BadTerms(String),
}
