//! Where a session stands between statements, and every way to get from one state to another.
//!
//! | state | event | next |
//! |---|---|---|
//! | idle | BEGIN | block, explicit, reading |
//! | idle | a statement that is not alone in its message | block, implicit, reading |
//! | block, implicit | BEGIN | block, explicit |
//! | block, reading | the first write; the first statement under SERIALIZABLE | block, writing |
//! | block, writing | any statement | block, writing |
//! | block, explicit | a statement fails | block, failed; the writer is kept only where a savepoint may need it |
//! | block, implicit | a statement fails | idle |
//! | block, failed | ROLLBACK TO a savepoint | block, as it was there |
//! | block, a part of it lost | ROLLBACK TO a savepoint | 25P02: only all of it can be rolled back |
//! | block, failed | anything but the end of the transaction | 25P02 |
//! | block | COMMIT, ROLLBACK, end of an implicit block | idle |
//!
//! A block has a part with a phase of its own in each database it goes to ([`super::several`]).
//!
//! Writers work side by side on branches. A SERIALIZABLE one that may write, and one that changes the schema, tables with
//! triggers or virtual tables, is the only writer until it ends.

use crate::database::InUse;
use crate::settings::Undo;
use holdfast_engine::{Reader, WriteIsolation, WriteTxn};
use holdfast_sql::Isolation;
use holdfast_wire::Status;

#[derive(Default)]
pub enum State {
    #[default]
    Idle,
    Block(Box<Block>),
}

/// A transaction of more than one statement.
pub struct Block {
    /// BEGIN was said; otherwise it ends with its message or at Sync.
    pub explicit: bool,
    pub isolation: Isolation,
    pub read_only: bool,
    /// A statement has run, so that the isolation level can no longer be chosen.
    pub queried: bool,
    pub phase: Phase,
    /// Its parts in other databases.
    pub parked: Vec<Parked>,
    /// The database in which it began, once it has gone to another one.
    pub began_in: Option<String>,
    pub savepoints: Vec<Savepoint>,
    pub undo: Vec<Undo>,
}

/// A transaction's part in a database that the session is not in at the moment.
pub struct Parked {
    pub served: InUse,
    pub phase: Phase,
}

pub struct Savepoint {
    pub name: String,
    /// Changed settings when it was set.
    pub undo_len: usize,
}

pub enum Phase {
    /// Nothing written yet. The reader holds the transaction's snapshot under REPEATABLE READ and above, from the
    /// first statement on.
    Reading(Option<Box<Reader>>),
    Writing(WriteTxn),
    Failed(Left),
}

/// What a failed part still has, for a return to a savepoint.
pub enum Left {
    /// It had not written.
    Reader(Option<Box<Reader>>),
    Writer(WriteTxn),
    /// It was rolled back, or backed out.
    Nothing,
}

impl Phase {
    fn writer(self) -> Option<WriteTxn> {
        match self {
            Phase::Writing(txn) | Phase::Failed(Left::Writer(txn)) => Some(txn),
            Phase::Reading(_) | Phase::Failed(_) => None,
        }
    }
}

impl Block {
    pub fn new(explicit: bool, isolation: Isolation, read_only: bool) -> Block {
        Block {
            explicit,
            isolation,
            read_only,
            queried: false,
            phase: Phase::Reading(None),
            parked: Vec::new(),
            began_in: None,
            savepoints: Vec::new(),
            undo: Vec::new(),
        }
    }

    /// One snapshot for all statements?
    pub fn keeps_snapshot(&self) -> bool {
        matches!(self.isolation, Isolation::RepeatableRead | Isolation::Serializable)
    }

    /// How it writes.
    pub fn write_isolation(&self, alone: bool) -> WriteIsolation {
        match self.isolation {
            Isolation::Serializable => WriteIsolation::Alone,
            _ if alone => WriteIsolation::Alone,
            Isolation::RepeatableRead => WriteIsolation::RepeatableRead,
            _ => WriteIsolation::ReadCommitted,
        }
    }

    /// Must even a reading statement run as the writer? SERIALIZABLE transactions that may write run alone.
    pub fn writes_from_the_start(&self) -> bool {
        self.isolation == Isolation::Serializable && !self.read_only
    }

    pub fn phases(&mut self) -> impl Iterator<Item = &mut Phase> {
        std::iter::once(&mut self.phase).chain(self.parked.iter_mut().map(|p| &mut p.phase))
    }

    /// The writers of all parts, which are over then.
    pub fn take_writers(&mut self) -> Vec<WriteTxn> {
        self.phases().filter_map(|phase| std::mem::replace(phase, Phase::Failed(Left::Nothing)).writer()).collect()
    }

    /// The writers of all parts that can go on.
    pub fn writers(&mut self) -> impl Iterator<Item = &mut WriteTxn> {
        self.phases().filter_map(|phase| match phase {
            Phase::Writing(txn) => Some(txn),
            _ => None,
        })
    }

    /// A statement failed in an explicit block. Returns the writers to be rolled back where they are of no more use.
    pub fn fail(&mut self) -> Vec<WriteTxn> {
        if self.savepoints.is_empty() {
            return self.take_writers();
        }
        for phase in self.phases() {
            *phase = Phase::Failed(match std::mem::replace(phase, Phase::Failed(Left::Nothing)) {
                Phase::Writing(mut txn) => {
                    txn.fail();
                    Left::Writer(txn)
                }
                Phase::Reading(reader) => Left::Reader(reader),
                Phase::Failed(left) => left,
            });
        }
        Vec::new()
    }

    /// A part of it is lost: no savepoint leads back to what it was.
    pub fn is_lost(&mut self) -> bool {
        self.phases().any(|phase| matches!(phase, Phase::Failed(Left::Nothing)))
    }

    /// Position of the newest savepoint of that name.
    pub fn savepoint(&self, name: &str) -> Option<usize> {
        self.savepoints.iter().rposition(|s| s.name == name)
    }
}

impl State {
    pub fn block_ref(&self) -> Option<&Block> {
        match self {
            State::Idle => None,
            State::Block(block) => Some(block),
        }
    }

    pub fn block(&mut self) -> Option<&mut Block> {
        match self {
            State::Idle => None,
            State::Block(block) => Some(block),
        }
    }

    pub fn is_idle(&self) -> bool {
        matches!(self, State::Idle)
    }

    /// Has the open transaction begun to write?
    pub fn is_writing(&self) -> bool {
        matches!(self, State::Block(b) if matches!(b.phase, Phase::Writing(_) | Phase::Failed(Left::Writer(_))))
    }

    pub fn has_failed(&self) -> bool {
        matches!(self, State::Block(b) if matches!(b.phase, Phase::Failed(_)))
    }

    /// An implicit block is no transaction block to the client.
    pub fn status(&self) -> Status {
        match self {
            State::Idle => Status::Idle,
            State::Block(b) if !b.explicit => Status::Idle,
            State::Block(b) if matches!(b.phase, Phase::Failed(_)) => Status::Failed,
            State::Block(_) => Status::InTransaction,
        }
    }
}
