//! The system column `rowid` of the PostgreSQL dialect.

use super::{Bed, table};
use tokio_postgres::error::SqlState;

#[tokio::test]
async fn rowid_is_a_hidden_column_of_stored_tables() {
    let bed = Bed::start().await;
    let client = &bed.client;
    bed.run("create table t(a text primary key, v int); create table k(id int primary key, v int)").await;
    bed.run("create table own(rowid text, v int); create view w as select a, v from t").await;
    bed.run("insert into t values ('x', 1), ('y', 2); insert into k values (7, 1); insert into own values ('mine', 1)")
        .await;
    assert_eq!(table(client, "select * from t order by a").await, ["x|1", "y|2"]);
    assert_eq!(table(client, "select rowid, a from t where rowid = 2").await, ["2|y"]);
    assert_eq!(
        table(client, "select q.rowid, rowid::text || a from t q order by q.rowid desc").await,
        ["2|2y", "1|1x"]
    );
    assert_eq!(table(client, "select rowid from k").await, ["7"]);
    assert_eq!(table(client, "select rowid from own").await, ["mine"]);
    assert_eq!(table(client, "update t set v = v + 1 where rowid = 1 returning rowid, v").await, ["1|2"]);
    assert_eq!(table(client, "select max(rowid), count(*) from t group by rowid > 5").await, ["2|2"]);
    assert_eq!(table(client, "select t.rowid from k left join t on t.rowid = k.v + 50").await, ["NULL"]);
    bed.run("insert into t(rowid, a, v) values (10, 'z', 3)").await;
    bed.run("insert into t values ('next', 4)").await;
    assert_eq!(table(client, "select rowid, a from t where rowid > 5 order by 1").await, ["10|z", "11|next"]);
    bed.run("delete from t where rowid = 10").await;
    for (sql, state) in [
        ("select rowid from w", SqlState::UNDEFINED_COLUMN),
        ("select rowid from (select a from t) q", SqlState::UNDEFINED_COLUMN),
        ("select rowid from t, k", SqlState::AMBIGUOUS_COLUMN),
        ("insert into t(rowid, a) values (null, 'n')", SqlState::NOT_NULL_VIOLATION),
        ("insert into t(rowid, a) values (11, 'n')", SqlState::UNIQUE_VIOLATION),
        ("update t set rowid = 5", SqlState::UNDEFINED_COLUMN),
        ("insert into k(rowid, v) values (5, 5)", SqlState::UNDEFINED_COLUMN),
    ] {
        let error = client.batch_execute(sql).await.unwrap_err();
        assert_eq!(error.code(), Some(&state), "{sql}: {error:?}");
    }
}

#[tokio::test]
async fn a_grant_on_columns_does_not_cover_it() {
    let bed = Bed::start().await;
    bed.run("create table t(a text primary key, v int); create table k(id int primary key, v int)").await;
    bed.run("insert into t values ('x', 1); insert into k values (7, 1)").await;
    bed.run("create role reader; grant select (a, v), insert (a, v) on t to reader; grant select (id) on k to reader")
        .await;
    let denied = async |sql: &str| {
        let error = bed.client.batch_execute(sql).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{sql}: {error:?}");
    };
    bed.run("set role reader").await;
    assert_eq!(table(&bed.client, "select a, v from t").await, ["x|1"]);
    denied("select rowid, a from t").await;
    denied("select a from t where rowid = 1").await;
    denied("insert into t(rowid, a) values (5, 'z')").await;
    // The key of this table is the same number.
    assert_eq!(table(&bed.client, "select rowid from k").await, ["7"]);
    bed.run("reset role; grant select, insert on t to reader; set role reader").await;
    assert_eq!(table(&bed.client, "select rowid, a from t").await, ["1|x"]);
    bed.run("insert into t(rowid, a) values (5, 'z')").await;
}
