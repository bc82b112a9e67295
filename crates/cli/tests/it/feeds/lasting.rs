//! A feed over the ends of servers: killed, stopped, replaced by a standby, restored. Nothing twice, nothing missing, and nothing
//! that a promotion could lose.

use super::subscriber::{Event, Subscriber, Transaction};
use crate::node::{Pair, succeeds};
use crate::server::{Running, one, run};
use tokio_postgres::Client;

const MADE: &str = "create table n(id int primary key, v text); create publication p for table n";

/// Receives until the server is gone.
fn until_it_is_gone(site: &mut Subscriber, all: &mut Vec<Transaction>) {
    loop {
        match site.next() {
            Event::Transaction(transaction) => all.push(transaction),
            Event::Keepalive => {}
            Event::Ended(_) => return,
        }
    }
}

/// A master that names its standby, which follows, and a session whose commits do not wait for it.
async fn pair_that_waits() -> (Pair, Client) {
    let mut pair = Pair::master("synchronous_standby_names = \"b\"\n");
    let master = pair.a.connect().await;
    run(&master, "set synchronous_commit = local").await;
    run(&master, MADE).await;
    pair.create_standby();
    pair.b.start();
    pair.until_followed().await;
    (pair, master)
}

/// Inserts rows until the server is gone; returns how many were acknowledged.
async fn insert(client: Client, from: i64) -> i64 {
    let mut next = from;
    while client.execute("insert into n values ($1::int8::int, 'x')", &[&next]).await.is_ok() {
        next += 1;
    }
    next
}

pub fn ids(all: &[Transaction]) -> Vec<i64> {
    let id = |change: &String| change.split(' ').nth(2).unwrap().parse().unwrap();
    all.iter().flat_map(|transaction| transaction.changes.iter().map(id)).collect()
}

/// Kills the server in the middle of the feed, again and again. The subscriber continues where its own position is, or, every
/// other time, where the slot is.
#[tokio::test]
async fn a_killed_publisher_sends_nothing_twice_and_leaves_nothing_out() {
    let mut server = Running::start();
    run(&server.connect().await, MADE).await;
    Subscriber::connect(server.port).create_slot("s");
    let (mut all, mut next, mut end) = (Vec::new(), 1, 0);
    for round in 0..6 {
        let client = server.connect().await;
        let mut site = Subscriber::connect(server.port);
        site.end = end;
        site.start("s", end, "p").unwrap();
        let receiving = std::thread::spawn(move || {
            let mut all = Vec::new();
            while all.len() < 40 {
                match site.next() {
                    Event::Transaction(transaction) => {
                        all.push(transaction);
                        // Confirmed late, or not at all.
                        if round % 2 == 0 && all.len() == 20 {
                            let end = site.end;
                            site.confirm(end);
                        }
                    }
                    Event::Keepalive => {}
                    Event::Ended(why) => panic!("{why:?}"),
                }
            }
            (all, site)
        });
        let inserting = tokio::spawn(insert(client, next));
        let (mut received, mut site) = tokio::task::spawn_blocking(|| receiving.join().unwrap()).await.unwrap();
        let dir = server.kill();
        inserting.await.unwrap();
        until_it_is_gone(&mut site, &mut received);
        end = site.end;
        all.extend(received);
        server = Running::start_in(dir);
        // A row that was not acknowledged may be there.
        let client = server.connect().await;
        next = one(&client, "select coalesce(max(id), 0) + 1 from n").await.parse().unwrap();
    }
    run(&server.connect().await, "insert into n values (0, 'end')").await;
    let mut site = Subscriber::connect(server.port);
    site.end = end;
    site.start("s", end, "p").unwrap();
    while all.last().is_none_or(|last: &Transaction| !last.changes[0].ends_with(" end")) {
        all.push(site.transaction());
    }
    let mut expected: Vec<i64> = (1..next).collect();
    expected.push(0);
    assert_eq!(ids(&all), expected);
}

/// A clean stop writes the positions: the next feed begins at what was confirmed last.
#[tokio::test]
async fn a_clean_stop_keeps_what_was_confirmed() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, MADE).await;
    let mut site = Subscriber::connect(server.port);
    site.create_slot("s");
    site.start("s", 0, "p").unwrap();
    run(&client, "insert into n values (1, 'x')").await;
    run(&client, "insert into n values (2, 'x')").await;
    let first = site.transaction();
    let end = first.end;
    site.confirm(end);
    let confirmed = format!("select confirmed_flush_lsn >= '0/{end:X}' from pg_replication_slots");
    crate::server::until("the slot moves", async || one(&client, &confirmed).await == "t").await;
    let (status, dir) = server.stop();
    assert!(status.success());
    let server = Running::start_in(dir);
    let mut site = Subscriber::connect(server.port);
    site.start("s", 0, "p").unwrap();
    assert_eq!(ids(&[site.transaction()]), [2]);
}

/// The first slot of a database makes the tables of slots; the next one is created while that commit waits for a standby.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_is_created_while_the_tables_of_slots_wait_for_the_standbys() {
    let (mut pair, master) = pair_that_waits().await;
    pair.b.kill();
    let port = pair.a.port;
    let create = |slot: &'static str| std::thread::spawn(move || Subscriber::connect(port).create_slot(slot));
    let first = create("first");
    pair.a.until_commits_wait(1).await;
    let next = create("next");
    let creating =
        "select count(*) from pg_stat_activity where state = 'active' and query like 'CREATE_REPLICATION_SLOT%'";
    crate::server::until("both wait", async || one(&master, creating).await == "2" || next.is_finished()).await;
    pair.b.start();
    for creating in [first, next] {
        creating.join().unwrap();
    }
}

/// A subscriber drops a slot whose reader's connection has just ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_is_dropped_when_its_reader_has_gone() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, MADE).await;
    let mut reader = Subscriber::connect(server.port);
    reader.create_slot("s");
    reader.start("s", 0, "p").unwrap();
    assert_eq!(Subscriber::connect(server.port).state("DROP_REPLICATION_SLOT s"), "55006");
    let mut site = Subscriber::connect(server.port);
    let dropping = std::thread::spawn(move || site.query("DROP_REPLICATION_SLOT s WAIT"));
    let waiting =
        "select count(*) from pg_stat_activity where state = 'active' and query like 'DROP_REPLICATION_SLOT%'";
    crate::server::until("it waits", async || one(&client, waiting).await == "1" || dropping.is_finished()).await;
    assert!(!dropping.is_finished());
    drop(reader);
    dropping.join().unwrap().unwrap();
    assert_eq!(one(&client, "select count(*) from pg_replication_slots").await, "0");
}

/// The trail is kept for slots that exist, and for no others.
#[tokio::test]
async fn the_trail_is_not_kept_for_a_slot_that_is_gone() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, MADE).await;
    run(&client, "create database shop").await;
    Subscriber::connect(server.port).create_slot("s");
    Subscriber::connect_to(server.port, "shop").create_slot("s");
    let kept = |dir: &std::path::Path| std::fs::read_to_string(dir.join("feeds")).unwrap().matches("[[feed]]").count();
    assert_eq!(kept(server.dir.path()), 2);
    run(&client, "drop database shop").await;
    crate::server::until("nothing is kept for a dropped database", async || kept(server.dir.path()) == 1).await;
    let dir = server.kill();
    // As if the server had ended while it made another slot.
    let file = dir.path().join("feeds");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}\n[[feed]]\nname = \"1/half\"\nlsn = 67112960\n")).unwrap();
    let server = Running::start_in(dir);
    crate::server::until("nothing is kept for a slot without a row", async || kept(server.dir.path()) == 1).await;
    assert!(std::fs::read_to_string(server.dir.path().join("feeds")).unwrap().contains("/s\""));
}

/// F4, F5: a standby that takes over has the slots, and everything that any subscriber was sent, also of commits that asked for no
/// standby.
#[tokio::test]
async fn a_subscriber_continues_at_the_promoted_standby() {
    let (mut pair, master) = pair_that_waits().await;
    let mut site = Subscriber::connect(pair.a.port);
    site.create_slot("s");
    site.start("s", 0, "p").unwrap();
    let standby = pair.b.connect().await;
    crate::server::until("the slot is at the standby", async || {
        one(&standby, "select count(*) from pg_replication_slots").await == "1"
    })
    .await;
    let mut at_standby = Subscriber::connect(pair.b.port);
    assert_eq!(at_standby.start("s", 0, "p").unwrap_err().state, "0A000", "a standby sends nothing");
    let receiving = std::thread::spawn(move || {
        let mut all = Vec::new();
        until_it_is_gone(&mut site, &mut all);
        (all, site.end)
    });
    let inserting = tokio::spawn(insert(master, 1));
    let first = pair.a.connect().await;
    crate::server::until("there are rows", async || one(&first, "select count(*) > 200 from n").await == "t").await;
    // The standby is away: what the master commits now at level local is sent to no subscriber.
    drop(standby);
    pair.b.kill();
    let before: i64 = one(&first, "select count(*) from n").await.parse().unwrap();
    crate::server::until("more rows are committed", async || {
        one(&first, &format!("select count(*) > {before} + 200 from n")).await == "t"
    })
    .await;
    pair.a.kill();
    inserting.await.unwrap();
    let (mut all, end) = tokio::task::spawn_blocking(|| receiving.join().unwrap()).await.unwrap();
    pair.b.start();
    succeeds(&["promote", "--at", &pair.b.at(), "--accept-divergence"]);
    let standby = pair.b.connect().await;
    let have: i64 = one(&standby, "select max(id) from n").await.parse().unwrap();
    assert!(ids(&all).last().is_none_or(|last| *last <= have), "nothing was sent that the standby lacks");
    run(&standby, "insert into n values (0, 'end')").await;
    let mut site = Subscriber::connect(pair.b.port);
    site.end = end;
    site.start("s", end, "p").unwrap();
    while all.last().is_none_or(|last: &Transaction| !last.changes[0].ends_with(" end")) {
        all.push(site.transaction());
    }
    let mut expected: Vec<i64> = (1..=have).collect();
    expected.push(0);
    assert_eq!(ids(&all), expected);
}

/// F4: a subscriber copies only what is on the standbys, too. A slot with a snapshot is there when they have what it shows.
#[tokio::test]
async fn a_snapshot_waits_for_the_standbys() {
    let (mut pair, master) = pair_that_waits().await;
    pair.b.kill();
    run(&master, "insert into n values (1, 'not at the standby')").await;
    let port = pair.a.port;
    let connect = move || {
        let mut site = Subscriber::connect(port);
        site.query("set synchronous_commit = local").unwrap();
        site
    };
    let creating = std::thread::spawn(move || {
        let mut site = connect();
        site.query("begin read only isolation level repeatable read").unwrap();
        let point = site.query("CREATE_REPLICATION_SLOT s LOGICAL pgoutput (SNAPSHOT 'use')").unwrap()[0][1].clone();
        (site.query("select count(*) from n").unwrap(), point)
    });
    // Others, which have no snapshot, are made meanwhile.
    for number in 0..20 {
        connect().create_slot(&format!("other{number}"));
    }
    assert!(!creating.is_finished(), "the copy would have begun");
    pair.b.start();
    let (count, point) = tokio::task::spawn_blocking(|| creating.join().unwrap()).await.unwrap();
    assert_eq!(count, [["1"]]);
    let confirmed = "select confirmed_flush_lsn from pg_replication_slots where slot_name = 's'";
    assert_eq!(one(&master, confirmed).await, point);
}

/// Inserts rows from `id` on until the trail is longer than `lsn`.
async fn grow_beyond(client: &Client, lsn: u64, mut id: i64) {
    let is_longer = format!("select pg_current_wal_lsn() > '{:X}/{:X}'", lsn >> 32, lsn as u32);
    while one(client, &is_longer).await != "t" {
        run(client, &format!("insert into n values ({id}, 'after')")).await;
        id += 1;
    }
    run(client, "insert into n values (0, 'end')").await;
}

/// A subscriber at `lost` is refused, one at `kept` gets everything behind it.
fn continues_at_kept_only(port: u16, kept: u64, lost: u64) {
    let mut site = Subscriber::connect(port);
    let refused = site.start("s", lost, "p").unwrap_err();
    assert_eq!(refused.state, "55000");
    assert!(refused.message.contains("is not in this server's trail"), "{}", refused.message);
    // Again: that it was refused is not forgotten.
    assert_eq!(site.start("s", lost, "p").unwrap_err().state, "55000");
    let mut site = Subscriber::connect(port);
    site.start("s", kept, "p").unwrap();
    let mut all = vec![site.transaction()];
    while !all[all.len() - 1].changes[0].ends_with(" end") {
        all.push(site.transaction());
    }
    assert!(all.len() > 1 && ids(&all)[0] >= 100, "{all:?}");
}

/// F5: a standby for which no commit waited takes over, and its trail grows beyond what the subscriber has.
#[tokio::test]
async fn a_position_that_a_promotion_took_back_is_refused() {
    let mut pair = Pair::start("").await;
    let master = pair.a.connect().await;
    run(&master, MADE).await;
    let mut site = Subscriber::connect(pair.a.port);
    site.create_slot("s");
    site.start("s", 0, "p").unwrap();
    run(&master, "insert into n values (1, 'kept')").await;
    let kept = site.transaction().end;
    pair.until_followed().await;
    pair.b.kill();
    run(&master, "insert into n values (2, 'lost'), (3, 'lost')").await;
    let lost = site.transaction().end;
    pair.a.kill();
    pair.b.start();
    succeeds(&["promote", "--at", &pair.b.at(), "--accept-divergence"]);
    grow_beyond(&pair.b.connect().await, lost, 100).await;
    continues_at_kept_only(pair.b.port, kept, lost);
}

/// F5: an older copy of the directory is put back.
#[tokio::test]
async fn a_position_that_a_directory_put_back_lacks_is_refused() {
    let server = Running::start();
    run(&server.connect().await, MADE).await;
    let mut site = Subscriber::connect(server.port);
    site.create_slot("s");
    site.start("s", 0, "p").unwrap();
    run(&server.connect().await, "insert into n values (1, 'kept')").await;
    let kept = site.transaction().end;
    let (_, dir) = server.stop();
    let copy = tempfile::TempDir::new().unwrap();
    let copied =
        std::process::Command::new("cp").arg("-a").arg(dir.path().join(".")).arg(copy.path()).status().unwrap();
    assert!(copied.success());
    // The same server continues: nothing was taken back.
    let server = Running::start_in(dir);
    let mut site = Subscriber::connect(server.port);
    site.start("s", kept, "p").unwrap();
    run(&server.connect().await, "insert into n values (2, 'lost')").await;
    let lost = site.transaction().end;
    drop(server.kill());
    let server = Running::start_in(copy);
    grow_beyond(&server.connect().await, lost, 100).await;
    continues_at_kept_only(server.port, kept, lost);
}

/// F6: a slot keeps the trail, up to its limit; then it is lost, and says so.
#[tokio::test]
async fn a_slot_keeps_the_trail_up_to_its_limit() {
    let dir = tempfile::TempDir::new().unwrap();
    let small = "segment_bytes = 1048576\nredo_bytes_max = 1048576\nslot_keep_bytes_max = 16777216\n";
    std::fs::write(dir.path().join("holdfast.toml"), small).unwrap();
    let server = Running::start_in(dir);
    let client = server.connect().await;
    run(&client, MADE).await;
    let mut site = Subscriber::connect(server.port);
    site.create_slot("lost");
    let fill = "update n set v = repeat('x', 200000) where id = 1; update n set v = 'y' where id = 1";
    run(&client, "insert into n values (1, 'x')").await;
    let status = async |slot: &str| {
        one(&client, &format!("select wal_status from pg_replication_slots where slot_name = '{slot}'")).await
    };
    crate::server::until("a slot beyond its limit is lost", async || {
        for _ in 0..8 {
            run(&client, fill).await;
        }
        status("lost").await == "lost"
    })
    .await;
    // So the trail is recycled; about 8 MB are kept for this one.
    site.create_slot("kept");
    for _ in 0..20 {
        run(&client, fill).await;
    }
    // Redo needs nothing of it now.
    run(&client, "checkpoint").await;
    run(&client, "checkpoint").await;
    assert_eq!(status("kept").await, "reserved");
    site.start("kept", 0, "p").unwrap();
    for _ in 0..20 {
        assert_eq!(site.transaction().changes.len(), 2);
    }
    let mut late = Subscriber::connect(server.port);
    assert_eq!(late.start("lost", 0, "p").unwrap_err().state, "55000");
    late.query("DROP_REPLICATION_SLOT lost").unwrap();
}
