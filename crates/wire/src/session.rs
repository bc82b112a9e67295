//! What the protocol needs from a session. With these traits it can be tested without a database.
//!
//! A session lives on one worker thread and never moves; its futures need not be `Send`. The protocol calls one method
//! at a time and waits for its result.

use crate::auth::{Prover, Unproven};
use crate::client::Client;
use crate::limits::Keepalives;
use crate::memory::SessionMemory;
use crate::peer::Peer;
use crate::status::Status;
use crate::termination::Termination;
use bytes::BytesMut;
use holdfast_types::{SqlError, SqlResult, StatementDesc, Value};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

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
    /// The step that failed, from 0; `None` if the commit after the last step failed.
    pub step: Option<usize>,
    pub error: SqlError,
    /// The session cannot continue: the error is reported as FATAL and the connection is closed.
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

/// What a client sends about itself when it connects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Startup {
    pub user: String,
    pub database: String,
    /// All other parameters, mostly run-time parameters.
    pub parameters: BTreeMap<String, String>,
    pub pid: i32,
    /// Sessions at that moment, this one included.
    pub sessions: usize,
    /// Where the client is, and what TLS has established.
    pub peer: Peer,
}

/// Interrupts what a session is running, from any thread. Does nothing when it is idle.
pub trait Cancel: Send + Sync {
    fn cancel(&self);
}

/// Creates sessions; all workers share one instance.
pub trait SessionFactory: Send + Sync + 'static {
    type Session: Session;

    /// Decides what the client must prove before a session is opened, and asks for it.
    fn authenticate(&self, startup: &Startup, prover: &mut Prover<'_>) -> impl Future<Output = Result<(), Unproven>> {
        let _ = (startup, prover);
        std::future::ready(Ok(()))
    }

    /// Opens a session. The error is reported as FATAL.
    fn open(&self, startup: Startup) -> impl Future<Output = SqlResult<Self::Session>>;

    /// Serves another node that has connected, until the link ends. `input` has the bytes after the start-up packet.
    fn link(&self, stream: TcpStream, input: BytesMut) -> impl Future<Output = ()> {
        drop((stream, input));
        std::future::ready(())
    }
}

pub trait Session: 'static {
    /// A prepared statement; cheap to clone.
    type Prepared: Clone + 'static;

    /// Prepares one statement. `param_types` are the OIDs that the client asked for, 0 where it left them open.
    fn prepare(&mut self, sql: &str, param_types: &[u32]) -> impl Future<Output = SqlResult<Self::Prepared>>;

    fn desc(prepared: &Self::Prepared) -> &Arc<StatementDesc>;

    /// True if another statement decides what this one returns, as a cursor's DECLARE does for its FETCH.
    fn is_described_late(prepared: &Self::Prepared) -> bool;

    /// Returns such a statement with its current description.
    fn described(&self, prepared: &Self::Prepared) -> Self::Prepared;

    /// True for COPY FROM STDIN. It runs as soon as it is executed, because the client sends its data next.
    fn reads_copy_data(prepared: &Self::Prepared) -> bool;

    /// About how many bytes a prepared statement keeps.
    fn kept_bytes(prepared: &Self::Prepared) -> usize {
        let _ = prepared;
        0
    }

    /// The account of the memory that the session keeps for its client.
    fn set_memory(&mut self, memory: &Arc<SessionMemory>) {
        let _ = memory;
    }

    /// Converts a parameter's text to a value of type `type_oid`.
    fn input(type_oid: u32, text: &str) -> SqlResult<Value>;

    /// Runs the steps in order, removes them from `steps`, and writes their results to `client.reply`. On failure the
    /// session has already changed state: an implicit transaction is rolled back, an explicit one is failed.
    fn run(
        &mut self,
        steps: &mut Vec<Step<Self::Prepared>>,
        end: End,
        client: &mut Client,
    ) -> impl Future<Output = Result<(), Failure>>;

    /// Runs the text of a simple Query message as one implicit transaction, unless the text begins or ends
    /// transactions.
    fn simple(&mut self, text: &str, client: &mut Client) -> impl Future<Output = Result<(), Failure>>;

    /// Handles an error that the protocol found in the middle of a batch, like a failed step. Does nothing if the
    /// transaction has already failed.
    fn fail(&mut self) -> impl Future<Output = ()>;

    fn status(&self) -> Status;

    /// The description of a cursor that SQL declared. For the client it is a portal, which it may describe.
    fn cursor(&self, name: &str) -> Option<Arc<StatementDesc>>;

    /// The parameters that start-up reports as ParameterStatus.
    fn parameters(&mut self) -> Vec<(String, String)>;

    /// Those of them that have changed since they were last reported. They are sent before ReadyForQuery, as by
    /// PostgreSQL: a statement, the end of its transaction or a failure may have changed them.
    fn changed_parameters(&mut self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// When TCP notices that the client has gone, if the session has changed that since it was last asked: before and now.
    fn changed_keepalives(&mut self) -> Option<(Keepalives, Keepalives)> {
        None
    }

    /// A handle that interrupts the session from another thread.
    fn canceller(&self) -> Arc<dyn Cancel>;

    /// The session's order to end. Whatever gives it also cancels what the session runs.
    fn termination(&self) -> Arc<Termination> {
        Arc::default()
    }

    /// The longest wait for the client's next message in the session's current state.
    fn idle_timeout(&self) -> Option<Duration>;

    /// Called when that time has passed: rolls back, and returns the error to send before the connection is closed.
    fn idle_expired(&mut self) -> impl Future<Output = SqlError>;

    /// How often to look, while a statement runs, whether its client is still there (`client_connection_check_interval`).
    fn connection_check_interval(&self) -> Option<Duration> {
        None
    }

    /// The time after which the session must be woken while the client is silent or reads slowly.
    fn wake_after(&self) -> Option<Duration> {
        None
    }

    /// Called when that time has passed.
    fn woken(&mut self) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// Called before the connection is closed.
    fn close(&mut self) -> impl Future<Output = ()>;
}
