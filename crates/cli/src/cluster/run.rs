//! `holdfast cluster run`: the supervisor.

use super::OfNode;
use crate::logs;
use anyhow::Context;
use holdfast_cluster::{RuntimeDir, Setup, Supervisor};
use holdfast_node::data_dir::private_umask;
use holdfast_replication::{Certificates, secure_members};

/// Run this node's supervisor: its part in the control plane, and its server
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast cluster run --config /etc/holdfast/cluster.toml --node a

The supervisor starts the server (`holdfast serve`) of a node with data, restarts it when it ends, and outlives it. When the
supervisor itself ends without SIGTERM, the server continues, and the next supervisor adopts it. SIGTERM stops both in order.
When its socket answers, `holdfast: supervisor of NODE in cluster NAME` is printed; logs of both go to stderr. Nodes on several
machines need certificates (see `holdfast cert --help`) in the node's data directory.")]
pub struct Arguments {
    #[command(flatten)]
    of: OfNode,
    /// Write logs as JSON, one object per line
    #[arg(long)]
    log_json: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    private_umask();
    logs::start(arguments.log_json, None)?;
    let (cluster, node) = arguments.of.load()?;
    let (_, own) = cluster.node(&arguments.of.config, node.as_str())?;
    let certificates = Certificates::of(&own.data)?;
    let secure = secure_members(certificates.as_ref(), &cluster.addresses());
    let dir = RuntimeDir::of(&cluster.name, node.as_str());
    let program = std::env::current_exe().context("the path of this program")?;
    let server_arguments = if arguments.log_json { vec!["--log-json".to_owned()] } else { Vec::new() };
    let ready = format!("holdfast: supervisor of {node} in cluster {}", cluster.name);
    let setup = Setup { cluster, node, dir, program, arguments: server_arguments, secure };
    Supervisor::run(setup, || println!("{ready}")).with_context(|| format!("cannot run node {node}"))
}
