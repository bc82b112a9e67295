//! `holdfast promote`: a standby becomes the master.

use crate::standby::At;
use std::process::ExitCode;

/// Make a standby the master
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast promote --at 127.0.0.1:5434

Everything the standby has received is applied first; it then begins a new epoch, which standbys of the old master take and
which the old master's own boxcars cannot. Without a control plane only you can know that the old master is stopped: the
promotion is refused while its address takes connections, or says nothing at all. With --accept-divergence it is not, and the
answer says from where on the old master's trail is given up; holdfast rejoin writes that to a file when it comes back.")]
pub struct Arguments {
    #[command(flatten)]
    at: At,
    /// The old master cannot be shown to be stopped; I accept that it may have acknowledged what the standby does not have
    #[arg(long)]
    accept_divergence: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let done = arguments.at.asking()?.promote(arguments.accept_divergence)?;
    println!("holdfast: {}: {done}", arguments.at.at);
    Ok(ExitCode::SUCCESS)
}
