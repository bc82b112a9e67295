//! The three nodes of the demo: directories, ports, and the supervisors as child processes.
//!
//! Failure: whatever ends the demo, dropping [`Bed`] kills the supervisors and the servers that it has started.

use super::net::Net;
use anyhow::{Context, bail};
use holdfast_cluster::page::Progress;
use holdfast_cluster::process::Process;
use holdfast_cluster::{Asked, RuntimeDir, ask, runtime_dir};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The nodes' names; w is the witness.
pub const NAMES: [&str; 3] = ["a", "b", "w"];

/// The nodes a, b and w; w is the witness.
pub struct Bed {
    program: PathBuf,
    dir: PathBuf,
    /// On tmpfs.
    runtime: PathBuf,
    /// Of the servers a and b.
    pub hosts: [Host; 2],
    supervisors: [Option<Child>; 3],
    net: Option<Net>,
}

/// Where clients reach a server.
#[derive(Clone)]
pub struct Host {
    /// 127.0.0.1, or the directory of its Unix socket.
    pub host: String,
    pub port: u16,
}

/// In namespaces the ports are always free.
const CLIENTS_PORT: u16 = 5433;
const NODES_PORT: u16 = 5443;
const CONTROL_PORT: u16 = 7433;

fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    // All are held until all are known, so that they differ.
    let held = (0..N).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>()?;
    let ports = held.iter().map(|port| Ok(port.local_addr()?.port())).collect::<anyhow::Result<Vec<_>>>()?;
    ports.try_into().map_err(|_| anyhow::anyhow!("no free ports"))
}

/// Where clients reach the servers, and the addresses of the control plane.
fn places(dir: &Path, in_namespaces: bool) -> anyhow::Result<([Host; 2], [String; 3])> {
    if in_namespaces {
        let host = |name| Host { host: dir.join(name).display().to_string(), port: CLIENTS_PORT };
        return Ok((["a", "b"].map(host), [0, 1, 2].map(|node| format!("{}:{CONTROL_PORT}", Net::address(node)))));
    }
    let [a, b, links @ ..] = free_ports::<5>()?;
    let host = |port| Host { host: "127.0.0.1".to_owned(), port };
    Ok(([host(a), host(b)], links.map(|port| format!("127.0.0.1:{port}"))))
}

/// A directory on tmpfs for pages and sockets.
fn runtime_base() -> anyhow::Result<PathBuf> {
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    for base in given.into_iter().chain([PathBuf::from("/dev/shm"), PathBuf::from("/run")]) {
        let dir = base.join(format!("holdfast-demo-{}", std::process::id()));
        if base.is_dir() && runtime_dir::file_system(&base)?.is_none() && std::fs::create_dir(&dir).is_ok() {
            return Ok(dir);
        }
    }
    bail!("no directory on tmpfs can be written: set XDG_RUNTIME_DIR to one")
}

impl Bed {
    /// Makes the server a, its standby b and cluster.toml; nothing runs then.
    pub fn make(dir: PathBuf, net: Option<Net>, lease_ms: u32) -> anyhow::Result<Bed> {
        let program = std::env::current_exe().context("the path of this program")?;
        let (hosts, links) = places(&dir, net.is_some())?;
        let runtime = runtime_base()?;
        let bed = Bed { program, dir, runtime, hosts, supervisors: [None, None, None], net };
        if bed.net.is_some() {
            bed.make_certificates()?;
        }
        std::fs::create_dir_all(bed.dir.join("a")).with_context(|| bed.dir.display().to_string())?;
        bed.configure(0)?;
        let mut server = bed.started(bed.command(0).args(["serve", "--data"]).arg(bed.dir.join("a")))?;
        let copied = bed.create_standby().stdout(Stdio::null()).stderr(bed.log("b")?).status();
        kill_process(Pid::from_child(&server), Signal::TERM)?;
        server.wait()?;
        if !copied?.success() {
            bail!("the standby could not be created: see {}", bed.dir.join("b.log").display());
        }
        bed.configure(1)?;
        let node = |(name, link): (&str, String)| {
            let witness = if name == "w" { "witness = true\n" } else { "" };
            let data = bed.dir.join(name);
            format!("[node.{name}]\nlinks = [\"{link}\"]\ndata = {:?}\n{witness}", data.display().to_string())
        };
        let nodes: String = NAMES.into_iter().zip(links).map(node).collect();
        let text = format!("name = \"demo\"\nlease_ms = {lease_ms}\n{nodes}[database]\nnodes = [\"a\", \"b\"]\n");
        std::fs::write(bed.config(), text).context("cluster.toml")?;
        Ok(bed)
    }

    fn config(&self) -> PathBuf {
        self.dir.join("cluster.toml")
    }

    /// Each node's certificate, for the links between the namespaces.
    fn make_certificates(&self) -> anyhow::Result<()> {
        let authority = self.dir.join("authority");
        self.runs(self.command(0).args(["cert", "authority", "--out"]).arg(&authority))?;
        for (node, name) in NAMES.into_iter().enumerate() {
            // `standby create` brings b's to its place.
            let out =
                if name == "b" { self.dir.join("b-certificates") } else { self.dir.join(name).join("certificates") };
            out.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            let mut command = self.command(node);
            command
                .args(["cert", "node", "--name", name, "--host", &Net::address(node), "--authority"])
                .arg(&authority);
            self.runs(command.arg("--out").arg(out))?;
        }
        Ok(())
    }

    fn create_standby(&self) -> Command {
        let from = match self.net {
            Some(_) => format!("{}:{NODES_PORT}", Net::address(0)),
            None => format!("127.0.0.1:{}", self.hosts[0].port),
        };
        let mut command = self.command(1);
        command.args(["standby", "create", "--name", "b", "--from", &from, "--data"]).arg(self.dir.join("b"));
        if self.net.is_some() {
            command.arg("--certificates").arg(self.dir.join("b-certificates"));
        }
        command
    }

    fn configure(&self, node: usize) -> anyhow::Result<()> {
        use std::io::Write;
        let path = self.dir.join(NAMES[node]).join("holdfast.toml");
        let mut file = File::options().create(true).append(true).open(&path)?;
        // What the copy of a standby has written of its name stays.
        let name = if node == 0 { "node_name = \"a\"\n" } else { "" };
        let links = match self.net {
            Some(_) => format!("node_listen = \"{}:{NODES_PORT}\"\n", Net::address(node)),
            None => String::new(),
        };
        let port = self.hosts[node].port;
        writeln!(file, "{name}{links}listen = \"127.0.0.1:{port}\"").with_context(|| path.display().to_string())
    }

    /// Runs a command that makes something.
    fn runs(&self, command: &mut Command) -> anyhow::Result<()> {
        let status = command.stdout(Stdio::null()).stderr(self.log("nodes")?).status()?;
        if !status.success() {
            bail!("{command:?} ended with {status}: see {}", self.dir.join("nodes.log").display());
        }
        Ok(())
    }

    /// Disconnects the node from the others, or connects it again; only with namespaces.
    pub fn cut(&self, node: usize, is_cut: bool) -> anyhow::Result<()> {
        self.net.as_ref().context("only nodes in namespaces are cut off")?.cut(node, is_cut)
    }

    fn log(&self, name: &str) -> anyhow::Result<File> {
        Ok(File::options().create(true).append(true).open(self.dir.join(format!("{name}.log")))?)
    }

    fn command(&self, node: usize) -> Command {
        let mut command = match &self.net {
            Some(net) => net.command(node, &self.program),
            None => Command::new(&self.program),
        };
        command.env("XDG_RUNTIME_DIR", &self.runtime).env_remove("RUNTIME_DIRECTORY").stdin(Stdio::null());
        command
    }

    /// Starts a process and waits for its first line: it is ready then.
    fn started(&self, command: &mut Command) -> anyhow::Result<Child> {
        let mut child = command.stdout(Stdio::piped()).stderr(self.log("nodes")?).spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        if line.is_empty() {
            let status = child.wait()?;
            bail!("a node does not start: {status}; see {}", self.dir.join("nodes.log").display());
        }
        Ok(child)
    }

    /// Starts the supervisor of a node, which starts its server.
    pub fn start(&mut self, node: usize) -> anyhow::Result<()> {
        let mut command = self.command(node);
        command.args(["cluster", "run", "--node", NAMES[node], "--config"]).arg(self.config());
        self.supervisors[node] = Some(self.started(&mut command)?);
        Ok(())
    }

    fn runtime_of(&self, node: usize) -> PathBuf {
        self.runtime.join("holdfast/demo").join(NAMES[node])
    }

    /// What a node's supervisor answers.
    pub fn ask(&self, node: usize, asked: Asked) -> anyhow::Result<Value> {
        let dir = RuntimeDir::at(self.runtime_of(node));
        // It has a runtime of its own, which cannot run inside the demo's.
        let answer = std::thread::spawn(move || ask(&dir, asked)).join();
        Ok(answer.map_err(|_| anyhow::anyhow!("the thread that asks the supervisor has ended"))??)
    }

    /// Signals a node's server.
    pub fn signal_server(&self, node: usize, signal: Signal) -> anyhow::Result<()> {
        let server = server(&self.runtime_of(node)).context("its server does not run")?;
        Ok(server.signal(signal)?)
    }

    /// Signals a node's supervisor.
    pub fn signal_supervisor(&self, node: usize, signal: Signal) -> anyhow::Result<()> {
        let child = self.supervisors[node].as_ref().context("its supervisor does not run")?;
        Ok(kill_process(Pid::from_child(child), signal)?)
    }

    /// kill -9 of a node's supervisor.
    pub fn kill_supervisor(&mut self, node: usize) -> anyhow::Result<()> {
        if let Some(mut child) = self.supervisors[node].take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Stops a node's supervisor and server in order.
    pub fn stop(&mut self, node: usize) -> anyhow::Result<()> {
        let Some(mut child) = self.supervisors[node].take() else { return Ok(()) };
        kill_process(Pid::from_child(&child), Signal::TERM)?;
        let status = child.wait()?;
        if !status.success() {
            bail!("the supervisor of {} ended with {status}", NAMES[node]);
        }
        Ok(())
    }
}

fn server(runtime: &Path) -> Option<Process> {
    Process::open(Progress::open(runtime).ok()?.server()).ok()?
}

impl Drop for Bed {
    fn drop(&mut self) {
        for (node, supervisor) in self.supervisors.iter_mut().enumerate() {
            if let Some(mut child) = supervisor.take() {
                // Errors here and below: it has ended already.
                let _ = child.kill();
                let _ = child.wait();
            }
            if let Some(server) = server(&self.runtime.join("holdfast/demo").join(NAMES[node])) {
                let _ = server.signal(Signal::KILL);
            }
        }
        let _ = std::fs::remove_dir_all(&self.runtime);
    }
}
