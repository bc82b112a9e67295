//! When a server dumps itself, what stays, and what an operator hears of it.

use super::{Backed, stat, stat_number};
use crate::dump::bed::{SMALL, fill, lsn_number, sum};
use crate::node::{Node, asked, dump, one, run, succeeds, until, until_followed, until_settled};
use serde_json::Value;

fn listed(place: &str) -> Vec<Value> {
    serde_json::from_str(&succeeds(&["dump", "list", "--from", place, "--json"])).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_dumps_itself_and_keeps_what_its_rules_say() {
    let mut bed = Backed::started("dump.every = \"1 s\"\ndump.keep = { last = 2 }");
    let client = bed.node.connect().await;
    fill(&client, 3).await;
    until_settled("it has dumped itself several times", async || {
        run(&client, "update t set v = md5(v) || substr(v, 33) where id % 500 = 7").await;
        let dumps = stat_number(&client, "dump_count").await;
        (dumps < 4).then(|| dumps.to_string())
    })
    .await;
    until("only two dumps are there", async || listed(bed.place()).len() == 2).await;
    // Only what has changed was stored.
    let (bytes, stored) =
        (stat_number(&client, "last_dump_bytes").await, stat_number(&client, "last_dump_stored_bytes").await);
    assert!(bytes > 2 << 20 && stored < bytes / 2, "{stored} of {bytes}");
    assert_eq!(stat(&client, "failed_count").await, "0");
    // What is on the disk of this machine only: nothing, once the archive or a dump has it.
    let age = async || stat(&client, "restorable_age_seconds").await.parse::<f64>().unwrap();
    until("all can be restored", async || age().await == 0.0).await;
    assert!(stat_number(&client, "restorable_lsn").await >= stat_number(&client, "last_dump_lsn").await);
    let (expected, before) = (sum(&bed.node).await, stat_number(&client, "dump_count").await);
    assert!(bed.node.stop().success());
    bed.node.start();
    let client = bed.node.connect().await;
    assert!(stat_number(&client, "dump_count").await >= before, "a restart forgets nothing");
    drop(client);
    bed.node.kill();
    // The machine is lost: dumps and archive are enough.
    let dir = bed.scratch.path().join("restored");
    succeeds(&["restore", "--from", bed.place(), "--data", dir.to_str().unwrap()]);
    let mut restored = Node::new_in(dir);
    restored.start();
    assert_eq!(sum(&restored).await, expected);
    // It has the settings of the lost server, and so its dump target, and is refused there.
    let client = restored.connect().await;
    until("it is refused", async || stat(&client, "failed_count").await != "0").await;
    let error = stat(&client, "last_error").await;
    assert!(error.contains("dump target of another server: server a with the trail"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_that_fails_is_reported_once_and_tried_again() {
    let bed = Backed::new("dump.every = \"1 h\"");
    std::fs::remove_dir(&bed.dumps).unwrap();
    let mut node = bed.node;
    node.start();
    let client = node.connect().await;
    until("it was tried again", async || stat_number(&client, "failed_count").await > 1).await;
    until("it says so", async || stat(&client, "state").await == "failing").await;
    let error = stat(&client, "last_error").await;
    assert!(error.contains("the directory does not exist"), "{error}");
    // Before there is any dump, the age is that of the server.
    assert!(stat(&client, "restorable_age_seconds").await.parse::<f64>().unwrap() > 0.0);
    std::fs::create_dir(&bed.dumps).unwrap();
    until("it succeeds", async || stat_number(&client, "dump_count").await == 1).await;
    let told = async || std::fs::read_to_string(bed.scratch.path().join("told")).unwrap_or_default();
    until("the operator knows", async || told().await.contains("has succeeded again")).await;
    let told = told().await;
    assert_eq!(told.lines().count(), 2, "{told}");
    assert!(
        told.contains("a: the dump to") && told.contains("failed: ") && told.contains("tried again in 2 s"),
        "{told}"
    );
    until("it waits for the next one", async || stat(&client, "state").await == "waiting").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_forgotten_is_known_after_a_kill() {
    let mut bed = Backed::new("dump.every = \"1 h\"\ndump.keep = { last = 1 }\ndump.archive_keep = \"1 day\"");
    // In the place of a folder: what other places of dumps need of the archive is not known.
    std::fs::write(bed.archive.join("places"), "").unwrap();
    bed.node.start();
    let client = bed.node.connect().await;
    let failed = "were not removed";
    until("it could not forget", async || stat(&client, "last_error").await.contains(failed)).await;
    until("the operator knows", async || bed.told().iter().any(|line| line.contains(failed))).await;
    drop(client);
    bed.node.kill();
    bed.node.start();
    let client = bed.node.connect().await;
    let error = stat(&client, "last_error").await;
    assert!(error.contains(failed), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_servers_with_one_target_the_second_is_refused_by_name() {
    let bed = Backed::started("dump.every = \"1 s\"");
    let first = bed.node.connect().await;
    until("the first one dumps", async || stat_number(&first, "dump_count").await > 0).await;
    let mut other = Node::new(&bed.scratch, "other");
    other.configure(&format!("node_name = \"other\"\n{SMALL}dump.to = \"{}\"", bed.dumps.display()));
    other.start();
    let second = other.connect().await;
    until("the second one is refused", async || stat(&second, "failed_count").await != "0").await;
    let error = stat(&second, "last_error").await;
    assert!(error.contains("another server: server a with the trail") && error.contains("servers/"), "{error}");
    assert!(listed(bed.place()).iter().all(|dump| dump["node"] == "a"));
    // By hand it may be dumped there.
    succeeds(&["dump", "create", "--at", &other.at(), "--to", bed.place()]);
    let before = stat_number(&first, "dump_count").await;
    until("the first one continues", async || stat_number(&first, "dump_count").await > before + 1).await;
    assert!(listed(bed.place()).iter().any(|dump| dump["node"] == "other"), "its own rules do not forget that one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_dumps_or_the_node_that_is_named() {
    let mut bed = Backed::started("dump.every = \"1 s\"");
    let mut b = Node::new(&bed.scratch, "b");
    succeeds(&["standby", "create", "--from", &bed.node.at(), "--data", b.data(), "--name", "b"]);
    b.configure(&format!("{}\ndump.every = \"1 s\"", bed.places().replace(SMALL, "")));
    b.start();
    until_followed(&bed.node, &b).await;
    run(&bed.node.connect().await, "create table t(k int)").await;
    until("the master dumps", async || asked(&bed.node, "select dump_count > 0 from holdfast_stat_dump").await == "t")
        .await;
    until("the standby does not", async || {
        asked(&b, "select state || dump_count from holdfast_stat_dump").await == "elsewhere0"
    })
    .await;
    bed.node.kill();
    succeeds(&["promote", "--at", &b.at(), "--accept-divergence"]);
    until("the new master dumps", async || asked(&b, "select dump_count > 0 from holdfast_stat_dump").await == "t")
        .await;
    assert!(listed(bed.place()).iter().any(|dump| dump["node"] == "b"));
    // A standby dumps when it is named, and its master does not.
    let mut c = Node::new(&bed.scratch, "c");
    succeeds(&["standby", "create", "--from", &b.at(), "--data", c.data(), "--name", "c"]);
    let named = format!("{}\ndump.every = \"1 s\"\ndump.node = \"c\"", bed.places().replace(SMALL, ""));
    c.configure(&named);
    assert!(b.stop().success());
    let text = std::fs::read_to_string(b.dir.join("holdfast.toml")).unwrap();
    std::fs::write(b.dir.join("holdfast.toml"), format!("{text}\ndump.node = \"c\"\n")).unwrap();
    b.start();
    c.start();
    until_followed(&b, &c).await;
    until("the standby dumps", async || asked(&c, "select dump_count > 0 from holdfast_stat_dump").await == "t").await;
    until("its master does not", async || asked(&b, "select state from holdfast_stat_dump").await == "elsewhere").await;
    assert!(listed(bed.place()).iter().any(|dump| dump["node"] == "c"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_segment_that_is_not_full_is_archived_after_a_time_and_by_a_dump() {
    let mut bed = Backed::new("archive_timeout_ms = 300");
    // Only the archive.
    let text = std::fs::read_to_string(bed.node.dir.join("holdfast.toml")).unwrap();
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with("dump.")).collect();
    std::fs::write(bed.node.dir.join("holdfast.toml"), text.join("\n")).unwrap();
    bed.node.start();
    let client = bed.node.connect().await;
    run(&client, "create table t(k int); insert into t values (1)").await;
    let archived = async || lsn_number(&one(&client, "select archived_lsn from holdfast_stat_archive").await);
    let lsn = crate::dump::bed::wal_lsn(&client).await;
    until("it is archived", async || archived().await >= lsn).await;
    // An idle server archives nothing again and again: at most what its checkpoint has written.
    let objects =
        async || one(&client, "select archived_count from holdfast_stat_archive").await.parse::<u64>().unwrap();
    let before = objects().await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert!(objects().await <= before + 1, "{before} and {}", objects().await);
    // Without the time: a dump has the archive reach its moment.
    assert!(bed.node.stop().success());
    bed.node.configure("\narchive_timeout_ms = 0");
    let text = std::fs::read_to_string(bed.node.dir.join("holdfast.toml")).unwrap();
    std::fs::write(bed.node.dir.join("holdfast.toml"), text.replace("archive_timeout_ms = 300\n", "")).unwrap();
    bed.node.start();
    let client = bed.node.connect().await;
    run(&client, "insert into t values (2)").await;
    let created = succeeds(&["dump", "create", "--at", &bed.node.at(), "--to", bed.place(), "--json"]);
    let created: Value = serde_json::from_str(&created).unwrap();
    let archived = async || lsn_number(&one(&client, "select archived_lsn from holdfast_stat_archive").await);
    until("the dump's moment is archived", async || archived().await >= created["lsn"].as_u64().unwrap()).await;
    let dir = bed.scratch.path().join("restored");
    succeeds(&["restore", "--from", bed.place(), "--data", dir.to_str().unwrap()]);
    let mut restored = Node::new_in(dir);
    restored.start();
    assert_eq!(dump(&restored).await, dump(&bed.node).await);
}

/// The server's own dump is a process of its own: it must not outlive the server, nor keep the next one's from working.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_while_it_dumps_itself_begins_again() {
    let mut bed = Backed::new("dump.every = \"1 h\"\ndump.rate_mb = 1");
    bed.node.start();
    let client = bed.node.connect().await;
    until("the first, small dump is there", async || stat_number(&client, "dump_count").await == 1).await;
    fill(&client, 12).await;
    drop(client);
    // The next one is due at once, and takes 12 s.
    std::fs::remove_file(bed.node.dir.join("backups.json")).unwrap();
    assert!(bed.node.stop().success());
    bed.node.start();
    let running = || std::fs::read_dir(bed.dumps.join("running")).map_or(0, Iterator::count);
    let chunks = || std::fs::read_dir(bed.dumps.join("chunks")).map_or(0, Iterator::count);
    until("it dumps", async || running() > 0 && chunks() > 2).await;
    bed.node.kill();
    let text = std::fs::read_to_string(bed.node.dir.join("holdfast.toml")).unwrap();
    std::fs::write(bed.node.dir.join("holdfast.toml"), text.replace("dump.rate_mb = 1", "")).unwrap();
    bed.node.start();
    let client = bed.node.connect().await;
    until("it has dumped itself", async || stat_number(&client, "dump_count").await == 1).await;
    until("no mark of the killed one is left", async || running() == 0).await;
    assert_eq!(listed(bed.place()).len(), 2);
    assert_eq!(stat(&client, "failed_count").await, "0");
    succeeds(&["dump", "verify", "--from", bed.place()]);
}
