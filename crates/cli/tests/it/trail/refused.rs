//! What cannot be undone is refused by name; and databases of SQLite's dialect.

use super::{Bed, table};
use crate::node::{refuses, run};
use holdfast_client::Given;
use holdfast_flashback::{Connect, Place, Source, Target, apply, plan};

#[tokio::test]
async fn what_cannot_be_undone_is_named() {
    let bed = Bed::start().await;
    bed.run("create table t(id int primary key, v text); insert into t values (1, 'a'), (2, 'b')").await;
    let refused = bed.refuses("4294967999", &["--apply"]);
    assert!(refused.contains("has no transaction 4294967999"), "{refused}");
    bed.run("begin; update t set v = 'c'; alter table t add column w int; commit").await;
    let (id, _) = bed.newest(&["--table", "t"]);
    let refused = bed.refuses(&id, &["--apply"]);
    assert!(refused.contains("it changes the schema") && refused.contains("--before-transaction"), "{refused}");
    // The table is altered after the transaction.
    bed.run("update t set v = 'd'").await;
    let (id, _) = bed.newest(&["--table", "t"]);
    bed.run("alter table t drop column w").await;
    let refused = bed.refuses(&id, &["--apply"]);
    assert!(refused.contains("t: schema changed by transaction"), "{refused}");
    // A row that takes the place of a deleted one.
    bed.run("delete from t where id = 2").await;
    let (id, _) = bed.newest(&["--table", "t"]);
    bed.run("insert into t values (2, 'mine')").await;
    let refused = bed.refuses(&id, &["--apply"]);
    assert!(refused.contains("t id=2: insert by transaction"), "{refused}");
    // A constraint of another column.
    bed.run("create table u(id int primary key, v text unique); insert into u values (1, 'a')").await;
    bed.run("delete from u").await;
    let (id, _) = bed.newest(&["--table", "u"]);
    bed.run("insert into u values (5, 'a')").await;
    let refused = bed.refuses(&id, &["--apply"]);
    assert!(refused.contains("nothing was changed") && refused.contains("u id=1: duplicate key"), "{refused}");
    assert_eq!(table(&bed.client, "select * from u").await, ["5|a"]);
    bed.run("drop table u").await;
    let refused = bed.refuses(&id, &["--apply"]);
    assert!(refused.contains("does not exist now"), "{refused}");
    let nowhere = refuses(&["trail", "find", "--data", bed.node.data(), "--table", "t", "--at", "127.0.0.1:1"]);
    assert!(nowhere.contains("cannot connect to 127.0.0.1:1") && nowhere.contains("The server must run"), "{nowhere}");
}

#[tokio::test]
async fn sqlite_databases_with_their_own_kinds_of_tables() {
    let bed = Bed::start().await;
    bed.run("create database lite dialect sqlite").await;
    let lite = bed.node.connect_to("lite").await;
    let of_lite = ["--database", "lite"];
    run(
        &lite,
        "create table w(a text, b int, v, primary key(b, a)) without rowid; create table h(v, g as (v || '!')); \
         create table f(x text, y int); \
         create table audit(was); create table watched(id integer primary key autoincrement, v); \
         create trigger tr after update on watched begin insert into audit values (old.v); end",
    )
    .await;
    run(
        &lite,
        "insert into w values ('x', 1, x'00ff'), ('y', 2, 1e300), ('z', 2, -0.5); insert into h values (1), ('1'), (null), (1.5), (x'31'), \
         (9223372036854775807), (-9223372036854775808), (9e999); insert into watched(v) values ('one'), ('two')",
    )
    .await;
    let state = async || {
        let mut all = Vec::new();
        for sql in [
            "select quote(a), quote(b), quote(v) from w order by a, b",
            "select rowid, quote(v), g from h order by rowid",
            "select rowid, quote(was) from audit order by rowid",
            "select id, quote(v) from watched order by id",
        ] {
            all.extend(table(&lite, sql).await);
        }
        all
    };
    let before = state().await;
    for (bad, of) in [
        ("update w set b = b + 10, v = null", "w"),
        ("delete from w where b = 2", "w"),
        ("update h set v = 'same'", "h"),
        ("delete from h", "h"),
        ("update h set rowid = rowid + 100", "h"),
        ("begin; delete from h where rowid < 5; insert into h values ('n'); update w set a = a || '2'; commit", "w"),
    ] {
        run(&lite, bad).await;
        assert_ne!(state().await, before, "{bad}");
        let (id, lsn) = bed.newest(&[&["--table", of][..], &of_lite].concat());
        bed.undoes(&id, &["--lsn", &lsn]);
        assert_eq!(state().await, before, "{bad}");
    }
    let found = bed.find(&["--database", "lite", "--table", "h", "--where", "rowid = 3 and v is null"]);
    assert!(found["changes"].as_array().unwrap().len() > 3, "{found}");
    let found = bed.find(&["--database", "lite", "--table", "w", "--where", "b = 1 and v is not null"]);
    let changes = found["changes"].as_array().unwrap().iter().filter(|change| change["operation"] != "schema");
    let keys: Vec<_> = changes.map(|change| change["key"].to_string()).collect();
    assert!(keys.len() > 3 && keys.iter().all(|key| key.contains("\"b\":1")), "{found}");
    // A text that no literal stands for.
    run(&lite, "insert into f values (cast(x'ff' as text), 1), ('a' || char(0) || 'b', 2)").await;
    run(&lite, "delete from f where y = 2").await;
    let (id, _) = bed.newest(&[&["--table", "f"][..], &of_lite].concat());
    bed.undoes(&id, &[]);
    assert_eq!(table(&lite, "select hex(x), y from f order by y").await, ["FF|1", "610062|2"]);
    run(&lite, "delete from f where y = 1").await;
    let (id, _) = bed.newest(&[&["--table", "f"][..], &of_lite].concat());
    assert!(bed.refuses(&id, &["--apply"]).contains("a text in table f is not UTF-8"));
    // A trigger's changes are in the inverse; the trigger itself would run again.
    run(&lite, "update watched set v = 'bad' where id = 1").await;
    let (id, lsn) = bed.newest(&[&["--table", "watched"][..], &of_lite].concat());
    let refused = bed.refuses(&id, &["--apply"]);
    assert!(refused.contains("lite: watched") && refused.contains("--run-triggers"), "{refused}");
    bed.undoes(&id, &["--lsn", &lsn, "--run-triggers"]);
    assert_eq!(table(&lite, "select v from watched order by id").await, ["one", "two"]);
    assert_eq!(table(&lite, "select was from audit").await, ["bad"]);
}

#[tokio::test]
async fn a_change_between_the_look_into_the_trail_and_the_undo_is_seen() {
    let bed = Bed::start().await;
    bed.run("create table t(id int primary key, v text, w int); insert into t values (1, 'a', 1), (2, 'b', 1)").await;
    bed.run("update t set v = 'bad'").await;
    let (id, lsn) = bed.newest(&["--table", "t"]);
    let place = Place { data: Some(bed.node.dir.clone()), threads: 2, ..Place::default() };
    let connect = Connect::parse(&bed.node.at(), &Given::default(), &|_| None).unwrap();
    let target = Target { id: id.parse().unwrap(), lsn: lsn.parse().ok() };
    // It has runtimes of its own.
    let look = move || {
        let source = Source::open(&place).unwrap();
        let plan = plan(&source, &connect, "holdfast", target).unwrap();
        (source, connect, plan)
    };
    let (source, connect, plan) = std::thread::spawn(look).join().unwrap();
    assert_eq!((plan.statements.len(), plan.conflicts.len()), (2, 0));
    bed.run("update t set v = 'mine' where id = 2").await;
    let undo = move || apply(&source, &connect, &plan, false).unwrap_err().to_string();
    let refused = std::thread::spawn(undo).join().unwrap();
    assert!(refused.contains("holdfast: t id=2: update by transaction "), "{refused}");
    assert_eq!(table(&bed.client, "select id, v from t order by id").await, ["1|bad", "2|mine"]);
}
