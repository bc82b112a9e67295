//! F6: a subscriber is away while far more is written than its slot keeps. With an archive it is sent from there what the trail has
//! recycled: everything once, over kills, an archive that is away, and a promotion.

use super::lasting::ids;
use super::stock::Stock;
use super::subscriber::{Event, Subscriber, Transaction};
use crate::node::{Node, Pair, succeeds};
use crate::server::{one, run, until};
use crate::standby::archive::objects;
use crate::subscriptions::bed::{connection, until_equal};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio_postgres::Client;

const MADE: &str = "create table n(id int primary key, v text); create publication p for table n";

/// Objects that are archived while the subscriber is away: each is as much as the slot keeps.
const OBJECTS: usize = 16;

/// A server with small segments and an archive, and a slot that keeps as little as it may.
fn lines(archive: &Path) -> String {
    let small = "segment_bytes = 1048576\nredo_bytes_max = 1048576\nslot_keep_bytes_max = 1048576\n";
    format!("{small}archive = \"{}\"\n", archive.display())
}

struct Archiving {
    node: Node,
    archive: PathBuf,
    scratch: TempDir,
}

impl Archiving {
    /// With the table `n` and the publication `p`.
    async fn start() -> Archiving {
        let scratch = TempDir::new().unwrap();
        let archive = scratch.path().join("archive");
        std::fs::create_dir(&archive).unwrap();
        let mut node = Node::new(&scratch, "a");
        node.configure(&lines(&archive));
        node.start();
        run(&node.connect().await, MADE).await;
        Archiving { node, archive, scratch }
    }

    /// As if the archive's disk were not mounted, or again.
    fn unmount(&self, is_away: bool) {
        let away = self.archive.with_extension("away");
        let (from, to) = if is_away { (&self.archive, &away) } else { (&away, &self.archive) };
        std::fs::rename(from, to).unwrap();
    }

    fn read_from_archive(&self) -> usize {
        self.node.log().matches("a feed reads from the archive").count()
    }
}

async fn wal_status(client: &Client) -> String {
    one(client, "select wal_status from pg_replication_slots").await
}

/// Inserts rows from `next` on until much is archived, and the trail has recycled what the slot needs; returns the id behind.
async fn write_far(client: &Client, archive: &Path, mut next: i64) -> i64 {
    let before = objects(archive).len();
    until("the trail is recycled behind the slot", async || {
        for _ in 0..8 {
            run(client, &format!("insert into n values ({next}, repeat('x', 100000))")).await;
            next += 1;
        }
        run(client, "checkpoint").await;
        objects(archive).len() >= before + OBJECTS && wal_status(client).await == "extended"
    })
    .await;
    next
}

/// Receives up to the row `last`.
fn receive(site: &mut Subscriber, all: &mut Vec<Transaction>, last: i64) {
    while all.last().is_none_or(|transaction| ids(std::slice::from_ref(transaction)) != [last]) {
        all.push(site.transaction());
    }
}

fn started(port: u16, end: u64) -> Subscriber {
    let mut site = Subscriber::connect(port);
    site.end = end;
    site.start("s", end, "p").unwrap();
    site
}

fn assert_all(all: &[Transaction], next: i64) {
    assert_eq!(ids(all), (1..next).collect::<Vec<_>>(), "each row once, in order");
}

/// The server is killed again and again while the subscriber catches up, and there are writers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_that_was_away_is_sent_everything_once_from_the_archive() {
    let mut bed = Archiving::start().await;
    Subscriber::connect(bed.node.port).create_slot("s");
    let client = bed.node.connect().await;
    let mut next = write_far(&client, &bed.archive, 1).await;
    // A restart finds it there, too.
    assert!(bed.node.stop().success());
    bed.node.start();
    let (mut all, mut end) = (Vec::new(), 0);
    for round in 0..4 {
        let client = bed.node.connect().await;
        let mut site = started(bed.node.port, end);
        assert_eq!(wal_status(&client).await, "extended");
        for _ in 0..20 {
            all.push(site.transaction());
        }
        end = site.end;
        // Confirmed, or not.
        if round % 2 == 0 {
            site.confirm(end);
        }
        run(&client, &format!("insert into n values ({next}, 'between')")).await;
        next += 1;
        bed.node.kill();
        bed.node.start();
    }
    let client = bed.node.connect().await;
    let mut site = started(bed.node.port, end);
    // What is written now is in the trail, also when the feed gets there.
    run(&client, &format!("insert into n values ({next}, 'last')")).await;
    next += 1;
    receive(&mut site, &mut all, next - 1);
    assert_all(&all, next);
    assert!(bed.read_from_archive() >= OBJECTS, "{}", bed.read_from_archive());
    let end = site.end;
    site.confirm(end);
    until("the trail has what the slot needs", async || wal_status(&client).await == "reserved").await;
}

/// Before the feed begins, and in the middle of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_that_is_away_ends_the_feed_and_leaves_nothing_out() {
    let bed = Archiving::start().await;
    Subscriber::connect(bed.node.port).create_slot("s");
    let client = bed.node.connect().await;
    let mut next = write_far(&client, &bed.archive, 1).await;
    bed.unmount(true);
    let refused = Subscriber::connect(bed.node.port).start("s", 0, "p").unwrap_err();
    assert_eq!(refused.state, "58030");
    assert!(refused.message.contains("from the archive"), "{}", refused.message);
    assert_eq!(wal_status(&client).await, "extended", "it is not lost");
    bed.unmount(false);
    let mut site = started(bed.node.port, 0);
    let mut all = vec![site.transaction()];
    bed.unmount(true);
    let refused = loop {
        match site.next() {
            Event::Transaction(transaction) => all.push(transaction),
            Event::Keepalive => {}
            Event::Ended(refused) => break refused.unwrap(),
        }
    };
    assert_eq!(refused.state, "58030");
    assert!(all.len() < next as usize - 1, "the archive was needed");
    bed.unmount(false);
    let mut site = started(bed.node.port, site.end);
    run(&client, &format!("insert into n values ({next}, 'last')")).await;
    next += 1;
    receive(&mut site, &mut all, next - 1);
    assert_all(&all, next);
}

/// Objects are removed that a slot needs: it is lost, and says why, until they are there again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_is_lost_when_the_archive_no_longer_has_what_it_needs() {
    let bed = Archiving::start().await;
    Subscriber::connect(bed.node.port).create_slot("s");
    let client = bed.node.connect().await;
    let next = write_far(&client, &bed.archive, 1).await;
    let first = objects(&bed.archive).remove(0);
    let aside = bed.scratch.path().join("aside");
    std::fs::rename(&first, &aside).unwrap();
    until("the server finds it by itself", async || wal_status(&client).await == "lost").await;
    assert!(bed.node.log().contains("replication slot s is lost"), "{}", bed.node.log());
    let refused = Subscriber::connect(bed.node.port).start("s", 0, "p").unwrap_err();
    assert_eq!(refused.state, "55000");
    assert!(refused.message.contains("can no longer get changes"), "{}", refused.message);
    std::fs::rename(&aside, &first).unwrap();
    // One that is missing in the middle is found, too.
    let middle = objects(&bed.archive).remove(8);
    std::fs::rename(&middle, &aside).unwrap();
    let mut site = started(bed.node.port, 0);
    let mut all = Vec::new();
    let refused = loop {
        match site.next() {
            Event::Transaction(transaction) => all.push(transaction),
            Event::Keepalive => {}
            Event::Ended(refused) => break refused.unwrap(),
        }
    };
    assert!(["55000", "58030"].contains(&&*refused.state), "{refused:?}");
    assert_eq!(Subscriber::connect(bed.node.port).start("s", 0, "p").unwrap_err().state, "55000");
    std::fs::rename(&aside, &middle).unwrap();
    receive(&mut started(bed.node.port, site.end), &mut all, next - 1);
    assert_all(&all, next);
}

/// The standby that takes over has the slots, and reads the archive of its master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_standby_feeds_from_the_archive_of_its_master() {
    let scratch = TempDir::new().unwrap();
    let archive = scratch.path().join("archive");
    std::fs::create_dir(&archive).unwrap();
    let mut pair = Pair::master(&lines(&archive));
    let master = pair.a.connect().await;
    run(&master, MADE).await;
    Subscriber::connect(pair.a.port).create_slot("s");
    pair.create_standby();
    pair.b.configure(&lines(&archive));
    pair.b.start();
    pair.until_followed().await;
    let mut next = write_far(&master, &archive, 1).await;
    pair.until_equal().await;
    let standby = pair.b.connect().await;
    until("the standby's trail is recycled", async || {
        run(&standby, "checkpoint").await;
        wal_status(&standby).await == "extended"
    })
    .await;
    let given_up = pair.b.log().matches("no longer kept for replication slot").count();
    assert!(given_up <= 1, "a slot that is given up is not held again: {}", pair.b.log());
    drop((master, standby));
    pair.a.kill();
    succeeds(&["promote", "--at", &pair.b.at(), "--accept-divergence"]);
    let client = pair.b.connect().await;
    run(&client, &format!("insert into n values ({next}, 'at the new master')")).await;
    next += 1;
    let mut all = Vec::new();
    receive(&mut started(pair.b.port, 0), &mut all, next - 1);
    assert_all(&all, next);
}

const ALL: &str = "select id, length(v) from n order by id";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holdfast_that_was_away_catches_up_from_the_archive() {
    let mut bed = Archiving::start().await;
    let client = bed.node.connect().await;
    run(&client, "insert into n values (1, 'copied')").await;
    let mut site = Node::new(&bed.scratch, "site");
    site.start();
    let there = site.connect().await;
    run(&there, "create table n(id int primary key, v text)").await;
    let made = format!("create subscription s connection '{}' publication p", connection(&bed.node));
    run(&there, &format!("{made} with (disable_on_error = true)")).await;
    until_equal(&client, &there, ALL, ALL).await;
    drop(there);
    site.kill();
    write_far(&client, &bed.archive, 2).await;
    bed.unmount(true);
    site.start();
    let there = site.connect().await;
    until("the subscription waits for the archive", async || {
        one(&there, "select last_error like '%archive%' from holdfast_stat_sites").await == "t"
    })
    .await;
    bed.unmount(false);
    until("it has a part", async || one(&there, "select count(*) > 20 from n").await == "t").await;
    bed.node.kill();
    bed.node.start();
    until_equal(&bed.node.connect().await, &there, ALL, ALL).await;
    assert!(!site.log().contains("(23505)"), "a transaction was applied twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stock_postgresql_that_was_away_catches_up_from_the_archive() {
    let mut bed = Archiving::start().await;
    let client = bed.node.connect().await;
    run(&client, "alter role holdfast password 'secret'; insert into n values (1, 'copied')").await;
    let Some(stock) = Stock::start_for(bed.node.port).await else { return };
    stock.run("create table n(id int primary key, v text)").await;
    stock.subscribe_as("holdfast", "p").await;
    stock.until_equal(&client, ALL, ALL).await;
    stock.run("alter subscription s disable").await;
    until("the slot is free", async || one(&client, "select active from pg_replication_slots").await == "f").await;
    write_far(&client, &bed.archive, 2).await;
    stock.run("alter subscription s enable").await;
    until("it has a part", async || one(&stock.client, "select count(*) > 20 from n").await == "t").await;
    bed.node.kill();
    bed.node.start();
    stock.until_equal(&bed.node.connect().await, ALL, ALL).await;
    assert!(bed.read_from_archive() >= OBJECTS, "{}", bed.read_from_archive());
}
