//! The `holdfast` command. One file per subcommand; each has its arguments and a `run`.

mod lab;
mod logs;
mod serve;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A highly available SQL server over SQLite that never loses an acknowledged commit.
#[derive(Parser)]
#[command(name = "holdfast", version, after_help = "Exit codes: 0 done, 1 an error (on stderr), 2 wrong usage.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::Arguments),
    Lab(lab::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(arguments),
        Command::Lab(arguments) => lab::run(arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("holdfast: {error:#}");
            ExitCode::FAILURE
        }
    }
}
