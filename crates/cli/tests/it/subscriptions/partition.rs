//! `mode = 'partition'`: two databases subscribe to each other's part of a table, each changes its own rows only, and neither what a
//! client writes nor what a publisher sends changes a row of the other.

use super::bed::{Bed, connection, figure, until_equal};
use crate::node::Node;
use crate::server::{one, run, state, until_settled};
use futures::{SinkExt, pin_mut};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

const TABLE: &str = "create table orders(site int, id int, v text, primary key (site, id))";
const ALL: &str = "select * from orders order by site, id";

async fn subscribe(client: &Client, to: &Node, publication: &str, with: &str) -> Option<SqlState> {
    let of =
        format!("create subscription from_{publication} connection '{}' publication {publication}", connection(to));
    state(client, &format!("{of} with (mode = 'partition'{with})")).await
}

/// The publisher has the rows of site 1, the subscriber those of site 2; each has the other's.
async fn two_sites() -> Bed {
    let bed = Bed::start();
    bed.both(TABLE).await;
    let (one, two) = (bed.publisher.connect().await, bed.subscriber.connect().await);
    run(&one, "insert into orders values (1, 1, 'a'), (1, 2, 'b')").await;
    run(&two, "insert into orders values (2, 1, 'c')").await;
    run(&one, "create publication p1 for table orders where (site = 1)").await;
    run(&two, "create publication p2 for table orders where (site = 2)").await;
    assert_eq!(subscribe(&two, &bed.publisher, "p1", "").await, None);
    assert_eq!(subscribe(&one, &bed.subscriber, "p2", "").await, None);
    bed.until_equal(ALL, ALL).await;
    bed
}

async fn until_stopped_by(client: &Client, part: &str) {
    until_settled(&format!("the feed has stopped with {part}"), async || {
        let error = figure(client, "last_error").await;
        (!error.contains(part)).then_some(error)
    })
    .await;
}

/// Statements on the rows of site 1 at site 2, in every way in which rows change.
const OF_THE_OTHER: [&str; 12] = [
    "insert into orders values (1, 9, 'x')",
    "insert into orders values (2, 8, 'own'), (1, 9, 'x')",
    "insert into orders select 1, g, 'x' from generate_series(10000, 30000) g",
    "insert into orders values (1, 1, 'x') on conflict (site, id) do update set v = 'x'",
    "update orders set v = 'x' where site = 1 and id = 1",
    "update orders set v = v || 'x'",
    "update orders set site = 1, id = id + 100000 where site = 2",
    "update orders set site = 2, id = id + 200000 where site = 1",
    "delete from orders where site = 1 and id = 1",
    "delete from orders",
    "delete from orders where id = 1 returning v",
    "truncate orders",
];

#[tokio::test]
async fn two_sites_write_their_own_rows() {
    let mut bed = two_sites().await;
    let (one_there, two) = (bed.publisher.connect().await, bed.subscriber.connect().await);
    for sql in OF_THE_OTHER {
        assert_eq!(state(&two, sql).await, Some(SqlState::READ_ONLY_SQL_TRANSACTION), "{sql}");
        run(&two, "begin; insert into orders values (2, 7, 'kept'); savepoint s").await;
        assert_eq!(state(&two, sql).await, Some(SqlState::READ_ONLY_SQL_TRANSACTION), "{sql}");
        run(&two, "rollback to s; delete from orders where site = 2 and id = 7; commit").await;
    }
    let rows = two.copy_in("copy orders from stdin").await.unwrap();
    pin_mut!(rows);
    rows.send(std::io::Cursor::new("2\t70\town\n1\t70\tx\n")).await.unwrap();
    assert_eq!(rows.finish().await.unwrap_err().code(), Some(&SqlState::READ_ONLY_SQL_TRANSACTION), "COPY");
    bed.until_equal(ALL, ALL).await;
    for (client, site) in [(&one_there, 1), (&two, 2)] {
        run(client, &format!("insert into orders select {site}, g, 'many' from generate_series(1000, 3000) g")).await;
        run(client, &format!("update orders set v = 'mine' where site = {site} and id % 3 = 0")).await;
        run(client, &format!("delete from orders where site = {site} and id % 7 = 0")).await;
        run(client, "insert into orders values (3, 1, 'of site 3'), (3, 2, 'of site 3')").await;
        run(client, "begin; update orders set v = 'not published' where site = 3; commit").await;
        // Locks of the other's rows hold up its feed only while they last.
        run(client, "begin; select * from orders for update; commit").await;
    }
    bed.until_equal(ALL, ALL).await;
    assert_eq!(one(&two, "select count(*) from orders where v = 'not published'").await, "2");
    assert_eq!(one(&two, "select rowfilter from holdfast_site_tables").await, "(site = 1)");
    let port = bed.subscriber.port.to_string();
    let compared = std::process::Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(["site", "compare", "--at", &format!("127.0.0.1:{port}")])
        .output()
        .unwrap();
    assert!(compared.status.success(), "{compared:?}");
    // A row moves out of what is published, and in.
    run(&one_there, "update orders set site = 4 where site = 1 and id = 2000").await;
    run(&one_there, "update orders set site = 1, id = 5000 where site = 3 and id = 1").await;
    let of_one = "select * from orders where site = 1 order by id";
    bed.until_equal(of_one, of_one).await;
    bed.subscriber.kill();
    bed.subscriber.start();
    let two = bed.subscriber.connect().await;
    for sql in OF_THE_OTHER {
        assert_eq!(state(&two, sql).await, Some(SqlState::READ_ONLY_SQL_TRANSACTION), "after a kill: {sql}");
    }
    // The publisher's TRUNCATE removes its own rows.
    let own = one(&two, "select count(*) from orders where site = 2").await;
    run(&one_there, "drop subscription from_p2").await;
    run(&one_there, "truncate orders").await;
    until_equal(&one_there, &two, of_one, of_one).await;
    assert_eq!(
        one(&two, "select count(*) from orders where site <> 1").await,
        (own.parse::<u64>().unwrap() + 2).to_string()
    );
}

#[tokio::test]
async fn what_a_partition_needs() {
    let bed = two_sites().await;
    let (one_there, two) = (bed.publisher.connect().await, bed.subscriber.connect().await);
    bed.both("create table whole(site int, id int primary key); create table other(site int, id int primary key)")
        .await;
    run(&one_there, "create publication whole for table whole").await;
    let needs = SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
    assert_eq!(subscribe(&two, &bed.publisher, "whole", "").await, Some(needs), "no condition");
    let refused = Some(SqlState::FEATURE_NOT_SUPPORTED);
    run(&one_there, "create publication other for table other where (site = 1)").await;
    for overlapping in ["other", "other where (site > 1)", "other where (id = 2)", "other where (site in (2, 1))"] {
        run(&two, &format!("create publication mine for table {overlapping}")).await;
        assert_eq!(subscribe(&two, &bed.publisher, "other", "").await, refused, "{overlapping}");
        run(&two, "drop publication mine").await;
    }
    assert_eq!(one(&one_there, "select count(*) from pg_replication_slots").await, "1", "no slot stays");
    assert_eq!(subscribe(&two, &bed.publisher, "other", "").await, None);
    for overlapping in [
        "create publication mine for all tables",
        "create publication mine for table other",
        "create publication mine for table other where (site <> 2)",
        "alter publication p2 add table other where (site = 1)",
        "alter publication p2 set table orders",
        "alter subscription from_p1 set (mode = 'partition')",
        "create subscription x connection 'host=x' publication x with (mode = 'master')",
    ] {
        assert_eq!(state(&two, overlapping).await, refused, "{overlapping}");
    }
    run(&two, "create publication mine for table other where (site in (2, 3) and id > 0)").await;
    assert_eq!(one(&two, "select count(*) from pg_subscription").await, "2");
    // A condition on a column that is gone: nothing is written unchecked.
    run(&two, "insert into other values (2, 1)").await;
    run(&two, "alter table other drop column site cascade").await;
    assert_eq!(state(&two, "insert into other values (2)").await, Some(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE));
    assert_eq!(state(&two, "delete from other").await, Some(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE));
}

/// The publisher's condition changes, or its rows meet rows of the database itself: nothing of those is changed.
#[tokio::test]
async fn what_a_publisher_sends_changes_no_row_of_another() {
    let bed = two_sites().await;
    let (one_there, two) = (bed.publisher.connect().await, bed.subscriber.connect().await);
    run(&two, "insert into orders values (3, 1, 'own')").await;
    run(&one_there, "alter publication p1 set table orders where (site in (1, 3))").await;
    run(&one_there, "insert into orders values (3, 2, 'of one')").await;
    until_stopped_by(&two, "55000").await;
    assert_eq!(one(&two, "select count(*) from orders where site = 3").await, "1");
    run(&two, "delete from orders where site = 3").await;
    run(&two, "alter subscription from_p1 refresh publication").await;
    bed.until_equal(ALL, ALL).await;
    assert_eq!(state(&two, "insert into orders values (3, 9, 'x')").await, Some(SqlState::READ_ONLY_SQL_TRANSACTION));
    run(&one_there, "drop subscription from_p2").await;
    // The condition follows a renamed column; with one that is gone nothing is written unchecked.
    run(&two, "alter table orders rename column site to place").await;
    assert_eq!(state(&two, "insert into orders values (1, 50, 'x')").await, Some(SqlState::READ_ONLY_SQL_TRANSACTION));
    run(&two, "insert into orders values (2, 49, 'x')").await;
    run(&two, "alter table orders rename column place to site").await;
    run(&one_there, "insert into orders values (1, 60, 'x')").await;
    let of_one = "select * from orders where site <> 2 order by site, id";
    bed.until_equal(of_one, of_one).await;
    run(&two, "drop subscription from_p1").await;
    run(&two, "update orders set v = 'free'").await;
}

#[tokio::test]
async fn a_part_of_a_table_of_postgresql() {
    let Some(postgres) = holdfast_testbed::oracle::Postgres::start_publishing() else { return };
    let there = format!("host=127.0.0.1 port={} user=holdfast dbname=postgres", postgres.port);
    let (pg, run_pg) = tokio_postgres::connect(&there, NoTls).await.unwrap();
    tokio::spawn(run_pg);
    let scratch = tempfile::TempDir::new().unwrap();
    let mut node = Node::new(&scratch, "b");
    node.start();
    let here = node.connect().await;
    let table = "create table people(id int primary key, place text, n int)";
    run(&pg, table).await;
    run(&here, table).await;
    run(&pg, "insert into people values (1, 'hq', 1), (2, 'ship', 2)").await;
    run(&pg, "alter table people replica identity full").await;
    run(&pg, "create publication p for table people where (place = 'hq' and n > 0)").await;
    run(&here, "insert into people values (-1, 'ship', 7)").await;
    run(&here, &format!("create subscription s connection '{there}' publication p with (mode = 'partition')")).await;
    let of_hq = "select * from people where place = 'hq' and n > 0 order by id";
    until_equal(&pg, &here, of_hq, of_hq).await;
    let refused = Some(SqlState::READ_ONLY_SQL_TRANSACTION);
    assert_eq!(state(&here, "update people set n = 8 where id = 1").await, refused);
    assert_eq!(state(&here, "update people set place = 'hq'").await, refused);
    run(&here, "update people set n = 8 where id = -1; insert into people values (-2, 'hq', -1)").await;
    run(&pg, "update people set n = n + 1; insert into people values (3, 'hq', 3); delete from people where id = 2")
        .await;
    until_equal(&pg, &here, of_hq, of_hq).await;
    // A PostgreSQL sends TRUNCATE as such.
    run(&pg, "truncate people").await;
    until_equal(&pg, &here, of_hq, of_hq).await;
    assert_eq!(one(&here, "select count(*) from people where id < 0").await, "2");
}
