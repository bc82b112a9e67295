//! Two directories, each on a disk of its own where a test wants that, a server on them, and load whose answers are kept.

use crate::node::{dump, one, refuses, succeeds, until, until_settled};
use holdfast_seams::testing::skipped;
use holdfast_testbed::Process;
use holdfast_unsafe_disk::{Options, UnsafeDisk, cannot_mount};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

/// Small, so that segments come and go while a test runs.
pub const SETTINGS: &str = "segment_bytes = 1048576\nredo_bytes_max = 2097152\nstandby_timeout_ms = 1000\n";

/// A directory, on an unsafe disk or not.
pub struct Place {
    pub dir: PathBuf,
    disk: Option<UnsafeDisk>,
}

impl Place {
    fn plain(scratch: &TempDir, name: &str) -> Place {
        Place { dir: scratch.path().join(name), disk: None }
    }

    fn on_a_disk(scratch: &TempDir, name: &str) -> Place {
        let (mount, backing) = (scratch.path().join(name), scratch.path().join(format!("{name}-backing")));
        std::fs::create_dir(&mount).unwrap();
        std::fs::create_dir(&backing).unwrap();
        let disk = UnsafeDisk::mount(&mount, Options::new(backing)).unwrap();
        Place { dir: mount.join("data"), disk: Some(disk) }
    }

    pub fn path(&self) -> &str {
        self.dir.to_str().unwrap()
    }

    pub fn disk(&self) -> &holdfast_unsafe_disk::Disk {
        self.disk.as_ref().unwrap().disk()
    }

    pub fn tell(&self, command: &str) {
        self.disk().command_text(command).unwrap();
    }

    /// From now on everything fails, for good.
    pub fn dies(&self) {
        for what in ["write", "sync", "name", "read"] {
            self.tell(&format!("fail {what} * times=always"));
        }
    }

    /// Its power is back, or whatever made it fail is gone.
    pub fn comes_back(&self) {
        self.tell("clear");
        self.disk().restore().unwrap();
    }
}

/// Field order: the server ends before its disks go.
pub struct Bed {
    server: Option<Process>,
    pub port: u16,
    pub main: Place,
    pub mirror: Place,
    scratch: TempDir,
}

impl Bed {
    pub fn plain(lines: &str) -> Bed {
        let scratch = TempDir::new().unwrap();
        let (main, mirror) = (Place::plain(&scratch, "main"), Place::plain(&scratch, "mirror"));
        Bed { server: None, port: 0, main, mirror, scratch }.configured(lines)
    }

    /// `None`: no disk can be mounted here, which was said.
    pub fn on_disks(lines: &str) -> Option<Bed> {
        if let Some(why) = cannot_mount() {
            skipped(&why);
            return None;
        }
        let scratch = TempDir::new().unwrap();
        let (main, mirror) = (Place::on_a_disk(&scratch, "main"), Place::on_a_disk(&scratch, "mirror"));
        Some(Bed { server: None, port: 0, main, mirror, scratch }.configured(lines))
    }

    fn configured(self, lines: &str) -> Bed {
        std::fs::create_dir_all(&self.main.dir).unwrap();
        std::fs::write(self.main.dir.join("holdfast.toml"), format!("{SETTINGS}{lines}\n")).unwrap();
        self.main.disk.iter().for_each(|disk| disk.disk().sync_all().unwrap());
        self
    }

    pub fn beside(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.beside("log")).unwrap_or_default()
    }

    pub fn start(&mut self) {
        let (main, mirror) = (self.main.dir.clone(), self.mirror.dir.clone());
        self.start_on(&main, Some(&mirror));
    }

    /// Starts a server and returns when it takes connections.
    pub fn start_on(&mut self, dir: &Path, mirror: Option<&Path>) {
        assert!(self.server.is_none(), "a server runs already");
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(dir);
        mirror.into_iter().for_each(|mirror| _ = command.arg("--mirror").arg(mirror));
        let mut server = Process::announcing("the server", command, &self.beside("log")).unwrap();
        self.port = server.announced_port().unwrap();
        self.server = Some(server);
    }

    /// The server on these directories does not start; what it says.
    pub fn start_refused(&self) -> String {
        refuses(&["serve", "--listen", "127.0.0.1:0", "--data", self.main.path(), "--mirror", self.mirror.path()])
    }

    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
        }
    }

    pub fn stop(&mut self) -> ExitStatus {
        let mut server = self.server.take().unwrap();
        server.ask_to_stop().unwrap();
        server.ended().unwrap()
    }

    /// Waits until the process has ended by itself.
    pub async fn until_it_ends(&mut self) -> ExitStatus {
        let mut server = self.server.take().unwrap();
        until("the process ends", async || !server.is_running()).await;
        server.ended().unwrap()
    }

    pub async fn connect(&self) -> Client {
        self.try_connect().await.unwrap_or_else(|| panic!("nobody is let in:\n{}", self.log()))
    }

    async fn try_connect(&self) -> Option<Client> {
        let config = format!("host=127.0.0.1 port={} user=holdfast dbname=holdfast", self.port);
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await.ok()?;
        tokio::spawn(connection);
        Some(client)
    }

    /// One field of what `holdfast standby status` says about the mirror.
    pub fn status(&self, field: &str) -> serde_json::Value {
        let text = succeeds(&["standby", "status", "--json", "--at", &format!("127.0.0.1:{}", self.port)]);
        let status: serde_json::Value = serde_json::from_str(&text).unwrap();
        status["mirror"][field].clone()
    }

    /// Waits until the mirror is in this state.
    pub async fn until_state(&self, state: &str) {
        until_settled(&format!("the mirror is {state}"), async || {
            let found = self.status("state");
            (found != state).then(|| format!("{found}\n{}", self.log()))
        })
        .await;
    }

    /// What clients see of a copy of a directory, which is promoted first if it is a mirror's. The directory itself stays as
    /// it is.
    pub async fn contents(&mut self, dir: &Path) -> Vec<String> {
        let copy = self.copy(dir);
        let of = std::fs::read_to_string(copy.join("mirror_of.toml")).unwrap_or_default();
        if !of.is_empty() && !of.contains("\"promoted\"") {
            succeeds(&["mirror", "promote", "--data", copy.to_str().unwrap(), "--accept-divergence"]);
        }
        // Its own mirror is not touched either.
        let _ = std::fs::remove_file(copy.join("mirror.toml"));
        let mut node = crate::node::Node::new_in(copy.clone());
        node.start();
        let contents = dump(&node).await;
        drop(node);
        std::fs::remove_dir_all(copy).unwrap();
        contents
    }

    pub fn copy(&self, dir: &Path) -> PathBuf {
        let copy = self.beside("copy");
        let _ = std::fs::remove_dir_all(&copy);
        let copied = Command::new("cp").arg("-a").arg(dir).arg(&copy).status().unwrap();
        assert!(copied.success());
        let of = copy.join("mirror_of.toml");
        if let Ok(text) = std::fs::read_to_string(&of) {
            // As if the main directory were gone: it neither knows of this nor is told.
            std::fs::write(&of, text.replace(self.main.path(), "/nowhere").replace(self.mirror.path(), "/nowhere"))
                .unwrap();
        }
        copy
    }

    /// Both directories are sound and show the same. The server has stopped.
    pub async fn assert_equal(&mut self) {
        let (main, mirror) = (self.main.dir.clone(), self.mirror.dir.clone());
        for dir in [&main, &mirror] {
            succeeds(&["check", "--data", dir.to_str().unwrap()]);
        }
        let (left, right) = (self.contents(&main).await, self.contents(&mirror).await);
        let differs = left.iter().zip(&right).position(|(l, r)| l != r);
        let at = differs.unwrap_or(left.len().min(right.len()));
        assert_eq!(left.get(at), right.get(at), "{} lines there, {} here, line {at}", left.len(), right.len());
        assert!(left.len() > 5, "{left:?}");
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("---- log:\n{}", self.log());
        }
    }
}

/// Writers that each insert the next number until they are not answered.
pub struct Load {
    writers: Vec<JoinHandle<u64>>,
    round: u64,
}

/// Numbers of one writer in one round.
const PER_WRITER: u64 = 1_000_000;

impl Load {
    /// `round`: another one for each load on the same table.
    pub async fn start(bed: &Bed, writers: u64, round: u64) -> Load {
        let client = bed.connect().await;
        client.batch_execute("create table if not exists t(id bigint primary key, v text)").await.unwrap();
        let mut tasks = Vec::new();
        for writer in 0..writers {
            let client = bed.connect().await;
            let first = (round * 100 + writer) * PER_WRITER;
            tasks.push(tokio::spawn(async move {
                let mut acknowledged = 0;
                let insert = |n| format!("insert into t values ({}, '{:0>200}')", first + n, n);
                while client.batch_execute(&insert(acknowledged)).await.is_ok() {
                    acknowledged += 1;
                }
                acknowledged
            }));
        }
        Load { writers: tasks, round }
    }

    /// Waits until there are so many rows.
    pub async fn until_rows(&self, bed: &Bed, rows: u64) {
        let client = bed.connect().await;
        let (from, to) = (self.round * 100 * PER_WRITER, (self.round + 1) * 100 * PER_WRITER);
        let sql = format!("select count(*) >= {rows} from t where id >= {from} and id < {to}");
        until("there is load", async || one(&client, &sql).await == "t").await;
    }

    /// How many of each writer were acknowledged. The server, or the load, has ended.
    pub async fn acknowledged(self) -> Acknowledged {
        let mut counts = Vec::new();
        for writer in self.writers {
            counts.push(writer.await.unwrap());
        }
        Acknowledged { counts, round: self.round }
    }
}

/// What was acknowledged in one load.
pub struct Acknowledged {
    counts: Vec<u64>,
    round: u64,
}

impl Acknowledged {
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Everything acknowledged is there, of what was not at most the one under way.
    pub async fn assert_there(&self, client: &Client) {
        for (writer, acknowledged) in (0u64..).zip(&self.counts) {
            let first = (self.round * 100 + writer) * PER_WRITER;
            let count = |to: u64| format!("select count(*) from t where id >= {first} and id < {}", first + to);
            let there = one(client, &count(*acknowledged)).await;
            assert_eq!(there, acknowledged.to_string(), "round {}, writer {writer}: acknowledged and lost", self.round);
            let all: u64 = one(client, &count(PER_WRITER)).await.parse().unwrap();
            assert!(all <= acknowledged + 1, "round {}, writer {writer}: {all} of {acknowledged}", self.round);
        }
    }
}
