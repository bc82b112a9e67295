//! `holdfast lab`: starts `holdfast-lab`, the program that measures, from the directory of this program.
//!
//! It is a program of its own so that the server does not carry the load generator and the reports. The process is
//! replaced, so signals, output and the exit code are those of `holdfast-lab`.

use anyhow::{Context, bail};
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

const PROGRAM: &str = "holdfast-lab";

/// Measure this machine: run one of the studies and write a report
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// The study and its options; `holdfast lab --help` describes them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "STUDY")]
    arguments: Vec<OsString>,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match replace_process(&arguments.arguments)? {}
}

/// Becomes `holdfast-lab` with these arguments; returns only when it cannot be started.
pub fn replace_process(arguments: &[OsString]) -> anyhow::Result<Infallible> {
    let program = std::env::current_exe().context("looking for the directory of this program")?.with_file_name(PROGRAM);
    let error = Command::new(&program).args(arguments).exec();
    if error.kind() == ErrorKind::NotFound {
        bail!(
            "{} does not exist: the lab is a program of its own; build it with `cargo build --release -p {PROGRAM}`, or \
             in a source checkout run `cargo run --release -p {PROGRAM} -- STUDY`",
            program.display()
        );
    }
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}
