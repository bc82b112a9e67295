//! An undo changes the rows of its transaction and no others, whatever constraints, foreign keys and triggers would do.

use super::{Bed, applied, table};
use crate::node::run;
use holdfast_client::Given;
use holdfast_flashback::{Connect, Place, Source, Target, apply, plan};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

const OF_LITE: [&str; 2] = ["--database", "lite"];

async fn lite(bed: &Bed) -> Client {
    bed.run("create database lite dialect sqlite").await;
    bed.node.connect_to("lite").await
}

/// The newest transaction on a table, with the arguments that undo it.
fn bad<'a>(bed: &Bed, of: &'a str, database: &[&'a str]) -> String {
    bed.newest(&[&["--table", of][..], database].concat()).0
}

#[tokio::test]
async fn a_conflict_clause_of_a_constraint_does_not_remove_a_later_row() {
    let bed = Bed::start().await;
    let lite = lite(&bed).await;
    let tables = [
        ("r", "u text unique on conflict replace, n integer not null on conflict replace default 1"),
        ("i", "u text unique on conflict ignore, n integer, check (n > 0) on conflict ignore"),
        ("k", "u text, n integer, unique(u) on conflict replace"),
    ];
    for (name, columns) in tables {
        run(&lite, &format!("create table {name}(id integer primary key, {columns})")).await;
        let all = format!("select * from {name} order by id");
        for change in ["delete from", "update"] {
            run(&lite, &format!("delete from {name}; insert into {name} values (1, 'a', 10)")).await;
            let set = if change == "update" { "set u = 'b'" } else { "" };
            run(&lite, &format!("{change} {name} {set} where id = 1")).await;
            let id = bad(&bed, name, &OF_LITE);
            run(&lite, &format!("insert into {name} values (2, 'a', 20)")).await;
            let before = table(&lite, &all).await;
            let refused = bed.refuses(&id, &["--apply"]);
            assert!(refused.contains("nothing was changed") && refused.contains(&format!("{name} id=1")), "{refused}");
            assert_eq!(table(&lite, &all).await, before, "{change} {name}");
            // Without the row in the way it is undone.
            run(&lite, &format!("delete from {name} where id = 2")).await;
            bed.undoes(&id, &[]);
            assert_eq!(table(&lite, &all).await, ["1|a|10"], "{change} {name}");
        }
    }
}

#[tokio::test]
async fn a_reshaping_behind_a_comment_is_seen() {
    let bed = Bed::start().await;
    let lite = lite(&bed).await;
    for (drop, add) in [
        ("/*x*/alter table s drop column a", "/*x*/alter table s add column z integer default 2"),
        ("-- it's\nalter table s drop column a", "-- it's\nalter table s add column z integer default 2"),
        ("ALTER/**/TABLE/**/s drop column a", "ALTER/**/TABLE/**/s add column z integer default 2"),
        ("alter   table 's' drop column a", "alter   table 's' add column z integer default 2"),
    ] {
        run(&lite, "drop table if exists s; create table s(id integer primary key, a integer, b integer)").await;
        run(&lite, "insert into s values (1, 5, 1)").await;
        run(&lite, "update s set b = 2").await;
        let id = bad(&bed, "s", &OF_LITE);
        run(&lite, drop).await;
        run(&lite, add).await;
        let refused = bed.refuses(&id, &["--apply"]);
        assert!(refused.contains("s: schema changed by transaction"), "{drop}: {refused}");
        assert_eq!(table(&lite, "select * from s").await, ["1|2|2"], "{drop}");
        // Rows in front of it are not shown under names that they did not have.
        let found = bed.find(&[&["--table", "s"][..], &OF_LITE].concat());
        let update =
            found["changes"].as_array().unwrap().iter().rfind(|change| change["operation"] == "update").unwrap();
        assert!(update["before"].to_string().contains("column 2"), "{drop}: {found}");
    }
    // What leaves the table alone is not in the way.
    run(&lite, "update s set b = 3").await;
    let id = bad(&bed, "s", &OF_LITE);
    run(&lite, "/* s */ create index si on s(b); -- s\ndrop index si").await;
    run(&lite, "create table refers(x integer primary key, y references s)").await;
    bed.undoes(&id, &[]);
    assert_eq!(table(&lite, "select b from s").await, ["2"]);
}

#[tokio::test]
async fn a_schema_change_that_was_not_seen_in_the_trail_is_noticed() {
    let bed = Bed::start().await;
    bed.run("create table s(id int primary key, a int, b int); insert into s values (1, 5, 1)").await;
    bed.run("update s set b = 2").await;
    let (id, lsn) = bed.newest(&["--table", "s"]);
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
    bed.run("alter table s rename column b to c; alter table s rename column a to b; update s set b = 2").await;
    let undo = move || apply(&source, &connect, &plan, false).unwrap_err().to_string();
    let refused = std::thread::spawn(undo).join().unwrap();
    assert!(refused.contains("the schema of database holdfast was changed meanwhile"), "{refused}");
    assert_eq!(table(&bed.client, "select * from s").await, ["1|2|2"]);
}

#[tokio::test]
async fn rows_that_foreign_keys_reach_from_afar_are_not_changed() {
    let bed = Bed::start().await;
    bed.run(
        "create table p(id int primary key); create table c(pid int primary key references p on update cascade); \
         create table gc(x int primary key, r int references c(pid) on update set null)",
    )
    .await;
    bed.run("insert into p values (1), (5); insert into c values (1)").await;
    bed.run("update p set id = 2 where id = 1").await;
    let id = bad(&bed, "p", &[]);
    let all = "select 'p', id, 0 from p union all select 'c', pid, 0 from c union all select 'gc', x, r from gc order by 1, 2";
    bed.run("insert into gc values (7, 2)").await;
    let before = table(&bed.client, all).await;
    let refused = bed.refuses(&id, &["--apply"]);
    assert!(refused.contains("nothing was changed") && refused.contains("holdfast: gc x=7: update"), "{refused}");
    assert_eq!(table(&bed.client, all).await, before);
    bed.run("delete from gc").await;
    bed.undoes(&id, &[]);
    assert_eq!(table(&bed.client, all).await, ["c|1|0", "p|1|0", "p|5|0"]);
    // A row of a later transaction that would follow a key is not the undone transaction's either.
    bed.run("update p set id = 6 where id = 5").await;
    let id = bad(&bed, "p", &[]);
    bed.run("insert into c values (6)").await;
    let refused = bed.refuses(&id, &["--apply"]);
    assert!(refused.contains("holdfast: c pid=6: update"), "{refused}");
    assert_eq!(table(&bed.client, all).await, ["c|1|0", "c|6|0", "p|1|0", "p|6|0"]);
}

#[tokio::test]
async fn the_triggers_of_a_table_that_a_foreign_key_reaches_do_not_run() {
    let bed = Bed::start().await;
    let lite = lite(&bed).await;
    run(
        &lite,
        "create table p(id integer primary key, v); \
         create table c(x integer primary key, pid integer references p(id) on update cascade); create table log(t); \
         create trigger ct after update on c begin insert into log values (new.x); end; \
         create trigger pt after update on p begin insert into log values ('p'); end",
    )
    .await;
    run(&lite, "insert into p values (1, 'a')").await;
    run(&lite, "update p set id = 2").await;
    let id = bad(&bed, "p", &OF_LITE);
    run(&lite, "insert into c values (9, 2)").await;
    let all = async || [table(&lite, "select * from c").await, table(&lite, "select * from log").await];
    let before = all().await;
    assert!(bed.refuses(&id, &["--apply"]).contains("--run-triggers"));
    // Triggers may run; the foreign key may not change a row of its own accord.
    let refused = bed.refuses(&id, &["--apply", "--run-triggers"]);
    assert!(refused.contains("lite: c x=9: update"), "{refused}");
    assert_eq!(all().await, before);
    run(&lite, "delete from c").await;
    let report = applied(&bed.undo(&id, &["--apply", "--run-triggers", "--json"]));
    assert_eq!(table(&lite, "select id from p").await, ["1"]);
    // The row of the log that the transaction wrote is gone, and the trigger has written one.
    assert_eq!(table(&lite, "select t from log").await, ["p"]);
    let by = &report["applied"]["by_triggers"];
    assert!(by.as_array().is_some_and(|rows| rows.iter().all(|row| row.to_string().contains("lite: log"))), "{report}");
}

#[tokio::test]
async fn a_reference_without_column_names_is_one_to_the_primary_key() {
    let bed = Bed::start().await;
    let lite = lite(&bed).await;
    run(
        &lite,
        "create table \"Fp2\"(\"Key\" text primary key, v); \
         create table fc2(x integer primary key, y text references fp2 on delete set null)",
    )
    .await;
    run(&lite, "insert into \"Fp2\" values ('k', 1)").await;
    let id = bad(&bed, "Fp2", &OF_LITE);
    run(&lite, "insert into fc2 values (1, 'k')").await;
    let refused = bed.refuses(&id, &["--apply"]);
    assert!(refused.contains("lite: Fp2") && refused.contains("other rows refer to it"), "{refused}");
    assert_eq!(table(&lite, "select y from fc2").await, ["k"]);
    run(&lite, "delete from fc2").await;
    bed.undoes(&id, &[]);
    assert_eq!(table(&lite, "select * from \"Fp2\"").await, [""; 0]);
}

#[tokio::test]
async fn a_transaction_shows_what_it_has_changed() {
    const SHOW: &str = "show holdfast.transaction_changes";
    let bed = Bed::start().await;
    bed.run(
        "create table p(id int primary key, v text); \
         create table c(x int primary key, pid int references p on delete cascade, secret text)",
    )
    .await;
    bed.run("insert into p values (1, 'a'), (2, 'b'); insert into c values (1, 1, 'xyzzy')").await;
    let client = &bed.client;
    assert_eq!(table(client, SHOW).await, [""; 0]);
    bed.run("begin; delete from p where id = 1").await;
    let shown = table(client, SHOW).await.concat();
    let hex: String = "xyzzy".bytes().map(|byte| format!("{byte:02x}")).collect();
    assert!(shown.contains(&hex), "what foreign keys do is shown: {shown}");
    // What was taken back is not.
    bed.run("savepoint s; update p set v = 'plugh' where id = 2; rollback to s").await;
    assert_eq!(table(client, SHOW).await.concat(), shown);
    bed.run("rollback").await;
    bed.run("create role clerk; grant select, delete on p to clerk; set role clerk; begin").await;
    bed.run("delete from p where id = 2").await;
    assert_eq!(table(client, SHOW).await.len(), 1);
    bed.run("delete from p where id = 1").await;
    let error = client.simple_query(SHOW).await.unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{error:?}");
    assert!(!format!("{error:?}").contains("xyzzy"));
    bed.run("rollback; reset role").await;
    assert_eq!(table(client, "select count(*) from c").await, ["1"]);
}
