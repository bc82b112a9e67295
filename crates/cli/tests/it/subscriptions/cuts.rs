//! The link is cut, or either side killed, in front of a message of the protocol, of each kind: from the first message of CREATE
//! SUBSCRIPTION on, through the copies of the tables, small transactions and a large one. Afterwards both have the same: nothing
//! is missing, and nothing was applied twice.
//!
//! The publisher is a Holdfast or a PostgreSQL 15. Ordinarily the first and the last message of each kind are tried, each with one
//! of the three faults; `HOLDFAST_FEED_CUTS=all` tries every message with each.

use super::bed::{fail_if_it_has_failed, figure};
use super::proxy::{Place, Proxy};
use super::side::{Side, connected, texts, until_same};
use crate::node::Node;
use crate::server::{one, run, until};
use holdfast_seams::testing::Patience;
use holdfast_testbed::oracle::Postgres;
use std::collections::HashMap;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use tempfile::TempDir;
use tokio_postgres::Client;

#[derive(Clone, Copy, Debug)]
enum Fault {
    Cut,
    KillPublisher,
    KillSubscriber,
}

const FAULTS: [Fault; 3] = [Fault::Cut, Fault::KillPublisher, Fault::KillSubscriber];

const TABLES: &str = "create table t(id int primary key, v text); create table log(id int primary key, n bigint)";

/// Every kind of change; each is a transaction that also adds to the log, where one that is applied twice meets its key.
const TRANSACTIONS: [&str; 7] = [
    "insert into t values (10, 'ten'), (11, 'eleven')",
    "update t set v = v || '+' where id = 1",
    "update t set id = 12 where id = 11",
    "delete from t where id = 2",
    // More than 4 MB: applied while it arrives.
    "insert into t select g, repeat('large', 20000) from generate_series(100, 144) g",
    "update t set v = v || '!' where id < 20",
    "delete from t where id between 100 and 143",
];

/// So many of them are made while the tables are copied.
const WHILE_COPIED: usize = 2;

struct Bed {
    publisher: Side,
    subscriber: Node,
    proxy: Proxy,
}

impl Bed {
    async fn new(publisher: Side, subscriber: Node) -> Bed {
        let proxy = Proxy::to(&format!("127.0.0.1:{}", publisher.port()));
        let (there, here) = (publisher.connect().await, subscriber.connect().await);
        run(&there, TABLES).await;
        run(&here, TABLES).await;
        run(&there, "create publication p for table t, log").await;
        Bed { publisher, subscriber, proxy }
    }

    /// One subscription, from its creation to its end, with a fault. False: the message did not come.
    async fn round(&mut self, aim: Option<(Place, Fault)>) -> bool {
        let there = self.publisher.connect().await;
        run(&there, "truncate t; truncate log").await;
        run(&there, "insert into t values (1, 'one'), (2, 'two'), (3, 'three'); insert into log values (0, 0)").await;
        run(&self.subscriber.connect().await, "truncate t; truncate log").await;
        let hit = self.proxy.begin(aim.as_ref().map(|(place, _)| place.clone()));
        let creating =
            tokio::spawn(create(self.subscriber.connect().await, self.proxy.port, self.publisher.database()));
        let writing = tokio::spawn(write(self.publisher.address(), self.subscriber.port));
        let mut was_hit = false;
        if let Some((_, fault)) = aim {
            // It may come after the rows are equal: the last one that confirms.
            was_hit = self.until_hit(&hit).await;
            self.strike(was_hit.then_some(fault));
        }
        // A statement that was answered with an error has made nothing here; at the publisher it may have made the slot.
        if !creating.await.unwrap() && one(&self.subscriber.connect().await, SUBSCRIPTIONS).await == "0" {
            let there = self.publisher.connect().await;
            until("the slot is free", async || one(&there, ACTIVE).await == "0").await;
            self.drop_slots(&there).await;
            assert!(create(self.subscriber.connect().await, self.proxy.port, self.publisher.database()).await);
        }
        // Else it tries again after 5 seconds.
        let here = self.subscriber.connect().await;
        run(&here, "alter subscription s disable").await;
        run(&here, "alter subscription s enable").await;
        writing.await.unwrap();
        self.until_all_is_there().await;
        was_hit
    }

    /// As an operator does where CREATE SUBSCRIPTION has left one.
    async fn drop_slots(&self, there: &Client) {
        let slots = texts(there, "select slot_name from pg_replication_slots").await;
        match &self.publisher {
            Side::Postgres(_) => {
                _ = texts(there, "select pg_drop_replication_slot(slot_name) from pg_replication_slots").await;
            }
            Side::Holdfast(node) => {
                let mut link = crate::feeds::subscriber::Subscriber::connect(node.port);
                slots.iter().for_each(|slot| _ = link.query(&format!("DROP_REPLICATION_SLOT {slot}")).unwrap());
            }
        }
    }

    async fn until_hit(&self, hit: &std::sync::mpsc::Receiver<()>) -> bool {
        let (there, here) = (self.publisher.connect().await, self.subscriber.connect().await);
        let mut equal = 0;
        loop {
            match hit.recv_timeout(Duration::from_millis(5)) {
                Ok(()) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => {
                    fail_if_it_has_failed(&here).await;
                    let is_there = one(&here, "select count(*) from log").await == (TRANSACTIONS.len() + 1).to_string();
                    equal += u64::from(is_there && one(&there, ACTIVE).await != "0");
                    // What confirms the last transaction has come by then, or does not come.
                    if equal > 20 {
                        return false;
                    }
                }
            }
        }
    }

    fn strike(&mut self, fault: Option<Fault>) {
        match fault {
            Some(Fault::KillPublisher) => self.publisher.kill(),
            Some(Fault::KillSubscriber) => {
                self.subscriber.kill();
                self.subscriber.start();
            }
            Some(Fault::Cut) | None => {}
        }
        self.proxy.heal();
    }

    async fn until_all_is_there(&mut self) {
        let (there, here) = (self.publisher.connect().await, self.subscriber.connect().await);
        for table in ["select id, md5(v) from t order by id", "select id, n from log order by id"] {
            until_same(&there, &here, table).await;
        }
        assert_eq!(figure(&here, "rows_missing").await, "0");
        assert!(!self.subscriber.log().contains("(23505)"), "applied twice:\n{}", self.subscriber.log());
        assert!(!self.subscriber.log().contains("duplicate key"), "applied twice:\n{}", self.subscriber.log());
        run(&here, "drop subscription s").await;
        until("no slot is left", async || one(&there, "select count(*) from pg_replication_slots").await == "0").await;
    }

    /// Every place to try.
    async fn run(&mut self) {
        assert!(!self.round(None).await);
        let seen = self.proxy.seen();
        let all = std::env::var("HOLDFAST_FEED_CUTS").is_ok_and(|which| which == "all");
        let aims = aims(&seen, all);
        let mut hits = 0;
        for (place, fault) in &aims {
            println!("{place:?} {fault:?}");
            hits += u64::from(self.round(Some((place.clone(), *fault))).await);
        }
        println!("{} messages of {} kinds; {hits} of {} faults", seen.values().sum::<u64>(), seen.len(), aims.len());
        assert!(hits * 2 > aims.len() as u64, "most messages did not come: {hits} of {}", aims.len());
    }
}

const SUBSCRIPTIONS: &str = "select count(*) from pg_subscription";
const ACTIVE: &str = "select count(*) from pg_replication_slots where active";

fn aims(seen: &HashMap<String, u64>, all: bool) -> Vec<(Place, Fault)> {
    let mut kinds: Vec<_> = seen.iter().collect();
    kinds.sort();
    let mut aims = Vec::new();
    for (at, (kind, count)) in kinds.into_iter().enumerate() {
        if all {
            let of = (1..=*count).flat_map(|n| FAULTS.map(|fault| (Place(kind.clone(), n), fault)));
            aims.extend(of);
        } else {
            aims.push((Place(kind.clone(), [1, *count][at % 2]), FAULTS[at % 3]));
        }
    }
    aims
}

/// Whether it was created.
async fn create(here: Client, port: u16, database: &str) -> bool {
    let connection = format!("host=127.0.0.1 port={port} dbname={database} user=holdfast sslmode=disable");
    here.batch_execute(&format!("create subscription s connection '{connection}' publication p")).await.is_ok()
}

/// Commits the transactions, over the ends of the publisher: one that was not answered may be there. Some of them come while the tables
/// are copied, the others when that is over, so that the feed brings them.
async fn write(there: String, here: u16) {
    let mut number = 1;
    while number <= TRANSACTIONS.len() {
        let Some(client) = connected(&there).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        while let Some(done) = last(&client).await {
            number = done + 1;
            let mut patience = Patience::new();
            while number == WHILE_COPIED + 1 && !are_copied(here).await {
                patience.look("the tables are copied");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let Some(sql) = TRANSACTIONS.get(number - 1) else { return };
            let script = format!("begin; {sql}; insert into log values ({number}, {number}); commit");
            if client.batch_execute(&script).await.is_err() {
                break;
            }
        }
    }
}

/// The number of the last transaction; `None`: the connection has ended.
async fn last(client: &Client) -> Option<usize> {
    let row = client.query_one("select max(id) from log", &[]).await.ok()?;
    usize::try_from(row.get::<_, i32>(0)).ok()
}

async fn are_copied(here: u16) -> bool {
    let at = format!("host=127.0.0.1 port={here} user=holdfast dbname=holdfast");
    let Some(client) = connected(&at).await else { return false };
    let copied = client.query_one("select count(*) from pg_subscription_rel where srsubstate = 'r'", &[]).await;
    copied.is_ok_and(|row| row.get::<_, i64>(0) == 2)
}

fn subscriber(scratch: &TempDir) -> Node {
    let mut node = Node::new(scratch, "b");
    node.start();
    node
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_at_any_message_leaves_nothing_out_and_repeats_nothing() {
    let scratch = TempDir::new().unwrap();
    Bed::new(Side::holdfast(&scratch, "a"), subscriber(&scratch)).await.run().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_at_any_message_of_a_postgresql_that_publishes() {
    let Some(postgres) = Postgres::start_publishing() else { return };
    let scratch = TempDir::new().unwrap();
    Bed::new(Side::Postgres(postgres), subscriber(&scratch)).await.run().await;
}
