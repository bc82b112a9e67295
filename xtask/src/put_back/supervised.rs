//! Two nodes and a witness under `holdfast cluster run`.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::round::Servers;
use crate::failover::{ELECTION, Node, Start, Until};
use crate::paths;
use crate::recorder::DATABASE;
use crate::server::{Address, Process, is_ready};

/// Longer than a start, a failover or a base copy takes here.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// How long a master that is started has, to serve or to end.
const START_MAX: Duration = Duration::from_secs(20);

/// How often something is looked at that is waited for.
const LOOK: Duration = Duration::from_millis(50);

const CLUSTER: &str = "putback";

/// A node's supervisor. Its server outlives it.
struct Supervisor {
    name: &'static str,
    log: PathBuf,
    log_start: usize,
    process: Option<Process>,
    /// Of this node alone; each server of it has this path among its arguments.
    runtime: PathBuf,
}

/// See the module. Field order: the processes end before their directories go.
pub struct Supervised {
    binary: PathBuf,
    /// `n1`, `n2` and the witness.
    supervisors: [Supervisor; 3],
    nodes: [Node; 2],
    config: PathBuf,
    runtime: tempfile::TempDir,
    scratch: tempfile::TempDir,
}

const MASTER: usize = 0;
const STANDBY: usize = 1;
const WITNESS: usize = 2;

impl Supervised {
    pub fn start(binary: &Path) -> anyhow::Result<Supervised> {
        let scratch = paths::scratch("put-back")?;
        let runtime = tempfile::TempDir::new_in("/dev/shm").context("making a runtime directory")?;
        let nodes = [Node::new(scratch.path(), "n1", false)?, Node::new(scratch.path(), "n2", false)?];
        let supervisors = ["n1", "n2", "w"].map(|name| Supervisor {
            name,
            log: scratch.path().join(format!("{name}-supervisor.log")),
            log_start: 0,
            process: None,
            runtime: runtime.path().join("holdfast").join(CLUSTER).join(name),
        });
        let config = scratch.path().join("cluster.toml");
        let mut this = Supervised { binary: binary.to_owned(), supervisors, nodes, config, runtime, scratch };
        this.make_directories()?;
        this.write_config()?;
        for which in [WITNESS, STANDBY, MASTER] {
            this.launch(which)?;
        }
        let agreed = |status: &Value| status["record"]["sync_set"].as_array().is_some_and(|set| set.len() == 2);
        this.wait("the group agrees on n1 and n2", |this| {
            Ok(is_ready(this.master().port) && this.status(WITNESS).as_ref().is_some_and(agreed))
        })?;
        Ok(this)
    }

    /// `n1` has been a master by itself, and `n2` is a copy of it.
    fn make_directories(&mut self) -> anyhow::Result<()> {
        let [master, standby] = &mut self.nodes;
        master.configure("node_name = \"n1\"\n")?;
        let Start::Serves = master.start(&self.binary, Until::Answers, |_| false)? else {
            bail!("n1 does not start:\n{}", master.log_text());
        };
        let (from, data) = (master.at(), standby.data.display().to_string());
        let mut create = Command::new(&self.binary);
        create.args(["standby", "create", "--from", &from, "--data", &data, "--name", "n2"]);
        let output = create.output().context("starting holdfast standby create")?;
        if !output.status.success() {
            bail!("standby create: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        master.stop()?;
        for node in &self.nodes {
            node.configure(&format!("listen = \"{}\"\nlevel = \"hot\"\n", node.at()))?;
        }
        Ok(())
    }

    fn write_config(&self) -> anyhow::Result<()> {
        let mut text = format!("name = \"{CLUSTER}\"\n");
        for (supervisor, more) in self.supervisors.iter().zip(["", "", "witness = true\n"]) {
            let (name, port) = (supervisor.name, Address::free().port);
            let data = self.scratch.path().join(name);
            let data = data.display();
            text.push_str(&format!("[node.{name}]\nlinks = [\"127.0.0.1:{port}\"]\ndata = \"{data}\"\n{more}"));
        }
        text.push_str("[database]\nnodes = [\"n1\", \"n2\"]\n");
        std::fs::write(&self.config, text).context("writing cluster.toml")
    }

    fn cluster(&self, which: usize, subcommand: &str) -> Command {
        let mut command = Command::new(&self.binary);
        command.env("XDG_RUNTIME_DIR", self.runtime.path()).env_remove("RUNTIME_DIRECTORY").stdin(Stdio::null());
        command.args(["cluster", subcommand, "--config"]).arg(&self.config);
        command.args(["--node", self.supervisors[which].name]);
        command
    }

    fn launch(&mut self, which: usize) -> anyhow::Result<()> {
        let command = self.cluster(which, "run");
        let supervisor = &mut self.supervisors[which];
        supervisor.log_start = std::fs::metadata(&supervisor.log).map_or(0, |log| log.len() as usize);
        let process = Process::start("the supervisor", command, &supervisor.log, Signal::TERM, Signal::KILL)?;
        supervisor.process = Some(process);
        Ok(())
    }

    /// What the supervisor says of itself and its group; `None` where it does not answer.
    fn status(&self, which: usize) -> Option<Value> {
        let output = self.cluster(which, "status").arg("--json").output().ok()?;
        serde_json::from_slice(&output.stdout).ok()
    }

    fn wait(&mut self, what: &str, is_so: impl Fn(&mut Self) -> anyhow::Result<bool>) -> anyhow::Result<()> {
        let started = Instant::now();
        while !is_so(self)? {
            if started.elapsed() > WAIT_MAX {
                bail!("{what}: not within {WAIT_MAX:?}; {}", self.scratch.path().display());
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Whether the server answers as a master.
    fn is_master(&self, address: Address) -> bool {
        address.sql(DATABASE, "SELECT pg_is_in_recovery()").is_ok_and(|said| said == "f")
    }
}

impl Supervisor {
    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        self.process.as_ref().context("no supervisor runs")?.signal(signal)?;
        self.signal_servers(signal)
    }

    fn signal_servers(&self, signal: Signal) -> anyhow::Result<()> {
        for server in self.servers()? {
            // It may have ended already.
            let _ = kill_process(server, signal);
        }
        Ok(())
    }

    /// The servers of this node that run: a supervisor that ends leaves its server alone.
    fn servers(&self) -> anyhow::Result<Vec<Pid>> {
        let runtime = self.runtime.as_os_str().as_bytes();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else { continue };
            // A process that was killed and not waited for has no arguments.
            let arguments = std::fs::read(Path::new("/proc").join(&name).join("cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = arguments.split(|byte| *byte == 0).collect();
            if words.contains(&&b"serve"[..]) && words.contains(&runtime) {
                found.push(pid);
            }
        }
        Ok(found)
    }

    /// kill -9 of the supervisor and its server.
    fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
        }
        self.signal_servers(Signal::KILL)?;
        let started = Instant::now();
        while !self.servers()?.is_empty() {
            if started.elapsed() > WAIT_MAX {
                bail!("the server of {} does not end", self.name);
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn log_since_start(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(log.get(self.log_start..).unwrap_or_default()).into_owned()
    }
}

impl Servers for Supervised {
    fn master(&self) -> Address {
        self.nodes[MASTER].address
    }

    fn standby(&self) -> Address {
        self.nodes[STANDBY].address
    }

    fn until_master_leads(&mut self) -> anyhow::Result<()> {
        let started = Instant::now();
        while started.elapsed() < WAIT_MAX {
            let status = self.status(MASTER).unwrap_or_default();
            let leader =
                status["leader"].as_str().and_then(|name| self.supervisors.iter().position(|s| s.name == name));
            match leader {
                Some(MASTER) if self.is_master(self.master()) => return Ok(()),
                None | Some(MASTER) => std::thread::sleep(LOOK),
                Some(other) => {
                    let frozen = self.supervisors[other].process.as_ref().context("no supervisor runs")?;
                    frozen.hang()?;
                    std::thread::sleep(ELECTION);
                    frozen.resume()?;
                }
            }
        }
        bail!("n1 does not lead Raft");
    }

    fn freeze(&mut self, is_frozen: bool) -> anyhow::Result<()> {
        self.supervisors[MASTER].signal(if is_frozen { Signal::STOP } else { Signal::CONT })
    }

    fn copy_aside(&self) -> anyhow::Result<()> {
        self.nodes[MASTER].copy_aside()
    }

    fn kill_both(&mut self) -> anyhow::Result<()> {
        self.supervisors[MASTER].kill()?;
        self.supervisors[STANDBY].kill()
    }

    fn put_back(&self) -> anyhow::Result<()> {
        self.nodes[MASTER].put_back()
    }

    fn start_master(&mut self) -> anyhow::Result<Start> {
        self.launch(MASTER)?;
        let started = Instant::now();
        loop {
            if self.is_master(self.master()) {
                return Ok(Start::Serves);
            }
            let supervisor = &mut self.supervisors[MASTER];
            let process = supervisor.process.as_mut().context("no supervisor runs")?;
            if !process.is_running() || started.elapsed() > START_MAX {
                return Ok(Start::Refuses(supervisor.log_since_start()));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn kill_master(&mut self) -> anyhow::Result<()> {
        self.supervisors[MASTER].kill()
    }

    fn until_met(&mut self, _: &Runtime) -> anyhow::Result<Option<String>> {
        bail!("a server under a supervisor has a control plane")
    }

    fn use_standby(&mut self) -> anyhow::Result<()> {
        self.launch(STANDBY)?;
        let at = self.nodes[STANDBY].at();
        self.wait("n2 is the master", |this| {
            if this.is_master(this.standby()) {
                return Ok(true);
            }
            // It may be promoted by its group, and refuses while it is.
            let mut promote = Command::new(&this.binary);
            promote.args(["promote", "--at", &at]).output().context("starting holdfast promote")?;
            Ok(false)
        })
    }

    fn trouble(&mut self) -> Vec<String> {
        let panicked = |supervisor: &Supervisor| {
            let log = std::fs::read_to_string(&supervisor.log).unwrap_or_default();
            log.lines().filter(|line| line.contains("panicked at")).map(str::to_owned).collect::<Vec<_>>()
        };
        self.supervisors.iter().flat_map(panicked).collect()
    }

    fn keep(mut self: Box<Self>) -> PathBuf {
        self.scratch.disable_cleanup(true);
        self.scratch.path().to_owned()
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        for which in [MASTER, STANDBY, WITNESS] {
            // What has ended already is what we want.
            let _ = self.supervisors[which].kill();
        }
    }
}
