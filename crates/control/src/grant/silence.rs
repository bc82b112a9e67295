//! What a node knows of the others by their pulses: which it hears, and which voters count silence of the master.
//!
//! Raft's leader proposes Depose only when each of a majority of the voters says that it counts silence itself (rule C6): a
//! link that fails between the leader and the master, or a leader that was frozen, deposes no master.

use holdfast_types::Epoch;

use super::pulse::{PULSE_EVERY_MS, Pulse};
use super::time::Moment;
use super::voters::{NODES_MAX, NodeSet, Voters};

/// For how long a node counts as heard after its last message: four pulses.
pub const HEARD_NS: u64 = 4 * PULSE_EVERY_MS * 1_000_000;

#[derive(Clone, Copy, Default, Debug)]
struct Last {
    at: Moment,
    heard: bool,
    silent_of: Option<Epoch>,
}

/// The newest message of each node.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    last: [Last; NODES_MAX],
}

impl Heard {
    /// Takes a pulse or an answer of the node in that slot. True if it was not heard before: the next pulse is then due at once,
    /// because a voter that is not heard does not grant.
    pub fn take(&mut self, slot: usize, message: &Pulse, now: Moment) -> bool {
        let was_heard = self.nodes(now).contains(slot);
        if let Some(last) = self.last.get_mut(slot) {
            *last = Last { at: now, heard: true, silent_of: message.silent.then_some(message.epoch) };
        }
        !was_heard
    }

    /// The nodes that were heard lately.
    pub fn nodes(&self, now: Moment) -> NodeSet {
        let lately = |last: &Last| last.heard && now.since(last.at) <= HEARD_NS;
        NodeSet::of((0..NODES_MAX).filter(|slot| lately(&self.last[*slot])))
    }

    /// For how long that node has not been heard; `None` if it never was.
    pub fn quiet_ns(&self, slot: usize, now: Moment) -> Option<u64> {
        self.last.get(slot).filter(|last| last.heard).map(|last| now.since(last.at))
    }

    /// Whether each of a majority counts silence of the master of `epoch`. `me` and `my_silence`: this node's own.
    pub fn majority_is_silent(&self, epoch: Epoch, me: usize, my_silence: bool, voters: &Voters, now: Moment) -> bool {
        let lately = self.nodes(now);
        let others = (0..NODES_MAX).filter(|slot| lately.contains(*slot) && self.last[*slot].silent_of == Some(epoch));
        let silent = NodeSet::of(others.filter(|slot| *slot != me));
        voters.is_majority(if my_silence { silent.with(me) } else { silent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voters() -> Voters {
        Voters { sets: [NodeSet(0b111), NodeSet(0)], ..Voters::default() }
    }

    fn says(silent: bool, epoch: u32) -> Pulse {
        Pulse { silent, epoch: Epoch(epoch), ..Pulse::default() }
    }

    #[test]
    fn each_of_a_majority_has_to_count_silence_itself_and_lately() {
        let mut heard = Heard::default();
        let (early, now) = (Moment(1_000_000_000), Moment(1_050_000_000));
        let is_silent = |heard: &Heard, mine, now| heard.majority_is_silent(Epoch(3), 2, mine, &voters(), now);
        assert!(!is_silent(&heard, true, now), "one of three");
        assert!(heard.take(1, &says(false, 3), early));
        assert!(!is_silent(&heard, true, now));
        assert!(!heard.take(1, &says(true, 2), early));
        assert!(!is_silent(&heard, true, now), "of another epoch");
        heard.take(1, &says(true, 3), early);
        assert!(is_silent(&heard, true, now) && !is_silent(&heard, false, now));
        assert!(!is_silent(&heard, true, Moment(early.0 + HEARD_NS + 1)), "that was too long ago");
        assert_eq!(heard.quiet_ns(1, now), Some(50_000_000));
        assert_eq!(heard.quiet_ns(0, now), None);
        assert!(heard.take(1, &says(true, 3), Moment(early.0 + HEARD_NS + 1)), "heard again");
    }
}
