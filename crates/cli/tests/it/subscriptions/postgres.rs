//! A PostgreSQL 15 publishes and a database here follows it: what is copied, every kind of change, changes of the schema on both
//! sides, a crash of the publisher, and passwords.

use super::bed::{figure, until_equal};
use super::following::{TYPED, TYPES};
use crate::node::Node;
use crate::server::{one, run, state, until, until_settled};
use holdfast_testbed::oracle::Postgres;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

struct Pg {
    postgres: Postgres,
    there: Client,
    subscriber: Node,
    here: Client,
    scratch: TempDir,
}

impl Pg {
    /// `None`: there is no PostgreSQL on this machine.
    async fn start() -> Option<Pg> {
        let postgres = Postgres::start_publishing()?;
        let scratch = TempDir::new().unwrap();
        let mut subscriber = Node::new(&scratch, "b");
        subscriber.start();
        let (there, here) = (client(&postgres).await, subscriber.connect().await);
        Some(Pg { postgres, there, subscriber, here, scratch })
    }

    fn connection(&self) -> String {
        format!("host=127.0.0.1 port={} user=holdfast dbname=postgres", self.postgres.port)
    }

    /// Runs the same statement on both.
    async fn both(&self, sql: &str) {
        run(&self.there, sql).await;
        run(&self.here, sql).await;
    }

    /// Runs each as a transaction at the publisher.
    async fn publish(&self, statements: &[&str]) {
        for sql in statements {
            run(&self.there, sql).await;
        }
    }

    async fn subscribe(&self) {
        run(&self.here, &format!("create subscription s connection '{}' publication p", self.connection())).await;
    }

    async fn until_equal(&self, sql: &str) {
        until_equal(&self.there, &self.here, sql, sql).await;
    }

    async fn until_stopped_by(&self, part: &str) {
        until_settled(&format!("the feed has stopped with {part}"), async || {
            let error = figure(&self.here, "last_error").await;
            (!error.contains(part)).then_some(error)
        })
        .await;
    }
}

async fn client(postgres: &Postgres) -> Client {
    let there = format!("host=127.0.0.1 port={} user=holdfast dbname=postgres", postgres.port);
    let (client, connection) = tokio_postgres::connect(&there, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn rows_columns_and_types_of_a_postgresql_are_copied_and_followed() {
    let Some(pg) = Pg::start().await else { return };
    run(&pg.there, "create table person(id int primary key, name text, region int, secret text)").await;
    run(&pg.here, "create table person(name text, note text default 'here', region int, id int primary key)").await;
    pg.both(TYPES).await;
    let more = "insert into types(id, f4, f8, nu, d, ts, tz, iv) values (4, 3.4028235e38, 5e-324, 0.00000001, '0001-01-01', \
                '9999-12-31 23:59:59.999999', '1900-01-01 00:00:00+00', '-1 year 2 mons -3 days 04:05:06.789')";
    pg.publish(&[
        TYPED[0],
        more,
        "insert into person select g, 'name ' || g, g % 3, 'secret ' || g from generate_series(1, 3000) g",
        "create publication p for table person (id, name, region) where (region = 2), types",
        "alter table person replica identity full",
        "alter table person replica identity default",
    ])
    .await;
    // A filter may use columns of the replica identity only, for updates and deletes.
    run(&pg.there, "alter table person drop constraint person_pkey, add primary key (id, region)").await;
    run(
        &pg.here,
        "drop table person; create table person(name text, note text default 'here', region int, id int, \
                   primary key (region, id))",
    )
    .await;
    pg.subscribe().await;
    let (there, here) = (
        "select id, name, region from person where region = 2 order by id",
        "select id, name, region from person order by id",
    );
    until_equal(&pg.there, &pg.here, there, here).await;
    let types = "select * from types order by id";
    pg.until_equal(types).await;
    pg.publish(&[
        "update person set name = 'changed' where id < 100",
        "update person set region = 2 where id between 100 and 120",
        "update person set region = 1 where id between 200 and 220",
        "update person set id = id + 10000 where id between 300 and 320",
        "delete from person where id between 400 and 420",
        TYPED[1],
        &more.replace("(4,", "(5,"),
        &TYPED[0].replacen("(1,", "(3,", 1),
        "update types set t = 'other', by = null where id = 1",
        "update types set id = 30, c = 'x' where id = 3",
        "delete from types where id = 4",
    ])
    .await;
    until_equal(&pg.there, &pg.here, there, here).await;
    pg.until_equal(types).await;
    assert_eq!(one(&pg.here, "select min(note) || max(note) from person").await, "herehere");
    assert_eq!(figure(&pg.here, "rows_missing").await, "0");
    assert_eq!(figure(&pg.here, "errors").await, "0");
}

#[tokio::test]
async fn every_kind_of_change_of_a_postgresql_is_followed() {
    let Some(pg) = Pg::start().await else { return };
    pg.both("create table long(id int primary key, n int, v text, w text)").await;
    pg.both("create table \"Odd \"\"name\" (v text, \"Second Key\" int, \"primary\" text, \"select\" int, primary key (\"primary\", \"Second Key\"))")
        .await;
    pg.both("create table whole(id int primary key, v text)").await;
    pg.both("create table swapped(id int primary key, u int unique)").await;
    run(&pg.here, "create table parted(id int primary key, v text)").await;
    pg.publish(&[
        "create table parted(id int primary key, v text) partition by range (id)",
        "create table parted1 partition of parted for values from (0) to (100)",
        "create table parted2 partition of parted for values from (100) to (1000)",
        "alter table long alter column v set storage external, alter column w set storage external",
        "alter table whole replica identity full",
        "insert into long select g, g, repeat(md5(g::text), 500), repeat('w', 5000) from generate_series(1, 20) g",
        "insert into \"Odd \"\"name\" select 'v' || g, g % 3, g::text, g from generate_series(1, 9) g",
        "insert into parted select g, 'v' from generate_series(1, 300) g",
        "insert into whole select g, repeat(md5(g::text), 500) from generate_series(1, 20) g",
        "create publication p for table long, \"Odd \"\"name\", whole, swapped, parted with (publish_via_partition_root)",
    ])
    .await;
    pg.subscribe().await;
    let all = [
        "select * from long order by id",
        "select * from \"Odd \"\"name\" order by 2, 3",
        "select * from whole order by id",
        "select * from swapped order by id",
        "select * from parted order by id",
    ];
    for all in all {
        pg.until_equal(all).await;
    }
    pg.publish(&[
        "update long set n = n + 100",
        "update long set id = id + 50, w = 'short' where id < 5",
        "update long set id = id + 500 where id > 10",
        "update \"Odd \"\"name\" set v = null where \"select\" < 4",
        "update \"Odd \"\"name\" set \"Second Key\" = 7, \"primary\" = 'p''q' where \"select\" = 5",
        "delete from \"Odd \"\"name\" where \"select\" = 6",
        "update whole set v = v || 'x' where id < 5; update whole set id = id + 100 where id > 15; delete from whole where id = 7",
        "insert into swapped values (1, 10), (2, 20), (3, 30)",
        "begin; update swapped set id = -1 where id = 1; update swapped set id = 1 where id = 2; \
         update swapped set id = 2 where id = -1; commit",
        "begin; update swapped set u = -1 where u = 10; update swapped set u = 10 where u = 20; update swapped set u = 20 where u = -1; commit",
        "begin; insert into swapped values (4, 40); savepoint a; update swapped set u = u + 1000; insert into swapped values (5, 50); \
         rollback to a; savepoint b; insert into swapped values (5, 55); release b; delete from swapped where id = 3; commit",
        "begin; delete from swapped; rollback",
        "update parted set id = id + 400 where id between 50 and 60; update parted set v = 'w' where id > 200; delete from parted where id = 3",
    ])
    .await;
    for all in all {
        pg.until_equal(all).await;
    }
    pg.publish(&["begin; insert into whole values (1000, 'x'); truncate whole, long, parted; insert into long values (1, 1); commit"])
        .await;
    for all in all {
        pg.until_equal(all).await;
    }
    assert_eq!(figure(&pg.here, "rows_missing").await, "0");
    assert_eq!(figure(&pg.here, "errors").await, "0");
}

#[tokio::test]
async fn a_large_transaction_of_a_postgresql_is_followed_and_can_be_skipped() {
    let Some(pg) = Pg::start().await else { return };
    pg.both("create table t(id int primary key, v text)").await;
    pg.publish(&["create publication p for table t"]).await;
    pg.subscribe().await;
    pg.publish(&[
        "insert into t values (0, 'before')",
        "begin; insert into t select g, repeat('x', 1000) from generate_series(1, 20000) g; savepoint s; \
         insert into t select g, repeat('y', 1000) from generate_series(20001, 24000) g; rollback to s; \
         update t set v = 'z' where id % 2 = 0; delete from t where id % 3 = 0; commit",
        "insert into t values (30000, 'after')",
    ])
    .await;
    let all = "select count(*), sum(id), sum(length(v)), min(v) from t";
    pg.until_equal(all).await;
    // A large transaction that fails is passed over by its LSN, as a small one is.
    run(&pg.here, "alter table t add column n int check (n > 0)").await;
    run(&pg.there, "alter table t add column n int").await;
    pg.publish(&["insert into t select g, repeat('x', 1000), -1 from generate_series(40000, 50000) g"]).await;
    pg.until_stopped_by("finished at").await;
    let error = figure(&pg.here, "last_error").await;
    let at = error.split("finished at ").nth(1).unwrap().split(':').next().unwrap().to_owned();
    run(&pg.here, &format!("alter subscription s skip (lsn = '{at}')")).await;
    pg.publish(&["insert into t values (60000, 'after', 1)"]).await;
    until("what follows arrives", async || one(&pg.here, "select count(*) from t where id = 60000").await == "1").await;
    assert_eq!(one(&pg.here, "select count(*) from t where id between 40000 and 50000").await, "0");
}

#[tokio::test]
async fn columns_are_added_on_both_sides_in_either_order_and_generated_ones_are_not_sent() {
    let Some(pg) = Pg::start().await else { return };
    pg.publish(&[
        "create table t(id int primary key, a int, twice int generated always as (a * 2) stored)",
        "insert into t values (1, 1)",
        "create publication p for table t",
    ])
    .await;
    run(&pg.here, "create table t(id int primary key, a int)").await;
    pg.subscribe().await;
    let all = "select id, a from t order by id";
    pg.until_equal(all).await;
    pg.publish(&["insert into t values (2, 2)", "update t set a = 3 where id = 1"]).await;
    pg.until_equal(all).await;
    // First there.
    pg.publish(&["alter table t add column b text default 'b'", "insert into t values (3, 3)"]).await;
    pg.until_stopped_by("\"b\"").await;
    run(&pg.here, "alter table t add column b text default 'b'").await;
    let all = "select id, a, b from t order by id";
    pg.until_equal(all).await;
    // First here.
    run(&pg.here, "alter table t add column c text default 'c'").await;
    pg.publish(&["insert into t values (4, 4)"]).await;
    until("a default is taken", async || one(&pg.here, "select c from t where id = 4").await == "c").await;
    pg.publish(&["alter table t add column c text default 'c'", "update t set c = 'there' where id = 2"]).await;
    pg.publish(&[
        "begin; insert into t values (5, 5); alter table t drop column b; insert into t values (6, 6); commit",
    ])
    .await;
    until_equal(&pg.there, &pg.here, "select id, a, c from t order by id", "select id, a, c from t order by id").await;
}

#[tokio::test]
async fn a_postgresql_that_crashes_repeats_nothing_and_a_connection_is_changed() {
    let Some(mut pg) = Pg::start().await else { return };
    pg.both("create table log(id int primary key, v text); create table total(k int primary key, n bigint)").await;
    pg.publish(&["insert into total values (1, 0)", "create publication p for all tables"]).await;
    pg.subscribe().await;
    let all = "select count(*), coalesce(sum(id), 0), (select n from total) from log";
    pg.until_equal(all).await;
    let mut id = 0;
    for round in 0..4 {
        for _ in 0..100 {
            id += 1;
            let sql = format!(
                "begin; insert into log values ({id}, repeat('v', {id})); update total set n = n + {id}; commit"
            );
            run(&pg.there, &sql).await;
        }
        match round {
            0 | 2 => {
                pg.postgres.crash();
                pg.there = client(&pg.postgres).await;
            }
            1 => {
                let other = format!("{} application_name=other", pg.connection());
                run(&pg.here, &format!("alter subscription s connection '{other}'")).await;
                let shown = "select count(*) from pg_stat_replication where application_name = 'other'";
                until("the connection is another", async || one(&pg.there, shown).await == "1").await;
            }
            _ => {
                pg.subscriber.kill();
                pg.subscriber.start();
                pg.here = pg.subscriber.connect().await;
            }
        }
        let sums = "select coalesce((select sum(id) from log), 0) = coalesce((select n from total), 0)";
        assert_eq!(one(&pg.here, sums).await, "t", "round {round}");
    }
    pg.until_equal(all).await;
    assert_eq!(figure(&pg.here, "rows_missing").await, "0");
    run(&pg.here, "drop subscription s").await;
    assert_eq!(one(&pg.there, "select count(*) from pg_replication_slots").await, "0");
}

#[tokio::test]
async fn a_password_comes_from_a_file_that_only_its_owner_reads() {
    let Some(pg) = Pg::start().await else { return };
    pg.both("create table t(id int primary key)").await;
    pg.publish(&[
        "create role r2 login replication password 'se:cr\\et'",
        "grant select on t to r2",
        "insert into t values (1)",
        "create publication p for table t",
    ])
    .await;
    let hba =
        "local all holdfast trust\nhost all holdfast 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(pg.postgres.data().join("pg_hba.conf"), hba).unwrap();
    pg.postgres.reload();
    let port = pg.postgres.port;
    let file = pg.scratch.path().join("pass");
    let write = |line: &str, mode: u32| {
        std::fs::write(&file, format!("# of a test\n{line}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let create = format!(
        "create subscription s connection 'host=127.0.0.1 port={port} user=r2 dbname=postgres passfile={}' publication p",
        file.display()
    );
    let refused = async || {
        let error = pg.here.batch_execute(&create).await.unwrap_err();
        let error = error.as_db_error().unwrap().clone();
        (error.code().clone(), format!("{} {}", error.message(), error.detail().unwrap_or_default()))
    };
    let (code, why) = refused().await;
    assert!(code == SqlState::CONNECTION_FAILURE && why.contains("asks for a password"), "{why}");
    write(&format!("127.0.0.1:{port}:other:r2:se\\:cr\\\\et"), 0o600);
    assert!(refused().await.1.contains("asks for a password"));
    let line = format!("127.0.0.1:{port}:postgres:r2:se\\:cr\\\\et");
    write(&line, 0o644);
    let (code, why) = refused().await;
    assert!(code == SqlState::CONNECTION_FAILURE && why.contains("group or world access"), "{why}");
    write("*:*:*:*:wrong", 0o600);
    let (code, why) = refused().await;
    assert!(code.code().starts_with("28") && why.contains("password authentication failed"), "{code:?} {why}");
    assert_eq!(one(&pg.there, "select count(*) from pg_replication_slots").await, "0");
    write(&line, 0o600);
    assert_eq!(state(&pg.here, &create).await, None);
    pg.until_equal("select * from t").await;
    // A password that stops being right is shown, and is no reason to disable.
    run(&pg.here, "alter subscription s set (disable_on_error = true)").await;
    pg.publish(&["alter role r2 password 'other'"]).await;
    run(&pg.here, "alter subscription s disable; alter subscription s enable").await;
    pg.until_stopped_by("password authentication failed").await;
    write("*:*:postgres:*:other", 0o600);
    pg.publish(&["insert into t values (2)"]).await;
    pg.until_equal("select * from t order by id").await;
}
