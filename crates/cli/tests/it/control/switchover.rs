//! A planned switchover under load: every commit that the old master has taken is finished or refused, and each answer says
//! which.

use super::trio::Trio;
use crate::node::{LOCAL, Node, Pair, asked_with, run, succeeds, until};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, NoTls};

/// The connection's own task: it ends with the error that the server sent while no request was under way.
type Connection = JoinHandle<Result<(), Error>>;

/// Clients; every second one sends BEGIN, INSERT and COMMIT by themselves.
const WRITERS: usize = 16;

/// Rows of one client.
const ROWS_PER_WRITER: usize = 1_000_000;

/// How one client's inserts were answered, up to the first error.
struct Answered {
    acknowledged: Vec<usize>,
    /// The row whose insert got the error, whether it was an answer to its commit, and the error.
    refused: (usize, bool, Error),
}

/// Clients that write until the server ends their sessions.
struct Writers {
    tasks: Vec<JoinHandle<Answered>>,
    acknowledged: Arc<AtomicUsize>,
}

impl Writers {
    async fn start(node: &Node) -> Writers {
        let acknowledged = Arc::<AtomicUsize>::default();
        let mut tasks = Vec::new();
        for writer in 0..WRITERS {
            let config = format!("host=127.0.0.1 port={} user=holdfast dbname=holdfast", node.port);
            let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
            let connection = tokio::spawn(connection);
            tasks.push(tokio::spawn(write(client, connection, writer, acknowledged.clone())));
        }
        Writers { tasks, acknowledged }
    }

    async fn until_acknowledged(&self, commits: usize) {
        until("commits are acknowledged", async || self.acknowledged.load(Ordering::Relaxed) >= commits).await;
    }

    /// What each was answered; all sessions have ended. No answer leaves the outcome open.
    async fn ended(self) -> Vec<Answered> {
        let mut all = Vec::new();
        for task in self.tasks {
            let answered = task.await.unwrap();
            let (row, is_commit, error) = &answered.refused;
            let said = error.as_db_error().unwrap_or_else(|| panic!("row {row}, commit {is_commit}: {error:?}"));
            assert_eq!(error.code(), Some(&SqlState::ADMIN_SHUTDOWN), "row {row}: {said:?}");
            assert!(!format!("{said:?}").contains("unknown"), "row {row}, commit {is_commit}: {said:?}");
            all.push(answered);
        }
        all
    }
}

async fn write(client: Client, connection: Connection, writer: usize, count: Arc<AtomicUsize>) -> Answered {
    let mut acknowledged = Vec::new();
    let mut row = writer * ROWS_PER_WRITER;
    loop {
        match insert(&client, row, writer % 2 == 1).await {
            Ok(()) => acknowledged.push(row),
            Err((is_commit, error)) => {
                let error = if error.is_closed() { connection.await.unwrap().err().unwrap_or(error) } else { error };
                return Answered { acknowledged, refused: (row, is_commit, error) };
            }
        }
        count.fetch_add(1, Ordering::Relaxed);
        row += 1;
    }
}

async fn insert(client: &Client, row: usize, interactive: bool) -> Result<(), (bool, Error)> {
    let insert = format!("insert into t values ({row})");
    if !interactive {
        return client.batch_execute(&insert).await.map_err(|e| (true, e));
    }
    client.batch_execute("begin").await.map_err(|e| (false, e))?;
    client.batch_execute(&insert).await.map_err(|e| (false, e))?;
    client.batch_execute("commit").await.map_err(|e| (true, e))
}

/// What was acknowledged is on the new master, and what was refused is not.
async fn assert_kept(master: &Node, answers: &[Answered]) {
    let all = asked_with(master, LOCAL, "select coalesce(string_agg(x::text, ','), '') from t").await;
    let there: HashSet<usize> = all.split(',').filter(|x| !x.is_empty()).map(|x| x.parse().unwrap()).collect();
    for Answered { acknowledged, refused: (row, _, error) } in answers {
        assert!(acknowledged.iter().all(|row| there.contains(row)), "acknowledged and lost");
        assert!(!there.contains(row), "row {row} was refused and is there: {error:?}");
    }
}

/// With a control plane: the operator promotes the standby while the master runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promotion_under_load_leaves_no_commit_in_doubt() {
    let trio = Trio::start("level = \"hot\"").await;
    run(&trio.a.connect().await, "create table t(x bigint primary key)").await;
    let writers = Writers::start(&trio.a).await;
    writers.until_acknowledged(200).await;
    let at = trio.b.at();
    let promoted = tokio::task::spawn_blocking(move || succeeds(&["promote", "--at", &at]));
    let answers = writers.ended().await;
    promoted.await.unwrap();
    assert_kept(&trio.b, &answers).await;
    // The old master keeps its links, and refuses clients.
    assert_eq!(trio.a.status_word("role"), "deposed");
    let config = format!("host=127.0.0.1 port={} user=holdfast dbname=holdfast", trio.a.port);
    let refused = tokio_postgres::connect(&config, NoTls).await.err().and_then(|e| e.code().cloned());
    assert_eq!(refused, Some(SqlState::CANNOT_CONNECT_NOW));
}

/// Without one: the master is stopped, then the standby is promoted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_under_load_leaves_no_commit_in_doubt() {
    let mut pair = Pair::start("level = \"hot\"").await;
    run(&pair.a.connect().await, "create table t(x bigint primary key)").await;
    let writers = Writers::start(&pair.a).await;
    writers.until_acknowledged(200).await;
    pair.a.ask_to_stop();
    let answers = writers.ended().await;
    assert!(pair.a.ended().success());
    succeeds(&["promote", "--at", &pair.b.at()]);
    assert_kept(&pair.b, &answers).await;
}
