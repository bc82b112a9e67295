//! `holdfast site`: the databases that exchange rows with this server, whether they are equal, and a demonstration.

mod compare;
mod demo;
mod list;

use holdfast_client::{Given, Server};
use std::path::PathBuf;
use std::process::ExitCode;

/// List the sites of a server, compare a subscriber with its publisher, or watch a demonstration
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  holdfast site demo
  holdfast site list --at 127.0.0.1:5434
  holdfast site compare --at 127.0.0.1:5434

docs/sites.md describes publications and subscriptions.")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Show what a server takes from other sites and sends to them
    List(list::Arguments),
    /// Compare what a subscriber has with what its publisher publishes
    Compare(compare::Arguments),
    /// Watch a head office, a region, a ship and a warehouse exchange rows on this machine
    Demo(demo::Arguments),
}

/// A running server.
#[derive(clap::Args)]
struct At {
    /// The server, also as postgresql://USER@HOST:PORT/?sslmode=verify-full&sslrootcert=FILE
    #[arg(long, value_name = "HOST:PORT|URL", default_value = "127.0.0.1:5433")]
    at: String,
    /// The role to connect as [default: that of the URL, PGUSER, else holdfast]; its password is taken from the URL or PGPASSWORD
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The authority of the server's certificate, where the server is on another machine [default: PGSSLROOTCERT]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl At {
    fn server(&self) -> anyhow::Result<Server> {
        let given = Given { user: self.user.clone(), ca: self.ca.clone() };
        Ok(Server::parse(&self.at, &given, &|name| std::env::var(name).ok())?)
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.command {
        Command::List(arguments) => list::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments).map(|()| ExitCode::SUCCESS),
    }
}
