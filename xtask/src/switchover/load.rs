//! Clients that insert rows one at a time at the server that is the master, and note how each insert was answered.
//!
//! They commit at level hot before the switchover, and at local at the new master, which has no standby yet.
//!
//! Each client knows both servers and connects to the other one after every error, as a pool of connections does. Half of
//! them send one message a transaction, the other half BEGIN, INSERT and COMMIT by themselves.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, JoinSet};
use tokio_postgres::error::DbError;
use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage};

use super::cluster::DATABASE;
use crate::server::USER;

/// The pause before the next attempt to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

/// Longer than a server takes that answers at all.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Rows of one client in one round.
const ROWS_PER_CLIENT: i64 = 1 << 24;

/// How the inserts of a round were answered.
#[derive(Default)]
pub struct Answers {
    /// Rows whose commit was acknowledged.
    pub acknowledged: Vec<i64>,
    /// The first and the last acknowledgement of each server.
    pub times: [Option<(Instant, Instant)>; 2],
    /// Rows whose commit was refused: they must not be there.
    pub refused: Vec<i64>,
    /// Rows of which the answer says that their commit may or may not have taken effect, or that got none.
    pub in_doubt: u64,
    /// Errors in place of an answer to a statement, by SQLSTATE.
    pub errors: BTreeMap<String, u64>,
    /// Errors of attempts to connect, by SQLSTATE.
    pub connects: BTreeMap<String, u64>,
}

/// The task of a connection.
type Connection = JoinHandle<Result<(), Error>>;

/// A running load.
pub struct Load {
    clients: JoinSet<()>,
    stop: Arc<AtomicBool>,
    answers: Arc<Mutex<Answers>>,
}

/// One client.
struct Writer {
    ports: [u16; 2],
    answers: Arc<Mutex<Answers>>,
    stop: Arc<AtomicBool>,
    next_row: i64,
    interactive: bool,
    old: usize,
}

impl Load {
    /// Starts the clients of a round, on the current runtime. `old`: the server that is the master now.
    pub fn start(ports: [u16; 2], old: usize, clients: u32, round: u32) -> Load {
        let (stop, answers) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Answers>>::default());
        let mut tasks = JoinSet::new();
        for client in 0..clients {
            let next_row = i64::from(round * clients + client) * ROWS_PER_CLIENT;
            let (answers, stop) = (answers.clone(), stop.clone());
            let writer = Writer { ports, answers, stop, next_row, interactive: client % 2 == 1, old };
            tasks.spawn(writer.run());
        }
        Load { clients: tasks, stop, answers }
    }

    /// How many commits were acknowledged so far.
    pub fn acknowledged(&self) -> usize {
        lock(&self.answers).acknowledged.len()
    }

    /// Whether this server has acknowledged any.
    pub fn has_answered(&self, which: usize) -> bool {
        lock(&self.answers).times[which].is_some()
    }

    /// Ends the load.
    pub async fn end(mut self) -> Answers {
        self.stop.store(true, Ordering::Release);
        while self.clients.join_next().await.is_some() {}
        std::mem::take(&mut *lock(&self.answers))
    }
}

fn lock(answers: &Mutex<Answers>) -> std::sync::MutexGuard<'_, Answers> {
    answers.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Writer {
    async fn run(mut self) {
        let mut which = 0;
        while !self.stop.load(Ordering::Acquire) {
            let level = if which == self.old { "hot" } else { "local" };
            match connect(self.ports[which], level).await {
                Ok(Some((client, connection))) => self.write_at(which, client, connection).await,
                Ok(None) => tokio::time::sleep(CONNECT_PAUSE).await,
                Err(error) => {
                    *lock(&self.answers).connects.entry(error).or_default() += 1;
                    tokio::time::sleep(CONNECT_PAUSE).await;
                }
            }
            which = 1 - which;
        }
    }

    /// Inserts until an error.
    async fn write_at(&mut self, which: usize, client: Client, connection: Connection) {
        while !self.stop.load(Ordering::Acquire) {
            let row = self.next_row;
            self.next_row += 1;
            let outcome = self.insert(&client, row).await;
            let now = Instant::now();
            match outcome {
                Ok(()) => {
                    let mut answers = lock(&self.answers);
                    answers.acknowledged.push(row);
                    let first = answers.times[which].map_or(now, |(first, _)| first);
                    answers.times[which] = Some((first, now));
                }
                Err((error, is_commit)) => {
                    let error = of_the_connection(error, connection).await;
                    let mut answers = lock(&self.answers);
                    *answers.errors.entry(state(&error)).or_default() += 1;
                    if is_commit && is_in_doubt(&error) {
                        answers.in_doubt += 1;
                    } else {
                        answers.refused.push(row);
                    }
                    return;
                }
            }
        }
    }

    /// The error comes with whether the commit had been sent.
    async fn insert(&self, client: &Client, row: i64) -> Result<(), (Error, bool)> {
        let insert = format!("insert into switched values ({row})");
        if self.interactive {
            client.batch_execute("begin").await.map_err(|e| (e, false))?;
            client.batch_execute(&insert).await.map_err(|e| (e, false))?;
            return client.batch_execute("commit").await.map_err(|e| (e, true));
        }
        client.batch_execute(&insert).await.map_err(|e| (e, true))
    }
}

/// A session at a master; `None` at a standby.
async fn connect(port: u16, level: &str) -> Result<Option<(Client, Connection)>, String> {
    let to = format!("host=127.0.0.1 port={port} user={USER} dbname={DATABASE} options='-c holdfast.level={level}'");
    let connected = tokio::time::timeout(CONNECT_MAX, tokio_postgres::connect(&to, NoTls)).await;
    let (client, connection) = connected.map_err(|_| "no answer".to_owned())?.map_err(|error| state(&error))?;
    let connection = tokio::spawn(connection);
    let asked = client.simple_query("select pg_is_in_recovery()").await.map_err(|error| state(&error))?;
    let is_standby = asked.iter().any(|m| matches!(m, SimpleQueryMessage::Row(row) if row.get(0) == Some("t")));
    Ok((!is_standby).then_some((client, connection)))
}

/// What the server said when it closed the connection: the library hands that to its connection, and not to a request that
/// is sent afterwards.
async fn of_the_connection(error: Error, connection: Connection) -> Error {
    if !error.is_closed() {
        return error;
    }
    connection.await.ok().and_then(Result::err).unwrap_or(error)
}

/// The SQLSTATE, or that the connection ended without one.
fn state(error: &Error) -> String {
    error.code().map_or_else(|| "connection lost".to_owned(), |code| code.code().to_owned())
}

/// Whether a commit that got this answer may or may not have taken effect.
fn is_in_doubt(error: &Error) -> bool {
    let says_so = |error: &DbError| {
        error.message().contains("unknown") || error.detail().is_some_and(|d| d.contains("may have taken effect"))
    };
    error.as_db_error().is_none_or(says_so)
}
