//! The nodes `a`, `b` and the witness `w`, each run by `holdfast cluster run`.

use crate::node::{Node, answer_of, succeeds, until, until_followed, until_settled};
use holdfast_cluster::page::{Progress, lease_pages};
use holdfast_cluster::process::{Identity, Process};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use tempfile::TempDir;

/// The answer of a server that may be about to change its role, which ends its sessions; `None`: it gives none now.
pub async fn answer(node: &Node, sql: &str) -> Option<String> {
    answer_of(node.port, sql).await
}

/// Waits until the server answers as a standby, or as the master.
pub async fn until_in_recovery(node: &Node, expected: bool) {
    let expected = Some(if expected { "t" } else { "f" });
    let asks = async || answer(node, "select pg_is_in_recovery()").await.as_deref() == expected;
    until(&format!("{} has changed its role", node.name), asks).await;
}

/// Waits until the record says that b is the master, and b has changed its role.
pub async fn until_b_serves(bed: &Bed) {
    until("b is the master", async || {
        let record = &bed.w.status()["record"];
        record["master"] == "b" && record["serving"] == true
    })
    .await;
    until_in_recovery(&bed.node_b, false).await;
}

/// The longest one: a busy machine may stop a process for longer than the lease that is usual.
const LEASE_MS: u64 = 3_000;

/// A node's supervisor, and its server's process.
pub struct Supervised {
    pub name: &'static str,
    /// Of this node alone, on tmpfs.
    pub runtime: PathBuf,
    pub config: PathBuf,
    log: PathBuf,
    process: Option<holdfast_testbed::Process>,
    /// At which points its server is killed or stopped, a line each (`holdfast_seams::points`).
    points: PathBuf,
}

impl Supervised {
    fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        let base = self.runtime.ancestors().nth(3).unwrap();
        command.env("XDG_RUNTIME_DIR", base).env_remove("RUNTIME_DIRECTORY");
        command.args(["cluster", subcommand, "--config"]).arg(&self.config).args(["--node", self.name]);
        command.stdin(Stdio::null());
        command
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Starts the supervisor, and returns when its socket answers.
    pub fn start(&mut self) {
        assert!(self.process.is_none(), "the supervisor of {} runs already", self.name);
        let mut process = self.spawned();
        let line = process.announcement().unwrap();
        let expected = format!("holdfast: supervisor of {} in cluster shop\n", self.name);
        assert_eq!(line, expected, "{}", self.log());
        self.process = Some(process);
    }

    fn spawned(&self) -> holdfast_testbed::Process {
        let mut command = self.command("run");
        command.env("HOLDFAST_TEST_POINTS", &self.points);
        holdfast_testbed::Process::announcing(self.name, command, &self.log).unwrap()
    }

    /// Starts the supervisor, which ends by itself; how it does.
    pub fn starts_and_ends(&self) -> ExitStatus {
        self.spawned().ended().unwrap()
    }

    /// One more supervisor of the same node, which is expected to end.
    pub fn another(&self) -> Output {
        self.command("run").output().unwrap()
    }

    pub fn is_running(&mut self) -> bool {
        self.process.as_mut().unwrap().is_running()
    }

    /// kill -9 of the supervisor alone.
    pub fn kill(&mut self) {
        self.process.take().unwrap().kill().unwrap();
    }

    /// SIGTERM
    pub fn stop(&mut self) -> ExitStatus {
        self.process.as_ref().unwrap().ask_to_stop().unwrap();
        self.ended()
    }

    /// Waits for the end of the supervisor.
    pub fn ended(&mut self) -> ExitStatus {
        self.process.take().unwrap().ended().unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        self.process.as_ref().unwrap().signal(signal).unwrap();
    }

    /// SIGSTOP or SIGCONT of the supervisor and its server: the whole node.
    pub fn signal_both(&self, signal: Signal) {
        self.signal(signal);
        self.signal_server(signal);
    }

    /// kill -9 of the supervisor and its server.
    pub async fn kill_both(&mut self) {
        let server = self.server();
        self.kill();
        if let Some(server) = server {
            server.signal(Signal::KILL).unwrap();
        }
        until("the server is gone", async || self.server().is_none()).await;
    }

    /// Lets the server be killed (`kill NAME`) or stopped (`stop NAME`) at points, once each.
    pub fn set_points(&self, points: &[&str]) {
        std::fs::write(&self.points, points.iter().map(|point| format!("{point}\n")).collect::<String>()).unwrap();
    }

    /// Waits until the server has reached all of them.
    pub async fn until_points_are_reached(&self) {
        until_settled("all points are reached", async || {
            let left = std::fs::read_to_string(&self.points).unwrap();
            (!left.is_empty()).then_some(left)
        })
        .await;
    }

    fn answer(&self, what: &str) -> serde_json::Value {
        let output = self.command(what).arg("--json").output().unwrap();
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub fn status(&self) -> serde_json::Value {
        self.answer("status")
    }

    /// What `status` shows a person.
    pub fn status_text(&self) -> String {
        let output = self.command("status").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs `holdfast cluster SUBCOMMAND` on this node.
    pub fn run(&self, subcommand: &str, arguments: &[&str]) -> Output {
        self.command(subcommand).args(arguments).output().unwrap()
    }

    /// What `holdfast cluster explain` shows a person.
    pub fn explain(&self) -> String {
        let output = self.command("explain").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits until `explain` says all of this.
    pub async fn until_explained(&self, expected: &[&str]) {
        until_settled("it is explained", async || {
            let text = self.explain();
            // Its times differ at each look, which is no progress.
            let without_times = || text.chars().filter(|letter| !letter.is_ascii_digit()).collect();
            (!expected.iter().all(|expected| text.contains(expected))).then(without_times)
        })
        .await;
    }

    /// The events of the running supervisor, each as `KIND: TEXT`.
    pub fn events(&self) -> Vec<String> {
        let events = self.answer("events");
        let line = |event: &serde_json::Value| {
            format!("{}: {}", event["kind"].as_str().unwrap(), event["text"].as_str().unwrap())
        };
        events.as_array().unwrap().iter().map(line).collect()
    }

    pub async fn until_event(&self, text: &str) {
        until_settled(text, async || {
            let events = self.events();
            (!events.iter().any(|event| event.contains(text))).then(|| events.join("\n"))
        })
        .await;
    }

    /// Waits until clients can connect to the server; its process.
    pub async fn until_running(&self) -> Identity {
        until(&format!("the server of {} runs", self.name), async || self.status()["server"]["state"] == "running")
            .await;
        self.server().unwrap().identity()
    }

    /// The server's process, if it lives.
    pub fn server(&self) -> Option<Process> {
        let progress = Progress::open(&self.runtime).ok()?;
        Process::open(progress.server()).unwrap()
    }

    pub fn signal_server(&self, signal: Signal) {
        self.server().unwrap().signal(signal).unwrap();
    }

    /// The page of the present mastership.
    pub fn lease_page(&self) -> PathBuf {
        lease_pages(&self.runtime).unwrap().pop().unwrap()
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.process = None;
        // The server outlives its supervisor.
        if let Some(server) = self.server() {
            let _ = server.signal(Signal::KILL);
        }
        if std::thread::panicking()
            && let Ok(log) = std::fs::read_to_string(&self.log)
        {
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("---- {} and its supervisor:\n{}", self.name, lines[lines.len().saturating_sub(40)..].join("\n"));
        }
    }
}

pub struct Bed {
    /// The servers as clients see them; their processes are the supervisors'.
    pub node_a: Node,
    pub node_b: Node,
    pub a: Supervised,
    pub b: Supervised,
    pub w: Supervised,
    _runtime: TempDir,
    clone_runtime: TempDir,
    scratch: TempDir,
}

impl Bed {
    /// Nothing runs; `a` has been a master without a control plane, `b` is a copy of it.
    pub fn stopped() -> Bed {
        let scratch = TempDir::new().unwrap();
        let (node_a, node_b) = (Node::new(&scratch, "a"), Node::new(&scratch, "b"));
        Bed::made_of(scratch, node_a, node_b)
    }

    /// The same, with the directories of both nodes, which have their parts in the control plane too, on these disks.
    pub fn stopped_on(disk_a: &Path, disk_b: &Path) -> Bed {
        let scratch = TempDir::new().unwrap();
        let [node_a, node_b] = [("a", disk_a), ("b", disk_b)].map(|(name, disk)| {
            let mut node = Node::new(&scratch, name);
            node.log_beside(node.dir.with_extension("log"));
            node.dir = disk.join(name);
            node
        });
        Bed::made_of(scratch, node_a, node_b)
    }

    fn made_of(scratch: TempDir, mut node_a: Node, node_b: Node) -> Bed {
        let runtime = TempDir::new_in("/dev/shm").unwrap();
        node_a.configure("node_name = \"a\"");
        node_a.start();
        let (from, data) = (node_a.at(), node_b.data().to_owned());
        succeeds(&["standby", "create", "--from", &from, "--data", &data, "--name", "b"]);
        assert!(node_a.stop().success());
        for node in [&node_a, &node_b] {
            node.configure(&format!("listen = \"{}\"", node.at()));
        }
        let config = scratch.path().join("cluster.toml");
        let section = |name: &str, data: &Path, more: &str| {
            let port = holdfast_seams::testing::port();
            format!("[node.{name}]\nlinks = [\"127.0.0.1:{port}\"]\ndata = \"{}\"\n{more}", data.display())
        };
        let of_node = |node: &Node| section(node.name, &node.dir, &format!("clients = \"{}\"\n", node.at()));
        let of_witness = section("w", &scratch.path().join("w"), "witness = true\n");
        let sections = [of_node(&node_a), of_node(&node_b), of_witness].concat();
        let text = format!("name = \"shop\"\nlease_ms = {LEASE_MS}\n{sections}[database]\nnodes = [\"a\", \"b\"]\n");
        std::fs::write(&config, text).unwrap();
        let supervised = |name: &'static str| Supervised {
            name,
            runtime: runtime.path().join("holdfast/shop").join(name),
            config: config.clone(),
            log: scratch.path().join(format!("{name}.log")),
            process: None,
            points: scratch.path().join(format!("{name}.points")),
        };
        let (a, b, w) = (supervised("a"), supervised("b"), supervised("w"));
        let clone_runtime = TempDir::new_in("/dev/shm").unwrap();
        Bed { node_a, node_b, a, b, w, _runtime: runtime, clone_runtime, scratch }
    }

    /// A supervisor of `b` on a copy of its directory, as on another machine: with its own ports, and a runtime directory
    /// of its own.
    pub fn clone_of_b(&self, copy: &Path) -> Supervised {
        let (links, clients) = (holdfast_seams::testing::port(), holdfast_seams::testing::port());
        let data = self.node_b.data();
        let config = self.scratch.path().join("clone.toml");
        let text = std::fs::read_to_string(&self.b.config).unwrap();
        let mut in_b = false;
        let lines = text.lines().map(|line| {
            in_b = if line.starts_with('[') { line == "[node.b]" } else { in_b };
            match line.split(' ').next() {
                Some("links") if in_b => format!("links = [\"127.0.0.1:{links}\"]\n"),
                Some("data") if in_b => format!("data = \"{}\"\n", copy.display()),
                Some("clients") if in_b => format!("clients = \"127.0.0.1:{clients}\"\n"),
                _ => format!("{line}\n"),
            }
        });
        std::fs::write(&config, lines.collect::<String>()).unwrap();
        let settings = copy.join("holdfast.toml");
        let text = std::fs::read_to_string(&settings).unwrap();
        std::fs::write(&settings, text.replace(&self.node_b.at(), &format!("127.0.0.1:{clients}"))).unwrap();
        assert_ne!(data, copy.display().to_string());
        Supervised {
            name: "b",
            runtime: self.clone_runtime.path().join("holdfast/shop/b"),
            config,
            log: self.scratch.path().join("clone.log"),
            process: None,
            points: self.scratch.path().join("clone.points"),
        }
    }

    /// Adds lines to the section `[database]` of cluster.toml, which is its last one.
    pub fn add_to_database(&self, lines: &str) {
        let text = std::fs::read_to_string(&self.a.config).unwrap();
        std::fs::write(&self.a.config, text + lines).unwrap();
    }

    /// All three run, `a` is the master, and `b` may be promoted.
    pub async fn start() -> Bed {
        let mut bed = Bed::stopped();
        bed.start_all().await;
        bed
    }

    /// The same, of one in which nothing runs.
    pub async fn start_all(&mut self) {
        self.w.start();
        self.b.start();
        self.a.start();
        self.a.until_running().await;
        self.b.until_running().await;
        until_followed(&self.node_a, &self.node_b).await;
        self.until_agreed("a", &["a", "b"]).await;
    }

    /// Lets the member of `a` lead Raft: one that leads instead is taken away until another one leads.
    pub async fn until_a_leads(&mut self) {
        for _ in 0..600 {
            let old = match self.a.status()["leader"].as_str() {
                Some("a") => return,
                Some("b") => &mut self.b,
                Some(_) => &mut self.w,
                None => {
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    continue;
                }
            };
            old.kill();
            let leads = || self.a.status()["leader"].as_str().is_some_and(|leader| leader != old.name);
            until("another one leads", async || leads()).await;
            old.start();
        }
        panic!("a does not lead");
    }

    /// Waits until the witness knows this master and this sync set.
    pub async fn until_agreed(&self, master: &str, sync_set: &[&str]) {
        until("the three have agreed", async || {
            let record = &self.w.status()["record"];
            record["master"] == master && record["serving"] == true && record["sync_set"] == serde_json::json!(sync_set)
        })
        .await;
    }
}
