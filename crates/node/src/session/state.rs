//! The state of a session between statements, and every transition from one state to another.
//!
//! | state | event | next |
//! |---|---|---|
//! | idle | BEGIN | block, explicit, reading |
//! | idle | a statement that is not the only one in its message | block, implicit, reading |
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
//! A block has a part with its own phase in each database it uses ([`super::multi_database`]).
//!
//! Writers work concurrently on branches. A writer is exclusive until it ends when it is SERIALIZABLE and may write, or when it
//! changes the schema, tables with triggers or virtual tables.

use crate::database::InUse;
use crate::settings::Undo;
use holdfast_engine::{Reader, WriteIsolation, WriteTxn};
use holdfast_sql::Isolation;
use holdfast_types::access::RoleChanges;
use holdfast_wire::Status;

#[derive(Default)]
pub enum State {
    #[default]
    Idle,
    Block(Box<Block>),
}

/// A transaction of more than one statement.
pub struct Block {
    /// Begun by BEGIN; otherwise it ends with its message or at Sync.
    pub explicit: bool,
    pub isolation: Isolation,
    pub read_only: bool,
    /// A statement has run: the isolation level can no longer be chosen.
    pub queried: bool,
    pub phase: Phase,
    /// Its parts in other databases.
    pub parked: Vec<Parked>,
    /// The database in which it began, once it has moved to another one.
    pub began_in: Option<String>,
    pub savepoints: Vec<Savepoint>,
    pub undo: Vec<Undo>,
    /// What it has changed of roles and of access to databases.
    pub role_changes: RoleChanges,
}

/// A transaction's part in a database that the session is not using at present.
pub struct Parked {
    pub served: InUse,
    pub phase: Phase,
}

pub struct Savepoint {
    pub name: String,
    /// How many settings had been changed when it was set.
    pub undo_len: usize,
    /// What had been changed of roles.
    pub role_changes: RoleChanges,
}

pub enum Phase {
    /// Nothing written yet. The reader holds the transaction's snapshot under REPEATABLE READ and above, from the
    /// first statement on.
    Reading(Option<Box<Reader>>),
    Writing(WriteTxn),
    Failed(Left),
}

/// What is left of a failed part, for ROLLBACK TO a savepoint.
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
            role_changes: RoleChanges::default(),
        }
    }

    /// Whether all statements see one snapshot.
    pub fn keeps_snapshot(&self) -> bool {
        matches!(self.isolation, Isolation::RepeatableRead | Isolation::Serializable)
    }

    /// The isolation of its writer. `exclusive`: no other writer may run at the same time.
    pub fn write_isolation(&self, exclusive: bool) -> WriteIsolation {
        match self.isolation {
            Isolation::Serializable => WriteIsolation::Exclusive,
            _ if exclusive => WriteIsolation::Exclusive,
            Isolation::RepeatableRead => WriteIsolation::RepeatableRead,
            _ => WriteIsolation::ReadCommitted,
        }
    }

    /// Whether even a reading statement runs as the writer. Otherwise a transaction reads its snapshot until it first writes,
    /// and fails then if the database has changed since: what it has read is what the exclusive writer sees. That comparison is
    /// made for one database; a SERIALIZABLE transaction over several is the writer of each from its first statement there.
    /// `again`: the session's last SERIALIZABLE transaction failed by that comparison. It must not fail again and again on a busy
    /// database.
    pub fn writes_from_the_start(&self, again: bool) -> bool {
        self.may_write_serializable() && (again || !self.parked.is_empty())
    }

    /// Whether it is a SERIALIZABLE transaction that may write.
    pub fn may_write_serializable(&self) -> bool {
        self.isolation == Isolation::Serializable && !self.read_only
    }

    pub fn phases(&mut self) -> impl Iterator<Item = &mut Phase> {
        std::iter::once(&mut self.phase).chain(self.parked.iter_mut().map(|p| &mut p.phase))
    }

    /// Takes the writers of all parts; the parts have failed then.
    pub fn take_writers(&mut self) -> Vec<WriteTxn> {
        self.phases().filter_map(|phase| std::mem::replace(phase, Phase::Failed(Left::Nothing)).writer()).collect()
    }

    /// The writers of all parts that have not failed.
    pub fn writers(&mut self) -> impl Iterator<Item = &mut WriteTxn> {
        self.phases().filter_map(|phase| match phase {
            Phase::Writing(txn) => Some(txn),
            _ => None,
        })
    }

    /// A statement failed in an explicit block. Returns the writers that are to be rolled back: no savepoint needs them.
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

    /// Whether a part of it is lost, so that no savepoint can be restored.
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

    /// Whether the open transaction has begun to write.
    pub fn is_writing(&self) -> bool {
        matches!(self, State::Block(b) if matches!(b.phase, Phase::Writing(_) | Phase::Failed(Left::Writer(_))))
    }

    pub fn has_failed(&self) -> bool {
        matches!(self, State::Block(b) if matches!(b.phase, Phase::Failed(_)))
    }

    /// The status that the client sees: an implicit block does not count as a transaction block.
    pub fn status(&self) -> Status {
        match self {
            State::Idle => Status::Idle,
            State::Block(b) if !b.explicit => Status::Idle,
            State::Block(b) if matches!(b.phase, Phase::Failed(_)) => Status::Failed,
            State::Block(_) => Status::InTransaction,
        }
    }
}
