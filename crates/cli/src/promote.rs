//! `holdfast promote`: a standby becomes the master.

use crate::standby::At;
use std::process::ExitCode;

/// Make a standby the master
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast promote --at 127.0.0.1:5434

Everything the standby has received is applied first. It then begins a new epoch: standbys of the old master follow it, and
boxcars of the old master are refused. Without a control plane only the operator can know that the old master is stopped:
the promotion is refused while the old master's address accepts connections, or does not answer at all. With
--accept-divergence it is done all the same, and the answer says from which LSN on the old master's trail is given up;
holdfast rejoin writes those transactions to a file when the old master comes back.")]
pub struct Arguments {
    #[command(flatten)]
    at: At,
    /// Promote although the old master is not shown to be stopped; it may have acknowledged commits that the standby lacks
    #[arg(long)]
    accept_divergence: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let done = arguments.at.client()?.promote(arguments.accept_divergence)?;
    println!("holdfast: {}: {done}", arguments.at.at);
    Ok(ExitCode::SUCCESS)
}
