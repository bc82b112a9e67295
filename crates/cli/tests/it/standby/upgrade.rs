//! Nodes of two releases: one after the other is upgraded while clients write, and what is too far apart is refused.
//!
//! The other release is this one that says it speaks other versions of the link protocol.

use crate::node::{Node, Pair, assert_same, one, run, succeeds, until, until_followed};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

/// Speaks what this release speaks, and its own.
const NEXT: Option<&str> = Some("1-2");
const WRITERS: u64 = 4;

/// Clients that insert rows at whoever is the master, and remember which ones were acknowledged.
struct Load {
    port: Arc<AtomicU16>,
    ended: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    writers: Vec<JoinHandle<Vec<u64>>>,
}

impl Load {
    fn start(port: u16) -> Load {
        let (port, ended) = (Arc::new(AtomicU16::new(port)), Arc::new(AtomicBool::new(false)));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let writer =
            |number| tokio::spawn(write(number, Arc::clone(&port), Arc::clone(&ended), Arc::clone(&acknowledged)));
        let writers = (0..WRITERS).map(writer).collect();
        Load { port, ended, acknowledged, writers }
    }

    /// They turn to another master.
    fn go_to(&self, port: u16) {
        self.port.store(port, Ordering::SeqCst);
    }

    /// Waits until some more rows were acknowledged.
    async fn goes_on(&self, while_what: &str) {
        let before = self.acknowledged.load(Ordering::SeqCst);
        until(while_what, async || self.acknowledged.load(Ordering::SeqCst) >= before + 50).await;
    }

    async fn end(self) -> Vec<u64> {
        self.ended.store(true, Ordering::SeqCst);
        let mut all = Vec::new();
        for writer in self.writers {
            all.extend(writer.await.unwrap());
        }
        all
    }
}

/// A row whose insert ends in an error may be there or not; its number is not used again.
async fn write(number: u64, port: Arc<AtomicU16>, ended: Arc<AtomicBool>, count: Arc<AtomicU64>) -> Vec<u64> {
    let (mut acknowledged, mut client) = (Vec::new(), None::<Client>);
    for id in (number..).step_by(WRITERS as usize) {
        if ended.load(Ordering::SeqCst) {
            break;
        }
        if client.as_ref().is_none_or(Client::is_closed) {
            client = connect(port.load(Ordering::SeqCst)).await;
        }
        let Some(open) = &client else { continue };
        if open.batch_execute(&format!("insert into t values ({id})")).await.is_ok() {
            acknowledged.push(id);
            count.fetch_add(1, Ordering::SeqCst);
        } else {
            client = None;
        }
    }
    acknowledged
}

async fn connect(port: u16) -> Option<Client> {
    let config = format!("host=127.0.0.1 port={port} user=holdfast dbname=holdfast");
    let Ok((client, connection)) = tokio_postgres::connect(&config, NoTls).await else {
        tokio::time::sleep(Duration::from_millis(10)).await;
        return None;
    };
    tokio::spawn(connection);
    Some(client)
}

/// Stops a standby in order and starts it as another release.
async fn upgrade(master: &Node, standby: &mut Node, versions: Option<&'static str>) {
    assert!(standby.stop().success());
    standby.link_versions = versions;
    standby.start();
    until_followed(master, standby).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_upgrade_under_load_loses_nothing_nor_does_the_way_back() {
    let mut pair = Pair::start("level = \"hot\"").await;
    run(&pair.a.connect().await, "create table t(id int primary key)").await;
    let load = Load::start(pair.a.port);
    load.goes_on("both are of one release").await;
    upgrade(&pair.a, &mut pair.b, NEXT).await;
    load.goes_on("the standby is newer").await;

    assert!(pair.a.stop().success());
    succeeds(&["promote", "--at", &pair.b.at()]);
    load.go_to(pair.b.port);
    let (from, data) = (pair.b.at(), pair.a.data().to_owned());
    succeeds(&["rejoin", "--from", &from, "--data", &data, "--name", "a"]);
    pair.a.start();
    until_followed(&pair.b, &pair.a).await;
    load.goes_on("the master is newer").await;
    upgrade(&pair.b, &mut pair.a, NEXT).await;
    load.goes_on("both are of the next release").await;
    upgrade(&pair.b, &mut pair.a, None).await;
    load.goes_on("the standby is of the old release again").await;

    let acknowledged = load.end().await;
    let client = pair.b.connect().await;
    for ids in acknowledged.chunks(1000) {
        let list: Vec<String> = ids.iter().map(u64::to_string).collect();
        let found = one(&client, &format!("select count(*) from t where id in ({})", list.join(", "))).await;
        assert_eq!(found, ids.len().to_string(), "acknowledged ones are missing");
    }
    assert_same(&pair.b, &pair.a).await;
}

#[tokio::test]
async fn further_apart_they_refuse_each_other_and_say_which_one_to_upgrade() {
    let mut pair = Pair::start("").await;
    let client = pair.a.connect().await;
    run(&client, "create table t(id int primary key)").await;
    for (versions, row) in [("2-3", 1), ("0-0", 2)] {
        assert!(pair.b.stop().success());
        let before = pair.b.log().len();
        pair.b.link_versions = Some(versions);
        pair.b.start();
        until("it is refused", async || pair.b.log()[before..].contains("of the link protocol")).await;
        assert!(pair.b.log()[before..].contains("Upgrade the older program"), "{}", pair.b.log());
        // Who is not understood stops nobody.
        run(&client, &format!("insert into t values ({row})")).await;
        assert_eq!(one(&client, "select count(*) from pg_stat_replication").await, "0");
    }
    upgrade(&pair.a, &mut pair.b, None).await;
    assert_same(&pair.a, &pair.b).await;
}
