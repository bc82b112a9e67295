//! What the pulse loop has seen, for the other threads of its process: the one that leads Raft, and the one that promotes.
//!
//! Failure: a pulse thread that has ended shows what it saw last; its supervisor ends then.

use std::sync::atomic::AtomicU64;

use holdfast_types::Epoch;

use super::board::Board;
use super::voters::{NODES_MAX, NodeSet};

/// What was seen at one turn.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Seen {
    /// The epoch that was applied.
    pub epoch: Epoch,
    /// Each of a majority of the voters counts silence of its master.
    pub is_silent: bool,
    /// The nodes that were heard lately, and this one.
    pub heard: NodeSet,
    /// What these say of themselves, or said last.
    pub server_ready: NodeSet,
    pub disk_moves: NodeSet,
    /// Their clocks differ from those of all others, or were not compared yet: none of them is to be a successor.
    pub clock_off: NodeSet,
    /// This node's clock differs from those of all others: it may not be master.
    pub is_own_clock_off: bool,
    /// How long this node has waited for the end of the old lease, if it is the successor that is named.
    pub waited_ms: Option<u32>,
    /// For how long each node was not heard; `None`: it never was.
    pub quiet_ms: [Option<u32>; NODES_MAX],
}

const WORDS: usize = 3 + NODES_MAX.div_ceil(2);

impl Seen {
    /// Before the first turn of the pulse loop: no clock was compared.
    pub fn before() -> Seen {
        Seen { clock_off: NodeSet::of(0..NODES_MAX), ..Seen::default() }
    }

    fn words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let or_most = |ms: Option<u32>| u64::from(ms.map_or(u32::MAX, |ms| ms.min(u32::MAX - 1)));
        words[0] = u64::from(self.epoch.0) | u64::from(self.is_silent) << 32 | u64::from(self.is_own_clock_off) << 33;
        words[1] = u64::from(self.heard.0) | u64::from(self.server_ready.0) << 16;
        words[1] |= u64::from(self.disk_moves.0) << 32 | u64::from(self.clock_off.0) << 48;
        words[2] = or_most(self.waited_ms);
        for (slot, quiet_ms) in self.quiet_ms.iter().enumerate() {
            words[3 + slot / 2] |= or_most(*quiet_ms) << (32 * (slot % 2));
        }
        words
    }

    fn read(words: &[u64; WORDS]) -> Seen {
        let or_none = |word: u64| Some(word as u32).filter(|ms| *ms != u32::MAX);
        let set = |shift: u32| NodeSet((words[1] >> shift) as u16);
        Seen {
            epoch: Epoch(words[0] as u32),
            is_silent: words[0] >> 32 & 1 == 1,
            is_own_clock_off: words[0] >> 33 & 1 == 1,
            heard: set(0),
            server_ready: set(16),
            disk_moves: set(32),
            clock_off: set(48),
            waited_ms: or_none(words[2]),
            quiet_ms: std::array::from_fn(|slot| or_none(words[3 + slot / 2] >> (32 * (slot % 2)))),
        }
    }
}

/// Shown by one thread, looked at by others.
pub struct SeenBoard {
    board: Board<AtomicU64, WORDS>,
}

impl Default for SeenBoard {
    fn default() -> SeenBoard {
        let seen = SeenBoard { board: Board::default() };
        seen.board.show(&[0; WORDS], &Seen::before().words());
        seen
    }
}

impl SeenBoard {
    /// `before`: what is shown, at first [`Seen::before`].
    pub fn show(&self, before: &Seen, seen: &Seen) {
        let (shown, words) = (before.words(), seen.words());
        if shown != words {
            self.board.show(&shown, &words);
        }
    }

    /// What was seen last.
    pub fn look(&self) -> Seen {
        loop {
            if let Some((_, words)) = self.board.look() {
                return Seen::read(&words);
            }
            // It changes now, which takes less than a microsecond unless the writer is interrupted.
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_was_seen_is_read() {
        let board = SeenBoard::default();
        assert_eq!(board.look(), Seen::before());
        let mut seen = Seen {
            epoch: Epoch(u32::MAX),
            is_silent: true,
            is_own_clock_off: true,
            heard: NodeSet(0b1_0000_0001),
            server_ready: NodeSet(2),
            disk_moves: NodeSet(4),
            clock_off: NodeSet(0b1_0000_0000),
            waited_ms: Some(0),
            quiet_ms: std::array::from_fn(|slot| (slot != 3).then_some(7 * slot as u32)),
        };
        board.show(&Seen::before(), &seen);
        assert_eq!(board.look(), seen);
        let before = seen;
        (seen.waited_ms, seen.quiet_ms[8]) = (None, Some(u32::MAX));
        board.show(&before, &seen);
        assert_eq!(board.look(), Seen { quiet_ms: board.look().quiet_ms, ..seen });
        assert_eq!(board.look().quiet_ms[8], Some(u32::MAX - 1), "the longest time that is not taken for never");
    }
}
