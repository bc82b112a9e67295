//! Client programs in other languages, run on both servers and compared.

use std::process::Command;

use anyhow::Context as _;

use super::Bench;
use crate::findings::{self, Findings};
use crate::server::Address;
use crate::{paths, tools};

/// A program that hangs is ended after this; what it had found until then is compared all the same.
const PROGRAM_SECONDS_MAX: &str = "600";

pub fn psycopg(bench: &mut Bench) -> anyhow::Result<()> {
    let Some(python) = prepared(bench, "psycopg", tools::python_with_psycopg()) else { return Ok(()) };
    let script = paths::client("psycopg").join("main.py");
    bench.compare("psycopg", |address, database| run(Command::new(&python).arg(&script), address, database))
}

pub fn jdbc(bench: &mut Bench) -> anyhow::Result<()> {
    let Some(class_path) = prepared(bench, "jdbc", tools::jdbc_class_path()) else { return Ok(()) };
    bench.compare("jdbc", |address, database| {
        let mut java = Command::new("java");
        run(java.args(["-Dstdout.encoding=UTF-8", "-cp", &class_path, "holdfast.Client"]), address, database)
    })
}

pub fn pgx(bench: &mut Bench) -> anyhow::Result<()> {
    let Some(program) = prepared(bench, "pgx", tools::pgx_client()) else { return Ok(()) };
    bench.compare("pgx", |address, database| run(&mut Command::new(&program), address, database))
}

pub fn protocol(bench: &mut Bench) -> anyhow::Result<()> {
    let script = paths::root().join("tests/badinput/protocol.py");
    bench.compare("protocol", |address, database| run(Command::new("python3").arg(&script), address, database))
}

/// What a suite runs with, or none after saying that the suite is unavailable.
pub fn prepared<T>(bench: &mut Bench, suite: &str, tool: anyhow::Result<T>) -> Option<T> {
    tool.map_err(|error| bench.tally.unavailable(suite, "all", &format!("{error:#}"))).ok()
}

/// Runs a program under a time limit and reads its findings; what it says on stderr goes to the terminal.
pub fn run(program: &mut Command, address: Address, database: &str) -> anyhow::Result<Findings> {
    let output = Command::new("timeout")
        .arg(PROGRAM_SECONDS_MAX)
        .arg(program.get_program())
        .args(program.get_args())
        .envs(address.environment(database))
        .output()
        .with_context(|| format!("starting {:?}", program.get_program()))?;
    if !output.status.success() {
        println!("  {:?} ended with {}", program.get_program(), output.status);
        print!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(findings::parse(&String::from_utf8_lossy(&output.stdout)))
}
