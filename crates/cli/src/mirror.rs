//! `holdfast mirror`: what is done with a mirror when the main disk is lost.

use clap::Subcommand;
use holdfast_node::mirror::promote;
use std::path::PathBuf;
use std::process::ExitCode;

/// Turn the mirror of a lost data directory into one that can be served
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast serve --data /first/disk/holdfast --mirror /second/disk/holdfast
  (the first disk dies)
  holdfast mirror promote --data /second/disk/holdfast
  holdfast serve --data /second/disk/holdfast --mirror /third/disk/holdfast

How the mirror of a running server is doing: holdfast standby status")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a mirror the data directory of a master
    Promote(Promote),
}

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast mirror promote --data /second/disk/holdfast

No server may run on the main directory. Where it can still be read it is asked whether the mirror has everything. A mirror
that may lack something that was acknowledged is not promoted unless you say so.")]
struct Promote {
    /// The mirror's directory
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// I accept that the mirror may lack what the server acknowledged without it
    #[arg(long)]
    accept_divergence: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Command::Promote(Promote { data, accept_divergence }) = &arguments.command;
    let promoted = promote(data, *accept_divergence)?;
    println!("holdfast: {}", promoted.has);
    println!("holdfast: {}", promoted.lacks);
    println!("holdfast: promoted: epoch {} from LSN {}", promoted.epoch, promoted.from);
    println!("holdfast: start it with: holdfast serve --data {}", data.display());
    Ok(ExitCode::SUCCESS)
}
