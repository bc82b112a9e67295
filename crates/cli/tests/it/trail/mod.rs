//! `holdfast trail find` and `holdfast trail undo` against a running server.

mod archived;
mod exact;
mod find;
mod random;
mod refused;
mod remote;
mod rowid;
mod tls;
mod undo;
mod who;

use crate::node::{Node, holdfast, succeeds};
use serde_json::Value;
use std::process::Output;
use tempfile::TempDir;
use tokio_postgres::{Client, SimpleQueryMessage};

/// A server of its own, with a client.
pub struct Bed {
    pub node: Node,
    pub client: Client,
    _scratch: TempDir,
}

impl Bed {
    pub async fn start() -> Bed {
        Bed::start_with("").await
    }

    pub async fn start_with(lines: &str) -> Bed {
        let scratch = TempDir::new().unwrap();
        let mut node = Node::new(&scratch, "a");
        // An undo compares what it has done while it is the only writer, and on a busy machine that takes its time.
        node.configure(&format!("only_writer_idle_timeout_ms = 600000\n{lines}"));
        node.start();
        let client = node.connect().await;
        Bed { node, client, _scratch: scratch }
    }

    pub async fn run(&self, sql: &str) {
        crate::node::run(&self.client, sql).await;
    }

    /// `trail find` with these arguments: its report.
    pub fn find(&self, more: &[&str]) -> Value {
        found(self.node.data(), more)
    }

    /// The number and the LSN of the newest transaction that `trail find` lists.
    pub fn newest(&self, more: &[&str]) -> (String, String) {
        newest(&self.find(more))
    }

    /// `trail undo` with these arguments.
    pub fn undo(&self, id: &str, more: &[&str]) -> Output {
        let begin = ["trail", "undo", "--data", self.node.data(), "--transaction", id];
        holdfast(&[&begin[..], more].concat())
    }

    /// Undoes a transaction; the number of the undo.
    pub fn undoes(&self, id: &str, more: &[&str]) -> String {
        let report = applied(&self.undo(id, &[&["--apply", "--json"], more].concat()));
        report["applied"]["transaction"].to_string()
    }

    /// An undo that is refused; what it says.
    pub fn refuses(&self, id: &str, more: &[&str]) -> String {
        let output = self.undo(id, more);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

pub fn applied(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

pub fn found(data: &str, more: &[&str]) -> Value {
    let begin = ["trail", "find", "--data", data, "--json"];
    serde_json::from_str(&succeeds(&[&begin[..], more].concat())).unwrap()
}

pub fn newest(found: &Value) -> (String, String) {
    let change = found["changes"].as_array().unwrap().last().unwrap_or_else(|| panic!("nothing is found: {found}"));
    (change["transaction"].to_string(), change["lsn"].to_string())
}

/// All rows of a query as text, a line each.
pub async fn table(client: &Client, sql: &str) -> Vec<String> {
    let messages = client.simple_query(sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).unwrap_or("NULL")).collect::<Vec<_>>().join("|"))
        }
        _ => None,
    });
    rows.collect()
}
