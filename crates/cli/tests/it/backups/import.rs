//! An import brings content in that the trail does not have.

use super::{Backed, stat, stat_number};
use crate::dump::bed::wal_lsn;
use crate::node::{Node, asked, refuses, run, succeeds, until};
use serde_json::Value;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_dump_is_rolled_forward_up_to_the_import_and_a_later_one_over_it() {
    let mut bed = Backed::started("dump.every = \"1 h\"\narchive_timeout_ms = 200");
    let client = bed.node.connect().await;
    run(&client, "create table t(k int); insert into t values (1)").await;
    until("it has dumped itself", async || stat_number(&client, "dump_count").await == 1).await;
    let first = stat(&client, "last_dump").await;
    drop(client);
    assert!(bed.node.stop().success());
    let file = bed.scratch.path().join("shop.db");
    let sql = "create table s(a integer primary key, b text); insert into s(b) values ('x'), ('y')";
    assert!(std::process::Command::new("sqlite3").arg(&file).arg(sql).status().unwrap().success());
    succeeds(&["import", file.to_str().unwrap(), "--data", bed.node.data()]);
    bed.node.start();
    let client = bed.node.connect().await;
    until("it has dumped itself again, at once", async || stat_number(&client, "dump_count").await == 2).await;
    run(&client, "insert into t values (2)").await;
    let lsn = wal_lsn(&client).await;
    until("it is archived", async || stat_number(&client, "restorable_lsn").await >= lsn).await;
    let restore = |name: &str| -> Vec<String> {
        let dir = bed.scratch.path().join(name).display().to_string();
        ["restore", "--from", bed.place(), "--data", &dir].map(str::to_owned).into()
    };
    let arguments = restore("over");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let older = [&arguments[..], &["--dump", &first]].concat();
    let error = refuses(&older);
    assert!(error.contains("database shop was brought in") && error.contains("use a later dump"), "{error}");
    let reachable = error.split("--to-lsn ").nth(1).unwrap().split(' ').next().unwrap();
    succeeds(&[&older[..], &["--to-lsn", reachable]].concat());
    let created = succeeds(&["dump", "create", "--at", &bed.node.at(), "--to", bed.place(), "--json"]);
    let created: Value = serde_json::from_str(&created).unwrap();
    let arguments = restore("later");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // Nothing has changed since: the archive has its moment, and nothing behind it.
    until("its moment is archived", async || {
        stat_number(&client, "restorable_lsn").await >= created["lsn"].as_u64().unwrap()
    })
    .await;
    succeeds(&arguments);
    let mut later = Node::new_in(bed.scratch.path().join("later"));
    later.start();
    assert_eq!(asked(&later, "select count(*) from t").await, "2");
    let shop = later.connect_to("shop").await;
    assert_eq!(crate::node::one(&shop, "select count(*) from s").await, "2");
    assert_eq!(stat(&client, "failed_count").await, "0");
}
