//! What the thread that writes Raft's log tells the pulse thread: which mastership is applied, whether its end is in the
//! log, which voter set is the newest. The pulse thread reads it without a lock ([`VoterLog::look`]).
//!
//! Two threads must not miss each other (rule C2):
//!
//! ```text
//! pulse thread     stores the time of the grant ── fence ── looks at the log ── sends the grant
//! journal thread   publishes the entry ── fence ── writes, syncs ── confirms; reads the time for a report
//! ```
//! Whichever comes first, a grant that is sent is in the report, or the entry is seen and no grant is sent. All facts are
//! words with a version: it is odd while they change, and a reader that meets a change takes nothing.
//!
//! Failure: a reader that always meets a change grants nothing; the writer changes the words a few times a second.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use holdfast_types::Epoch;
use parking_lot::Mutex;

use super::board::Board;
use super::time::Moment;
use super::voters::{LogPosition, NodeSet, Roster, Voters};
use crate::id::{NODE_NAME_BYTES_MAX, NodeId};
use crate::record::{Mastership, Record};

/// The atomic number that the facts consist of: the real one, or loom's in its test.
pub trait Word: Send + Sync {
    fn new(value: u64) -> Self;
    fn load(&self) -> u64;
    fn store(&self, value: u64);
    /// Sequentially consistent.
    fn fence();
}

impl Word for AtomicU64 {
    fn new(value: u64) -> AtomicU64 {
        AtomicU64::new(value)
    }

    fn load(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn store(&self, value: u64) {
        self.store(value, Ordering::Release);
    }

    fn fence() {
        fence(Ordering::SeqCst);
    }
}

/// Whether the applied record has a master that may ask for its lease.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Stage {
    /// No node holds a lease of this epoch or can get one.
    #[default]
    Free,
    /// The master may ask.
    Serving,
    /// Its end is committed; its lease may not have run out.
    Deposed,
}

/// What a node has applied, as the rules of leases need it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Applied {
    /// The random number of the group; 0 before it is founded.
    pub cluster: u64,
    pub record_version: u8,
    pub epoch: Epoch,
    pub stage: Stage,
    pub lease_ms: u32,
    /// The slot of the master of `epoch`, and of the node that is to succeed it.
    pub master: Option<usize>,
    pub successor: Option<usize>,
    /// The node is a voter in the membership that it has applied, with the disk that it has now.
    pub votes: bool,
}

impl Applied {
    /// What a record says.
    pub fn of(record: Option<&Record>, roster: &Roster, votes: bool) -> Applied {
        let Some(record) = record else { return Applied { votes, ..Applied::default() } };
        let (stage, successor) = match record.mastership {
            Mastership::Free { successor } => (Stage::Free, successor),
            Mastership::Serving { .. } => (Stage::Serving, None),
            Mastership::Deposed { successor, .. } => (Stage::Deposed, Some(successor)),
        };
        let slot = |node: Option<NodeId>| node.and_then(|node| roster.slot(node));
        Applied {
            cluster: record.group,
            record_version: record.version.try_into().unwrap_or(u8::MAX),
            epoch: record.epoch,
            stage,
            lease_ms: record.lease.lease_ms,
            master: slot(record.master),
            successor: slot(successor),
            votes,
        }
    }
}

/// All facts at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LogView {
    /// Tells this view from later ones.
    pub version: u64,
    pub applied: Applied,
    /// The highest epoch whose ending entry is in this node's log, written or not, committed or not; 0 if there is none.
    pub ended: Epoch,
    /// The newest ending entry of that epoch that is durable here.
    pub durable_ending: Option<LogPosition>,
    /// The newest ending entry of the applied epoch that is committed and was not refused.
    pub committed_ending: Option<LogPosition>,
    pub voters: Voters,
}

/// What an entry of the log means for leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meaning {
    /// It ends the mastership of that epoch, unless it is refused when it is applied.
    Ends(Epoch),
    /// It changes the voters.
    Voters([NodeSet; 2]),
    Other,
}

/// An ending entry in the log.
#[derive(Clone, Copy, Debug)]
struct Ending {
    at: LogPosition,
    epoch: Epoch,
    durable: bool,
}

/// The facts on the writer's side.
#[derive(Default)]
struct Facts {
    applied: Applied,
    committed_ending: Option<LogPosition>,
    /// In the order of the log.
    endings: Vec<Ending>,
    /// In the order of the log; the first is applied, or from the snapshot.
    voters: Vec<Voters>,
    /// What the words hold.
    shown: [u64; WORDS],
}

const WORDS: usize = 16;

/// The facts, and the moment of the last grant.
pub struct VoterLog<W: Word = AtomicU64> {
    facts: Mutex<Facts>,
    board: Board<W, WORDS>,
    granted_ns: W,
}

impl<W: Word> Default for VoterLog<W> {
    fn default() -> VoterLog<W> {
        VoterLog { facts: Mutex::default(), board: Board::default(), granted_ns: W::new(0) }
    }
}

/// The writer's side: Raft's log and state machine.
impl<W: Word> VoterLog<W> {
    /// An entry is about to be written: call this *before* the write.
    pub fn appended(&self, at: LogPosition, meaning: Meaning) {
        self.change(|facts| {
            facts.cut(at.index);
            match meaning {
                Meaning::Ends(epoch) => facts.endings.push(Ending { at, epoch, durable: false }),
                Meaning::Voters(sets) => facts.voters.push(Voters { at, sets }),
                Meaning::Other => {}
            }
        });
    }

    /// All entries up to this index are durable: call this after the sync, *before* the leader gets the confirmation.
    pub fn durable(&self, index: u64) {
        self.change(|facts| {
            facts.endings.iter_mut().filter(|ending| ending.at.index <= index).for_each(|ending| ending.durable = true);
        });
    }

    /// Entries from this index on are gone: a mastership whose end was among them may get grants again.
    pub fn truncated(&self, index: u64) {
        self.change(|facts| facts.cut(index));
    }

    /// An entry has been applied. `refused`: it changed nothing.
    pub fn applied(&self, at: LogPosition, meaning: Meaning, refused: bool, applied: Applied) {
        self.change(|facts| {
            facts.adopt(applied);
            match meaning {
                Meaning::Ends(_) if refused => facts.endings.retain(|ending| ending.at != at),
                Meaning::Ends(_) => facts.committed_ending = Some(at),
                Meaning::Voters(_) => {
                    // What is committed is not cut off: earlier sets are not needed again.
                    let first = facts.voters.iter().position(|voters| voters.at == at).unwrap_or(0);
                    facts.voters.drain(..first);
                }
                Meaning::Other => {}
            }
        });
    }

    /// A snapshot takes the place of the log up to there: at the start, or from the leader.
    pub fn installed(&self, end: LogPosition, voters: Voters, applied: Applied) {
        self.change(|facts| {
            facts.endings.retain(|ending| ending.at.index > end.index);
            facts.voters.retain(|voters| voters.at.index > end.index);
            facts.voters.insert(0, voters);
            facts.committed_ending = None;
            facts.adopt(applied);
        });
    }

    fn change(&self, change: impl FnOnce(&mut Facts)) {
        let mut facts = self.facts.lock();
        change(&mut facts);
        let words = facts.words();
        if words == facts.shown {
            return;
        }
        self.board.show(&facts.shown, &words);
        facts.shown = words;
    }
}

/// The pulse thread's side.
impl<W: Word> VoterLog<W> {
    /// All facts; `None` while they are being changed.
    pub fn look(&self) -> Option<LogView> {
        self.board.look().map(|(version, words)| read(version, &words))
    }

    /// Stores the moment of a grant, then looks at the log again: false if it has changed since `view`, so that the grant
    /// must not be sent.
    pub(super) fn store_grant(&self, at: Moment, view: &LogView) -> bool {
        self.granted_ns.store(at.0);
        W::fence();
        self.board.version() == view.version
    }

    /// The moment of the last grant, sent or not, in the time of the pulse thread's watch.
    pub fn last_grant(&self) -> Moment {
        Moment(self.granted_ns.load())
    }
}

impl Facts {
    fn cut(&mut self, index: u64) {
        self.endings.retain(|ending| ending.at.index < index);
        self.voters.retain(|voters| voters.at.index < index);
    }

    fn adopt(&mut self, applied: Applied) {
        if applied.epoch != self.applied.epoch || applied.stage == Stage::Serving {
            self.committed_ending = None;
        }
        self.endings.retain(|ending| ending.epoch >= applied.epoch);
        self.applied = applied;
    }

    fn words(&self) -> [u64; WORDS] {
        let ended = self.endings.iter().map(|ending| ending.epoch).max().unwrap_or_default();
        let durable = self.endings.iter().rev().find(|ending| ending.durable && ending.epoch == ended);
        let voters = self.voters.last().copied().unwrap_or_default();
        let stage = match self.applied.stage {
            Stage::Free => 0,
            Stage::Serving => 1,
            Stage::Deposed => 2,
        };
        let slot = |slot: Option<usize>| slot.map_or(0, |slot| slot as u64 + 1);
        let mut words = [0; WORDS];
        words[0] = self.applied.cluster;
        words[1] = u64::from(self.applied.epoch.0) | u64::from(self.applied.record_version) << 32 | stage << 40;
        words[1] |= slot(self.applied.master) << 44 | slot(self.applied.successor) << 48;
        words[1] |= u64::from(self.applied.votes) << 52;
        words[2] = u64::from(ended.0) | u64::from(self.applied.lease_ms) << 32;
        words[3] = u64::from(voters.sets[0].0) | u64::from(voters.sets[1].0) << 16;
        words[3] |= u64::from(durable.is_some()) << 32 | u64::from(self.committed_ending.is_some()) << 33;
        words[4..8].copy_from_slice(&position(&voters.at));
        words[8..12].copy_from_slice(&position(&durable.map(|ending| ending.at).unwrap_or_default()));
        words[12..16].copy_from_slice(&position(&self.committed_ending.unwrap_or_default()));
        words
    }
}

fn read(version: u64, words: &[u64; WORDS]) -> LogView {
    let slot = |shift: u32| (words[1] >> shift & 15).checked_sub(1).map(|slot| slot as usize);
    let stage = match words[1] >> 40 & 15 {
        1 => Stage::Serving,
        2 => Stage::Deposed,
        _ => Stage::Free,
    };
    let position = |at: usize| read_position([words[at], words[at + 1], words[at + 2], words[at + 3]]);
    let sets = [NodeSet(words[3] as u16), NodeSet((words[3] >> 16) as u16)];
    LogView {
        version,
        applied: Applied {
            cluster: words[0],
            record_version: (words[1] >> 32) as u8,
            epoch: Epoch(words[1] as u32),
            stage,
            lease_ms: (words[2] >> 32) as u32,
            master: slot(44),
            successor: slot(48),
            votes: words[1] >> 52 & 1 == 1,
        },
        ended: Epoch(words[2] as u32),
        durable_ending: (words[3] >> 32 & 1 == 1).then(|| position(8)),
        committed_ending: (words[3] >> 33 & 1 == 1).then(|| position(12)),
        voters: Voters { at: position(4), sets },
    }
}

fn position(position: &LogPosition) -> [u64; 4] {
    let name = position.leader.bytes();
    let half = |at: usize| name[at..at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    [position.term, half(0), half(8), position.index]
}

fn read_position([term, first, second, index]: [u64; 4]) -> LogPosition {
    let mut name = [0; NODE_NAME_BYTES_MAX];
    name[..8].copy_from_slice(&first.to_le_bytes());
    name[8..].copy_from_slice(&second.to_le_bytes());
    LogPosition { term, leader: NodeId::from_bytes(name), index }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
