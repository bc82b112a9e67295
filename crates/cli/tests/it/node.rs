//! Two servers with directories and ports of their own that outlive their processes.

use holdfast_seams::testing::{Patience, port};
use holdfast_testbed::Process;
use rustix::process::Signal;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// Runs `holdfast ARGUMENTS`.
pub fn holdfast(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_holdfast")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Runs the command, which must succeed; returns its standard output.
pub fn succeeds(arguments: &[&str]) -> String {
    let output = holdfast(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {}: {said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Runs the command, which must fail with exit code 1; returns its standard error.
pub fn refuses(arguments: &[&str]) -> String {
    let output = holdfast(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// One server.
pub struct Node {
    pub name: &'static str,
    pub dir: PathBuf,
    pub port: u16,
    /// Versions of the link protocol that it speaks from its next start on, in place of its own: "OLDEST-NEWEST".
    pub link_versions: Option<&'static str>,
    /// Starts with `--accept-divergence`.
    pub accept_divergence: bool,
    /// Added to its environment.
    pub env: Vec<(String, String)>,
    log: Option<PathBuf>,
    process: Option<Process>,
}

impl Node {
    pub fn new(scratch: &TempDir, name: &'static str) -> Node {
        Node {
            name,
            dir: scratch.path().join(name),
            port: port(),
            link_versions: None,
            accept_divergence: false,
            env: Vec::new(),
            log: None,
            process: None,
        }
    }

    /// On a directory that is there.
    pub fn new_in(dir: PathBuf) -> Node {
        let (link_versions, log, process) = (None, None, None);
        Node { name: "node", dir, port: 0, link_versions, accept_divergence: false, env: Vec::new(), log, process }
    }

    /// Adds lines to holdfast.toml; they hold from the next start on.
    pub fn configure(&self, lines: &str) {
        std::fs::create_dir_all(&self.dir).unwrap();
        let file = OpenOptions::new().create(true).append(true).open(self.dir.join("holdfast.toml"));
        writeln!(file.unwrap(), "{lines}").unwrap();
    }

    fn log_path(&self) -> PathBuf {
        self.log.clone().unwrap_or_else(|| self.dir.with_extension("log"))
    }

    /// Keeps the log elsewhere than beside the directory.
    pub fn log_beside(&mut self, path: PathBuf) {
        self.log = Some(path);
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap()
    }

    /// Starts the server, always at the same port, and returns when it takes connections.
    pub fn start(&mut self) {
        self.launch();
        self.until_ready();
    }

    /// Starts the process and waits for nothing.
    pub fn launch(&mut self) {
        assert!(self.process.is_none(), "{} runs already", self.name);
        let listen = format!("127.0.0.1:{}", self.port);
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(["serve", "--listen", &listen, "--data"]).arg(&self.dir);
        if self.accept_divergence {
            command.arg("--accept-divergence");
        }
        if let Some(versions) = self.link_versions {
            command.env("HOLDFAST_TEST_LINK_VERSIONS", versions);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        self.process = Some(Process::announcing(self.name, command, &self.log_path()).unwrap());
    }

    /// Returns when it takes connections.
    pub fn until_ready(&mut self) {
        let port = self.process.as_mut().unwrap().announced_port().unwrap();
        assert!(self.port == 0 || self.port == port);
        self.port = port;
    }

    /// Starts it, and it refuses to serve, with exit code 1; what its log says of that.
    pub fn refuses_to_start(&mut self) -> String {
        let before = std::fs::metadata(self.log_path()).map_or(0, |log| log.len() as usize);
        self.launch();
        let line = self.process.as_mut().unwrap().announcement().unwrap();
        assert!(line.is_empty(), "{} starts: {line}", self.name);
        let status = self.ended();
        assert_eq!(status.code(), Some(1), "{}", self.log());
        self.log().split_off(before)
    }

    /// Waits until the process has ended of its own accord.
    pub fn ended(&mut self) -> ExitStatus {
        self.process.take().unwrap().ended().unwrap()
    }

    /// HOST:PORT.
    pub fn at(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn data(&self) -> &str {
        self.dir.to_str().unwrap()
    }

    fn running(&self) -> &Process {
        self.process.as_ref().unwrap()
    }

    /// The process does nothing from now on, and holds its sockets.
    pub fn hang(&self) {
        self.running().hang().unwrap();
    }

    pub fn resume(&self) {
        self.running().resume().unwrap();
    }

    /// SIGHUP
    pub fn hang_up(&self) {
        self.running().signal(Signal::HUP).unwrap();
    }

    /// kill -9
    pub fn kill(&mut self) {
        self.process.take().unwrap().kill().unwrap();
    }

    /// SIGTERM, and waits for nothing.
    pub fn ask_to_stop(&self) {
        self.running().ask_to_stop().unwrap();
    }

    /// SIGTERM
    pub fn stop(&mut self) -> ExitStatus {
        self.ask_to_stop();
        self.ended()
    }

    pub async fn connect(&self) -> Client {
        self.connect_to("holdfast").await
    }

    pub async fn connect_to(&self, database: &str) -> Client {
        self.connect_with(&format!("user=holdfast dbname={database}")).await
    }

    /// A standby that has just started lets nobody in before it shows one moment of its master; that is waited for.
    pub async fn connect_with(&self, how: &str) -> Client {
        let config = format!("host=127.0.0.1 port={} {how}", self.port);
        let mut patience = Patience::new();
        loop {
            match tokio_postgres::connect(&config, NoTls).await {
                Ok((client, connection)) => {
                    tokio::spawn(connection);
                    return client;
                }
                Err(error) if error.code() == Some(&SqlState::CANNOT_CONNECT_NOW) => {
                    patience.look(&format!("{} takes sessions: {error:?}", self.name));
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(error) => panic!("{}: {error:?}", self.name),
            }
        }
    }

    pub fn status(&self) -> String {
        succeeds(&["standby", "status", "--at", &self.at(), "--json"])
    }

    /// One word of the status: the value behind the first occurrence of the name.
    pub fn status_word(&self, name: &str) -> String {
        let status = self.status();
        let behind = status.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name} in {status}")).1;
        behind.split([',', '}', ']']).next().unwrap().trim_matches('"').to_owned()
    }

    /// Waits until so many commits wait for standbys.
    pub async fn until_commits_wait(&self, commits: usize) {
        until("commits wait", async || self.status_word("commits_waiting") == commits.to_string()).await;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Only then its log is complete.
        self.process = None;
        if std::thread::panicking()
            && let Ok(log) = std::fs::read_to_string(self.log_path())
        {
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("---- {}:\n{}", self.name, lines[lines.len().saturating_sub(25)..].join("\n"));
        }
    }
}

/// The master `a` and its standby `b`.
pub struct Pair {
    pub a: Node,
    pub b: Node,
    scratch: TempDir,
}

impl Pair {
    /// A running master, whose holdfast.toml has these lines, and no standby yet.
    pub fn master(lines: &str) -> Pair {
        let scratch = TempDir::new().unwrap();
        let mut a = Node::new(&scratch, "a");
        a.configure(&format!("node_name = \"a\"\n{lines}"));
        a.start();
        Pair { b: Node::new(&scratch, "b"), a, scratch }
    }

    /// Both run, `b` follows.
    pub async fn start(lines: &str) -> Pair {
        let mut pair = Pair::master(lines);
        pair.create_standby();
        pair.b.start();
        pair.until_followed().await;
        pair
    }

    pub fn create_standby(&self) -> String {
        let (from, data) = (self.a.at(), self.b.data());
        succeeds(&["standby", "create", "--from", &from, "--data", data, "--name", self.b.name])
    }

    /// Waits until `b` follows `a`.
    pub async fn until_followed(&self) {
        until_followed(&self.a, &self.b).await;
    }

    /// Waits until `b` shows all that `a` has by now.
    pub async fn until_equal(&self) {
        until_equal(&self.a, &self.b).await;
    }

    /// One more, not made yet.
    pub fn third(&self, name: &'static str) -> Node {
        Node::new(&self.scratch, name)
    }

    /// A file beside the directories.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }
}

/// A session whose commits wait for nobody but the master's own disk.
pub const LOCAL: &str = "user=holdfast dbname=holdfast options='-c holdfast.level=local -c synchronous_commit=local'";

/// How a session begins that asks for nothing else.
const PLAIN: &str = "user=holdfast dbname=holdfast";

/// Does `work`, which may be done twice, in a session of its own.
///
/// A master that could not renew its lease in time, on a busy machine, ends the session with 57P03 in place of the answer;
/// the client connects again, as a pool of connections does.
async fn in_a_session<T>(node: &Node, how: &str, work: impl AsyncFn(&Client) -> Result<T, tokio_postgres::Error>) -> T {
    let mut patience = Patience::new();
    loop {
        match work(&node.connect_with(how).await).await {
            Ok(done) => return done,
            Err(error) if error.code() == Some(&SqlState::CANNOT_CONNECT_NOW) => {
                patience.look(&format!("{} answers: {error:?}", node.name));
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => panic!("{}: {error:?}", node.name),
        }
    }
}

/// Runs `sql`, which may be run twice, in a session that begins with `how`; the first column of the last row.
pub async fn asked_with(node: &Node, how: &str, sql: &str) -> String {
    in_a_session(node, how, async |client| client.simple_query(sql).await.map(last_cell)).await
}

/// Runs `sql`, which may be run twice, in a session of its own; the first column of the last row.
pub async fn asked(node: &Node, sql: &str) -> String {
    asked_with(node, PLAIN, sql).await
}

/// Inserts rows with the ids from `first` on into `t` until the server is gone; how many were acknowledged.
pub async fn insert_until_it_is_gone(port: u16, first: i64) -> i64 {
    let mut acknowledged = 0;
    loop {
        let config = format!("host=127.0.0.1 port={port} {PLAIN}");
        let ended = match tokio_postgres::connect(&config, NoTls).await {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                loop {
                    let id = first + acknowledged;
                    let insert = format!("insert into t values ({id}) on conflict do nothing");
                    match client.batch_execute(&insert).await {
                        Ok(()) => acknowledged += 1,
                        Err(error) => break error,
                    }
                }
            }
            Err(error) => error,
        };
        if ended.code() != Some(&SqlState::CANNOT_CONNECT_NOW) {
            return acknowledged;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The last value of the answer of the server at this port; `None`: it gives none now.
pub async fn answer_of(port: u16, sql: &str) -> Option<String> {
    let config = format!("host=127.0.0.1 port={port} {LOCAL}");
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await.ok()?;
    tokio::spawn(connection);
    client.simple_query(sql).await.ok().map(crate::server::last_cell)
}

pub async fn until_followed(master: &Node, standby: &Node) {
    let sql = format!("select count(*) from pg_stat_replication where application_name = '{}'", standby.name);
    until("the standby follows", async || asked(master, &sql).await == "1").await;
}

pub async fn until_equal(master: &Node, standby: &Node) {
    let lsn = asked(master, "select pg_current_wal_lsn()").await;
    let client = standby.connect().await;
    let reached = format!("select holdfast_wait_for_lsn('{lsn}', 100)");
    until_settled(&format!("{} reaches {lsn}", standby.name), async || match one(&client, &reached).await.as_str() {
        "t" => None,
        _ => Some(one(&client, "select pg_last_wal_replay_lsn()").await),
    })
    .await;
}

pub use crate::server::{last_cell, one, run, state, until, until_settled};

/// All rows of a query, sorted, a line each.
pub async fn rows(client: &Client, sql: &str) -> Vec<String> {
    try_rows(client, sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"))
}

async fn try_rows(client: &Client, sql: &str) -> Result<Vec<String>, tokio_postgres::Error> {
    let line = |message: SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => {
            let cells: Vec<String> = (0..row.len()).map(|i| format!("{:?}", row.get(i))).collect();
            Some(cells.join(", "))
        }
        _ => None,
    };
    let mut lines: Vec<String> = client.simple_query(sql).await?.into_iter().filter_map(line).collect();
    lines.sort_unstable();
    Ok(lines)
}

/// Everything clients can see of all databases: tables with their columns, indexes and rows.
pub async fn dump(node: &Node) -> Vec<String> {
    let mut out = Vec::new();
    let all = async |client: &Client| try_rows(client, "select datname from pg_database").await;
    let names = in_a_session(node, PLAIN, all).await;
    for name in names.iter().map(|n| n.trim_start_matches("Some(\"").trim_end_matches("\")")) {
        out.push(format!("database {name}"));
        out.extend(in_a_session(node, &format!("user=holdfast dbname={name}"), dump_of).await);
    }
    out
}

async fn dump_of(client: &Client) -> Result<Vec<String>, tokio_postgres::Error> {
    let mut out = Vec::new();
    let tables = "select table_name from information_schema.tables where table_schema = 'public'";
    for message in client.simple_query(tables).await? {
        let SimpleQueryMessage::Row(row) = message else { continue };
        let table = row.get(0).unwrap();
        out.push(format!("table {table}"));
        let columns = "select column_name, data_type, is_nullable, column_default from information_schema.columns";
        out.extend(try_rows(client, &format!("{columns} where table_name = '{table}'")).await?);
        out.extend(try_rows(client, &format!("select indexdef from pg_indexes where tablename = '{table}'")).await?);
        out.extend(try_rows(client, &format!("select * from \"{table}\"")).await?);
    }
    Ok(out)
}

/// Both show the same; waits until the standby has all.
pub async fn assert_same(master: &Node, standby: &Node) {
    until_equal(master, standby).await;
    let (left, right) = (dump(master).await, dump(standby).await);
    let differs = left.iter().zip(&right).position(|(l, r)| l != r);
    let at = differs.unwrap_or(left.len().min(right.len()));
    assert_eq!(left.get(at), right.get(at), "{} lines there, {} here, line {at}", left.len(), right.len());
}

/// The lost-*.sql files in a directory.
pub fn lost_files(dir: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let is_lost = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("lost-");
    paths.filter(is_lost).collect()
}
