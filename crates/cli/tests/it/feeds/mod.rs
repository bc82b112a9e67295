//! Logical replication slots and their feeds, as subscribers meet them.

mod archived;
mod copied;
mod granted;
mod lasting;
mod pg_recvlogical;
mod random;
mod stock;
pub mod subscriber;

use crate::server::{Running, one, run, state, until};
use subscriber::{Event, Subscriber};

const TABLES: &str = "create table t(k text primary key, a int, b text, region int); \
    create table n(id serial primary key, v numeric(6,2)); create table unseen(id int primary key, secret text)";

fn lines(transactions: &[Vec<String>]) -> Vec<String> {
    transactions.iter().map(|changes| changes.join("; ")).collect()
}

#[tokio::test]
async fn filters_columns_and_kinds_of_change() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, TABLES).await;
    run(&client, "create publication p for table t (k, a, region) where (region = 2)").await;
    run(&client, "create publication \"Q,\"\"q\" for table n with (publish = 'insert, update')").await;
    let mut site = Subscriber::connect(server.port);
    site.create_slot("s");
    for sql in [
        "insert into t values ('x', 1, 'secret', 2), ('y', 1, 'secret', 1)",
        "insert into unseen values (1, 'secret')",
        "update t set a = 2",
        "update t set b = 'other secret'",
        "update t set region = 2 where k = 'y'",
        "update t set k = 'z' where k = 'y'",
        "begin; update t set region = 3 where k = 'x'; update t set a = 9 where k = 'x'; commit",
        "begin; savepoint s; insert into n(v) values (7); rollback to s; insert into n(v) values (1.5), (2); commit",
        "begin; update n set id = id + 10 where id > 2; delete from n; commit",
        "update t set a = a",
        "delete from t where k in ('x', 'z')",
        "insert into t values ('end', null, null, 2)",
    ] {
        run(&client, sql).await;
    }
    site.start("s", 0, "\"p\", \"Q,\"\"q\"").unwrap();
    let found = lines(&site.until("end - 2"));
    assert_eq!(
        found,
        [
            "insert t x 1 2",
            "update t x 2 2",
            "update t x 2 2",
            "insert t y 2 2",
            "update t (y) z 2 2",
            "delete t x",
            "insert n 2 1.50; insert n 3 2.00",
            "update n (3) 13 2.00",
            "delete t z",
            "insert t end - 2",
        ]
    );
}

/// F1: transactions of one boxcar have places of their own, and a reader may begin at each of them, also in the middle.
#[tokio::test]
async fn a_subscriber_continues_between_two_transactions_of_one_boxcar() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, TABLES).await;
    run(&client, "create publication p for table n").await;
    let mut site = Subscriber::connect(server.port);
    site.create_slot("s");
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let client = server.connect().await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                run(&client, "insert into n(v) values (1)").await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    run(&client, "insert into n(v) values (9)").await;
    site.start("s", 0, "p").unwrap();
    let mut all = vec![site.transaction()];
    while !all[all.len() - 1].changes[0].ends_with(" 9.00") {
        all.push(site.transaction());
    }
    site.finish();
    assert_eq!(all.len(), 81);
    let boxcar = |lsn: u64| lsn & !0xfff;
    let shared: Vec<usize> = (1..all.len()).filter(|&at| boxcar(all[at].start) == boxcar(all[at - 1].start)).collect();
    assert!(!shared.is_empty(), "no two transactions were in one boxcar");
    for at in shared.into_iter().take(10) {
        for lsn in [all[at - 1].end, all[at].start] {
            let mut again = Subscriber::connect(server.port);
            again.start("s", lsn, "p").unwrap();
            assert_eq!(again.transaction(), all[at], "from {lsn:x}");
            again.finish();
        }
    }
    // A slot never moves back, whatever is asked.
    let mut last = Subscriber::connect(server.port);
    last.start("s", 0, "p").unwrap();
    while last.transaction().end < all[40].end {}
    last.confirm(all[40].end);
    let confirmed = format!("select confirmed_flush_lsn >= '0/{:X}' from pg_replication_slots", all[40].end);
    until("the slot moves", async || one(&client, &confirmed).await == "t").await;
    last.finish();
    let mut again = Subscriber::connect(server.port);
    again.start("s", 0, "p").unwrap();
    assert_eq!(again.transaction(), all[41]);
}

/// F8, F11: a subscriber that lags gets each change as the table and the publication were then.
#[tokio::test]
async fn a_lagging_subscriber_gets_each_change_under_the_schema_and_the_filter_of_its_time() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, TABLES).await;
    run(&client, "create publication p for table t where (region = 1)").await;
    let mut site = Subscriber::connect(server.port);
    site.create_slot("s");
    for sql in [
        "insert into t values ('a', 1, 'x', 1), ('b', 1, 'x', 2)",
        "alter publication p set table t where (region = 2)",
        "insert into t values ('c', 1, 'x', 1), ('d', 1, 'x', 2)",
        "alter table t add column more int default 5",
        "insert into t values ('e', 1, 'x', 2)",
        "begin; alter table t rename column a to number; insert into t values ('f', 1, 'x', 2); commit",
        "alter publication p drop table t",
        "insert into t values ('g', 1, 'x', 2)",
        "alter publication p add table n",
        "alter publication p add table t",
        "insert into t values ('h', 1, 'end', 2)",
    ] {
        run(&client, sql).await;
    }
    site.start("s", 0, "p").unwrap();
    let found = lines(&site.until("end 2 5"));
    assert_eq!(
        found,
        ["insert t a 1 x 1", "insert t d 1 x 2", "insert t e 1 x 2 5", "insert t f 1 x 2 5", "insert t h 1 end 2 5"]
    );
}

/// F2: a large transaction is in the trail in pieces, between those of others, and so is one that was rolled back.
#[tokio::test]
async fn large_transactions_are_sent_whole_at_their_commit() {
    let dir = tempfile::TempDir::new().unwrap();
    std::fs::write(dir.path().join("holdfast.toml"), "transaction_bytes_max = 268435456\n").unwrap();
    let server = Running::start_in(dir);
    let (client, other) = (server.connect().await, server.connect().await);
    run(&client, TABLES).await;
    run(&client, "create publication p for all tables").await;
    let rows = "insert into t select 'row' || g, g, repeat('x', 400), 1 from generate_series(1, 30000) g";
    let mut site = Subscriber::connect(server.port);
    site.create_slot("s");
    run(&client, &format!("begin; {rows}")).await;
    run(&other, "insert into n(v) values (1)").await;
    run(&client, "commit").await;
    run(&client, &format!("begin; {} ; rollback", rows.replace("row", "dropped"))).await;
    run(&client, "insert into n(v) values (2)").await;
    site.start("s", 0, "p").unwrap();
    let transactions = site.until(" 2.00");
    let shown: Vec<(usize, &str)> = transactions.iter().map(|changes| (changes.len(), &changes[0][..8])).collect();
    assert_eq!(shown, [(1, "insert n"), (30000, "insert t"), (1, "insert n")]);
    assert!(transactions[1][29999].starts_with("insert t row30000 30000 xxxx"));
}

/// F5: an idle subscriber, which confirms what it sees, makes the server write nothing.
#[tokio::test]
async fn an_idle_subscriber_writes_nothing() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, TABLES).await;
    run(&client, "create publication p for table t").await;
    let mut site = Subscriber::connect(server.port);
    site.create_slot("s");
    site.start("s", 0, "p").unwrap();
    run(&client, "insert into t values ('a', 1, 'x', 1)").await;
    site.until("a 1 x 1");
    run(&client, "insert into unseen values (1, 'x')").await;
    let ends = async || one(&client, "select pg_current_wal_lsn()").await;
    // Keepalives come when the trail moves, and every ten seconds; the position is written once, after that time.
    let (mut keepalives, mut seen) = (0, Vec::new());
    while keepalives < 5 {
        match site.next() {
            Event::Keepalive => {
                let lsn = site.seen;
                site.confirm(lsn);
                keepalives += 1;
                seen.push(ends().await);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen[keepalives - 1], seen[keepalives - 2], "{seen:?}");
    let confirmed = one(&client, "select confirmed_flush_lsn from pg_replication_slots").await;
    assert_eq!(confirmed, format!("{:X}/{:X}", site.seen >> 32, site.seen as u32));
}

/// The server again, which lets every role in.
fn trusting(server: Running) -> Running {
    let dir = server.kill();
    std::fs::write(dir.path().join("pg_hba.conf"), "host all all 127.0.0.1/32 trust\n").unwrap();
    Running::start_in(dir)
}

#[tokio::test]
async fn what_is_refused_and_who_may() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, TABLES).await;
    run(&client, "create role plain login; create role site login replication; create publication p for table t").await;
    let server = trusting(server);
    let client = server.connect().await;
    assert_eq!(Subscriber::connect_as(server.port, "plain").err().unwrap().state, "42501");
    let mut site = Subscriber::connect_as(server.port, "site").unwrap();
    assert_eq!(site.state("CREATE_REPLICATION_SLOT \"Bad\" LOGICAL pgoutput"), "42602");
    assert_eq!(site.state("CREATE_REPLICATION_SLOT s LOGICAL wal2json"), "58P01");
    assert_eq!(site.state("CREATE_REPLICATION_SLOT s TEMPORARY LOGICAL pgoutput"), "0A000");
    assert_eq!(site.state("CREATE_REPLICATION_SLOT s PHYSICAL"), "0A000");
    let with_snapshot = "CREATE_REPLICATION_SLOT s LOGICAL pgoutput (SNAPSHOT 'use')";
    assert_eq!(site.state(with_snapshot), "25001", "outside of a transaction");
    for before in [
        "begin",
        "begin isolation level repeatable read; select 1",
        "begin isolation level repeatable read; savepoint x",
    ] {
        site.query(before).unwrap();
        assert_eq!(site.state(with_snapshot), "25001", "{before}");
        site.query("rollback").unwrap();
    }
    site.query("begin isolation level repeatable read").unwrap();
    assert_eq!(site.state("CREATE_REPLICATION_SLOT s LOGICAL pgoutput (SNAPSHOT 'nothing')"), "25001");
    site.query("rollback").unwrap();
    assert_eq!(site.state("DROP_REPLICATION_SLOT s"), "42704");
    site.create_slot("s");
    assert_eq!(site.state("CREATE_REPLICATION_SLOT s LOGICAL pgoutput"), "42710");
    let refused = |site: &mut Subscriber, lsn, publication: &str| site.start("s", lsn, publication).unwrap_err().state;
    assert_eq!(refused(&mut site, 0, "p"), "42501", "a publication of another role");
    assert_eq!(refused(&mut site, 0, "none"), "42704");
    run(&client, "alter publication p owner to site").await;
    assert_eq!(refused(&mut site, 1 << 40, "p"), "55000", "ahead of the trail");
    assert_eq!(site.state("START_REPLICATION SLOT s LOGICAL 0/0 (publication_names 'p')"), "22023");
    assert_eq!(
        site.state("START_REPLICATION SLOT s LOGICAL 0/0 (proto_version '1', streaming 'on', publication_names 'p')"),
        "0A000"
    );
    assert_eq!(site.query("select 1").unwrap(), [["1"]], "SQL as well");
    let identified = site.query("IDENTIFY_SYSTEM").unwrap();
    assert_eq!((identified[0].len(), identified[0][3].as_str()), (4, "holdfast"));
    site.start("s", 0, "p").unwrap();
    let mut second = Subscriber::connect_as(server.port, "site").unwrap();
    assert_eq!(refused(&mut second, 0, "p"), "55006");
    assert_eq!(second.state("DROP_REPLICATION_SLOT s"), "55006");
    // One that confirms what it was not sent.
    site.confirm(1 << 40);
    let ended = loop {
        if let Event::Ended(why) = site.next() {
            break why.unwrap();
        }
    };
    assert_eq!(ended.state, "08P01");
    until("the slot is free", async || one(&client, "select active from pg_replication_slots").await == "f").await;
    second.query("DROP_REPLICATION_SLOT s").unwrap();
    assert_eq!(one(&client, "select count(*) from pg_replication_slots").await, "0");
    for sql in ["select * from holdfast_slots", "delete from holdfast_slots", "drop table holdfast_shapes"] {
        assert!(state(&client, sql).await.is_some(), "{sql}");
    }
}

/// S19: a role that loses the publication, or REPLICATION, is sent nothing more.
#[tokio::test]
async fn a_role_that_loses_its_right_is_sent_nothing_more() {
    let server = Running::start();
    let client = server.connect().await;
    for sql in
        ["create table t(k int primary key)", "create role site login replication", "create publication p for table t"]
    {
        run(&client, sql).await;
    }
    let server = trusting(server);
    let client = server.connect().await;
    Subscriber::connect(server.port).create_slot("s");
    for (key, (taken, given)) in [
        ("revoke select on publication p from site", "alter publication p owner to site"),
        ("alter publication p owner to holdfast", "alter publication p owner to site"),
        ("alter role site noreplication", "alter role site replication"),
        ("drop publication p", "create publication p for table t"),
    ]
    .into_iter()
    .enumerate()
    {
        if key == 0 {
            let before = Subscriber::connect_as(server.port, "site").unwrap().start("s", 0, "p").unwrap_err();
            assert_eq!(before.state, "42501");
            run(&client, "grant select on publication p to site").await;
        }
        let mut site = Subscriber::connect_as(server.port, "site").unwrap();
        site.start("s", 0, "p").unwrap();
        run(&client, &format!("insert into t values ({})", key * 2)).await;
        let end = site.until(&format!("t {}", key * 2)).len();
        assert!(end > 0);
        run(&client, taken).await;
        run(&client, &format!("insert into t values ({})", key * 2 + 1)).await;
        let refused = loop {
            match site.next() {
                Event::Transaction(transaction) => panic!("{taken}: {transaction:?}"),
                Event::Keepalive => {}
                Event::Ended(why) => break why.unwrap(),
            }
        };
        assert!(["42501", "42704"].contains(&refused.state.as_str()), "{taken}: {refused:?}");
        let again = Subscriber::connect_as(server.port, "site").and_then(|mut site| site.start("s", 0, "p"));
        assert_eq!(again.unwrap_err().state, refused.state, "{taken}");
        run(&client, given).await;
    }
}
