//! Every statement of a script through psql, against a private PostgreSQL and against Holdfast: rows, notices and errors
//! with SQLSTATE, DETAIL and HINT must be equal. Positions in the text (`LINE 1: ...`) are left out.
//!
//! A test that finds no PostgreSQL prints that and passes, as the other tests against it do.

use crate::server::Running;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A private PostgreSQL on a socket of its own.
pub struct Postgres {
    dir: TempDir,
    bin: PathBuf,
    as_postgres: bool,
}

pub const PORT: &str = "6545";

impl Postgres {
    pub fn start() -> Option<Postgres> {
        let bin = PathBuf::from("/usr/lib/postgresql/15/bin");
        if !bin.join("initdb").exists() {
            eprintln!("skipped: no PostgreSQL 15 found under /usr/lib/postgresql");
            return None;
        }
        let as_postgres = Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout.starts_with(b"0\n"));
        // The path of a socket is short, and the user that runs it must reach it.
        let dir = tempfile::Builder::new().prefix("hf").tempdir_in("/tmp").unwrap();
        let postgres = Postgres { dir, bin, as_postgres };
        if as_postgres {
            assert!(Command::new("chown").arg("postgres").arg(postgres.dir.path()).status().unwrap().success());
        }
        let (data, log) = (postgres.path("data"), postgres.path("log"));
        postgres.run("initdb", &["-D", &data, "-U", "holdfast", "--locale=C", "-E", "UTF8"]);
        let options = format!("-k {} -p {PORT} -c listen_addresses='' -c fsync=off -c timezone=UTC", postgres.path(""));
        postgres.run("pg_ctl", &["-D", &data, "-o", &options, "-l", &log, "-w", "start"]);
        postgres.psql("postgres", "create database holdfast template template0;\n");
        Some(postgres)
    }

    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn run(&self, program: &str, args: &[&str]) {
        let mut command = Command::new(if self.as_postgres { "runuser".into() } else { self.bin.join(program) });
        if self.as_postgres {
            command.args(["-u", "postgres", "--"]).arg(self.bin.join(program));
        }
        let status = command.args(args).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert!(status.success(), "{program} {args:?}");
    }

    pub fn psql(&self, database: &str, script: &str) -> Vec<String> {
        psql(&self.path(""), PORT, database, script)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.run("pg_ctl", &["-D", &self.path("data"), "-m", "immediate", "stop"]);
    }
}

/// What psql writes, without the places of errors.
fn psql(host: &str, port: &str, database: &str, script: &str) -> Vec<String> {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("script.sql");
    std::fs::write(&file, script).unwrap();
    let mut command = Command::new("psql");
    command.args(["-X", "-q", "-h", host, "-p", port, "-U", "holdfast", "-d", database, "-f"]).arg(&file);
    // Both streams in one, in their order.
    let all = std::fs::File::create(dir.path().join("all")).unwrap();
    command.stdout(all.try_clone().unwrap()).stderr(all);
    command.status().unwrap();
    let text = std::fs::read_to_string(dir.path().join("all")).unwrap();
    let place = |line: &&str| line.starts_with("LINE ") || line.trim() == "^";
    let shown = |line: &str| match line.strip_prefix("psql:").and_then(|l| l.split_once(": ")) {
        Some((_, message)) => message.to_owned(),
        None => line.to_owned(),
    };
    text.lines().filter(|line| !place(line)).map(shown).collect()
}

/// The script with each statement shown before its answer, and its SQLSTATE after.
fn announced(script: &str) -> String {
    let mut out = String::from("\\pset null NULL\n\\pset format unaligned\n");
    for line in script.lines().filter(|line| !line.is_empty() && !line.starts_with("--")) {
        let shown = line.replace('\'', "''").replace('\\', "\\\\");
        out.push_str(&format!("\\echo '>>' '{shown}'\n{line}\n\\echo :SQLSTATE\n"));
    }
    out
}

/// The answers, one for each statement, with the statement as their first line.
fn by_statement(lines: &[String]) -> Vec<Vec<String>> {
    let mut out: Vec<Vec<String>> = Vec::new();
    for line in lines {
        match out.last_mut().filter(|_| !line.starts_with(">> ")) {
            Some(answer) => answer.push(line.clone()),
            None => out.push(vec![line.clone()]),
        }
    }
    out
}

#[test]
fn statements_about_roles_answer_as_postgresqls() {
    let Some(postgres) = Postgres::start() else { return };
    let scripts: Vec<PathBuf> = ["attributes", "membership", "identity", "databases", "names", "own_changes"]
        .map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/roles/{name}.sql")))
        .to_vec();
    let mut different = Vec::new();
    for script in scripts {
        let text = announced(&std::fs::read_to_string(&script).unwrap());
        let server = Running::start();
        let theirs = by_statement(&postgres.psql("holdfast", &text));
        let ours = by_statement(&psql("127.0.0.1", &server.port.to_string(), "holdfast", &text));
        assert_eq!(theirs.len(), ours.len(), "{}: {ours:#?}", script.display());
        assert!(theirs.len() > 30, "{}", script.display());
        for (theirs, ours) in theirs.iter().zip(&ours).filter(|(theirs, ours)| theirs != ours) {
            different.push(format!("PostgreSQL {theirs:#?}\nHoldfast {ours:#?}"));
        }
    }
    assert!(different.is_empty(), "{} answers differ:\n{}", different.len(), different.join("\n"));
}
