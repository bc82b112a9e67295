//! The roles that `trail find` and `trail undo` name, in the trail, the archive and an encrypted archive.

use super::found;
use crate::dump::bed::{Bed, SMALL, lsn_number, wal_lsn};
use crate::node::{Node, holdfast, one, refuses, run, succeeds, until};
use serde_json::{Value, json};

/// Session user and current user of the changes of a row.
fn roles(found: &Value) -> Vec<Value> {
    let rows = found["changes"].as_array().unwrap().iter().filter(|change| change["operation"] != "schema");
    rows.map(|change| json!([change["session_user"], change["current_user"]])).collect()
}

#[tokio::test]
async fn find_and_undo_name_the_roles_also_from_the_archive() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    run(&client, "create table orders(id int primary key, v text); create role ann login password 'p'; create role ben login password 'p'").await;
    run(&client, "create role app; grant app to ben; grant all on orders to ann, app").await;
    run(&client, "insert into orders values (7, 'new')").await;
    let ann = bed.node.connect_with("user=ann password=p dbname=holdfast").await;
    let ben = bed.node.connect_with("user=ben password=p dbname=holdfast").await;
    let mut expected = vec![json!(["holdfast", null]), json!(["ann", null]), json!(["ben", "app"])];
    run(&ann, "update orders set v = 'by ann' where id = 7").await;
    run(&ben, "set role app").await;
    run(&ben, "update orders set v = 'by ben' where id = 7").await;
    // Over several messages, on a branch and as the exclusive writer; the role is that of the last change.
    for isolation in ["read committed", "serializable"] {
        run(&ben, &format!("begin isolation level {isolation}")).await;
        run(&ben, "update orders set v = v || '.' where id = 7").await;
        run(&ben, "reset role").await;
        run(&ben, "commit").await;
        run(&ben, "set role app").await;
        expected.push(json!(["ben", "app"]));
    }
    // A scan, which runs on a branch.
    run(&ann, "update orders set v = v || '!' where v like 'by%'").await;
    expected.push(json!(["ann", null]));
    let with = ["--table", "orders", "--where", "id = 7"];
    let all = found(bed.node.data(), &with);
    assert_eq!(roles(&all), expected, "{all}");
    let text = succeeds(&[&["trail", "find", "--data", bed.node.data()], &with[..]].concat());
    assert!(text.contains("  by ann  update  id=7\n") && text.contains("  by ben as app  update  id=7\n"), "{text}");
    let (id, lsn) = super::newest(&all);
    let undo = succeeds(&["trail", "undo", "--data", bed.node.data(), "--transaction", &id, "--lsn", &lsn]);
    assert!(undo.contains(&format!("The inverse of transaction {id} by ann, committed at")), "{undo}");
    let earlier = all["changes"][2]["transaction"].to_string();
    let refused = refuses(&["trail", "undo", "--data", bed.node.data(), "--transaction", &earlier]);
    assert!(refused.contains(", by ben as app"), "{refused}");
    // A role that was dropped keeps its name in the trail.
    drop(ann);
    run(&client, "drop owned by ann; drop role ann").await;
    bed.until_archived(&client).await;
    let archive = bed.archive.to_str().unwrap();
    let at = bed.node.at();
    let alone = holdfast(&[&["trail", "find", "--archive", archive, "--at", &at, "--json"], &with[..]].concat());
    assert!(alone.status.success(), "{alone:?}");
    assert_eq!(roles(&serde_json::from_slice(&alone.stdout).unwrap()), expected);
    // A restored server is asked about the trail in the old one's archive.
    bed.dump();
    let id_of_trail = serde_json::from_str::<Value>(&succeeds(&["archive", "status", "--archive", archive, "--json"]));
    let trail = id_of_trail.unwrap()["trails"][0]["trail_id"].as_str().unwrap().to_owned();
    let (_, mut restored) = bed.restore("restored", &[]);
    restored.start();
    let at = restored.at();
    let arguments = ["trail", "find", "--archive", archive, "--trail", &trail, "--at", &at, "--json"];
    let again = holdfast(&[&arguments[..], &with].concat());
    assert!(again.status.success(), "{again:?}");
    assert_eq!(roles(&serde_json::from_slice(&again.stdout).unwrap()), expected);
}

#[tokio::test]
async fn a_prepared_transaction_is_of_the_role_that_prepared_it() {
    let bed = super::Bed::start().await;
    bed.run("create table t(id int primary key); create role ann login password 'p'; grant all on t to ann").await;
    let ann = bed.node.connect_with("user=ann password=p dbname=holdfast").await;
    for sql in ["begin", "insert into t values (1)", "prepare transaction 'p'"] {
        run(&ann, sql).await;
    }
    bed.run("commit prepared 'p'").await;
    assert_eq!(roles(&bed.find(&["--table", "t", "--where", "id = 1"])), [json!(["ann", null])]);
}

#[tokio::test]
async fn an_encrypted_archive_is_read_with_an_identity_only() {
    let scratch = tempfile::TempDir::new().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let (archive, identity, other) = (path("archive"), path("identity"), path("other"));
    std::fs::create_dir(&archive).unwrap();
    let recipient = succeeds(&["dump", "key", "--out", &identity]).trim().to_owned();
    succeeds(&["dump", "key", "--out", &other]);
    let mut node = Node::new(&scratch, "a");
    node.configure(&format!(
        "{SMALL}archive = \"{archive}\"\narchive_identity = \"{identity}\"\narchive_encrypt_to = \"{recipient}\""
    ));
    node.start();
    let client = node.connect().await;
    run(&client, "create table orders(id int primary key, v text); insert into orders values (7, 'a')").await;
    run(&client, "create table filler(v text)").await;
    run(&client, "update orders set v = 'b' where id = 7").await;
    let wanted = wal_lsn(&client).await;
    until("it is archived", async || {
        run(&client, "insert into filler select repeat('f', 4000) || g from generate_series(1, 400) g").await;
        lsn_number(&one(&client, "select archived_lsn from holdfast_stat_archive").await) >= wanted
    })
    .await;
    let at = node.at();
    let find = ["trail", "find", "--archive", &archive, "--at", &at, "--table", "orders", "--where", "id = 7"];
    let error = refuses(&find);
    assert!(error.contains("is encrypted: name a file with an identity") && error.contains("--identity"), "{error}");
    let error = refuses(&[&find[..], &["--identity", &other]].concat());
    assert!(error.contains("is not encrypted to an identity in") && error.contains(&other), "{error}");
    let text = succeeds(&[&find[..], &["--identity", &identity]].concat());
    assert!(text.contains("by holdfast  update  id=7"), "{text}");
    let json: Value =
        serde_json::from_str(&succeeds(&[&find[..], &["--identity", &identity, "--json"]].concat())).unwrap();
    let (id, lsn) = super::newest(&json);
    let undo = ["trail", "undo", "--archive", &archive, "--at", &at, "--transaction", &id, "--lsn", &lsn];
    assert!(refuses(&undo).contains("is encrypted: name a file with an identity"));
    assert!(succeeds(&[&undo[..], &["--identity", &identity]].concat()).contains("UPDATE"));
}
