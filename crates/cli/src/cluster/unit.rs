//! `holdfast cluster unit`: the systemd unit of a node.

use super::{OfNode, absolute};
use anyhow::Context;

/// Print the systemd unit that runs this node's supervisor
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast cluster unit --config /etc/holdfast/cluster.toml --node a > /etc/systemd/system/holdfast-shop.service

The server outlives a supervisor that is killed (KillMode=process); systemctl stop stops both in order.")]
pub struct Arguments {
    #[command(flatten)]
    of: OfNode,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (cluster, node) = arguments.of.load()?;
    let (_, own) = cluster.node(&arguments.of.config, node.as_str())?;
    let program = std::env::current_exe().context("the path of this program")?;
    print!("{}", holdfast_cluster::unit(&cluster, &absolute(&arguments.of.config)?, node, own, &program));
    Ok(())
}
