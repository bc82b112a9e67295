//! The `holdfast-lab` command, which `holdfast lab` and `holdfast doctor --workload` start.
//!
//! It is a program of its own so that the server carries no load generator, no charts and no VFS that slows SQLite down.
//! It starts the server that it measures from its own directory.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod arguments;
mod own;

use arguments::{Arguments, Subcommand};
use clap::Parser;
use std::process::ExitCode;

// As in the server: the studies that run in this process measure the library with the server's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if let Some(Subcommand::Workload(workload)) = arguments.command.take() {
        // The exit code of `holdfast doctor` when it cannot look.
        return workload.run().map_or_else(|error| failed(&error, WRONG_USAGE), |()| ExitCode::SUCCESS);
    }
    match arguments::study(arguments).and_then(|study| study.check().map(|()| study)) {
        Ok(study) => holdfast_lab::run(&study).map_or_else(|error| failed(&error, 1), |()| ExitCode::SUCCESS),
        Err(wrong) => failed(&wrong, WRONG_USAGE),
    }
}

fn failed(error: &anyhow::Error, code: u8) -> ExitCode {
    eprintln!("holdfast: {}", in_one_line(error));
    ExitCode::from(code)
}

/// An error and its causes on one line, each cause once: many errors name their cause in their own text.
fn in_one_line(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| match cause.to_string() {
        cause if text.is_empty() => cause,
        cause if text.contains(&cause) => text,
        cause => format!("{text}: {cause}"),
    })
}
