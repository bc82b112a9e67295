//! The servers `a` and `b` and the witness `w`, whose control planes know each other.

use super::cut::Switch;
pub use crate::node::LOCAL;
use crate::node::{Node, refuses, succeeds, until, until_followed, until_settled};
use holdfast_testbed::Process;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;
use tempfile::TempDir;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

/// An address that nobody has.
fn free_address() -> String {
    format!("127.0.0.1:{}", holdfast_seams::testing::port())
}

/// `holdfast witness`.
pub struct Witness {
    pub dir: PathBuf,
    listen: String,
    members: String,
    process: Option<Process>,
}

impl Witness {
    fn log_path(&self) -> PathBuf {
        self.dir.with_extension("log")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap()
    }

    /// Starts it and returns when it listens.
    pub fn start(&mut self) {
        assert!(self.process.is_none(), "w runs already");
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(["witness", "--listen", &self.listen, "--members", &self.members, "--data"]).arg(&self.dir);
        let mut process = Process::announcing("w", command, &self.log_path()).unwrap();
        let line = process.announcement().unwrap();
        assert!(line.starts_with("holdfast: witness w on "), "w does not start: {line}\n{}", self.log());
        self.process = Some(process);
    }

    /// kill -9
    pub fn kill(&mut self) {
        self.process.take().unwrap().kill().unwrap();
    }

    /// SIGTERM
    pub fn stop(&mut self) -> ExitStatus {
        let mut process = self.process.take().unwrap();
        process.ask_to_stop().unwrap();
        process.ended().unwrap()
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // Only then its log is complete.
        self.process = None;
        if std::thread::panicking()
            && let Ok(log) = std::fs::read_to_string(self.log_path())
        {
            eprintln!("---- w:\n{log}");
        }
    }
}

pub struct Trio {
    pub a: Node,
    pub b: Node,
    pub w: Witness,
    scratch: TempDir,
}

impl Trio {
    /// All three run, `a` is the master and `b` follows it and may be promoted. Both servers' holdfast.toml have these
    /// lines.
    pub async fn start(lines: &str) -> Trio {
        Trio::stopped(lines).started().await
    }

    async fn started(self) -> Trio {
        let mut trio = self;
        trio.w.start();
        trio.b.start();
        trio.a.start();
        until_followed(&trio.a, &trio.b).await;
        trio.until_agreed("a", "{a, b}").await;
        trio
    }

    /// `a` has been a master without a control plane, `b` is a copy of it; the group has not been founded.
    pub fn stopped(lines: &str) -> Trio {
        Trio::stopped_through(lines, |_, _, address| address.to_owned())
    }

    /// As [`Trio::start`], and `b` and `w` reach each other's control plane only while the switch is closed.
    pub async fn start_with_switch(lines: &str) -> (Trio, Switch) {
        let switch = Switch::default();
        let seen_by = |node: &str, peer: &str, address: &str| match (node, peer) {
            ("b", "w") | ("w", "b") => switch.proxy_to(address),
            _ => address.to_owned(),
        };
        (Trio::stopped_through(lines, seen_by).started().await, switch)
    }

    /// `seen_by`: the address of a node's peer, as that node knows it.
    fn stopped_through(lines: &str, seen_by: impl Fn(&str, &str, &str) -> String) -> Trio {
        let scratch = TempDir::new().unwrap();
        let (mut a, b) = (Node::new(&scratch, "a"), Node::new(&scratch, "b"));
        a.configure("node_name = \"a\"");
        a.start();
        let from = a.at();
        succeeds(&["standby", "create", "--from", &from, "--data", b.data(), "--name", "b"]);
        assert!(a.stop().success());
        let addresses = [free_address(), free_address(), free_address()];
        let members_of = |node: &str| {
            let peers = ["a", "b", "w"].into_iter().zip(&addresses);
            peers
                .map(|(peer, address)| format!("{peer}={}", seen_by(node, peer, address)))
                .collect::<Vec<_>>()
                .join(",")
        };
        for node in [&a, &b] {
            let members = members_of(node.name);
            node.configure(&format!("control_members = \"{members}\"\ncontrol_witness = \"w\"\n{lines}"));
        }
        let members = members_of("w");
        let [_, _, listen] = addresses;
        let w = Witness { dir: scratch.path().join("w"), listen, members, process: None };
        Trio { a, b, w, scratch }
    }

    /// Lets the witness lead Raft: a server that leads instead is taken away until another member leads. A member draws the time
    /// after which it elects at its start, so `b` and `w` start again before each attempt.
    pub async fn until_witness_leads(&mut self) {
        // Each attempt has a chance of one half or better.
        for _ in 0..600 {
            match self.a.status_word("leader").as_str() {
                "w" => return,
                "a" => {
                    self.b.kill();
                    self.b.start();
                    self.w.kill();
                    self.w.start();
                    self.a.hang();
                    until("another one leads", async || !["null", "a"].contains(&&*self.b.status_word("leader"))).await;
                    self.a.resume();
                    until("a follows it", async || !["null", "a"].contains(&&*self.a.status_word("leader"))).await;
                }
                "b" => {
                    self.b.kill();
                    until("another one leads", async || !["null", "b"].contains(&&*self.a.status_word("leader"))).await;
                    self.b.start();
                }
                // None for now.
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        panic!("the witness does not lead");
    }

    /// Lets the master `a` lead Raft: a member that leads instead is taken away until another one leads.
    pub async fn until_a_leads(&mut self) {
        for _ in 0..600 {
            let another_leads = async |trio: &Trio, old: &str| {
                let leads = || trio.a.status_word("leader");
                until("another one leads", async || !["null", old].contains(&&*leads())).await;
            };
            match self.a.status_word("leader").as_str() {
                "a" => return,
                "w" => {
                    self.w.kill();
                    another_leads(self, "w").await;
                    self.w.start();
                }
                "b" => {
                    self.b.kill();
                    another_leads(self, "b").await;
                    self.b.start();
                }
                // None for now.
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        panic!("a does not lead");
    }

    /// The newest record that the witness knows: its log tells of every change.
    pub fn agreed(&self) -> String {
        let log = self.w.log();
        log.lines().rfind(|line| line.contains("control record")).unwrap_or_default().to_owned()
    }

    /// Waits until the three have agreed on this master, and on who has everything.
    pub async fn until_agreed(&self, master: &str, sync_set: &str) {
        let (master, set) = (format!("master={master} mastership=Serving"), format!("sync_set={sync_set}"));
        let agreed = || Some(self.agreed()).filter(|record| record.contains(&master) && record.contains(&set));
        until("the three have agreed", async || agreed().is_some()).await;
    }

    /// A server beside the three, not made yet.
    pub fn another(&self, name: &'static str) -> Node {
        Node::new(&self.scratch, name)
    }

    pub fn promote_b(&self) -> String {
        succeeds(&["promote", "--at", &self.b.at()])
    }

    /// What is said when `b` may not be promoted.
    pub fn promote_b_refused(&self) -> String {
        refuses(&["promote", "--at", &self.b.at()])
    }

    /// Brings `a` back as the standby of `b`, and waits until it may be promoted in its turn.
    pub async fn rejoin_a(&mut self) -> String {
        let (from, data) = (self.b.at(), self.a.data().to_owned());
        let said = succeeds(&["rejoin", "--from", &from, "--data", &data, "--name", "a"]);
        self.a.start();
        until_followed(&self.b, &self.a).await;
        self.until_agreed("b", "{a, b}").await;
        said
    }
}

/// A session, or why there is none.
pub async fn connect(node: &Node) -> Result<Client, tokio_postgres::Error> {
    let config = format!("host=127.0.0.1 port={} user=holdfast dbname=holdfast", node.port);
    let (client, connection) = tokio_postgres::connect(&config, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Whether a session that begins now gets answers to what it reads.
pub async fn answers_reads(node: &Node) -> bool {
    let answer = match connect(node).await {
        Ok(client) => client.simple_query("select 1").await.map(drop),
        Err(error) => Err(error),
    };
    match answer {
        Ok(()) => true,
        Err(error) if error.code() == Some(&SqlState::CANNOT_CONNECT_NOW) => false,
        Err(error) => panic!("{}: {error:?}", node.name),
    }
}

/// Waits until reads are answered, or are not.
pub async fn until_reads_are(node: &Node, answered: bool) {
    until("reads are, or are not answered", async || answers_reads(node).await == answered).await;
}

/// A statement whose answer is waited for beside everything else.
pub fn beside(client: Client, sql: &'static str) -> tokio::task::JoinHandle<Result<(), tokio_postgres::Error>> {
    tokio::spawn(async move { client.batch_execute(sql).await })
}

/// Waits until the server's log says this.
pub async fn until_said(log: impl Fn() -> String, text: &str) {
    until_settled(text, async || Some(log()).filter(|log| !log.contains(text))).await;
}
