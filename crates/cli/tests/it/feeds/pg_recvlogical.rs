//! PostgreSQL's own client of logical replication reads a feed, over a kill of the server.

use crate::server::{Running, one, run, until};
use std::process::{Child, Command, Stdio};

/// pg_recvlogical of Debian, which is not on the path.
fn program() -> Option<std::path::PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir("/usr/lib/postgresql").ok()?.filter_map(Result::ok).collect();
    found.sort_by_key(|version| version.file_name());
    found.into_iter().rev().map(|version| version.path().join("bin/pg_recvlogical")).find(|path| path.exists())
}

fn receive(program: &std::path::Path, port: u16, arguments: &[&str]) -> Child {
    let port = port.to_string();
    let connection = ["-h", "127.0.0.1", "-p", &port, "-U", "holdfast", "-d", "holdfast", "--slot", "s"];
    let mut command = Command::new(program);
    command.args(connection).args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

#[tokio::test]
async fn pg_recvlogical_reads_every_row() {
    let Some(program) = program() else {
        assert!(std::env::var_os("CI").is_none(), "pg_recvlogical is missing; install postgresql-client or postgresql");
        println!("skipped: pg_recvlogical is not installed");
        return;
    };
    let mut server = Running::start();
    let client = server.connect().await;
    run(&client, "create table n(id int primary key, v text); create publication p for table n").await;
    let created = receive(&program, server.port, &["--create-slot", "-P", "pgoutput"]).wait().unwrap();
    assert!(created.success());
    let out = server.dir.path().parent().unwrap().join(format!("received-{}", std::process::id()));
    for round in 0..2 {
        let client = server.connect().await;
        let file = out.display().to_string();
        let options =
            ["--start", "--no-loop", "-o", "proto_version=1", "-o", "publication_names=p", "-s", "1", "-F", "0", "-f"];
        let mut receiving = receive(&program, server.port, &[&options[..], &[&file]].concat());
        for id in 0..100 {
            run(&client, &format!("insert into n values ({}, 'row-{round}-{id}-')", round * 100 + id)).await;
        }
        until("all is received", async || {
            let text = std::fs::read(&out).unwrap_or_default();
            let last = format!("row-{round}-99-");
            text.windows(last.len()).any(|window| window == last.as_bytes())
        })
        .await;
        assert_eq!(one(&client, "select active from pg_replication_slots").await, "t");
        let dir = server.kill();
        // It ends by itself, because its connection was lost.
        assert!(!receiving.wait().unwrap().success());
        server = Running::start_in(dir);
    }
    let text = std::fs::read(&out).unwrap();
    std::fs::remove_file(&out).unwrap();
    for round in 0..2 {
        for id in 0..100 {
            let row = format!("row-{round}-{id}-");
            assert!(text.windows(row.len()).any(|window| window == row.as_bytes()), "{row} is missing");
        }
    }
    let client = server.connect().await;
    until("the slot is free", async || one(&client, "select active from pg_replication_slots").await == "f").await;
    assert!(receive(&program, server.port, &["--drop-slot"]).wait().unwrap().success());
    assert_eq!(one(&client, "select count(*) from pg_replication_slots").await, "0");
}
