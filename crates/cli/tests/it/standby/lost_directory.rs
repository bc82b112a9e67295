//! The data directory of a node that others know is missing, as after a start without its disk: no empty server takes its place.

use crate::control::trio::Trio;
use crate::node::{Node, Pair, one, refuses, run, succeeds};
use std::fs;
use std::path::Path;

/// It refuses to serve where its directory was, missing or an empty mount point, and makes nothing there. Afterwards the
/// directory is back.
fn assert_refused_without_its_directory(node: &mut Node, says: &[&str]) {
    let away = node.dir.with_extension("away");
    fs::rename(&node.dir, &away).unwrap();
    let refused = |node: &mut Node| {
        let said = node.refuses_to_start();
        let all = ["has no databases yet", "Mount the disk", ".identity"].iter().chain(says);
        all.for_each(|words| assert!(said.contains(words), "{words}: {said}"));
    };
    refused(node);
    assert!(!node.dir.exists(), "nothing was made");
    fs::create_dir(&node.dir).unwrap();
    refused(node);
    assert_eq!(fs::read_dir(&node.dir).unwrap().count(), 0, "nothing was made");
    let imported = refuses(&["import", "/dev/null", "--data", node.data()]);
    assert!(imported.contains("has no databases yet"), "{imported}");
    fs::remove_dir(&node.dir).unwrap();
    fs::rename(&away, &node.dir).unwrap();
}

#[tokio::test]
async fn a_pairs_missing_directory_makes_no_master() {
    let mut pair = Pair::start("").await;
    run(&pair.a.connect().await, "create table t(x int); insert into t values (1)").await;
    pair.until_equal().await;
    pair.b.stop();
    let standby_of = format!("was b, the standby of {}", pair.a.at());
    let from = format!("standby create --from {}", pair.a.at());
    assert_refused_without_its_directory(&mut pair.b, &[&standby_of, &from]);
    pair.b.start();
    pair.until_followed().await;
    pair.a.stop();
    assert_refused_without_its_directory(
        &mut pair.a,
        &["was a, the master of b", "promote a server that has the data"],
    );
    // What was a standby is still no new server.
    succeeds(&["promote", "--at", &pair.b.at()]);
    pair.b.kill();
    assert_refused_without_its_directory(&mut pair.b, &["was the server b", "promote a server that has the data"]);
    pair.b.start();
    assert_eq!(one(&pair.b.connect().await, "select count(*) from t").await, "1");
    // The operator decides otherwise.
    fs::remove_dir_all(&pair.a.dir).unwrap();
    fs::remove_file(pair.a.dir.with_extension("identity")).unwrap();
    pair.a.start();
    run(&pair.a.connect().await, "create table t(x int)").await;
}

#[tokio::test]
async fn a_members_missing_directory_makes_no_master() {
    let mut trio = Trio::start("").await;
    trio.b.stop();
    assert_refused_without_its_directory(&mut trio.b, &["was b, the standby of", "a member of the control plane a="]);
    trio.a.kill();
    assert_refused_without_its_directory(&mut trio.a, &["a member of the control plane a="]);
}

#[tokio::test]
async fn a_server_by_itself_leaves_nothing_next_to_its_directory() {
    let mut pair = Pair::master("");
    pair.a.stop();
    assert!(!pair.a.dir.with_extension("identity").exists());
    fs::remove_dir_all(&pair.a.dir).unwrap();
    pair.a.start();
}

/// Names in a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// As `standby create --certificates` leaves it that is killed before it has reached its master.
#[tokio::test]
async fn an_interrupted_copy_with_certificates_makes_no_master() {
    let pair = Pair::master("");
    let (authority, files) = (pair.beside("authority"), pair.beside("for-b"));
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    succeeds(&["cert", "authority", "--out", &path(&authority)]);
    let of = ["--authority", &path(&authority), "--name", "b", "--host", "127.0.0.1"];
    succeeds(&[&["cert", "node", "--out", &path(&files)], &of[..]].concat());
    let mut b = pair.third("b");
    fs::create_dir_all(&b.dir).unwrap();
    let copied = std::process::Command::new("cp").arg("-a").arg(&files).arg(b.dir.join("certificates")).status();
    assert!(copied.unwrap().success());
    let said = b.refuses_to_start();
    assert!(said.contains("holds certificates and no databases") && said.contains("standby create"), "{said}");
    assert_eq!(names(&b.dir), ["certificates"]);
    fs::remove_dir_all(&b.dir).unwrap();

    // The master takes the connection and says nothing; the copy is killed.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let from = silent.local_addr().unwrap().to_string();
    let mut create = std::process::Command::new(env!("CARGO_BIN_EXE_holdfast"));
    create
        .args(["standby", "create", "--name", "b", "--from", &from, "--data", b.data(), "--certificates"])
        .arg(&files);
    let mut create = create.spawn().unwrap();
    let held = silent.accept().unwrap();
    create.kill().unwrap();
    create.wait().unwrap();
    drop(held);
    let said = b.refuses_to_start();
    assert!(said.contains("standby create"), "{said}");
    assert!(!b.dir.join("databases.toml").exists(), "no server was made");

    // A copy whose master is not reached leaves nothing.
    fs::remove_dir_all(&b.dir).unwrap();
    drop(silent);
    let files = path(&files);
    refuses(&["standby", "create", "--from", &from, "--data", b.data(), "--name", "b", "--certificates", &files]);
    assert!(!b.dir.exists());
}
