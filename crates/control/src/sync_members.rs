//! The sync set: the master, the standbys that commits wait for, and how many of them each commit has reached.
//!
//! | the set says | each commit acknowledged at hot or above is durable at | who may be promoted without loss |
//! |---|---|---|
//! | `needed` = all m standbys | each of them | each of them |
//! | `needed` = n < m, a quorum | n of them at least, and not always the same n | who has all that m - n other standbys have |
//! | `needed` = 0 < m | none of them for certain | who has all that the old master has |
//!
//! At warm the same holds of what was received, unless master and standby fail at once.
//!
//! Why m - n others are enough: with the one that compares they are m - n + 1 of m, so at least one of them is among any
//! n that a commit has reached. The old master has everything itself, so it alone is enough, where it can be asked.
//!
//! | change | becomes | why that is true |
//! |---|---|---|
//! | a standby joins that has everything, and commits wait for it | m + 1, n + 1 | each commit is on n of the others, and on this one |
//! | a standby is taken out | m - 1, n - 1, not below 0 | a commit may have been on this one and n - 1 others |
//! | a quorum is named: n of these | m, n | the master has seen n of them that have everything, something of its own epoch too, and commits wait for any n |
//!
//! So a standby of a quorum that is out of touch stays in the set, and nothing has to be agreed on as long as n others
//! confirm: it is refused when it is compared, and what it alone may have is asked of it. One that had confirmed something
//! and lost it is taken out: what it answers would no longer be what it has confirmed.
//!
//! ```text
//! stored (JSON)                                   when
//! ["a","b"]                                       all are needed; as all releases wrote it
//! {"members":["a","b","c"],"needed":1}            fewer are; an older program refuses it, instead of promoting without asking
//! ```
//!
//! Failure: text that says less than one member for what is needed of it is refused where it is read.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::NodeId;

/// See the module. The master is one of the members and is not counted in `needed`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(into = "Stored", try_from = "Stored")]
pub struct SyncMembers {
    members: BTreeSet<NodeId>,
    needed: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Stored {
    All(BTreeSet<NodeId>),
    Quorum { members: BTreeSet<NodeId>, needed: usize },
}

impl From<SyncMembers> for Stored {
    fn from(SyncMembers { members, needed }: SyncMembers) -> Stored {
        match needed == standbys(&members) {
            true => Stored::All(members),
            false => Stored::Quorum { members, needed },
        }
    }
}

impl TryFrom<Stored> for SyncMembers {
    type Error = String;

    fn try_from(stored: Stored) -> Result<SyncMembers, String> {
        match stored {
            Stored::All(members) => Ok(SyncMembers::all(members)),
            Stored::Quorum { members, needed } if needed < standbys(&members) => Ok(SyncMembers { members, needed }),
            Stored::Quorum { members, needed } => Err(format!("{needed} are needed of {members:?}")),
        }
    }
}

/// How many of the members are not the master.
fn standbys(members: &BTreeSet<NodeId>) -> usize {
    members.len().saturating_sub(1)
}

impl SyncMembers {
    /// Each of them has everything.
    pub fn all(members: impl IntoIterator<Item = NodeId>) -> SyncMembers {
        let members: BTreeSet<NodeId> = members.into_iter().collect();
        let needed = standbys(&members);
        SyncMembers { members, needed }
    }

    /// `needed` of the standbys have each commit; the master is not one of them. `None`: so many there are not.
    pub(crate) fn quorum(master: NodeId, mut members: BTreeSet<NodeId>, needed: usize) -> Option<SyncMembers> {
        let is_usable = needed > 0 && needed <= members.len() && members.insert(master);
        is_usable.then_some(SyncMembers { members, needed })
    }

    /// The master among them.
    pub fn members(&self) -> &BTreeSet<NodeId> {
        &self.members
    }

    pub fn contains(&self, node: NodeId) -> bool {
        self.members.contains(&node)
    }

    /// How many standbys have each commit.
    pub fn needed(&self) -> usize {
        self.needed
    }

    /// Whether each member has everything.
    pub fn are_all_needed(&self) -> bool {
        self.needed == standbys(&self.members)
    }

    /// A standby that has everything, and for which commits wait.
    pub(crate) fn insert(&mut self, node: NodeId) {
        self.needed += usize::from(self.members.insert(node));
    }

    /// A standby that commits need not have reached any more.
    pub(crate) fn remove(&mut self, node: NodeId) {
        let fewer = usize::from(self.members.remove(&node));
        self.needed = self.needed.saturating_sub(fewer);
    }

    /// Whether a member has every acknowledged commit if it has all that those in `compared` have.
    pub(crate) fn proves(&self, node: NodeId, master: NodeId, compared: &BTreeSet<NodeId>) -> bool {
        if node == master || compared.contains(&master) {
            return true;
        }
        let others = self.members.iter().filter(|other| **other != node && **other != master);
        let asked = others.filter(|other| compared.contains(other)).count();
        self.contains(node) && asked >= standbys(&self.members) - self.needed
    }
}

impl fmt::Debug for SyncMembers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.members, f)?;
        if self.are_all_needed() { Ok(()) } else { write!(f, " any {}", self.needed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &str) -> BTreeSet<NodeId> {
        names.chars().map(|name| name.to_string().parse().unwrap()).collect()
    }

    fn node(name: &str) -> NodeId {
        name.parse().unwrap()
    }

    /// For every group, set, quorum and way in which commits can have been placed: who is proven to have everything has it.
    #[test]
    fn whoever_is_proven_has_every_commit_wherever_the_quorum_was() {
        for standbys in 1..=5_u32 {
            let names: Vec<NodeId> = "bcdef".chars().take(standbys as usize).map(|c| node(&c.to_string())).collect();
            let all: BTreeSet<NodeId> = names.iter().copied().collect();
            for needed in 1..=standbys {
                let quorum = SyncMembers::quorum(node("a"), all.clone(), needed as usize).unwrap();
                let of = |mask: u32| -> BTreeSet<NodeId> {
                    names.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1).map(|(_, name)| *name).collect()
                };
                let mut proven = 0;
                for (compared, candidate) in (0..1 << standbys).flat_map(|mask| names.iter().map(move |c| (mask, *c))) {
                    if !quorum.proves(candidate, node("a"), &of(compared)) {
                        continue;
                    }
                    proven += 1;
                    let mut asked = of(compared);
                    asked.insert(candidate);
                    let reached = (0..1_u32 << standbys).filter(|mask| mask.count_ones() == needed);
                    reached.for_each(|mask| assert!(!asked.is_disjoint(&of(mask)), "{quorum:?} {candidate} {asked:?}"));
                }
                assert!(proven > 0, "somebody can be promoted");
            }
        }
    }

    #[test]
    fn out_of_a_quorum_nobody_is_proven_by_less_and_back_in_it_is_as_before() {
        let (a, b, c) = (node("a"), node("b"), node("c"));
        let mut members = SyncMembers::quorum(a, set("bc"), 1).unwrap();
        assert!(members.proves(b, a, &set("c")) && members.proves(b, a, &set("a")) && members.proves(a, a, &set("")));
        assert!(!members.proves(b, a, &set("")) && !members.proves(b, a, &set("b")));
        assert!(!members.proves(node("d"), a, &set("bc")), "it is no member");
        let quorum = members.clone();
        members.remove(c);
        assert_eq!((members.needed(), format!("{members:?}")), (0, "{a, b} any 0".to_owned()));
        assert!(!members.proves(b, a, &set("c")), "what only c had is nobody's to vouch for");
        assert!(members.proves(b, a, &set("a")), "but the old master's");
        members.insert(c);
        assert_eq!(members, quorum);
        [b, c].into_iter().for_each(|node| members.remove(node));
        assert_eq!(members, SyncMembers::all([a]));
        members.insert(b);
        assert!(members.proves(b, a, &set("")) && members.are_all_needed());
        for (names, needed) in [("bc", 0), ("bc", 3), ("ab", 1), ("", 0)] {
            assert_eq!(SyncMembers::quorum(a, set(names), needed), None, "{names} {needed}");
        }
    }

    #[test]
    fn golden_sets() {
        let quorum = SyncMembers::quorum(node("a"), set("bc"), 1).unwrap();
        let mut none = quorum.clone();
        none.remove(node("c"));
        let golden = [
            (SyncMembers::all(set("")), "[]"),
            (SyncMembers::all(set("ab")), r#"["a","b"]"#),
            (SyncMembers::quorum(node("a"), set("bc"), 2).unwrap(), r#"["a","b","c"]"#),
            (quorum, r#"{"members":["a","b","c"],"needed":1}"#),
            (none, r#"{"members":["a","b"],"needed":0}"#),
        ];
        for (members, text) in golden {
            assert_eq!(serde_json::to_string(&members).unwrap(), text);
            assert_eq!(serde_json::from_str::<SyncMembers>(text).unwrap(), members);
        }
        for bad in [r#"{"members":["a","b"],"needed":1}"#, r#"{"members":[],"needed":0}"#, r#"{"members":["a"]}"#] {
            assert!(serde_json::from_str::<SyncMembers>(bad).is_err(), "{bad}");
        }
        // What an older program reads the set as.
        assert!(serde_json::from_str::<BTreeSet<NodeId>>(r#"{"members":["a","b","c"],"needed":1}"#).is_err());
    }
}
