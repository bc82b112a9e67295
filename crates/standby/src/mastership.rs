//! Masterships: each opening of a directory as a master has a random mark. A standby remembers the masterships of the history
//! that it follows, so that it recognizes a master that was put back from an older copy, however often that one is started:
//! epochs alone do not show it, because each start begins a new one.
//!
//! A master shows its mastership and those before it, the latest first, and a standby keeps the list of the master that it
//! follows. The latest mastership that is in both lists, and those behind it in either, decide how a master and a standby that have
//! diverged belong together ([`lineage`]):
//!
//! | the standby's latest mastership | later ones than the common one, in both lists | |
//! |---|---|---|
//! | is the master's | all of that node, none with an accepted loss | the master wrote the standby's end |
//! | is the common one | of another node as well, or with an accepted loss | the master continues the history of the standby's end |
//! | is a later one | of another node as well, or with an accepted loss | unknown: the master has not met what the standby followed |

use serde::{Deserialize, Serialize};

/// The largest number of masterships that are kept and shown.
pub const MASTERSHIPS_MAX: usize = 64;

/// One opening of a directory as a master.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mastership {
    /// The name of the node.
    pub node: String,
    /// Random.
    pub mark: u64,
    /// The operator has accepted that acknowledged commits may be lost by it.
    pub accepted: bool,
}

/// How a master's history belongs to the end of a standby's trail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lineage {
    /// The master wrote that end, and no other node was master since: it has to have it.
    WroteIt,
    /// What the master lacks of it was left behind by a promotion.
    Continues,
    /// The master does not know the mastership in which that end was written.
    Unknown,
}

/// Decides by the table of the module. `known`: the masterships that the standby has followed; `shown`: those of the master of this
/// name.
pub fn lineage(known: &[Mastership], master: &str, shown: &[Mastership]) -> Lineage {
    let common = known.iter().enumerate().find_map(|(i, one)| Some((i, shown.iter().position(|other| other == one)?)));
    let (in_known, in_shown) = common.unwrap_or((known.len(), shown.len()));
    let mut later = known[..in_known].iter().chain(&shown[..in_shown]);
    let wrote_end = known.first().is_some_and(|latest| latest.node == master);
    match common {
        _ if wrote_end && later.all(|one| one.node == master && !one.accepted) => Lineage::WroteIt,
        Some((0, _)) => Lineage::Continues,
        _ => Lineage::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(node: &str, mark: u64) -> Mastership {
        Mastership { node: node.to_owned(), mark, accepted: false }
    }

    fn accepted(node: &str, mark: u64) -> Mastership {
        Mastership { accepted: true, ..one(node, mark) }
    }

    #[test]
    fn the_decision_table() {
        let known = [one("a", 5), one("a", 4), one("b", 3)];
        let table = [
            (vec![one("a", 5), one("a", 4)], Lineage::WroteIt),
            (vec![one("a", 8), one("a", 7), one("a", 6), one("a", 5)], Lineage::WroteIt),
            // An older copy of its directory, started three times; before it was copied, another node was master.
            (vec![one("a", 8), one("a", 7), one("a", 6), one("a", 4), one("b", 3)], Lineage::WroteIt),
            (vec![one("a", 8), one("b", 7), one("a", 5)], Lineage::Continues),
            (vec![one("b", 7), one("a", 5)], Lineage::Continues),
            (vec![accepted("a", 8), one("a", 5)], Lineage::Continues),
            (vec![one("b", 7), one("a", 4)], Lineage::Unknown),
            // What the standby followed was left behind with an accepted loss, and a is master again, after another node.
            (vec![one("a", 9), one("a", 8), accepted("b", 7), one("a", 4)], Lineage::Unknown),
            (vec![accepted("a", 8), one("a", 4)], Lineage::Unknown),
            (vec![one("b", 3)], Lineage::Unknown),
        ];
        for (shown, expected) in table {
            assert_eq!(lineage(&known, &shown[0].node, &shown), expected, "{shown:?}");
        }
        // A mirror of a, whose list begins with it.
        assert_eq!(lineage(&[one("a", 5), one("a", 4)], "a", &[one("a", 9)]), Lineage::WroteIt);
        assert_eq!(lineage(&[one("a", 5)], "b", &[one("b", 9)]), Lineage::Unknown);
    }
}
