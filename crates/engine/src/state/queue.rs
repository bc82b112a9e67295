//! What the writer of a database is asked to do: plain data and reply channels. A sender knows no
//! writer.

use crate::state::lock_owner::LockOwner;
use crate::state::locks::OwnerId;
use crate::state::prewritten::Prewritten;
use crate::state::side_copy::SideCopy;
use crate::state::submission::{OnCompletion, Submission};
use crate::state::taken_ids::Taken;
use crate::state::waiting::Waiting;
use crate::statement::model::{Report, Statement, Step};
use crossbeam_channel::{Receiver, Sender};
use holdfast_trail::Reservation;
use holdfast_types::record::Author;
use holdfast_types::schema::Schema;
use holdfast_types::{Hlc, Level, SessionContext, Sink, SqlError, SqlResult, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A one-message transaction, or the end of one that ran on a branch.
pub struct Request {
    pub id: u64,
    pub submission: Submission,
    /// Images of a branch; the submission has no steps then.
    pub merge: Option<Merge>,
    pub done: OnCompletion,
    /// Not all its statements are bounded.
    pub sole: bool,
    /// The owner of its locks, which are released when it is published or undone.
    pub lock_owner: Option<LockOwner>,
    /// The ids that its statements have taken: it may run again.
    pub ids: Arc<Taken>,
}

/// The changes of a branch.
#[derive(Default)]
pub struct Merge {
    pub images: Vec<u8>,
    /// The images as fragments in the trail, where there are enough to make that worth it.
    pub sent: Option<Prewritten>,
    /// A copy of the volume that has the images already, where they are many.
    pub copy: Option<Box<SideCopy>>,
}

/// What the queue carries; the writer runs it in this order.
pub enum WriterCommand {
    Run(Arc<Waiting>),
    Begin(Begin),
    /// Takes part in a commit over several databases, for a transaction that ran on a branch.
    Participate(Participant),
    /// PREPARE TRANSACTION.
    Prepare {
        request: Prepare,
        level: Level,
        done: OnCompletion,
    },
    /// COMMIT PREPARED or ROLLBACK PREPARED.
    FinishPrepared {
        request: FinishPrepared,
        level: Level,
        done: OnCompletion,
    },
    /// Compacts the database's file, between two batches.
    Vacuum {
        done: Sender<SqlResult<()>>,
    },
    /// Ends the thread.
    Stop,
}

/// The beginning of an exclusive transaction.
pub struct Begin {
    pub id: u64,
    /// Longest pause between two of its statements.
    pub idle_timeout: Duration,
    pub requests: Receiver<ExclusiveRequest>,
    /// What it has done on a branch before.
    pub images: Images,
    /// The owner of its locks, which are released when it ends.
    pub lock_owner: LockOwner,
    /// Answered when it is this transaction's turn.
    pub granted: oneshot::Sender<SqlResult<TxnEvent>>,
}

/// Images of a transaction, cut where savepoints were set: the part before the first, then each with its name.
#[derive(Default)]
pub struct Images {
    pub first: Vec<u8>,
    pub after: Vec<(String, Vec<u8>)>,
}

impl Images {
    /// All images, without the cuts.
    pub fn whole(self) -> Vec<u8> {
        let mut ops = self.first;
        self.after.into_iter().for_each(|(_, part)| ops.extend_from_slice(&part));
        ops
    }
}

/// A request of an exclusive transaction to the writer.
pub enum ExclusiveRequest {
    Run {
        step: Step,
        context: SessionContext,
        sink: Box<dyn Sink>,
        /// The ids that it has taken on a branch.
        ids: Arc<Taken>,
        answer: oneshot::Sender<TxnRan>,
    },
    /// One statement for many rows of parameters, as for COPY. A failure undoes all of them.
    RunRows {
        stmt: Arc<Statement>,
        rows: Vec<Vec<Value>>,
        ids: Arc<Taken>,
        answer: oneshot::Sender<RowsRan>,
    },
    /// Prepares against the transaction's own schema.
    Prepare {
        sql: String,
        report: Report,
        answer: oneshot::Sender<SqlResult<Arc<Statement>>>,
    },
    Savepoint {
        name: String,
        answer: oneshot::Sender<SqlResult<TxnEvent>>,
    },
    Release {
        name: String,
        answer: oneshot::Sender<SqlResult<TxnEvent>>,
    },
    RollbackTo {
        name: String,
        answer: oneshot::Sender<SqlResult<TxnEvent>>,
    },
    /// The images of everything it has changed so far, also by foreign keys and triggers.
    Changes {
        answer: oneshot::Sender<SqlResult<Vec<u8>>>,
    },
    /// Answered when it is durable and has reached its level.
    Commit {
        done: OnCompletion,
        sink: Box<dyn Sink>,
        level: Level,
        author: Option<Arc<Author>>,
    },
    /// Commits together with transactions of other databases.
    Participate(Participant),
    Rollback {
        answer: oneshot::Sender<SqlResult<TxnEvent>>,
    },
}

/// The transaction's schema after a request, if it changed.
pub struct TxnEvent {
    pub schema: Arc<Schema>,
    /// The snapshot the transaction began on.
    pub number: u64,
}

/// The outcome of many rows: the error says which row failed, from 0.
pub type RowsRan = Result<(), (usize, SqlError)>;

/// The outcome of one statement.
pub struct TxnRan {
    pub sink: Box<dyn Sink>,
    pub result: SqlResult<()>,
    pub schema: Arc<Schema>,
    pub last_insert_rowid: i64,
}

/// A writer's part in a commit over several databases.
pub struct Participant {
    /// The changes made on a branch; `None` for a transaction that runs in the writer already.
    pub images: Option<Vec<u8>>,
    /// The owner of its locks, which are released when it is published or undone.
    pub lock_owner: Option<LockOwner>,
    /// The roles that the trail names for it.
    pub author: Option<Arc<Author>>,
    pub commands: Receiver<Command>,
    pub votes: Sender<Vote>,
}

/// What the coordinator orders. No command at all, as the sender is gone, means to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Publish; the commit has this time in every database.
    Commit(Hlc),
    Continue,
}

/// What the writer answers.
pub enum Vote {
    /// Every check is done; the bytes of its record so far.
    Ready(u64),
    Published(Published),
    /// It has changed nothing and has ended.
    Nothing,
    /// Rolled back.
    Failed(SqlError),
}

/// A batch that is visible and that the trail has yet to take.
pub struct Published {
    pub number: u64,
    pub body: Vec<u8>,
    pub reservation: Option<Reservation>,
    /// Prewritten fragments.
    pub fragments: Option<u64>,
    pub time_us: u64,
    /// The owner of its locks, which are released when all participants have published: they may guard another
    /// participant's rows.
    pub lock_owner: Option<LockOwner>,
}

/// A transaction to be prepared.
pub struct Prepare {
    pub gid: String,
    pub owner: String,
    pub prepared_unix_us: i64,
    /// The owner of its locks.
    pub locks_of: OwnerId,
    pub images: Vec<u8>,
    pub body: Vec<u8>,
    pub author: Option<Arc<Author>>,
}

/// A prepared transaction to be committed or rolled back.
pub struct FinishPrepared {
    pub gid: String,
    pub locks_of: OwnerId,
    pub commit: bool,
    /// The role that prepared it.
    pub author: Author,
}
