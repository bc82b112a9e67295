//! What the protocol needs of a session, so that it can be tested without a database behind it.
//!
//! A session lives on one worker thread and never moves; its futures need not be `Send`. The protocol calls one
//! method at a time and waits for it.

use crate::client::Client;
use bytes::BytesMut;
use holdfast_types::{SqlError, SqlResult, StatementDesc, Value};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// The transaction status a ReadyForQuery reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Idle,
    InTransaction,
    Failed,
}

/// One statement to run with its parameters.
#[derive(Debug)]
pub struct Step<P> {
    pub prepared: P,
    pub params: Vec<Value>,
}

/// What follows the steps of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Sync: an implicit transaction ends here.
    Sync,
    /// More steps follow before the next Sync (the client sent Flush, or the protocol needs an answer now): an
    /// implicit transaction stays open.
    More,
}

/// A batch that did not succeed. Steps before `step` have been answered.
#[derive(Debug)]
pub struct Failure {
    /// The step that failed, from 0; `None` when it was the commit after the last.
    pub step: Option<usize>,
    pub error: SqlError,
    /// The session cannot go on: report the error as FATAL and close.
    pub fatal: bool,
}

impl Failure {
    pub fn at(step: usize, error: SqlError) -> Failure {
        Failure { step: Some(step), error, fatal: false }
    }
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Failure {
        Failure { step: None, error, fatal: false }
    }
}

/// What a client says about itself when it connects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Startup {
    pub user: String,
    pub database: String,
    /// Everything else it sent, run-time parameters mostly.
    pub parameters: BTreeMap<String, String>,
    pub pid: i32,
    /// Where it connects from.
    pub client: Option<SocketAddr>,
}

/// Interrupts what a session is running, from any thread. Does nothing when it is idle.
pub trait Cancel: Send + Sync {
    fn cancel(&self);
}

/// Makes sessions; one instance, shared by all workers.
pub trait SessionFactory: Send + Sync + 'static {
    type Session: Session;
    /// Opens a session. The error is reported as FATAL.
    fn open(&self, startup: Startup) -> impl Future<Output = SqlResult<Self::Session>>;

    /// Another node has connected: its socket, and what it has sent behind the start-up packet. Runs until the link ends.
    fn link(&self, stream: TcpStream, input: BytesMut) -> impl Future<Output = ()> {
        drop((stream, input));
        std::future::ready(())
    }
}

pub trait Session: 'static {
    /// A prepared statement; cheap to clone.
    type Prepared: Clone + 'static;

    /// Prepares one statement. `param_types` are the OIDs the client asked for, 0 where it left them open.
    fn prepare(&mut self, sql: &str, param_types: &[u32]) -> impl Future<Output = SqlResult<Self::Prepared>>;

    fn desc(prepared: &Self::Prepared) -> &Arc<StatementDesc>;

    /// Does another statement decide what this one returns, as a cursor's DECLARE does for its FETCH?
    fn is_described_late(prepared: &Self::Prepared) -> bool;

    /// Such a statement with the description it has by now.
    fn described(&self, prepared: &Self::Prepared) -> Self::Prepared;

    /// Is it COPY FROM STDIN? Then it runs as soon as it is executed, because the client sends its data next.
    fn reads_copy_data(prepared: &Self::Prepared) -> bool;

    /// Turns a parameter's text into a value of type `type_oid`.
    fn input(type_oid: u32, text: &str) -> SqlResult<Value>;

    /// Runs the steps in order, taking them out of `steps`, their results going to `client.reply`. On failure the
    /// session has already made its transition: an implicit transaction is rolled back, an explicit one failed.
    fn run(
        &mut self,
        steps: &mut Vec<Step<Self::Prepared>>,
        end: End,
        client: &mut Client,
    ) -> impl Future<Output = Result<(), Failure>>;

    /// Runs the text of a simple Query message, one implicit transaction unless it says otherwise.
    fn simple(&mut self, text: &str, client: &mut Client) -> impl Future<Output = Result<(), Failure>>;

    /// The protocol found an error itself in the middle of a batch: same transition as a failed step.
    /// Nothing happens where that has been made already.
    fn fail(&mut self) -> impl Future<Output = ()>;

    fn status(&self) -> Status;

    /// What a cursor that SQL declared returns: to the client it is a portal, which it may describe.
    fn cursor(&self, name: &str) -> Option<Arc<StatementDesc>>;

    /// What a start-up reports as ParameterStatus.
    fn parameters(&self) -> Vec<(String, String)>;

    /// How to interrupt it from another thread.
    fn canceller(&self) -> Arc<dyn Cancel>;

    /// How long the session may wait for the client's next message in its present state.
    fn idle_timeout(&self) -> Option<Duration>;

    /// That time has passed: rolls back and says what to tell the client before closing.
    fn idle_expired(&mut self) -> impl Future<Output = SqlError>;

    /// How soon the session has to be woken while the client is silent or slow to take its answers.
    fn wake_after(&self) -> Option<Duration> {
        None
    }

    /// That time has passed.
    fn woken(&mut self) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// The connection is going away.
    fn close(&mut self) -> impl Future<Output = ()>;
}
