//! A database in use: its handle.

use crate::background::checkpointer;
use crate::branch::schema_locks::runs_on_a_branch;
use crate::branch::temp::TempSpace;
use crate::route::reader::{Reader, prepare};
use crate::route::submit::submit;
use crate::route::transaction::{WriteOptions, WriteTxn};
use crate::state::advisory::AdvisoryOwner;
use crate::state::database::{DatabaseState, database_oid};
use crate::state::submission::{OnCompletion, Submission, Ticket};
use crate::state::waiting::Submitted;
use crate::statement::model::{Report, Statement};
use holdfast_types::schema::{Dialect, Schema};
use holdfast_types::{SqlError, SqlResult, SqlState, StatementFacts};
use std::sync::Arc;

/// A handle to an opened database. Clones are the same database.
#[derive(Clone)]
pub struct Database(pub(crate) Arc<DatabaseState>);

impl Database {
    pub(crate) fn state(&self) -> &Arc<DatabaseState> {
        &self.0
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub fn dialect(&self) -> Dialect {
        self.0.dialect
    }

    /// The number PostgreSQL's clients see as the database's OID.
    pub fn oid(&self) -> u32 {
        database_oid(self.0.id)
    }

    /// The schema that readers use: that of the newest snapshot whose commits have reached their levels.
    pub fn schema(&self) -> Arc<Schema> {
        self.0.readable.get()
    }

    /// Whether [`Database::schema`] is the newest one: no change of the schema waits for its level.
    pub fn is_schema_settled(&self) -> bool {
        self.0.readable.is_newest()
    }

    /// Prepares one statement of SQLite SQL and judges where it may run. The result may be kept as long as the
    /// schema's epoch stays; after that SQLite would still run it, but its class may be wrong.
    pub fn prepare(&self, sql: &str, report: Report) -> SqlResult<Arc<Statement>> {
        prepare(&self.0, sql, report)
    }

    /// Runs a one-message transaction. `done` is called when its answer may be sent.
    pub fn submit_with(&self, submission: Submission, done: OnCompletion) -> SqlResult<Submitted> {
        submit(&self.0, submission, done)
    }

    /// Whether a statement with these facts can run on a branch, concurrently with others; else its transaction should begin as
    /// the exclusive writer.
    pub fn runs_beside(&self, facts: &StatementFacts) -> bool {
        runs_on_a_branch(&self.0, facts)
    }

    /// Runs a one-message transaction: bounded statements share a batch with others, anything else is a batch of its own.
    pub fn submit(&self, submission: Submission) -> SqlResult<Ticket> {
        let (done, ticket) = Ticket::new();
        self.submit_with(submission, done)?;
        Ok(ticket)
    }

    /// Interrupts the batch or transaction of that id, if the writer runs it by itself at this moment.
    pub fn interrupt(&self, id: u64) {
        self.0.interrupt(id);
    }

    /// Interrupts a one-message transaction: while it waits for the writer it is answered at once.
    pub fn interrupt_submitted(&self, submitted: &Submitted) {
        let was_waiting = submitted.waiting.as_ref().is_some_and(|waiting| waiting.withdraw());
        if !was_waiting {
            self.0.interrupt(submitted.id);
        }
    }

    /// The owner of the advisory locks of a client's session, known to it under this process number.
    pub fn advisory_owner(&self, pid: i32) -> Arc<AdvisoryOwner> {
        Arc::new(AdvisoryOwner::new(self.0.engine.locks.clone(), pid))
    }

    /// Ends when every change of the schema that was published before has reached its level: what may write works under the
    /// newest schema, and its errors must not depend on a change that could still be lost. That takes as long as standbys
    /// take.
    pub async fn schema_settled(&self) -> SqlResult<()> {
        if self.is_schema_settled() { Ok(()) } else { self.0.until_visible(self.0.schema_number()).await }
    }

    /// A connection that reads visible snapshots. It waits for no writer, and for no standby.
    pub fn reader(&self) -> SqlResult<Reader> {
        Reader::open(&self.0)
    }

    /// Begins an interactive transaction. Dropping the future gives it up.
    pub async fn begin_write(&self, options: WriteOptions) -> SqlResult<WriteTxn> {
        WriteTxn::begin(self.0.clone(), options).await
    }

    /// [`Database::begin_write`] on a plain thread.
    pub fn begin_write_blocking(&self, options: WriteOptions) -> SqlResult<WriteTxn> {
        self.0.engine.tasks.block_on(WriteTxn::begin(self.0.clone(), options))
    }

    /// Number of the newest snapshot that readers get.
    pub fn visible_snapshot(&self) -> u64 {
        self.0.volume().store().visible()
    }

    /// Counters of the volume's page store.
    pub fn page_stats(&self) -> holdfast_store::pages::PageStats {
        self.0.volume().store().stats()
    }

    /// Brings the file up to the newest visible snapshot now.
    pub fn checkpoint(&self) -> SqlResult<()> {
        checkpointer::checkpoint(&self.0).map_err(|e| SqlError::new(SqlState::IO_ERROR, e.to_string()))
    }
}

impl Database {
    /// Room for the temporary tables of a session; `bytes_max` bounds them with what a rollback needs.
    pub fn temp_space(&self, bytes_max: u64) -> Arc<TempSpace> {
        TempSpace::new(&self.0, bytes_max)
    }

    /// Ends when what a statement saw at this snapshot is durable.
    pub async fn until_visible(&self, snapshot: u64) -> SqlResult<()> {
        self.0.until_visible(snapshot).await
    }
}

impl WriteTxn {
    /// The database it changes.
    pub fn database(&self) -> Database {
        Database(self.state().clone())
    }
}
