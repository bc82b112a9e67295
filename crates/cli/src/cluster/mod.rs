//! `holdfast cluster`: the supervisor of a node, and what it knows.

mod check;
mod demo;
mod dsn;
mod run;
mod shown;
mod switch;
mod unit;

use anyhow::Context;
use clap::Subcommand;
use holdfast_cluster::file::Cluster;
use holdfast_cluster::{Asked, RuntimeDir, ask};
use holdfast_control::NodeId;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run a node of a cluster under a supervisor, and look at it
#[derive(clap::Args)]
#[command(after_help = "\
Example, on each of three machines, as node a, b or w:
  holdfast cluster check /etc/holdfast/cluster.toml --node a
  holdfast cluster unit --config /etc/holdfast/cluster.toml --node a > /etc/systemd/system/holdfast-shop.service
  systemctl enable --now holdfast-shop
  holdfast cluster status --config /etc/holdfast/cluster.toml --node a

docs/cluster.md describes cluster.toml.")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Arguments),
    Check(check::Arguments),
    Unit(unit::Arguments),
    Demo(demo::Arguments),
    Dsn(dsn::Arguments),
    /// Show what this node's supervisor knows: its server, the group, the lease
    Status(shown::Arguments),
    /// Show what has happened since this node's supervisor started
    Events(shown::Arguments),
    /// Say why the master is the master, and why no other node is
    Explain(shown::Arguments),
    Switchover(switch::Switchover),
    Freeze(switch::Freeze),
    Thaw(switch::Thaw),
}

/// The options of commands that need one node of a file.
#[derive(clap::Args)]
pub struct OfNode {
    /// The cluster's file
    #[arg(long, value_name = "FILE", default_value = "/etc/holdfast/cluster.toml")]
    config: PathBuf,
    /// Which of its nodes this is
    #[arg(long, value_name = "NAME")]
    node: String,
}

impl OfNode {
    /// Asks the running supervisor of this node.
    fn ask(&self, asked: Asked) -> anyhow::Result<serde_json::Value> {
        let (cluster, node) = self.load()?;
        Ok(ask(&RuntimeDir::running(&cluster.name, node.as_str()), asked)?)
    }

    /// The checked file, and the node.
    fn load(&self) -> anyhow::Result<(Cluster, NodeId)> {
        let cluster = Cluster::load(&self.config)?;
        let (node, _) = cluster.node(&self.config, &self.node)?;
        Ok((cluster, node))
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.command {
        Command::Run(arguments) => run::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Check(arguments) => check::run(&arguments),
        Command::Dsn(arguments) => dsn::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Demo(arguments) => demo::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Unit(arguments) => unit::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Status(arguments) => shown::status(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Events(arguments) => shown::events(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Switchover(arguments) => arguments.run().map(|()| ExitCode::SUCCESS),
        Command::Freeze(arguments) => arguments.run().map(|()| ExitCode::SUCCESS),
        Command::Thaw(arguments) => arguments.run().map(|()| ExitCode::SUCCESS),
        Command::Explain(arguments) => shown::explain(&arguments).map(|()| ExitCode::SUCCESS),
    }
}

/// A path that is the same in another working directory.
fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| path.display().to_string())
}
