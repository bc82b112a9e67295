//! A client of one database in this process.

use super::workload::{Step as Ask, Transaction};
use crate::support::report_of;
use holdfast_engine::{Collect, Database, Report, Step, Submission, Ticket, WriteOptions};
use holdfast_types::{SessionContext, SqlError, SqlResult, SqlState, Value};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

pub fn step(db: &Database, sql: &str) -> SqlResult<Step> {
    Ok(Step { stmt: db.prepare(sql, Report { counts: true, ..report_of(sql) })?, params: Vec::new() })
}

pub fn query(db: &Database, sql: &str) -> Result<Vec<Vec<Value>>, String> {
    let rows = Collect::new();
    let stmt = step(db, sql).map_err(|e| e.to_string())?;
    let mut reader = db.reader().map_err(|e| e.to_string())?;
    reader.run(&SessionContext::NONE, 0, &stmt, &mut rows.clone()).map_err(|e| e.to_string())?;
    Ok(rows.outcomes().remove(0).rows)
}

/// A transaction under way.
pub enum Sent {
    Ticket(Ticket),
    /// The answer is there already.
    Answered(SqlResult<()>),
    /// The connection broke before COMMIT was sent: nothing of it may be there.
    Lost,
}

impl Sent {
    /// `None`: there was no answer.
    pub fn answer(self) -> Option<SqlResult<()>> {
        match self {
            Sent::Ticket(ticket) => ticket.wait().map(|done| done.result),
            Sent::Answered(result) => Some(result),
            Sent::Lost => None,
        }
    }
}

pub fn send(db: &Database, transaction: &Transaction) -> Sent {
    match transaction {
        Transaction::Message(sqls) => {
            // A schema change runs on a branch: CREATE TABLE AS reads what is durable, as the next comment says.
            if transaction.changes_schema() && !is_behind_the_others(db) {
                return Sent::Lost;
            }
            let steps: SqlResult<Vec<Step>> = sqls.iter().map(|sql| step(db, sql)).collect();
            match steps.and_then(|steps| db.submit(Submission::new(steps, Box::new(Collect::new())))) {
                Ok(ticket) => Sent::Ticket(ticket),
                Err(e) => Sent::Answered(Err(e)),
            }
        }
        Transaction::Interactive(steps) => interactive(db, steps),
    }
}

/// A branch begins on what is durable: what this client sent before has to be, for its transactions to take effect in
/// order. False when the power has failed.
fn is_behind_the_others(db: &Database) -> bool {
    matches!(db.submit(Submission::new(Vec::new(), Box::new(Collect::new()))).map(Ticket::wait), Ok(Some(_)))
}

fn interactive(db: &Database, steps: &[Ask]) -> Sent {
    if !is_behind_the_others(db) {
        return Sent::Lost;
    }
    // Long enough for a busy machine.
    let options = WriteOptions { idle_timeout: std::time::Duration::from_secs(60), ..WriteOptions::default() };
    let mut txn = match db.begin_write_blocking(options) {
        Ok(txn) => txn,
        Err(e) => return Sent::Answered(Err(e)),
    };
    for step in steps {
        let asked: SqlResult<()> = match step {
            Ask::Run(sql) => match block_on(txn.prepare(sql, report_of(sql))) {
                Ok(stmt) => {
                    let ran = txn.execute_blocking(Step { stmt, params: Vec::new() }, Box::new(Collect::new()));
                    // The statement's own error undoes the statement only. One of the disk's, which a branch meets and
                    // outlives, is not the statement's own.
                    ran.and_then(|ran| match ran.result {
                        Err(e) if is_of_the_disk(&e) => Err(e),
                        _ => Ok(()),
                    })
                }
                Err(e) if is_gone(&e) || is_of_the_disk(&e) => Err(e),
                Err(_) => Ok(()),
            },
            Ask::Savepoint(name) => block_on(txn.savepoint(name)),
            Ask::RollbackTo(name) => block_on(txn.rollback_to(name)),
            Ask::Release(name) => block_on(txn.release(name)),
        };
        if asked.is_err() {
            return Sent::Lost;
        }
    }
    match txn.commit(Box::new(Collect::new())) {
        Ok(ticket) => Sent::Ticket(ticket),
        Err(_) => Sent::Lost,
    }
}

fn is_gone(e: &SqlError) -> bool {
    e.state() == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
}

/// What a statement cannot help: a disk that fails, has rotted or is full.
pub fn is_of_the_disk(e: &SqlError) -> bool {
    [SqlState::IO_ERROR, SqlState::DATA_CORRUPTED, SqlState::DISK_FULL].contains(&e.state())
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.0.unpark();
    }
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park();
    }
}
