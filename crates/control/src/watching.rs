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

/// Two questions to a node belong together if at most this time lies between them: one waits up to 1.5 s for its answer.
const QUESTIONS_NS_MAX: u64 = 2_500_000_000;

/// A node that does not answer.
#[derive(Clone, Copy)]
pub struct Unanswered {
    since_ns: u64,
    asked_ns: u64,
}

/// Times that Raft's leader watches.
#[derive(Default)]
pub struct Watch {
    pub last_ns: u64,
    pub signs: u64,
    pub has_majority: bool,
    pub silent_ns: u64,
    pub term: u64,
    pub leads_ns: u64,
    leads: bool,
    /// All watched time of this member.
    pub watched_ns: u64,
    pub named: Option<(Epoch, Option<NodeId>, u64)>,
    /// The nodes that did not answer the last question.
    pub unanswered: BTreeMap<NodeId, Unanswered>,
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
            self.unanswered.clear();
        }
        if std::mem::replace(&mut self.signs, look.signs) != look.signs {
            self.silent_ns = 0;
        }
        self.has_majority = look.has_majority;
        let is_new = std::mem::replace(&mut self.term, look.term) != look.term;
        self.leads = look.leads;
        if is_new || !look.leads {
            self.leads_ns = 0;
        }
    }

    /// Whether this leader may decide. `by_pulses`: silence is what each of a majority of the voters has watched itself, so a new
    /// leader knows it as well as an old one.
    pub fn is_settled(&self, by_pulses: bool) -> bool {
        if by_pulses { self.leads } else { self.leads_ns >= SETTLED_NS }
    }

    /// Remembers who answered. The silence of a node counts from the first unanswered question on, as long as it is asked: one that was
    /// not asked for a minute has not been silent for a minute.
    pub fn note_heard(&mut self, heard: &BTreeMap<NodeId, Option<Heard>>) {
        let now_ns = self.watched_ns;
        for (node, heard) in heard {
            if heard.is_some() {
                self.unanswered.remove(node);
                continue;
            }
            let first = Unanswered { since_ns: now_ns, asked_ns: now_ns };
            let of_node = self.unanswered.entry(*node).or_insert(first);
            *of_node = match now_ns - of_node.asked_ns > QUESTIONS_NS_MAX {
                true => first,
                false => Unanswered { asked_ns: now_ns, ..*of_node },
            };
        }
    }

    /// Completes the answers of nodes that were silent with the time for which they have been.
    pub fn since_when(&self, heard: BTreeMap<NodeId, Option<Heard>>) -> BTreeMap<NodeId, Heard> {
        let silent = |node: &NodeId| {
            let of_node = self.unanswered.get(node).filter(|it| self.watched_ns - it.asked_ns <= QUESTIONS_NS_MAX);
            Heard::Silent { ms: of_node.map_or(0, |it| (self.watched_ns - it.since_ns) / 1_000_000) }
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

    /// A node that answered a minute ago, was not asked since, and does not answer once is not silent for a minute.
    #[test]
    fn the_silence_of_a_node_counts_from_the_first_unanswered_question() {
        let node: NodeId = "b".parse().unwrap();
        let mut bench = Bench::new();
        let asks = |bench: &mut Bench, answers: bool, turns: u64| {
            bench.turns(turns, 25);
            let heard = || BTreeMap::from([(node, answers.then(|| Heard::Unfit("it is busy".into())))]);
            bench.watch.note_heard(&heard());
            match bench.watch.since_when(heard()).remove(&node) {
                Some(Heard::Silent { ms }) => Some(ms),
                _ => None,
            }
        };
        assert_eq!(asks(&mut bench, true, 1), None);
        assert_eq!(asks(&mut bench, false, 2_400), Some(0));
        assert_eq!(asks(&mut bench, false, 64), Some(1_600));
        assert_eq!(asks(&mut bench, false, 64), Some(3_200));
        assert_eq!(asks(&mut bench, false, 2_400), Some(0), "it was not asked meanwhile");
        assert_eq!(asks(&mut bench, true, 4), None);
        assert_eq!(asks(&mut bench, false, 4), Some(0));
    }

    #[test]
    fn a_leader_is_settled_after_a_second_of_one_term() {
        let mut bench = Bench::new();
        bench.turns(39, 25);
        assert!(!bench.watch.is_settled(false));
        bench.turns(1, 25);
        assert!(bench.watch.is_settled(false));
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
            assert!(bench.watch.is_settled(false));
            spoil(&mut bench);
            bench.turns(39, 25);
            assert!(!bench.watch.is_settled(false));
        }
    }
}
