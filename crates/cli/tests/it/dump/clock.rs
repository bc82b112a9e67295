//! A dump knows the time of its last commit, also where the trail that had that commit is gone.

use super::bed::{Bed, SMALL, wal_lsn};
use super::moments::{now_ms, time};
use crate::node::{Pair, asked, run, succeeds, until};
use serde_json::Value;

fn clock_ms(dump: &Value) -> u64 {
    dump["clock_unix_ms"].as_u64().unwrap()
}

/// Where the trail begins.
fn trail_begins(data: &str) -> u64 {
    let status: Value = serde_json::from_str(&succeeds(&["archive", "status", "--data", data, "--json"])).unwrap();
    status["trails"][0]["trail_begins"].as_u64().unwrap_or(0) << 20
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_knows_when_it_committed_last() {
    let mut bed = Bed::start();
    let client = bed.node.connect().await;
    run(&client, "create table m(k int primary key)").await;
    bed.dump();
    run(&client, "insert into m values (1)").await;
    let moment = now_ms();
    while now_ms() == moment {}
    run(&client, "insert into m values (2)").await;
    bed.until_archived(&client).await;
    let (last, committed_ms) = (wal_lsn(&client).await, now_ms());
    // The trail keeps the last commit for dumps until a restart, and then recycles it.
    run(&client, "checkpoint").await;
    run(&client, "select pg_switch_wal()").await;
    drop(client);
    bed.node.stop();
    bed.node.start();
    let client = bed.node.connect().await;
    until("the trail begins behind the last commit", async || {
        run(&client, "checkpoint").await;
        run(&client, "select pg_switch_wal()").await;
        trail_begins(bed.node.data()) > last
    })
    .await;
    drop(client);
    bed.node.stop();
    bed.node.start();
    let dump = bed.dump();
    assert!(dump["lsn"].as_u64().unwrap() >= last, "{dump}");
    let clock = clock_ms(&dump);
    assert!(clock > moment && clock <= committed_ms, "{clock}, {moment}, {committed_ms}");
    // The second dump has a commit that is later than the moment.
    let (report, mut restored) = bed.restore("then", &["--to-time", &time(moment)]);
    assert!(report["clock_unix_ms"].as_u64().unwrap() <= moment, "{report}");
    restored.start();
    assert_eq!(asked(&restored, "select string_agg(k::text, ',') from m").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_knows_when_its_master_committed_last() {
    let pair = Pair::start(SMALL).await;
    let (client, bed) = (pair.a.connect().await, Bed::start());
    run(&client, "create table m(k int primary key); insert into m values (1)").await;
    let moment = now_ms();
    while now_ms() == moment {}
    run(&client, "insert into m values (2)").await;
    pair.until_equal().await;
    let clock = clock_ms(&bed.dump_of(&pair.b.at()));
    assert!(clock > moment && clock <= now_ms(), "{clock}, {moment}");
}
