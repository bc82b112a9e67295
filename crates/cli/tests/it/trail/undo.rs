//! A bad transaction is undone.

use super::{Bed, table};

const ALL: &str = "select rowid, * from everything order by rowid";

#[tokio::test]
async fn a_bad_update_is_undone_and_a_later_change_is_a_conflict() {
    let bed = Bed::start().await;
    bed.run("create table orders(id int primary key, state text, amount numeric(8,2))").await;
    bed.run("insert into orders select g, 'new', g from generate_series(1, 200) g").await;
    let before = table(&bed.client, "select * from orders order by id").await;
    bed.run("update orders set amount = 0").await;
    let (bad, lsn) = bed.newest(&["--table", "orders", "--where", "id = 7"]);
    bed.run("update orders set state = 'paid' where id = 7").await;
    let (later, _) = bed.newest(&["--table", "orders", "--where", "id = 7"]);
    let wrong = table(&bed.client, "select * from orders order by id").await;
    for more in [&[][..], &["--apply"], &["--apply", "--lsn", &lsn]] {
        let refused = bed.refuses(&bad, more);
        assert!(refused.contains("later transactions changed its rows"), "{refused}");
        assert!(refused.contains(&format!("orders id=7: update by transaction {later} at 2")), "{refused}");
        assert_eq!(refused.lines().count(), 2, "{refused}");
    }
    assert_eq!(table(&bed.client, "select * from orders order by id").await, wrong);
    // The later one is undone, and then the row is as the bad one left it.
    bed.undoes(&later, &[]);
    let script = bed.undo(&bad, &[]);
    let script = String::from_utf8(script.stdout).unwrap();
    let statement =
        "UPDATE \"orders\" SET \"amount\" = '7.00' WHERE \"id\" = 7 AND \"amount\" IS NOT DISTINCT FROM '0.00';";
    assert!(script.contains(statement), "{script}");
    assert_eq!(table(&bed.client, "select * from orders where amount > 0").await, [""; 0]);
    let output = bed.undo(&bad, &["--apply"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains(&format!("transaction {bad} is undone, 200 rows; the undo is transaction ")), "{said}");
    assert_eq!(table(&bed.client, "select * from orders order by id").await, before);
}

#[tokio::test]
async fn every_type_comes_back_as_it_was() {
    let bed = Bed::start().await;
    bed.run(
        "create table everything(id text primary key, i2 smallint, i8 bigint, n numeric(12,3), nn numeric, b boolean, r real, \
         d double precision, c char(5), vc varchar(9), bin bytea, u uuid, da date, tm time, ts timestamp, tz timestamptz, \
         j json, jb jsonb, twice int generated always as (i2 * 2) stored)",
    )
    .await;
    bed.run(
        "insert into everything(id, i2, i8, n, nn, b, r, d, c, vc, bin, u, da, tm, ts, tz, j, jb) values \
         ('a''b\\', -5, 9223372036854775807, 1.5, 123456789012345678901234567890.123, true, 1e30, 1e300, 'ab', 'x y', \
          '\\x00ff27', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2024-02-29', '10:00:01.5', '2026-01-02 03:04:05.678', \
          '2026-01-02 03:04:05.678+02', '{\"a\": [1, null]}', '{\"b\": \"c\"}'), \
         ('ä\nö', null, -9223372036854775808, null, null, null, -0.0, -0.0, null, '', '', null, null, null, null, null, \
          null, null), \
         ('', 0, 0, 0, 0, false, 0.1, 0.1, '', null, null, null, '0001-01-01', '00:00', '0001-01-01 00:00:00', null, 'null', '[]')",
    )
    .await;
    let before = table(&bed.client, ALL).await;
    let sign = "select d::text from everything where d = 0 order by rowid";
    let zero = table(&bed.client, sign).await;
    for bad in [
        "delete from everything",
        "update everything set i2 = 1, i8 = 1, n = 1, nn = 1, b = not b, r = 5, d = 5, c = 'z', vc = 'z', bin = '\\x01', \
         u = 'b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', da = '2000-01-01', tm = '01:00', ts = '2000-01-01 00:00', \
         tz = '2000-01-01 00:00', j = '1', jb = '2'",
        "update everything set id = id || 'x', vc = null, d = null, j = null",
        "begin; delete from everything where rowid = 1; insert into everything(id) values ('new'), ('newer'); \
         update everything set vc = 'w'; update everything set id = 'a' where id = 'new'; commit",
    ] {
        bed.run(bad).await;
        let after = table(&bed.client, ALL).await;
        assert_ne!(after, before, "{bad}");
        let (id, lsn) = bed.newest(&["--table", "everything"]);
        let own = bed.undoes(&id, &["--lsn", &lsn]);
        assert_eq!(table(&bed.client, ALL).await, before, "{bad}");
        // An undo is a transaction like others.
        let again = bed.undoes(&own, &[]);
        assert_eq!(table(&bed.client, ALL).await, after, "{bad}");
        bed.undoes(&again, &[]);
        assert_eq!(table(&bed.client, ALL).await, before, "{bad}");
    }
    assert_eq!(table(&bed.client, sign).await, zero);
}

#[tokio::test]
async fn foreign_keys_that_act_are_undone_once() {
    let bed = Bed::start().await;
    bed.run(
        "create table p(id int primary key, v text); \
         create table c(id int primary key, pid int references p(id) on delete cascade on update cascade); \
         create table n(id int primary key, pid int references p(id) on delete set null); \
         create table tree(id int primary key, up int references tree(id) on delete cascade)",
    )
    .await;
    bed.run(
        "insert into p values (1, 'x'), (2, 'y'); insert into c values (1, 1), (2, 1), (3, 2); \
         insert into n values (1, 1), (2, 2); insert into tree values (1, null), (2, 1), (3, 2), (4, 1)",
    )
    .await;
    let tables = ["p", "c", "n", "tree"];
    let all = async || {
        let mut rows = Vec::new();
        for name in tables {
            rows.extend(table(&bed.client, &format!("select '{name}', * from {name} order by 2")).await);
        }
        rows
    };
    let before = all().await;
    for (bad, of) in [
        ("delete from p where id = 1", "p"),
        ("update p set id = 9 where id = 1", "p"),
        ("delete from tree where id = 1", "tree"),
        (
            "begin; insert into p values (5, 'z'); update n set pid = 5; insert into c values (7, 5); delete from p where id = 2; commit",
            "p",
        ),
        ("begin; update p set id = id + 10; commit", "p"),
    ] {
        // ON UPDATE CASCADE is the only thing here that keeps a reference to a key that changes.
        if bad.contains("update p") {
            bed.run("delete from n").await;
        }
        let before = if bad.contains("update p") { all().await } else { before.clone() };
        bed.run(bad).await;
        assert_ne!(all().await, before, "{bad}");
        let (id, lsn) = bed.newest(&["--table", of]);
        bed.undoes(&id, &["--lsn", &lsn]);
        assert_eq!(all().await, before, "{bad}");
        if bad.contains("update p") {
            bed.run("insert into n values (1, 1), (2, 2)").await;
        }
    }
    // A row of a later transaction would go with the parent.
    bed.run("insert into p values (20, 'later')").await;
    let (id, _) = bed.newest(&["--table", "p"]);
    bed.run("insert into c values (20, 20)").await;
    let with = all().await;
    let refused = bed.refuses(&id, &["--apply"]);
    assert!(
        refused.contains("p id=20: the row is not as the transaction left it, or other rows refer to it"),
        "{refused}"
    );
    assert_eq!(all().await, with);
}

#[tokio::test]
async fn a_transaction_over_several_databases_and_a_large_one() {
    // Segments of 1 MiB: what is larger than a boxcar goes into fragments.
    let bed = Bed::start_with("segment_bytes = 1048576").await;
    bed.run("create database shop").await;
    bed.run("create table t(id int primary key, v text); insert into t values (1, 'x')").await;
    let shop = bed.node.connect_to("shop").await;
    crate::node::run(&shop, "create table t(id text primary key, v int); insert into t values ('a', 1), ('b', 2)")
        .await;
    bed.run(
        "begin; update t set v = 'y'; use shop; update t set v = 0; delete from t where id = 'b'; commit; use holdfast",
    )
    .await;
    let (id, _) = bed.newest(&["--table", "t"]);
    bed.undoes(&id, &[]);
    assert_eq!(table(&bed.client, "select * from t").await, ["1|x"]);
    assert_eq!(table(&shop, "select rowid, * from t order by id").await, ["1|a|1", "2|b|2"]);

    bed.run("create table large(id int primary key, v text)").await;
    bed.run("insert into large select g, repeat('x', 1000) || g from generate_series(1, 3000) g").await;
    let rows = "select count(*), sum(length(v)), min(v) from large";
    let before = table(&bed.client, rows).await;
    bed.run("update large set v = repeat('y', 1200) || id").await;
    let (id, lsn) = bed.newest(&["--table", "large", "--where", "id = 7"]);
    assert_eq!(bed.find(&["--table", "large", "--where", "id = 7"])["changes"].as_array().unwrap().len(), 3);
    bed.undoes(&id, &["--lsn", &lsn]);
    assert_eq!(table(&bed.client, rows).await, before);
}
