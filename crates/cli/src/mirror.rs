//! `holdfast mirror`: makes a mirror from a dump, and turns a mirror into a data directory when the main disk is lost.

use crate::dump::Identities;
use crate::standby::from_dump::{make_follower, report};
use clap::Subcommand;
use holdfast_dump::restore::NewFollower;
use holdfast_mirror::promote;
use holdfast_node::HoldfastToml;
use holdfast_node::data_dir::private_umask;
use std::path::PathBuf;
use std::process::ExitCode;

/// Make a mirror from a dump, and turn the mirror of a lost data directory into one that can be served
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
    /// Make a server's mirror from a dump and the archive, so that the server's disk is not read for a copy
    Create(Create),
    /// Make a mirror the data directory of a master
    Promote(Promote),
}

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast mirror create --of /first/disk/holdfast --data /second/disk/holdfast --from-dump /mnt/dumps
  holdfast serve --data /first/disk/holdfast --mirror /second/disk/holdfast

The server may run meanwhile. It sends the mirror only what the archive does not have, when it is started with --mirror. Run
the command again after an interruption: pages that are there are not fetched again.")]
struct Create {
    /// The data directory that is to be mirrored
    #[arg(long, value_name = "DIR")]
    of: PathBuf,
    /// The mirror's directory to make, on another disk
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Take the databases from the newest dump in this directory or object store
    #[arg(long, value_name = "URL")]
    from_dump: String,
    /// The archive [default: the one in the dump's settings]
    #[arg(long, value_name = "URL")]
    archive: Option<String>,
    #[command(flatten)]
    identity: Identities,
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
    match &arguments.command {
        Command::Create(create) => make(create),
        Command::Promote(promote) => make_master(promote),
    }
}

fn make(Create { of, data, from_dump, archive, identity }: &Create) -> anyhow::Result<ExitCode> {
    let repository = identity.open(from_dump)?;
    let made = make_follower(&repository, data, archive.as_deref(), None, &NewFollower::Mirror { main: of })?;
    report(&made, "a mirror's", &of.display().to_string());
    println!(
        "holdfast: restart the server with it: holdfast serve --data {} --mirror {}",
        of.display(),
        data.display()
    );
    Ok(ExitCode::SUCCESS)
}

fn make_master(Promote { data, accept_divergence }: &Promote) -> anyhow::Result<ExitCode> {
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
