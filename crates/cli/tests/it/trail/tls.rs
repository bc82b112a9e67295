//! A server that requires TLS and SCRAM: by URL, by the environment, and what is refused.

use super::{Bed, newest, table};
use crate::node::{run, succeeds};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const HBA: &str = "host all holdfast 127.0.0.1/32 trust\nhostssl all app 127.0.0.1/32 scram-sha-256\n";

/// A server with a certificate for localhost, and its authority.
async fn start(lines: &str) -> (Bed, PathBuf) {
    let mut bed = Bed::start_with(lines).await;
    run(&bed.client, "create role app login superuser password 'sec:ret'").await;
    assert!(bed.node.stop().success());
    succeeds(&["cert", "server", "--data", bed.node.data(), "--host", "localhost"]);
    std::fs::write(bed.node.dir.join("pg_hba.conf"), HBA).unwrap();
    bed.node.start();
    bed.client = bed.node.connect().await;
    let ca = bed.node.dir.join("tls/ca.crt");
    (bed, ca)
}

fn holdfast(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    ["PGSSLMODE", "PGSSLROOTCERT", "PGUSER", "PGPASSWORD"].into_iter().for_each(|name| _ = command.env_remove(name));
    command.args(arguments).envs(environment.iter().copied()).output().unwrap()
}

fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[tokio::test]
async fn find_and_undo_connect_as_libpq_would() {
    let (bed, ca) = start("").await;
    bed.run("create table t(id int primary key, v text); insert into t values (1, 'a')").await;
    bed.run("update t set v = 'bad'").await;
    let (port, ca) = (bed.node.port, ca.display().to_string());
    let find = |at: &str, environment: &[(&str, &str)]| {
        let arguments = ["trail", "find", "--data", bed.node.data(), "--table", "t", "--json", "--at", at];
        holdfast(&arguments, environment)
    };
    let by_url = |how: &str| format!("postgresql://app:sec%3Aret@localhost:{port}/?{how}");
    let full = by_url(&format!("sslmode=verify-full&sslrootcert={ca}"));
    let output = find(&full, &[]);
    assert!(output.status.success(), "{output:?}");
    let (id, _) = newest(&serde_json::from_slice(&output.stdout).unwrap());
    for mode in ["prefer", "require", "verify-ca", "verify-full"] {
        let environment =
            [("PGUSER", "app"), ("PGPASSWORD", "sec:ret"), ("PGSSLMODE", mode), ("PGSSLROOTCERT", ca.as_str())];
        let output = find(&format!("localhost:{port}"), &environment);
        assert!(output.status.success(), "{mode}: {output:?}");
    }
    // The certificate is not for this address.
    let other_name =
        |mode: &str| format!("postgresql://app:sec%3Aret@127.0.0.1:{port}/?sslmode={mode}&sslrootcert={ca}");
    assert!(find(&other_name("verify-ca"), &[]).status.success());
    let said = refused(&find(&other_name("verify-full"), &[]));
    assert!(said.contains("not valid for name"), "{said}");
    let said = refused(&find(&by_url("sslmode=disable"), &[]));
    assert!(said.contains("no encryption") || said.contains("pg_hba.conf"), "{said}");
    let said = refused(&find(&by_url("sslmode=verify-full"), &[]));
    assert!(said.contains("--ca") && !said.contains("sec:ret"), "{said}");
    // Another authority's certificate.
    let other = tempfile::TempDir::new().unwrap();
    succeeds(&["cert", "server", "--data", other.path().to_str().unwrap(), "--host", "localhost"]);
    let said = refused(&find(&by_url(&format!("sslmode=verify-ca&sslrootcert={}", other_ca(other.path()))), &[]));
    assert!(said.contains("invalid peer certificate"), "{said}");
    let undo = ["trail", "undo", "--data", bed.node.data(), "--transaction", &id, "--apply", "--at", &full];
    let output = holdfast(&undo, &[]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(table(&bed.client, "select v from t").await, ["a"]);
}

fn other_ca(data: &Path) -> String {
    data.join("tls/ca.crt").display().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_comes_back_over_tls() {
    let scratch = tempfile::TempDir::new().unwrap();
    let archive = scratch.path().join("archive");
    std::fs::create_dir(&archive).unwrap();
    let (bed, ca) = start(&format!("segment_bytes = 1048576\narchive = \"{}\"", archive.display())).await;
    bed.run(
        "create table t(id int primary key, v text); insert into t select g, 'v' || g from generate_series(1, 100) g",
    )
    .await;
    let dumps = scratch.path().join("dumps").display().to_string();
    std::fs::create_dir(&dumps).unwrap();
    succeeds(&["dump", "create", "--at", &bed.node.at(), "--to", &dumps]);
    bed.run("drop table t").await;
    let url = format!("postgresql://app@localhost:{}/?sslmode=verify-full&sslrootcert={}", bed.node.port, ca.display());
    let restore = [
        "restore",
        "--from",
        &dumps,
        "--database",
        "holdfast",
        "--table",
        "t",
        "--before-drop",
        "--into",
        &url,
        "--as",
        "t",
    ];
    let said = refused(&holdfast(&restore, &[("PGPASSWORD", "guess")]));
    assert!(said.contains("password authentication failed"), "{said}");
    let output = holdfast(&restore, &[("PGPASSWORD", "sec:ret")]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(table(&bed.client, "select count(*), max(v) from t").await, ["100|v99"]);
}
