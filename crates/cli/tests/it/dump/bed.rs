//! A server that archives, a place for its dumps, and directories restored from them.

use crate::node::{Node, asked, holdfast, one, run, succeeds, until_settled};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use tokio_postgres::Client;

/// Small segments, so that little of the trail waits for the end of one.
pub const SMALL: &str = "segment_bytes = 1048576\n";

pub struct Bed {
    pub node: Node,
    pub archive: PathBuf,
    pub dumps: PathBuf,
    pub scratch: TempDir,
}

impl Bed {
    pub fn start() -> Bed {
        let scratch = TempDir::new().unwrap();
        let (archive, dumps) = (scratch.path().join("archive"), scratch.path().join("dumps"));
        [&archive, &dumps].into_iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        let mut node = Node::new(&scratch, "a");
        node.configure(&format!("{SMALL}archive = \"{}\"", archive.display()));
        node.start();
        Bed { node, archive, dumps, scratch }
    }

    pub fn place(&self) -> &str {
        self.dumps.to_str().unwrap()
    }

    /// The arguments of a dump of a server.
    pub fn create_arguments<'a>(&'a self, at: &'a str) -> Vec<&'a str> {
        vec!["dump", "create", "--at", at, "--to", self.place(), "--json"]
    }

    pub fn dump(&self) -> Value {
        self.dump_of(&self.node.at())
    }

    pub fn dump_of(&self, at: &str) -> Value {
        serde_json::from_str(&succeeds(&self.create_arguments(at))).unwrap()
    }

    /// The arguments of a restore into a directory of the bed.
    pub fn restore_arguments(&self, name: &str, more: &[&str]) -> Vec<String> {
        let data = self.scratch.path().join(name).display().to_string();
        let begin = ["restore", "--from", self.place(), "--data", &data, "--json"];
        begin.iter().chain(more).map(|argument| (*argument).to_owned()).collect()
    }

    /// Restores; the report, and the server on the directory, not started.
    pub fn restore(&self, name: &str, more: &[&str]) -> (Value, Node) {
        let arguments = self.restore_arguments(name, more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let report = serde_json::from_str(&succeeds(&arguments)).unwrap();
        (report, Node::new_in(self.scratch.path().join(name)))
    }

    /// A restore that is refused; what it says.
    pub fn restore_fails(&self, name: &str, more: &[&str]) -> String {
        let arguments = self.restore_arguments(name, more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        crate::node::refuses(&arguments)
    }

    pub fn verify(&self) -> (bool, Value) {
        let output = holdfast(&["dump", "verify", "--from", self.place(), "--json"]);
        let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        (output.status.success(), report)
    }

    /// Writes until everything that was written before this call is archived.
    pub async fn until_archived(&self, client: &Client) {
        run(client, "create table if not exists filler(v text)").await;
        let wanted = wal_lsn(client).await;
        until_settled("everything written so far is archived", async || {
            // Two segments: the first ends the one that is under way.
            for _ in 0..8 {
                run(client, "insert into filler select repeat('f', 4000) || g from generate_series(1, 64) g").await;
            }
            let lsn = one(client, "select archived_lsn from holdfast_stat_archive").await;
            let archived: u64 = lsn_number(&lsn);
            (archived < wanted).then_some(lsn)
        })
        .await;
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }
}

/// An LSN as PostgreSQL writes it, or as a number.
pub fn lsn_number(text: &str) -> u64 {
    match text.split_once('/') {
        Some((high, low)) => u64::from_str_radix(high, 16).unwrap() << 32 | u64::from_str_radix(low, 16).unwrap(),
        None => text.parse().unwrap_or(0),
    }
}

pub async fn wal_lsn(client: &Client) -> u64 {
    lsn_number(&one(client, "select pg_current_wal_lsn()").await)
}

/// Starts the command and does not wait for it.
pub fn launch(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// As many MiB that do not become shorter, in rows of about 1 kB.
pub async fn fill(client: &Client, mib: u32) {
    run(client, "create table if not exists t(id serial primary key, v text)").await;
    let noise = "(select string_agg(md5(random()::text), '') from generate_series(1, 30) where g > 0)";
    for _ in 0..mib {
        run(client, &format!("insert into t(v) select {noise} from generate_series(1, 1000) g")).await;
    }
}

/// The sum over a table, to compare.
pub async fn sum(node: &Node) -> String {
    asked(node, "select count(*) || ' ' || coalesce(sum(length(v)), 0) || ' ' || coalesce(max(v), '') from t").await
}
