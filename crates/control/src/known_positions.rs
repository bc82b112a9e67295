//! How much of the trail each node with data is known to have on its disk, and what that says of a directory that was put back from an
//! older copy.
//!
//! Failure: none; what is not known proves nothing.

use std::fmt;

use holdfast_types::Epoch;
use serde::{Deserialize, Serialize};

use crate::id::NodeId;
use crate::record::{Record, epoch};

/// Everything below this position of the trail, as the master of this epoch wrote it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Position {
    #[serde(with = "epoch")]
    pub epoch: Epoch,
    pub lsn: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LSN {} of epoch {}", self.lsn, self.epoch)
    }
}

impl Record {
    /// The position that `node` is known to have on its disk, if its trail (`None`: it has none) ends before that.
    pub fn missing_at(&self, node: NodeId, end: Option<Position>) -> Option<Position> {
        let known = self.positions.get(&node).copied()?;
        // Its trail may know a newer epoch in which nothing has been written yet.
        let has_it = end.is_some_and(|end| end.epoch >= known.epoch && end.lsn >= known.lsn);
        (!has_it).then_some(known)
    }

    /// The known positions in words, to follow a sentence about a node that lacks something; empty if none is known.
    pub fn told_positions(&self) -> String {
        let one = |(node, position): (&NodeId, &Position)| format!("{node} had everything up to {position}");
        let all: Vec<String> = self.positions.iter().map(one).collect();
        if all.is_empty() { String::new() } else { format!("; as far as the group knows, {}", all.join(", ")) }
    }

    /// The nodes that have what `node` may have lost, in words, to follow a sentence; empty before the first master.
    pub fn told_others(&self, node: NodeId) -> String {
        let others = self.sync_set.members().iter().filter(|other| **other != node);
        let others: Vec<String> = others.map(NodeId::to_string).collect();
        match self.master {
            Some(master) if master != node => format!("; {master} is the master"),
            Some(_) if !others.is_empty() => format!("; to be promoted in its place: {}", others.join(" or ")),
            _ => String::new(),
        }
    }
}
