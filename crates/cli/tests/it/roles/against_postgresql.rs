//! Every statement of a script through psql, against a private PostgreSQL and against Holdfast: rows, notices and errors
//! with SQLSTATE, DETAIL and HINT must be equal. Positions in the text (`LINE 1: ...`) are left out.
//!
//! A test that finds no PostgreSQL prints that and passes, as the other tests against it do.

use crate::server::Running;
use holdfast_testbed::oracle::{PORT, Postgres};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

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

/// A PostgreSQL with a database holdfast.
pub fn postgresql() -> Option<Postgres> {
    let postgres = Postgres::start()?;
    on(&postgres, "postgres", "create database holdfast template template0;\n");
    Some(postgres)
}

/// What psql writes of a script on PostgreSQL.
pub fn on(postgres: &Postgres, database: &str, script: &str) -> Vec<String> {
    psql(&postgres.socket().display().to_string(), &PORT.to_string(), database, script)
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

/// The answers to the statements of a script that differ, on a server of its own. `counts`: lines that are compared.
pub fn differences(postgres: &Postgres, script: &Path, counts: impl Fn(&str) -> bool) -> Vec<String> {
    let text = announced(&std::fs::read_to_string(script).unwrap());
    let server = Running::start();
    let counted = |lines: Vec<String>| lines.into_iter().filter(|line| counts(line)).collect::<Vec<_>>();
    let answers = by_statement(&counted(on(postgres, "holdfast", &text)));
    let ours = by_statement(&counted(psql("127.0.0.1", &server.port.to_string(), "holdfast", &text)));
    assert_eq!(answers.len(), ours.len(), "{}: {ours:#?}", script.display());
    assert!(answers.len() > 30, "{}", script.display());
    let pairs = answers.iter().zip(&ours).filter(|(theirs, ours)| theirs != ours);
    pairs.map(|(theirs, ours)| format!("PostgreSQL {theirs:#?}\nHoldfast {ours:#?}")).collect()
}

#[test]
fn statements_about_roles_answer_as_postgresqls() {
    let Some(postgres) = postgresql() else { return };
    let scripts: Vec<PathBuf> = ["attributes", "membership", "identity", "databases", "names", "views", "own_changes"]
        .map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/roles/{name}.sql")))
        .to_vec();
    let mut different = Vec::new();
    for script in scripts {
        different.extend(differences(&postgres, &script, |_| true));
    }
    assert!(different.is_empty(), "{} answers differ:\n{}", different.len(), different.join("\n"));
}
