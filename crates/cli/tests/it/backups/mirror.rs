//! A mirror that is made of a dump and the archive: its server copies nothing.

use crate::dump::bed::{Bed, fill, launch, wal_lsn};
use crate::node::{Node, assert_same, one, refuses, run, succeeds, until, until_settled};
use std::process::{Child, Command, Stdio};

/// Starts the server with its mirror.
fn start(node: &mut Node, mirror: &str) {
    node.configure(&format!("mirror = \"{mirror}\""));
    node.start();
}

async fn until_in_service(node: &Node) {
    until_settled("the mirror is in service", async || {
        let text = succeeds(&["standby", "status", "--json", "--at", &node.at()]);
        let status: serde_json::Value = serde_json::from_str(&text).unwrap();
        let mirror = &status["mirror"];
        (mirror["state"] != "streaming" || mirror["has_everything"] != true).then(|| text.clone())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_copies_no_page_into_a_mirror_from_a_dump() {
    let mut bed = Bed::start();
    let client = bed.node.connect().await;
    fill(&client, 16).await;
    run(&client, "create database other").await;
    bed.dump();
    fill(&client, 2).await;
    bed.until_archived(&client).await;
    // What is archived and recycled between the command and the server's start would be missing in the mirror: it would be copied.
    until("the archive has all full segments", async || {
        let archived: u64 = one(&client, "select archived_lsn from holdfast_stat_archive").await.parse().unwrap();
        archived >> 20 == wal_lsn(&client).await >> 20
    })
    .await;
    let (of, mirror) = (bed.node.data().to_owned(), bed.path("mirror").display().to_string());
    let create = ["mirror", "create", "--of", &of, "--data", &mirror, "--from-dump", bed.place()];
    // Killed on the way it is not served, as a mirror or by itself, and begins again.
    let mark = bed.path("mirror").join("restoring");
    let mut begun: Child = launch(&create);
    until("it has begun, or is done", async || mark.exists() || begun.try_wait().unwrap().is_some()).await;
    begun.kill().unwrap();
    begun.wait().unwrap();
    assert!(mark.exists(), "it was faster than the test");
    let serve = |more: &[&str]| {
        let begin = ["serve", "--listen", "127.0.0.1:0", "--data"];
        let output = Command::new(env!("CARGO_BIN_EXE_holdfast")).args(begin).args(more).stdin(Stdio::null()).output();
        String::from_utf8(output.unwrap().stderr).unwrap()
    };
    assert!(serve(&[&mirror]).contains("restore that did not complete"), "{}", serve(&[&mirror]));
    let said = succeeds(&create);
    assert!(said.contains("is a mirror's directory") && said.contains("nothing came from"), "{said}");
    let said = serve(&[&mirror]);
    assert!(said.contains("is the mirror of") && said.contains("cannot be served"), "{said}");
    let said = refuses(&["mirror", "promote", "--data", &mirror, "--accept-divergence"]);
    assert!(said.contains("a server runs on the main directory"), "{said}");
    run(&client, "insert into t(v) values ('not archived')").await;
    drop(client);
    assert!(bed.node.stop().success());
    let said = refuses(&["mirror", "promote", "--data", &mirror]);
    assert!(said.contains("--accept-divergence"), "it is not known to have everything: {said}");
    let before = bed.node.log();
    start(&mut bed.node, &mirror);
    until_in_service(&bed.node).await;
    let log = bed.node.log();
    assert!(!log[before.len()..].contains("is copied:"), "{log}");
    let client = bed.node.connect().await;
    run(&client, "insert into t(v) values ('later')").await;
    let rows = one(&client, "select count(*) from t").await;
    drop(client);
    // The main disk is lost.
    bed.node.kill();
    std::fs::rename(&of, format!("{of}.lost")).unwrap();
    succeeds(&["mirror", "promote", "--data", &mirror]);
    let mut promoted = Node::new_in(mirror.into());
    promoted.start();
    assert_eq!(one(&promoted.connect().await, "select count(*) from t").await, rows);
    std::fs::rename(format!("{of}.lost"), &of).unwrap();
    std::fs::remove_file(bed.node.dir.join("mirror.toml")).unwrap();
    let toml = std::fs::read_to_string(bed.node.dir.join("holdfast.toml")).unwrap();
    std::fs::write(bed.node.dir.join("holdfast.toml"), toml.replace("mirror = ", "# mirror = ")).unwrap();
    bed.node.start();
    assert_same(&bed.node, &promoted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_of_another_server_makes_no_mirror() {
    let bed = Bed::start();
    fill(&bed.node.connect().await, 1).await;
    bed.dump();
    let mut other = Node::new(&bed.scratch, "other");
    other.start();
    let mirror = bed.path("mirror").display().to_string();
    let of_other = ["mirror", "create", "--of", other.data(), "--data", &mirror, "--from-dump", bed.place()];
    assert!(refuses(&of_other).contains("has no dump"), "{}", refuses(&of_other));
    let nothing = bed.path("nothing").display().to_string();
    let of_nothing = ["mirror", "create", "--of", &nothing, "--data", &mirror, "--from-dump", bed.place()];
    assert!(refuses(&of_nothing).contains("has no trail"), "{}", refuses(&of_nothing));
    let itself = ["mirror", "create", "--of", bed.node.data(), "--data", bed.node.data(), "--from-dump", bed.place()];
    assert!(refuses(&itself).contains("are the same"), "{}", refuses(&itself));
}
