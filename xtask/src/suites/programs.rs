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
    let python = match tools::python_with_psycopg() {
        Ok(python) => python,
        Err(error) => return Ok(bench.tally.unavailable("psycopg", "all", &format!("{error:#}"))),
    };
    let script = paths::client("psycopg").join("main.py");
    bench.compare("psycopg", |address, database| run(Command::new(&python).arg(&script), address, database))
}

pub fn jdbc(bench: &mut Bench) -> anyhow::Result<()> {
    let class_path = match tools::jdbc_class_path() {
        Ok(class_path) => class_path,
        Err(error) => return Ok(bench.tally.unavailable("jdbc", "all", &format!("{error:#}"))),
    };
    bench.compare("jdbc", |address, database| {
        let mut java = Command::new("java");
        run(java.args(["-Dstdout.encoding=UTF-8", "-cp", &class_path, "holdfast.Client"]), address, database)
    })
}

pub fn pgx(bench: &mut Bench) -> anyhow::Result<()> {
    let program = match tools::pgx_client() {
        Ok(program) => program,
        Err(error) => return Ok(bench.tally.unavailable("pgx", "all", &format!("{error:#}"))),
    };
    bench.compare("pgx", |address, database| run(&mut Command::new(&program), address, database))
}

pub fn protocol(bench: &mut Bench) -> anyhow::Result<()> {
    let script = paths::root().join("tests/badinput/protocol.py");
    bench.compare("protocol", |address, database| run(Command::new("python3").arg(&script), address, database))
}

/// Runs a program under a time limit and reads its findings; what it says on stderr goes to the terminal.
fn run(program: &mut Command, address: Address, database: &str) -> anyhow::Result<Findings> {
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
