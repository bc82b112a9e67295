//! Runs the built binary on a directory of its own.

use holdfast_seams::testing::Patience;
use holdfast_testbed::Process;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;
use tempfile::TempDir;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

pub struct Running {
    process: Process,
    pub port: u16,
    pub dir: TempDir,
    _log: tempfile::NamedTempFile,
}

fn command(dir: &Path, listen: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(["serve", "--listen", listen, "--data"]).arg(dir);
    command
}

/// A server that does not start: its exit status and what it says on stderr.
pub fn fails_to_start(dir: &Path, listen: &str) -> (ExitStatus, String) {
    let output = command(dir, listen).output().unwrap();
    assert!(output.stdout.is_empty(), "nothing on stdout");
    (output.status, String::from_utf8(output.stderr).unwrap())
}

/// Waits until `is_so`.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let mut patience = Patience::new();
    while !is_so().await {
        patience.look(what);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until `state` is `None`; as long as what it returns changes, there is progress and the wait starts over.
pub async fn until_settled(what: &str, mut state: impl AsyncFnMut() -> Option<String>) {
    let mut patience = Patience::new();
    while let Some(state) = state().await {
        patience.sees(state);
        patience.look(what);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
}

/// The SQLSTATE of what fails.
pub async fn state(client: &Client, sql: &str) -> Option<SqlState> {
    client.batch_execute(sql).await.err().and_then(|e| e.code().cloned())
}

/// The first column of the last row.
pub async fn one(client: &Client, sql: &str) -> String {
    last_cell(client.simple_query(sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}")))
}

/// The first column of the last row of an answer.
pub fn last_cell(messages: Vec<SimpleQueryMessage>) -> String {
    let rows = messages.iter().filter_map(|m| match m {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    rows.last().unwrap_or_default()
}

impl Running {
    pub fn start() -> Running {
        Running::start_in(TempDir::new().unwrap())
    }

    pub fn start_in(dir: TempDir) -> Running {
        Running::start_command(command(dir.path(), "127.0.0.1:0"), dir)
    }

    /// On a directory that the caller removes.
    pub fn start_on(data: &Path) -> Running {
        Running::start_command(command(data, "127.0.0.1:0"), TempDir::new().unwrap())
    }

    /// With other options than its directory.
    pub fn start_with(options: &[&str]) -> Running {
        let dir = TempDir::new().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(["serve", "--data"]).arg(dir.path()).args(options);
        Running::start_command(command, dir)
    }

    /// On these addresses, of which the first is 127.0.0.1.
    pub fn start_listening(dir: TempDir, listen: &str) -> Running {
        Running::start_command(command(dir.path(), listen), dir)
    }

    fn start_command(command: Command, dir: TempDir) -> Running {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut process = Process::announcing("the server", command, log.path()).unwrap();
        let port = process.announced_port().unwrap();
        Running { process, port, dir, _log: log }
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        self.process.log()
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// SIGHUP.
    pub fn hang_up(&self) {
        self.process.signal(rustix::process::Signal::HUP).unwrap();
    }

    pub async fn connect(&self) -> Client {
        self.connect_to("holdfast").await
    }

    pub async fn connect_to(&self, database: &str) -> Client {
        self.connect_with(&format!("user=holdfast dbname={database}")).await
    }

    /// `how`: user, database and options as a connection string has them.
    pub async fn connect_with(&self, how: &str) -> Client {
        let config = format!("host=127.0.0.1 port={} {how}", self.port);
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// SIGTERM; returns how the process ended, and the directory.
    pub fn stop(mut self) -> (ExitStatus, TempDir) {
        self.process.ask_to_stop().unwrap();
        let status = self.process.ended().unwrap();
        let dir = std::mem::replace(&mut self.dir, TempDir::new().unwrap());
        (status, dir)
    }

    /// Kills the process as a power cut would.
    pub fn kill(mut self) -> TempDir {
        self.process.kill().unwrap();
        std::mem::replace(&mut self.dir, TempDir::new().unwrap())
    }
}
