//! The `holdfast` command. One file per subcommand; each has its arguments and a `run`.

mod archive;
mod cert;
mod check;
mod doctor;
mod import;
mod lab;
mod logs;
mod mirror;
mod promote;
mod rejoin;
mod serve;
mod standby;
mod trail_dump;
mod unsafe_disk;
mod witness;

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
    Standby(standby::Arguments),
    Promote(promote::Arguments),
    Mirror(mirror::Arguments),
    Rejoin(rejoin::Arguments),
    Cert(cert::Arguments),
    Archive(archive::Arguments),
    Import(import::Args),
    Check(check::Args),
    Trail(trail_dump::Args),
    Lab(lab::Arguments),
    Doctor(doctor::Arguments),
    UnsafeDisk(unsafe_disk::Arguments),
    Witness(witness::Arguments),
}

/// What a shell reports of a program that wrote into a closed pipe: 128 and SIGPIPE.
const CLOSED_PIPE_EXIT: i32 = 141;

/// A reader that has seen enough (`holdfast doctor --json | head`) ends the command without a word.
fn end_quietly_on_a_closed_pipe() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // The standard library's words: println! has no other way to say it.
        let text = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        if text.starts_with("failed printing to stdout: Broken pipe") {
            std::process::exit(CLOSED_PIPE_EXIT);
        }
        others(panic);
    }));
}

fn main() -> ExitCode {
    end_quietly_on_a_closed_pipe();
    let outcome = match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(arguments).map(|()| ExitCode::SUCCESS),
        Command::Standby(arguments) => standby::run(arguments),
        Command::Promote(arguments) => promote::run(&arguments),
        Command::Mirror(arguments) => mirror::run(&arguments),
        Command::Rejoin(arguments) => rejoin::run(arguments),
        Command::Cert(arguments) => cert::run(arguments),
        Command::Archive(arguments) => archive::run(arguments),
        Command::Import(arguments) => import::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Trail(arguments) => trail_dump::run(arguments),
        Command::Doctor(arguments) => Ok(doctor::run(arguments)),
        Command::Lab(arguments) => lab::run(arguments),
        Command::UnsafeDisk(arguments) => unsafe_disk::run(arguments),
        Command::Witness(arguments) => witness::run(arguments).map(|()| ExitCode::SUCCESS),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("holdfast: {}", told(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error and what caused it, on one line. Many errors name their cause themselves, in the middle of a sentence; what has
/// been said is not said again.
pub(crate) fn told(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| match cause.to_string() {
        cause if text.is_empty() => cause,
        cause if text.contains(&cause) => text,
        cause => format!("{text}: {cause}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_cause_is_told_once() {
        // Nothing can be below what is no directory.
        let unread = holdfast_node::Config::load("/dev/null/data".as_ref()).context("cannot serve it").unwrap_err();
        let why = "cannot serve it: cannot read /dev/null/data/holdfast.toml: Not a directory (os error 20)";
        assert_eq!(told(&unread), why);
        let nested = anyhow::anyhow!("the last").context("the one before").context("the first");
        assert_eq!(told(&nested), "the first: the one before: the last");
    }
}
