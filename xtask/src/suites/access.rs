//! TLS, passwords and privileges as drivers meet them: libpq (psql and psycopg), pgjdbc, pgx, node-postgres, postgres.js and
//! tokio-postgres, each against PostgreSQL and Holdfast with the same certificates, the same `pg_hba.conf`, the same roles.
//!
//! A driver without its tools is counted as unavailable. A finding that begins with `error: ` is one that both servers give.

use std::process::Command;

use anyhow::{Context as _, bail};

use super::{Bench, access_tokio, programs};
use crate::findings::{self, Findings};
use crate::server::Address;
use crate::server::with_tls::{Certificates, holdfast_with_tls, postgres_with_tls};
use crate::{paths, tools};

/// Role, password and privileges that the clients expect.
const SET_UP: &str = "
    CREATE ROLE app LOGIN PASSWORD 'open sesame';
    CREATE TABLE notes (id int PRIMARY KEY, text text);
    CREATE TABLE secrets (id int PRIMARY KEY, text text);
    CREATE TABLE mixed (id int PRIMARY KEY, hidden text);
    GRANT SELECT, INSERT, DELETE ON notes TO app;
    GRANT SELECT (id) ON mixed TO app";

pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let certificates = Certificates::make()?;
    let postgres = postgres_with_tls(&certificates, &[], SET_UP)?;
    let scratch = paths::scratch("access")?;
    let data = scratch.path().join("data");
    let holdfast = holdfast_with_tls(&bench.binary()?, &data, &certificates, "", SET_UP)?;
    for (driver, run) in drivers(bench) {
        let (wanted, found) = (run(postgres.address, &certificates)?, run(holdfast.address, &certificates)?);
        let name = |findings: Findings| -> Findings {
            findings.into_iter().map(|(case, finding)| (format!("{driver}_{case}"), finding)).collect()
        };
        bench.judge("access", &name(wanted), &name(found));
    }
    if !holdfast.panics().is_empty() {
        bail!("{}", holdfast.panics().join("\n"));
    }
    Ok(())
}

type Run = Box<dyn Fn(Address, &Certificates) -> anyhow::Result<Findings>>;

/// Those whose tools are installed.
fn drivers(bench: &mut Bench) -> Vec<(&'static str, Run)> {
    let mut drivers: Vec<(&'static str, Run)> = vec![
        ("psql", Box::new(psql)),
        (
            "tokio",
            Box::new(|address, files| {
                access_tokio::run(address.port, &files.file("ca.crt"), &files.file("foreign.crt"))
            }),
        ),
    ];
    if let Some(python) = programs::prepared(bench, "access", tools::python_with_psycopg()) {
        let script = paths::client("psycopg").join("access.py");
        drivers.push(("psycopg", Box::new(move |a, files| program(Command::new(&python).arg(&script), a, files))));
    }
    if let Some(class_path) = programs::prepared(bench, "access", tools::jdbc_class_path()) {
        let run = move |a: Address, files: &Certificates| {
            program(Command::new("java").args(["-cp", &class_path, "holdfast.Access"]), a, files)
        };
        drivers.push(("jdbc", Box::new(run)));
    }
    if let Some(path) = programs::prepared(bench, "access", tools::pgx_client()) {
        drivers.push(("pgx", Box::new(move |a, files| program(Command::new(&path).arg("access"), a, files))));
    }
    if let Some(directory) = programs::prepared(bench, "access", tools::node_client()) {
        let run = move |a: Address, files: &Certificates| {
            program(Command::new("node").arg(directory.join("access.js")), a, files)
        };
        drivers.push(("node", Box::new(run)));
    }
    drivers
}

fn program(command: &mut Command, address: Address, files: &Certificates) -> anyhow::Result<Findings> {
    command.arg(address.port.to_string()).args([files.file("ca.crt"), files.file("foreign.crt")]);
    let output = command.output().with_context(|| format!("starting {:?}", command.get_program()))?;
    if !output.stderr.is_empty() {
        print!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(findings::parse(&String::from_utf8_lossy(&output.stdout)))
}

/// psql with connection strings, as a person types them.
fn psql(address: Address, files: &Certificates) -> anyhow::Result<Findings> {
    let verified = format!("sslmode=verify-full sslrootcert={}", files.file("ca.crt").display());
    let cases = [
        ("verify_full", format!("{verified} channel_binding=require"), "open sesame", r"\conninfo"),
        ("denied", verified.clone(), "open sesame", "TABLE secrets"),
        ("wrong_password", verified, "open barley", "SELECT 1"),
        ("no_tls", "sslmode=disable".to_owned(), "open sesame", "SELECT 1"),
    ];
    let mut findings = Findings::new();
    for (case, options, password, command) in cases {
        let string = format!("host=localhost port={} user=app dbname=holdfast {options}", address.port);
        let output = Command::new("psql")
            .args(["-X", "-w", "-A", "-t", "-c", command, &string])
            .env("PGPASSWORD", password)
            .env("LC_ALL", "C.UTF-8")
            .output()
            .context("starting psql")?;
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        findings.push((case.to_owned(), text.trim().replace(&address.port.to_string(), "PORT").replace('\n', "\\n")));
    }
    Ok(findings)
}
