//! Sets of voters, and positions in Raft's log, of a fixed size: the pulse thread allocates nothing.
//!
//! Nodes have slots: their order among the members of the group by name, which never changes. While voters are being
//! changed there are two sets, and a majority of both is needed.

use std::fmt;

use crate::id::NodeId;
use crate::record::MEMBERS_MAX;

/// The largest number of nodes of a cluster; the fixed arrays of this module have as many places.
pub const NODES_MAX: usize = MEMBERS_MAX;

/// A position in Raft's log. Two entries with the same position are the same entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct LogPosition {
    pub term: u64,
    /// The leader of that term: openraft allows more than one in a term.
    pub leader: NodeId,
    pub index: u64,
}

impl From<crate::raft::LogId> for LogPosition {
    fn from(id: crate::raft::LogId) -> LogPosition {
        LogPosition { term: id.leader_id.term, leader: id.leader_id.node_id, index: id.index }
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{}-{}-{}", self.term, self.leader, self.index)
    }
}

/// The members of a group in the order of their names; the place of a node is its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Roster {
    names: [NodeId; NODES_MAX],
    len: usize,
}

impl Roster {
    /// `None`: there are more than [`NODES_MAX`].
    pub fn new(members: impl IntoIterator<Item = NodeId>) -> Option<Roster> {
        let (mut names, mut len) = ([NodeId::default(); NODES_MAX], 0);
        for member in members {
            *names.get_mut(len)? = member;
            len += 1;
        }
        names[..len].sort_unstable();
        Some(Roster { names, len })
    }

    /// The slot of a node, if it is a member.
    pub fn slot(&self, node: NodeId) -> Option<usize> {
        self.names().iter().position(|name| *name == node)
    }

    /// All members; the place is the slot.
    pub fn names(&self) -> &[NodeId] {
        &self.names[..self.len]
    }
}

/// A set of nodes: bit n is the node of slot n.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NodeSet(pub u16);

impl NodeSet {
    /// The set of these slots.
    pub fn of(slots: impl IntoIterator<Item = usize>) -> NodeSet {
        NodeSet(slots.into_iter().filter(|slot| *slot < NODES_MAX).fold(0, |bits, slot| bits | 1 << slot))
    }

    pub fn contains(self, slot: usize) -> bool {
        slot < NODES_MAX && self.0 & 1 << slot != 0
    }

    pub fn with(self, slot: usize) -> NodeSet {
        NodeSet(self.0 | NodeSet::of([slot]).0)
    }

    /// How many nodes are in it.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The voters by the newest voter set in a node's log, committed or not, as Raft uses them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Voters {
    /// Where the log says so.
    pub at: LogPosition,
    /// The voters; the second set is empty except while they are being changed.
    pub sets: [NodeSet; 2],
}

impl Voters {
    /// Whether this node votes by either set.
    pub fn contains(&self, slot: usize) -> bool {
        self.sets.iter().any(|set| set.contains(slot))
    }

    /// Whether these are a majority, of both sets where there are two.
    pub fn is_majority(&self, nodes: NodeSet) -> bool {
        self.of_each_set(|set| usize::from(NodeSet(set.0 & nodes.0).len() > set.len() / 2)) == Some(1)
    }

    /// The largest value such that a majority has it or a larger one. `None`: there are no voters.
    pub fn majority_reached(&self, values: &[u64; NODES_MAX]) -> Option<u64> {
        self.of_each_set(|set| {
            let (sorted, len) = sorted(set, values);
            sorted[len - (len / 2 + 1)]
        })
    }

    /// The smallest value such that a majority has it or a smaller one. `None`: there are no voters.
    pub fn majority_within(&self, values: &[u64; NODES_MAX]) -> Option<u64> {
        let within = |set: NodeSet| {
            let (sorted, len) = sorted(set, values);
            sorted[len / 2]
        };
        let all = self.sets.iter().filter(|set| !set.is_empty());
        all.map(|set| within(*set)).max()
    }

    fn of_each_set<T: Ord>(&self, value: impl Fn(NodeSet) -> T) -> Option<T> {
        self.sets.iter().filter(|set| !set.is_empty()).map(|set| value(*set)).min()
    }
}

/// The values of the nodes in a set, smallest first, and how many they are.
fn sorted(set: NodeSet, values: &[u64; NODES_MAX]) -> ([u64; NODES_MAX], usize) {
    let (mut sorted, mut len) = ([0; NODES_MAX], 0);
    for (_, value) in values.iter().enumerate().filter(|(slot, _)| set.contains(*slot)) {
        sorted[len] = *value;
        len += 1;
    }
    sorted[..len].sort_unstable();
    (sorted, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voters(sets: [&[usize]; 2]) -> Voters {
        Voters { at: LogPosition::default(), sets: sets.map(|set| NodeSet::of(set.iter().copied())) }
    }

    fn values(first: &[u64]) -> [u64; NODES_MAX] {
        let mut all = [0; NODES_MAX];
        all[..first.len()].copy_from_slice(first);
        all
    }

    #[test]
    fn a_majority_of_both_sets() {
        let three = voters([&[0, 1, 2], &[]]);
        assert_eq!(three.majority_reached(&values(&[7, 5, 9])), Some(7));
        assert_eq!(three.majority_within(&values(&[7, 5, 9])), Some(7));
        assert_eq!(three.majority_within(&values(&[7, u64::MAX, u64::MAX])), Some(u64::MAX));
        let joint = voters([&[0, 1, 2], &[0, 1]]);
        assert_eq!(joint.majority_reached(&values(&[7, 0, 9])), Some(0), "slot 1 has a part in every majority of two");
        assert_eq!(joint.majority_within(&values(&[7, 8, 3])), Some(8));
        assert!(three.is_majority(NodeSet::of([0, 2])) && !joint.is_majority(NodeSet::of([0, 2])));
        assert_eq!(voters([&[], &[]]).majority_reached(&values(&[1])), None);
        assert!(!voters([&[], &[]]).is_majority(NodeSet::of([0])));
        assert_eq!(voters([&[4], &[]]).majority_reached(&values(&[1, 1, 1, 1, 6])), Some(6));
    }

    #[test]
    fn slots_follow_the_names() {
        let name = |name: &str| name.parse::<NodeId>().unwrap();
        let roster = Roster::new(["w", "a", "b"].map(name)).unwrap();
        assert_eq!(["a", "b", "w", "x"].map(|node| roster.slot(name(node))), [Some(0), Some(1), Some(2), None]);
        let many = (0..10).map(|n| name(&format!("n{n}")));
        assert_eq!(Roster::new(many), None, "ten are too many");
    }
}
