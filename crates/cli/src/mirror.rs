//! `holdfast mirror`: turns a mirror into a data directory when the main disk is lost.

use clap::Subcommand;
use holdfast_node::HoldfastToml;
use holdfast_node::data_dir::private_umask;
use holdfast_replication::mirror::promote;
use std::path::PathBuf;
use std::process::ExitCode;

/// Turn the mirror of a lost data directory into one that can be served
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast serve --data /first/disk/holdfast --mirror /second/disk/holdfast
  (the first disk fails)
  holdfast mirror promote --data /second/disk/holdfast
  holdfast serve --data /second/disk/holdfast --mirror /third/disk/holdfast

The state of a running server's mirror: holdfast standby status")]
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

The server of the main directory must be stopped. Where that directory can still be read, it tells whether the mirror has
everything. A mirror that may lack acknowledged commits is promoted only with --accept-divergence.")]
struct Promote {
    /// The mirror's directory
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Promote although the mirror may lack commits that the server acknowledged without it
    #[arg(long)]
    accept_divergence: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    private_umask();
    let Command::Promote(Promote { data, accept_divergence }) = &arguments.command;
    let promoted = promote(data, *accept_divergence, &HoldfastToml)?;
    println!("holdfast: {}", promoted.has);
    println!("holdfast: {}", promoted.lacks);
    println!("holdfast: promoted: epoch {} from LSN {}", promoted.epoch, promoted.from);
    if let Some(why) = promoted.not_closed {
        println!("holdfast: the directory was not closed cleanly ({why}); nothing is lost, the next start recovers it");
    }
    println!("holdfast: start it with: holdfast serve --data {}", data.display());
    Ok(ExitCode::SUCCESS)
}
