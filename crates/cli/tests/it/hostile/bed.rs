//! What other sessions see meanwhile: a client that commits without a pause.

use crate::server::{Running, one, run, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// A client that commits one row after another, until it is dropped.
pub struct Committer {
    committed: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Committer {
    pub async fn start(server: &Running) -> Committer {
        let client = server.connect().await;
        run(&client, "create table commits (id serial primary key, n int)").await;
        let committed = Arc::new(AtomicU64::new(0));
        let count = committed.clone();
        let task = tokio::spawn(async move {
            loop {
                run(&client, "insert into commits(n) values (1)").await;
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Committer { committed, task }
    }

    /// Its commits until now.
    pub fn count(&self) -> u64 {
        self.committed.load(Ordering::Relaxed)
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs the statement, which must end while other sessions do nothing.
pub async fn ends(server: &Running, sql: &str) {
    let client = server.connect().await;
    let text = sql.to_owned();
    let statement = tokio::spawn(async move { client.batch_execute(&text).await });
    until("the statement ends", async || statement.is_finished()).await;
    statement.await.unwrap().unwrap();
}

/// The process number of a session.
pub async fn pid(client: &Client) -> String {
    one(client, "select pg_backend_pid()").await
}

/// Waits until the session runs a statement.
pub async fn until_active(watcher: &Client, pid: &str) {
    let active = format!("select count(*) from pg_stat_activity where pid = {pid} and state = 'active'");
    until("the statement runs", async || one(watcher, &active).await == "1").await;
}
