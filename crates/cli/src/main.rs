//! The `holdfast` command. One file per subcommand; each has its arguments and a `run`.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod archive;
mod cert;
mod check;
mod cluster;
mod console;
mod doctor;
mod dump;
mod exit;
mod import;
mod lab;
mod log_events;
mod logs;
mod mirror;
mod promote;
mod rejoin;
mod restore;
mod serve;
mod site;
mod standby;
mod time_left;
mod trail_dump;
mod trail_find;
mod trail_place;
mod trail_undo;
mod unsafe_disk;
mod witness;

use clap::{Parser, Subcommand};
use exit::Exit;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A highly available SQL server over SQLite that never loses an acknowledged commit.
#[derive(Parser)]
#[command(name = "holdfast", version, after_help = exit::HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::Arguments),
    Cluster(cluster::Arguments),
    Standby(standby::Arguments),
    Site(site::Arguments),
    Promote(promote::Arguments),
    Mirror(mirror::Arguments),
    Rejoin(rejoin::Arguments),
    Cert(cert::Arguments),
    Console(console::Arguments),
    Archive(archive::Arguments),
    Dump(dump::Arguments),
    Restore(restore::Arguments),
    Import(import::Args),
    Check(check::Args),
    Trail(trail_dump::Args),
    Lab(lab::Arguments),
    Doctor(doctor::Arguments),
    UnsafeDisk(unsafe_disk::Arguments),
    Witness(witness::Arguments),
}

/// A reader that closes the pipe early (`holdfast doctor --json | head`) ends the command without a message.
fn end_quietly_on_a_closed_pipe() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // The text of the standard library's panic: println! reports it in no other way.
        let text = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        if text.starts_with("failed printing to stdout: Broken pipe") {
            std::process::exit(Exit::ClosedPipe.code().into());
        }
        others(panic);
    }));
}

fn main() -> ExitCode {
    end_quietly_on_a_closed_pipe();
    let outcome = match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(arguments).map(|()| ExitCode::SUCCESS),
        Command::Cluster(arguments) => cluster::run(arguments),
        Command::Standby(arguments) => standby::run(arguments),
        Command::Site(arguments) => site::run(arguments),
        Command::Promote(arguments) => promote::run(&arguments),
        Command::Mirror(arguments) => mirror::run(&arguments),
        Command::Rejoin(arguments) => rejoin::run(arguments),
        Command::Cert(arguments) => cert::run(arguments),
        Command::Console(arguments) => console::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Archive(arguments) => archive::run(arguments),
        Command::Dump(arguments) => dump::run(arguments),
        Command::Restore(arguments) => restore::run(&arguments),
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
            Exit::Failed.into()
        }
    }
}

/// An error and its causes, on one line. Many errors include the text of their cause; it is not repeated.
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
