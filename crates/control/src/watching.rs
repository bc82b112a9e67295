//! The times that Raft's leader watches ([`crate::failover`]): how long the master is silent, how long it leads itself, and when each
//! node was heard.
//!
//! Only watched time counts: a turn adds at most 50 ms, and one of more than 250 ms sets silence and leading to 0.
//!
//! Failure: none; what was not watched is not counted.

use std::collections::BTreeMap;

use holdfast_types::Epoch;

use crate::id::NodeId;
use crate::sight::Heard;

/// For how long a leader leads before it deposes.
const SETTLED_NS: u64 = 1_000_000_000;
/// A turn that lasts longer proves nothing.
const TURN_NS_MAX: u64 = 250_000_000;
const TURN_COUNTS_NS_MAX: u64 = 50_000_000;

/// Times that Raft's leader watches.
#[derive(Default)]
pub struct Watch {
    pub last_ns: u64,
    pub signs: u64,
    pub has_majority: bool,
    pub silent_ns: u64,
    pub term: u64,
    pub leads_ns: u64,
    /// All watched time of this member.
    pub watched_ns: u64,
    pub named: Option<(Epoch, Option<NodeId>, u64)>,
    /// When each node was heard last.
    pub heard_ns: BTreeMap<NodeId, u64>,
}

/// What a turn of the loop looks at.
#[derive(Clone, Copy)]
pub struct Look {
    pub now_ns: u64,
    pub signs: u64,
    pub term: u64,
    /// It leads in this term, an own entry is applied, and a quorum has acknowledged it lately.
    pub leads: bool,
    pub has_majority: bool,
}

impl Watch {
    pub fn starting(look: Look) -> Watch {
        Watch { last_ns: look.now_ns, signs: look.signs, term: look.term, ..Watch::default() }
    }

    /// Counts a turn of the loop. `by_the_clock`: what a simpler program would do, for the simulation.
    pub fn turn(&mut self, look: Look, by_the_clock: bool) {
        let passed_ns = look.now_ns.saturating_sub(std::mem::replace(&mut self.last_ns, look.now_ns));
        let counted_ns = if by_the_clock { passed_ns } else { passed_ns.min(TURN_COUNTS_NS_MAX) };
        self.watched_ns += counted_ns;
        (self.silent_ns, self.leads_ns) = (self.silent_ns + counted_ns, self.leads_ns + counted_ns);
        if passed_ns > TURN_NS_MAX && !by_the_clock {
            (self.silent_ns, self.leads_ns) = (0, 0);
            self.heard_ns.clear();
        }
        if std::mem::replace(&mut self.signs, look.signs) != look.signs {
            self.silent_ns = 0;
        }
        self.has_majority = look.has_majority;
        let is_new = std::mem::replace(&mut self.term, look.term) != look.term;
        if is_new || !look.leads {
            self.leads_ns = 0;
        }
    }

    pub fn is_settled(&self) -> bool {
        self.leads_ns >= SETTLED_NS
    }

    /// Remembers when each node was heard; the silence of a node counts from the first question to it on.
    pub fn note_heard(&mut self, heard: &BTreeMap<NodeId, Option<Heard>>) {
        let now_ns = self.watched_ns;
        for (node, heard) in heard {
            let last_ns = self.heard_ns.entry(*node).or_insert(now_ns);
            if heard.is_some() {
                *last_ns = now_ns;
            }
        }
    }

    /// Completes the answers of nodes that were silent with the time for which they have been.
    pub fn since_when(&self, heard: BTreeMap<NodeId, Option<Heard>>) -> BTreeMap<NodeId, Heard> {
        let silent = |node: &NodeId| {
            let last_ns = self.heard_ns.get(node).copied().unwrap_or(self.watched_ns);
            Heard::Silent { ms: (self.watched_ns - last_ns) / 1_000_000 }
        };
        heard.into_iter().map(|(node, heard)| (node, heard.unwrap_or_else(|| silent(&node)))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A leader of term 3 that watches turns of 25 ms, until something is changed.
    struct Bench {
        watch: Watch,
        look: Look,
    }

    impl Bench {
        fn new() -> Bench {
            let look = Look { now_ns: 1_000_000_000, signs: 7, term: 3, leads: true, has_majority: true };
            Bench { watch: Watch::starting(look), look }
        }

        fn turns(&mut self, count: u64, ms: u64) {
            for _ in 0..count {
                self.look.now_ns += ms * 1_000_000;
                self.watch.turn(self.look, false);
            }
        }

        fn silent_ms(&self) -> u64 {
            self.watch.silent_ns / 1_000_000
        }
    }

    #[test]
    fn silence_counts_from_the_last_sign() {
        let mut bench = Bench::new();
        bench.turns(120, 25);
        assert_eq!(bench.silent_ms(), 3_000);
        bench.look.signs += 1;
        bench.turns(1, 25);
        assert_eq!(bench.silent_ms(), 0);
        // A slow turn counts in part, one that was a pause proves nothing.
        bench.turns(1, 200);
        assert_eq!(bench.silent_ms(), 50);
        bench.turns(1, 10_000);
        assert_eq!(bench.silent_ms(), 0);
    }

    #[test]
    fn a_leader_is_settled_after_a_second_of_one_term() {
        let mut bench = Bench::new();
        bench.turns(39, 25);
        assert!(!bench.watch.is_settled());
        bench.turns(1, 25);
        assert!(bench.watch.is_settled());
        let spoilers: [fn(&mut Bench); 3] = [
            |bench| bench.look.term += 1,
            |bench| bench.turns(1, 1_000),
            |bench| {
                // It was cut off for a turn.
                bench.look.leads = false;
                bench.turns(1, 25);
                bench.look.leads = true;
            },
        ];
        for spoil in spoilers {
            bench.turns(50, 25);
            assert!(bench.watch.is_settled());
            spoil(&mut bench);
            bench.turns(39, 25);
            assert!(!bench.watch.is_settled());
        }
    }
}
