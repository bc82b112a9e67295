//! Statements about subscriptions against PostgreSQL's answers, what only Holdfast refuses, and that no statement of a client
//! changes a table that a subscription writes.

use crate::roles::against_postgresql::{differences, postgresql};
use crate::server::{Running, one, run, state};
use std::path::Path;
use tokio_postgres::Client;

/// A line that differs: libpq ends its messages with an empty line.
fn counts(line: &str) -> bool {
    !line.is_empty()
}

#[test]
fn statements_about_subscriptions_answer_as_postgresqls() {
    let Some(postgres) = postgresql() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/subscriptions/statements.sql");
    let different = differences(&postgres, &script, counts);
    assert!(different.is_empty(), "{} answers differ:\n{}", different.len(), different.join("\n"));
}

/// SQLSTATE and hint of a statement's error.
async fn error(client: &Client, sql: &str) -> (String, String) {
    let error = client.batch_execute(sql).await.expect_err(sql);
    let error = error.as_db_error().expect(sql);
    (error.code().code().to_owned(), error.hint().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn what_holdfast_refuses() {
    let server = Running::start();
    let client = server.connect().await;
    let create = "create subscription s connection 'host=hq' publication p with (connect = false";
    for more in ["binary = true", "streaming = on", "two_phase", "mode = 'master'", "holdfast.compact = on"] {
        let (code, hint) = error(&client, &format!("{create}, {more})")).await;
        assert!(code == "0A000" && hint.contains("Leave it out"), "{more}: {code} {hint}");
    }
    for connection in ["host=hq password=x", "postgresql://r2:x@hq/shop"] {
        let sql = format!("create subscription s connection '{connection}' publication p with (connect = false)");
        let (code, hint) = error(&client, &sql).await;
        assert!(code == "0A000" && hint.contains("passfile"), "{connection}: {code} {hint}");
    }
    run(&client, &format!("{create})")).await;
    assert_eq!(error(&client, "alter subscription s connection 'password=x'").await.0, "0A000");
    assert_eq!(one(&client, "select subconninfo from pg_subscription").await, "host=hq");
    run(&client, "create role plain").await;
    run(&client, "set role plain").await;
    assert_eq!(one(&client, "select coalesce(subconninfo, subname) from pg_subscription").await, "s");
    run(&client, "reset role").await;
    run(&client, "create database lite dialect = sqlite").await;
    let lite = server.connect_to("lite").await;
    let (code, _) = error(&lite, &format!("{create})")).await;
    assert_eq!(code, "0A000");
    for sql in [
        "select * from holdfast_subscriptions",
        "delete from holdfast_positions",
        "insert into holdfast_positions values (1, 0, 0)",
        "drop table holdfast_positions",
        "create index i on holdfast_subscriptions (name)",
    ] {
        assert!(state(&client, sql).await.is_some(), "{sql}");
    }
    assert_eq!(
        one(&client, "select count(*) from pg_class where relname like 'holdfast_subs%' or relname like '%positions'")
            .await,
        "0"
    );
}

/// A publisher, and a server whose tables t and other subscription s writes, once it is enabled. u is an ordinary table.
async fn with_a_subscribed_table(copy_data: bool) -> (Running, Running) {
    let (publisher, server) = (Running::start(), Running::start());
    let tables = "create table t(id int primary key, a int); create table other(id int primary key)";
    let hq = publisher.connect().await;
    run(&hq, &format!("{tables}; create publication p for table t, other")).await;
    let client = server.connect().await;
    run(&client, &format!("{tables}; create table u(id int primary key, a int); create view v as select * from t"))
        .await;
    run(&client, "insert into t values (1, 1), (2, 2); insert into u select * from t").await;
    let connection = format!("host=127.0.0.1 port={} dbname=holdfast user=holdfast", publisher.port);
    let with = format!("enabled = false, copy_data = {copy_data}");
    run(&client, &format!("create subscription s connection '{connection}' publication p with ({with})")).await;
    (publisher, server)
}

/// Statements that change or lock rows of table t.
const CHANGES: [&str; 18] = [
    "insert into t values (3, 3)",
    "insert into t select id + 10, a from u",
    "insert into t values (1, 1) on conflict do nothing",
    "insert into t values (1, 1) on conflict (id) do update set a = 9",
    "update t set a = 9",
    "update t set a = u.a from u where u.id = t.id",
    "update only t set a = 9 where id = 7",
    "delete from t where id = 1",
    "delete from t using u where u.id = t.id",
    "truncate t",
    "truncate u, t",
    "with x as (select 7 as id) insert into t select id, id from x",
    "explain delete from t",
    "select * from t for update",
    "select * from t for no key update",
    "select * from u, t where u.id = t.id for share of t",
    "select * from t where id = 1 for key share skip locked",
    "copy t from stdin",
];

#[tokio::test]
async fn a_subscribed_table_is_read_only() {
    let (_publisher, server) = with_a_subscribed_table(true).await;
    let client = server.connect().await;
    for sql in CHANGES {
        for sql in [sql.to_owned(), format!("begin; {sql}")] {
            let error = client.batch_execute(&sql).await.expect_err(&sql);
            let error = error.as_db_error().expect(&sql);
            assert_eq!(error.code().code(), "25006", "{sql}: {error:?}");
            assert_eq!(error.message(), "cannot change table \"t\": subscription \"s\" writes it", "{sql}");
            assert!(error.hint().is_some_and(|h| h.contains("DROP SUBSCRIPTION s")), "{sql}");
            run(&client, "rollback").await;
        }
        if !sql.starts_with("copy") && !sql.starts_with("explain") {
            let error = client.prepare(sql).await.map(|_| ()).err();
            let prepared = error.and_then(|e| e.code().cloned());
            match prepared {
                Some(code) => assert_eq!(code.code(), "25006", "{sql}"),
                None => {
                    assert_eq!(client.execute(sql, &[]).await.unwrap_err().code().unwrap().code(), "25006", "{sql}")
                }
            }
        }
    }
    // Reads, and changes of other tables that read it.
    run(&client, "begin; select * from t; insert into u select id + 20, a from t; lock table t; rollback").await;
    run(&client, "update u set a = t.a from t where t.id = u.id; analyze t; create index on t (a)").await;
    run(&client, "select * from u, t for update of u").await;
    assert_eq!(one(&client, "select sum(id) * 10 + sum(a) from t").await, "33");
    // A role without the privilege is refused for that.
    run(&client, "create role plain").await;
    run(&client, "set role plain").await;
    assert_eq!(state(&client, "delete from t").await.unwrap().code(), "42501");
}

#[tokio::test]
async fn a_statement_that_was_prepared_before_is_refused_and_works_again_after() {
    let (_publisher, server) = with_a_subscribed_table(true).await;
    let (client, other) = (server.connect().await, server.connect().await);
    let change = client.prepare("update u set a = a + 1").await.unwrap();
    assert_eq!(client.execute(&change, &[]).await.unwrap(), 2);
    assert!(state(&client, "delete from t where id = 9").await.is_some());
    run(&other, "alter subscription s set (slot_name = none); drop subscription s").await;
    run(&client, "delete from t where id = 9; insert into t values (3, 3); truncate t; insert into t select * from u")
        .await;
    assert_eq!(one(&client, "select count(*) from pg_subscription_rel").await, "0");
}

#[tokio::test]
async fn the_schema_of_a_subscribed_table() {
    let (_publisher, server) = with_a_subscribed_table(true).await;
    let client = server.connect().await;
    let relations = "select string_agg(concat_ws(' ', srrelid::regclass, srsubstate, srsublsn, subname), ', ' \
                     order by srrelid::regclass::text) from pg_subscription_rel join pg_subscription s on s.oid = srsubid";
    assert_eq!(one(&client, relations).await, "other i s, t i s");
    for sql in [
        "alter table t add foreign key (a) references u",
        "alter table t add column b int references u",
        "alter table t add column b int generated always as (a + 1) stored",
        "alter table t alter column id add generated always as identity",
        "create table child(id int primary key, t int references t on delete cascade)",
        "create table child(id int primary key, t int references t on update set null)",
        "alter table u add foreign key (a) references t on delete set default",
        "create trigger x after insert on t begin delete from u; end",
    ] {
        assert_eq!(state(&client, sql).await.expect(sql).code(), "0A000", "{sql}");
    }
    run(&client, "create table child(id int primary key, t int references t)").await;
    run(&client, "insert into child values (1, 1); alter table u add foreign key (a) references t on delete restrict")
        .await;
    run(&client, "alter table t add column b int check (b > 0); alter table t rename to renamed").await;
    assert_eq!(state(&client, "delete from renamed").await.unwrap().code(), "25006");
    assert_eq!(one(&client, relations).await, "other i s, renamed i s");
    run(&client, "drop table renamed cascade; create table renamed(id int)").await;
    assert_eq!(one(&client, relations).await, "other i s");
    run(&client, "insert into renamed values (1); drop table other").await;
    assert_eq!(one(&client, "select count(*) from pg_subscription_rel").await, "0");
    // It is kept by a restart.
    drop(client);
    let server = Running::start_in(server.kill());
    let client = server.connect().await;
    assert_eq!(one(&client, "select count(*) from pg_subscription_rel").await, "0");
    run(&client, "create table t(id int primary key); insert into t values (1)").await;
    let (_publisher, server) = with_a_subscribed_table(false).await;
    let client = server.connect().await;
    assert_eq!(one(&client, relations).await, "other r s, t r s", "they count as copied");
}
