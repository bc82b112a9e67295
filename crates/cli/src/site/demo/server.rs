//! The servers of the demonstration as child processes; dropping one kills it.

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tokio_postgres::{Client, NoTls};

/// A Holdfast.
pub struct Server {
    dir: PathBuf,
    pub port: u16,
    child: Option<Child>,
}

pub fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Server {
    /// Starts one in a new directory.
    pub fn start(dir: PathBuf) -> anyhow::Result<Server> {
        let mut server = Server { dir, port: free_port()?, child: None };
        server.start_again()?;
        Ok(server)
    }

    pub fn start_again(&mut self) -> anyhow::Result<()> {
        let log_path = self.dir.with_extension("log");
        let log = File::options().create(true).append(true).open(&log_path)?;
        let program = std::env::current_exe().context("the path of this program")?;
        let mut command = Command::new(program);
        command.args(["serve", "--listen", &format!("127.0.0.1:{}", self.port), "--data"]).arg(&self.dir);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        self.child = Some(child);
        match line.is_empty() {
            true => bail!("a server does not start: see {}", log_path.display()),
            false => Ok(()),
        }
    }

    /// kill -9.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Stops it in order.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        kill_process(Pid::from_child(&child), Signal::TERM)?;
        let status = child.wait()?;
        match status.success() {
            true => Ok(()),
            false => bail!("{} ended with {status}", self.dir.display()),
        }
    }

    pub async fn connect(&self) -> anyhow::Result<Client> {
        connect(self.port, "holdfast").await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already where this fails.
        let _ = self.kill();
    }
}

/// Connects to a server on this machine.
pub async fn connect(port: u16, database: &str) -> anyhow::Result<Client> {
    let how = format!("host=127.0.0.1 port={port} user=holdfast dbname={database} application_name=demo");
    let (client, connection) = tokio_postgres::connect(&how, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// A PostgreSQL of its own.
pub struct Warehouse {
    bin: PathBuf,
    dir: PathBuf,
    as_postgres: bool,
    pub port: u16,
    pub version: String,
}

/// Where packages put PostgreSQL; publications with columns and conditions need 15.
fn installed() -> Option<PathBuf> {
    let versions = (15..=25).rev().map(|version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin")));
    let places = versions.chain(["/usr/bin", "/usr/local/bin", "/usr/pgsql-15/bin"].map(PathBuf::from));
    places.into_iter().find(|bin| bin.join("initdb").exists() && bin.join("pg_ctl").exists())
}

impl Warehouse {
    /// `None`: no PostgreSQL is installed.
    pub fn start(dir: PathBuf) -> anyhow::Result<Option<Warehouse>> {
        let Some(bin) = installed() else { return Ok(None) };
        std::fs::create_dir_all(&dir)?;
        let as_postgres = rustix::process::geteuid().is_root();
        let said = Command::new(bin.join("pg_ctl")).arg("--version").output()?;
        let version = String::from_utf8_lossy(&said.stdout).split_whitespace().nth(2).unwrap_or_default().to_owned();
        let warehouse = Warehouse { bin, dir, as_postgres, port: free_port()?, version };
        if as_postgres {
            let user = Command::new("chown").arg("postgres").arg(&warehouse.dir).status()?;
            if !user.success() {
                return Ok(None);
            }
        }
        let data = warehouse.data();
        warehouse.run("initdb", &["-D", text(&data), "-U", "holdfast", "-A", "trust", "--no-sync"])?;
        let options = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c wal_retrieve_retry_interval=200ms",
            warehouse.port
        );
        let log = warehouse.dir.join("log");
        warehouse.run("pg_ctl", &["-D", text(&data), "-o", &options, "-l", text(&log), "-w", "start"])?;
        Ok(Some(warehouse))
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn run(&self, program: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let program = self.bin.join(program);
        let mut command = match self.as_postgres {
            true => {
                let mut command = Command::new("runuser");
                command.args(["-u", "postgres", "--"]).arg(&program);
                command
            }
            false => Command::new(&program),
        };
        let log = File::options().create(true).append(true).open(self.dir.with_extension("log"))?;
        let status = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).status()?;
        match status.success() {
            true => Ok(()),
            false => {
                bail!("{} ended with {status}: see {}", program.display(), self.dir.with_extension("log").display())
            }
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

impl Drop for Warehouse {
    fn drop(&mut self) {
        // It has ended already where this fails.
        let _ = self.run("pg_ctl", &["-D", text(&self.data()), "-m", "immediate", "-w", "stop"]);
    }
}
