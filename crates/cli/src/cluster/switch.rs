//! `holdfast cluster switchover`, `freeze` and `thaw`: what a person decides about the master.

use super::OfNode;
use holdfast_cluster::Asked;

/// Let a standby take over from the master, which serves and becomes a standby
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  holdfast cluster switchover --config /etc/holdfast/cluster.toml --node a
  holdfast cluster switchover --config /etc/holdfast/cluster.toml --node w --to b

Run it on any node. The standby must be in the sync set, and must have all but the last MiB of the master's trail. Sessions get the
answers to what they have begun, then they are closed (57P01); no commit is lost or in doubt. Prints the new master. Exit codes: 0
done, 1 refused or failed, with the reason.")]
pub struct Switchover {
    #[command(flatten)]
    of: OfNode,
    /// The node that is to be the master [default: the standby that has most, then the order of database.nodes]
    #[arg(long, value_name = "NODE")]
    to: Option<String>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

impl Switchover {
    pub fn run(self) -> anyhow::Result<()> {
        let done = self.of.ask(Asked::Switchover(self.to))?;
        match self.json {
            true => println!("{done}"),
            false => {
                let node = done["node"].as_str().unwrap_or_default();
                println!("{node} is the master of epoch {}, {} ms after the request", done["epoch"], done["ms"]);
            }
        }
        Ok(())
    }
}

/// Let no node take over by itself, for maintenance
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast cluster freeze --config /etc/holdfast/cluster.toml --node a

Holds for the whole cluster, across restarts, until `thaw`. A master that ends starts again in place; one that does not return leaves
the database without a master. `switchover` and `holdfast promote` still work.")]
pub struct Freeze {
    #[command(flatten)]
    of: OfNode,
}

impl Freeze {
    pub fn run(self) -> anyhow::Result<()> {
        self.of.ask(Asked::Freeze(true))?;
        println!("the cluster is frozen: no node takes over by itself until holdfast cluster thaw");
        Ok(())
    }
}

/// Let a standby take over by itself again, after a freeze
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast cluster thaw --config /etc/holdfast/cluster.toml --node a

A master that is away by now has the time of a lease to show itself; then a standby takes over.")]
pub struct Thaw {
    #[command(flatten)]
    of: OfNode,
}

impl Thaw {
    pub fn run(self) -> anyhow::Result<()> {
        self.of.ask(Asked::Freeze(false))?;
        println!("the cluster is thawed: a standby takes over by itself when the master is lost");
        Ok(())
    }
}
