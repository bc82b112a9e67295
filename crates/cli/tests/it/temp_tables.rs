//! Temporary tables against the real server: what is private, what transactions undo, and what others never notice.

use crate::server::Running;
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
}

async fn state(client: &Client, sql: &str) -> Option<SqlState> {
    client.batch_execute(sql).await.err().and_then(|e| e.code().cloned())
}

/// All rows, a line each.
async fn rows(client: &Client, sql: &str) -> String {
    let messages = client.simple_query(sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    let line = |row: &tokio_postgres::SimpleQueryRow| {
        (0..row.len()).map(|i| row.get(i).unwrap_or("-").to_owned()).collect::<Vec<_>>().join(",")
    };
    let lines =
        messages.iter().filter_map(|m| if let SimpleQueryMessage::Row(row) = m { Some(line(row)) } else { None });
    lines.collect::<Vec<_>>().join(" ")
}

async fn in_sqlite(server: &Running) -> (Client, Client) {
    run(&server.connect().await, "create database lite dialect sqlite").await;
    (server.connect_to("lite").await, server.connect_to("lite").await)
}

#[tokio::test]
async fn a_temporary_table_is_its_sessions_alone_and_hides_a_permanent_one() {
    let server = Running::start();
    let (one, two) = (server.connect().await, server.connect().await);
    run(&one, "create table t(a int); insert into t values(1)").await;
    let before = one.prepare("select a from t").await.unwrap();
    run(&one, "create temp table t(a int, b text); insert into t values(10, 'x'), (20, 'y')").await;
    assert_eq!(one.query(&before, &[]).await.unwrap().len(), 2, "a statement prepared before means the new table");
    assert_eq!(rows(&one, "select a, b from t order by a").await, "10,x 20,y");
    assert_eq!(rows(&one, "select public.t.a from public.t").await, "1");
    assert_eq!(rows(&one, "select a from pg_temp.t order by 1").await, "10 20");
    assert_eq!(rows(&two, "select a from t").await, "1");
    assert_eq!(state(&two, "select * from pg_temp.t").await, Some(SqlState::UNDEFINED_TABLE));
    run(&two, "create temp table t(c int); insert into t values(7)").await;
    assert_eq!(rows(&two, "select * from t").await, "7");
    run(&two, "update public.t set a = 2").await;
    assert_eq!(rows(&one, "select p.a, t.a from public.t p, t where t.b = 'x'").await, "2,10");
    run(&one, "drop table t").await;
    assert_eq!(rows(&one, "select a from t").await, "2");
    assert_eq!(one.query(&before, &[]).await.unwrap().len(), 1);
    run(&two, "discard temp").await;
    assert_eq!(rows(&two, "select a from t").await, "2");
    run(&one, "create temp table gone(a int)").await;
    run(&one, "discard all").await;
    assert_eq!(state(&one, "select * from gone").await, Some(SqlState::UNDEFINED_TABLE));
}

#[tokio::test]
async fn rollback_and_savepoints_undo_rows_and_tables() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "create table p(a int); create temp table t(id serial primary key, a int unique)").await;
    run(&client, "begin; insert into t(a) values(1),(2); insert into p values(1)").await;
    run(&client, "savepoint s; insert into t(a) values(3); create temp table u as select a from t").await;
    run(&client, "insert into p select a from u; alter table t add column c text default 'd'; create index ti on t(c)")
        .await;
    assert_eq!(rows(&client, "select count(*), max(c) from t").await, "3,d");
    assert_eq!(rows(&client, "select count(*) from p").await, "4");
    assert_eq!(state(&client, "insert into t(a) values(9),(1)").await, Some(SqlState::UNIQUE_VIOLATION));
    assert_eq!(state(&client, "select 1").await, Some(SqlState::IN_FAILED_SQL_TRANSACTION));
    run(&client, "rollback to s").await;
    assert_eq!(rows(&client, "select * from t order by id").await, "1,1 2,2");
    assert_eq!(rows(&client, "select a from p").await, "1");
    run(&client, "insert into t(a) select a + 10 from p").await;
    run(&client, "rollback to s; release s; insert into t(a) values(5); commit").await;
    assert_eq!(rows(&client, "select a from t order by a").await, "1 2 5");
    assert_eq!(state(&client, "select * from u").await, Some(SqlState::UNDEFINED_TABLE));
    run(&client, "begin; delete from t; drop table t; create temp table v(a int); rollback").await;
    assert_eq!(rows(&client, "select a from t order by a").await, "1 2 5");
    assert_eq!(state(&client, "select * from v").await, Some(SqlState::UNDEFINED_TABLE));
    // A statement that fails outside a block, and a message that fails after it has changed something.
    assert_eq!(state(&client, "insert into t(a) values(6),(1)").await, Some(SqlState::UNIQUE_VIOLATION));
    assert_eq!(
        state(&client, "insert into t(a) values(7); insert into p values(8); select 1/0").await,
        Some(SqlState::DIVISION_BY_ZERO)
    );
    assert_eq!(rows(&client, "select a from t order by a").await, "1 2 5");
    assert_eq!(rows(&client, "select a from p").await, "1");
}

#[tokio::test]
async fn on_commit_is_done_at_the_end_of_each_transaction() {
    let server = Running::start();
    let client = server.connect().await;
    run(
        &client,
        "create temp table d(a int) on commit delete rows; create temp table k(a int) on commit preserve rows",
    )
    .await;
    run(&client, "begin; insert into d values(1); insert into k values(1)").await;
    run(&client, "create local temporary table x on commit drop as select a + 1 as a from d").await;
    assert_eq!(rows(&client, "select (select count(*) from d), (select a from x)").await, "1,2");
    run(&client, "commit").await;
    assert_eq!(rows(&client, "select (select count(*) from d), (select count(*) from k)").await, "0,1");
    assert_eq!(state(&client, "select * from x").await, Some(SqlState::UNDEFINED_TABLE));
    run(&client, "insert into d values(2)").await;
    assert_eq!(rows(&client, "select count(*) from d").await, "0");
    run(&client, "begin; create temp table x(a int) on commit drop; rollback; create temp table x(a int)").await;
    assert_eq!(rows(&client, "select count(*) from x").await, "0");
    assert_eq!(state(&client, "create table y(a int) on commit drop").await, Some(SqlState::INVALID_TABLE_DEFINITION));
}

#[tokio::test]
async fn statements_over_both_kinds_of_tables() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "create table p(id int primary key, v text); insert into p values(1,'a'),(2,'b'),(3,'c')").await;
    run(&client, "create temp table t(id int primary key, v text, n int default 5 check (n > 0))").await;
    assert_eq!(rows(&client, "insert into t(id, v) select id, v || '!' from p returning id, n").await, "1,5 2,5 3,5");
    assert_eq!(
        rows(&client, "insert into t(id, v) values(1, 'z') on conflict (id) do update set v = excluded.v returning v")
            .await,
        "z"
    );
    run(&client, "update p set v = t.v from t where t.id = p.id and p.id < 3").await;
    assert_eq!(rows(&client, "select v from p order by id").await, "z b! c");
    run(&client, "update t set v = p.v from p where p.id = t.id").await;
    assert_eq!(rows(&client, "select v from t order by id").await, "z b! c");
    run(
        &client,
        "delete from p using t where t.id = p.id and t.v = 'c'; delete from t using p where p.id = t.id and p.id = 1",
    )
    .await;
    assert_eq!(rows(&client, "select p.id, t.id from p full join t on t.id = p.id order by 1, 2").await, "1,- 2,2 -,3");
    assert_eq!(state(&client, "insert into t(id, n) values(9, 0)").await, Some(SqlState::CHECK_VIOLATION));
    // In a transaction that has changed permanent tables, each statement sees those changes.
    run(&client, "begin; insert into p values(7, 'new'); insert into t select id, v from p where id = 7").await;
    assert_eq!(rows(&client, "select t.v, p.v from t join p using (id) where id = 7").await, "new,new");
    run(&client, "create temp table c as select id from p; update p set v = 'c' from c where c.id = p.id; commit")
        .await;
    assert_eq!(rows(&client, "select string_agg(v, '' order by id) from p").await, "ccc");
    assert_eq!(rows(&client, "select count(*) from c").await, "3");
    run(&client, "truncate t").await;
    assert_eq!(rows(&client, "select count(*) from t").await, "0");
    // Beside changes of the schema that nobody else knows yet.
    run(&client, "begin; create table q(id int primary key, v text); insert into q select id, 'q' from c").await;
    run(&client, "insert into t(id, v) select id, v from q; savepoint s; create table r as select id + 1 as id from t")
        .await;
    assert_eq!(rows(&client, "select count(*) from t join q using (id) left join r using (id)").await, "3");
    run(&client, "rollback to s; commit").await;
    assert_eq!(rows(&client, "select count(*) from q").await, "3");
    assert_eq!(state(&client, "select * from r").await, Some(SqlState::UNDEFINED_TABLE));
    run(&client, "create table r as select v from t; delete from t").await;
    assert_eq!(rows(&client, "select count(*) from r").await, "3");
    // Parameters and prepared statements, before and after the table changes.
    let insert = client.prepare("insert into t values($1, $2) returning n").await.unwrap();
    let row = client.query_one(&insert, &[&1i32, &"x"]).await.unwrap();
    assert_eq!(row.get::<_, i32>(0), 5);
    run(&client, "alter table t add column later int; alter table t rename to u").await;
    assert!(client.query_one(&insert, &[&2i32, &"x"]).await.is_err());
    assert_eq!(client.query_one("select count(*) from u where id = $1", &[&1i32]).await.unwrap().get::<_, i64>(0), 1);
}

#[tokio::test]
async fn others_never_wait_and_their_statements_stay_valid() {
    let server = Running::start();
    let (one, two) = (server.connect().await, server.connect().await);
    run(&one, "create table p(a int primary key); insert into p values(1)").await;
    let prepared = two.prepare("select a from p").await.unwrap();
    // A writer who has the database to himself keeps nobody from temporary tables.
    run(&two, "begin isolation level serializable; insert into p values(9)").await;
    run(&one, "set statement_timeout = 60000; create temp table t(a int); insert into t select a from p").await;
    run(&one, "begin read only; insert into t values(2); update t set a = a + 1").await;
    assert_eq!(state(&one, "insert into p values(2)").await, Some(SqlState::READ_ONLY_SQL_TRANSACTION));
    run(&one, "rollback; begin; insert into t values(3); create temp table u(a int)").await;
    assert_eq!(rows(&two, "select count(*) from pg_locks where pid <> pg_backend_pid()").await, "0");
    run(&one, "commit; reset statement_timeout").await;
    assert_eq!(rows(&one, "select a from t order by a").await, "1 3");
    run(&two, "rollback").await;
    assert_eq!(two.query(&prepared, &[]).await.unwrap().len(), 1);
    run(&one, "begin read only").await;
    assert_eq!(state(&one, "create temp table r(a int)").await, Some(SqlState::READ_ONLY_SQL_TRANSACTION));
    run(&one, "rollback").await;
}

#[tokio::test]
async fn a_statement_that_waited_has_run_once() {
    let server = Running::start();
    let (one, two) = (server.connect().await, server.connect().await);
    run(&one, "create table p(id int primary key, n int); insert into p values(1, 0)").await;
    run(&one, "create temp table t(a int)").await;
    run(&two, "begin; update p set n = 10 where id = 1; select pg_advisory_xact_lock(7)").await;
    run(&one, "begin; insert into t values(1)").await;
    let waiting = async {
        run(&one, "update p set n = n + (select count(*)::int from t) where id = 1").await;
        run(&one, "insert into t select 5 from p where pg_advisory_xact_lock(7) is not null").await;
        run(&one, "insert into t select n from p; commit").await;
    };
    let ending = async {
        while rows(&two, "select count(*) from pg_stat_activity where wait_event_type = 'Lock'").await == "0" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        run(&two, "commit").await;
    };
    tokio::join!(waiting, ending);
    assert_eq!(rows(&one, "select n from p").await, "11");
    assert_eq!(rows(&one, "select a from t order by a").await, "1 5 11");
    // And one that waits for an advisory lock while it fills a temporary table.
    run(&two, "begin; select pg_advisory_xact_lock(8)").await;
    let waiting = run(&one, "insert into t select 6 from p where pg_advisory_lock(8) is not null");
    let ending = async {
        while rows(&two, "select count(*) from pg_stat_activity where wait_event = 'advisory'").await == "0" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        run(&two, "commit").await;
    };
    tokio::join!(waiting, ending);
    assert_eq!(rows(&one, "select a from t order by a").await, "1 5 6 11");
}

#[tokio::test]
async fn repeatable_read_reads_one_snapshot_beside_temporary_tables() {
    let server = Running::start();
    let (one, two) = (server.connect().await, server.connect().await);
    run(&one, "create table p(a int); insert into p values(1)").await;
    run(&one, "create temp table t(a int)").await;
    run(&one, "begin isolation level repeatable read; insert into t select a from p").await;
    run(&two, "insert into p values(2)").await;
    run(&one, "insert into t select a + 10 from p").await;
    assert_eq!(rows(&one, "select a from t order by a").await, "1 11");
    assert_eq!(rows(&one, "select count(*) from p").await, "1");
    run(&one, "select 1; insert into p select a from t where a = 11; insert into t select a + 100 from p; commit")
        .await;
    assert_eq!(rows(&one, "select a from t order by a").await, "1 11 101 111");
    // A statement without tables takes no snapshot, and leaves none behind that was another's.
    assert_eq!(rows(&one, "select 4").await + &rows(&one, "select count(*) from p").await, "43");
    run(&two, "insert into p values(4)").await;
    run(&one, "begin isolation level repeatable read").await;
    assert_eq!(rows(&one, "select 4").await, "4");
    run(&one, "insert into p values(5); rollback").await;
    run(&one, "begin; insert into t select a from p where a = 2").await;
    run(&two, "insert into p values(3)").await;
    run(&one, "insert into t select a from p where a = 3; commit").await;
    assert_eq!(rows(&one, "select a from t where a in (2, 3) order by a").await, "2 3");
}

#[tokio::test]
async fn copy_cursors_and_the_catalogue_know_them() {
    use futures::{SinkExt, TryStreamExt};
    use std::io::Cursor;
    let server = Running::start();
    let (one, two) = (server.connect().await, server.connect().await);
    run(&one, "create table p(id int); create temp table t(id int primary key, v text)").await;
    let mut sink = Box::pin(one.copy_in("copy t from stdin").await.unwrap());
    let lines: String = (0..5000).map(|i| format!("{i}\tv{i}\n")).collect();
    sink.send(Cursor::new(lines)).await.unwrap();
    assert_eq!(sink.as_mut().finish().await.unwrap(), 5000);
    let out = one.copy_out("copy (select id from t where id < 3 order by id) to stdout").await.unwrap();
    let parts: Vec<_> = out.try_collect().await.unwrap();
    assert_eq!(parts.concat(), b"0\n1\n2\n");
    // A COPY that fails leaves nothing.
    let mut sink = Box::pin(one.copy_in("copy t from stdin").await.unwrap());
    let lines: String = (6000..8000).chain([5]).map(|i| format!("{i}\tw\n")).collect();
    sink.send(Cursor::new(lines)).await.unwrap();
    assert!(sink.as_mut().finish().await.is_err());
    assert_eq!(rows(&one, "select count(*) from t").await, "5000");
    run(&one, "begin; declare c cursor for select id from t order by id; insert into t values(9000, 'x')").await;
    assert_eq!(rows(&one, "fetch 2 from c").await, "0 1");
    run(&one, "commit").await;
    let shown = "select table_schema, table_type from information_schema.tables where table_name = 't'";
    assert_eq!(rows(&one, shown).await, "pg_temp_1,LOCAL TEMPORARY");
    assert_eq!(rows(&two, shown).await, "");
    let class = "select n.nspname, c.relpersistence from pg_class c join pg_namespace n on n.oid = c.relnamespace
                 where c.relname in ('t', 't_pkey') and pg_table_is_visible(c.oid)";
    assert_eq!(rows(&one, class).await, "pg_temp_1,t pg_temp_1,t");
    assert_eq!(rows(&two, class).await, "");
    assert_eq!(
        rows(&one, "select attname from pg_attribute where attrelid = 't'::regclass and attnum > 0 order by attnum")
            .await,
        "id v"
    );
    assert!(rows(&one, "explain select * from t where id = 3").await.contains("SEARCH"));
}

#[tokio::test]
async fn prepare_transaction_refuses_what_has_touched_them() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "create table p(a int); create temp table t(a int)").await;
    run(&client, "begin; insert into p values(1); select * from t").await;
    assert_eq!(state(&client, "prepare transaction 'g'").await, Some(SqlState::FEATURE_NOT_SUPPORTED));
    assert_eq!(rows(&client, "select count(*) from p").await, "0");
    run(&client, "begin; insert into p values(1); select count(*) from pg_class; prepare transaction 'g'").await;
    run(&client, "commit prepared 'g'").await;
    assert_eq!(rows(&client, "select count(*) from p").await, "1");
}

#[tokio::test]
async fn nothing_is_left_after_the_session_or_a_crash() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "create temp table t(a text); insert into t select repeat('x', 1000) from generate_series(1, 5000)")
        .await;
    assert_eq!(rows(&client, "select count(*) from t").await, "5000");
    let written = "select * from holdfast_stat_trail where name in ('batches', 'boxcars', 'transactions') order by 1";
    let trail = rows(&client, written).await;
    run(&client, "update t set a = a || 'y'; create temp table u as select * from t; drop table u").await;
    assert_eq!(rows(&client, written).await, trail, "nothing goes to the trail");
    let left = || std::fs::read_dir(server.dir.path().join("scratch")).map_or(0, Iterator::count);
    assert_eq!(left(), 0, "scratch files have no name");
    let dir = server.kill();
    let server = Running::start_in(dir);
    let client = server.connect().await;
    assert_eq!(state(&client, "select * from t").await, Some(SqlState::UNDEFINED_TABLE));
    assert_eq!(rows(&client, "select count(*) from pg_class where relname = 't'").await, "0");
}

#[tokio::test]
async fn the_limit_is_named_and_ends_only_the_statement() {
    let dir = tempfile::TempDir::new().unwrap();
    let (_, dir) = Running::start_in(dir).stop();
    let path = dir.path().join("holdfast.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("scratch_bytes_max = 2000000\n{text}")).unwrap();
    let server = Running::start_in(dir);
    let client = server.connect().await;
    run(&client, "create temp table t(a text); insert into t values('kept')").await;
    let much = "insert into t select repeat('x', 1000) from generate_series(1, 5000)";
    let error = client.batch_execute(much).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code(), &SqlState::PROGRAM_LIMIT_EXCEEDED);
    assert!(error.message().contains("scratch_bytes_max (2000000)"), "{}", error.message());
    assert_eq!(rows(&client, "select a from t").await, "kept");
    run(&client, "begin; insert into t values('more'); savepoint s").await;
    assert_eq!(state(&client, much).await, Some(SqlState::PROGRAM_LIMIT_EXCEEDED));
    run(&client, "rollback to s; commit").await;
    assert_eq!(rows(&client, "select a from t").await, "kept more");
}

#[tokio::test]
async fn sqlites_dialect_has_them_too() {
    let server = Running::start();
    let (one, two) = in_sqlite(&server).await;
    run(&one, "create table p(id integer primary key, v); insert into p(v) values('a'), ('b')").await;
    run(&one, "create temp table x(id integer primary key, v text unique); insert into x(v) select v from p").await;
    run(&one, "create temp table p(id integer primary key, v) on commit preserve rows").await;
    run(&one, "insert into p(v) values('mine'); insert into main.p(v) values('c')").await;
    assert_eq!(rows(&one, "select v from p").await, "mine");
    assert_eq!(rows(&one, "select v from main.p order by id").await, "a b c");
    assert_eq!(rows(&one, "select p.v, x.v from temp.p, x where x.id = 2").await, "mine,b");
    assert_eq!(rows(&two, "select v from p order by id").await, "a b c");
    run(&one, "begin; update p set v = 'other'; delete from main.p where v in (select v from x); savepoint s").await;
    run(&one, "create index temp.pi on p(v); drop table x; rollback to s; commit").await;
    assert_eq!(
        rows(&one, "select v from p union all select v from main.p union all select v from x order by 1").await,
        "a b c other"
    );
    assert_eq!(rows(&one, "select name from sqlite_temp_schema where type = 'table' order by 1").await, "p x");
    assert_eq!(rows(&one, "select name from pragma_table_info('x') order by cid").await, "id v");
    assert_eq!(state(&one, "with p as (select 1 as v) select v from p").await, Some(SqlState::FEATURE_NOT_SUPPORTED));
    run(&one, "begin; insert into x(v) values('z'); rollback; drop table p").await;
    assert_eq!(rows(&one, "select v from p").await, "c");
}

#[tokio::test]
async fn what_is_not_supported_says_so() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "create table p(a int primary key); create temp table t(a int primary key)").await;
    for sql in [
        "create view v as select * from t",
        "create temp view v as select 1",
        "drop table p, t",
        "create temp table c(a int references t deferrable initially deferred)",
        "begin isolation level serializable; insert into p select a from t",
    ] {
        assert_eq!(state(&client, sql).await, Some(SqlState::FEATURE_NOT_SUPPORTED), "{sql}");
        run(&client, "rollback").await;
    }
    for sql in [
        "create temp table c(a int references p)",
        "create table c(a int references t)",
        "create temp table public.c(a int)",
    ] {
        assert_eq!(state(&client, sql).await, Some(SqlState::INVALID_TABLE_DEFINITION), "{sql}");
    }
    assert_eq!(state(&client, "create temp table t(a int)").await, Some(SqlState::DUPLICATE_TABLE));
    run(&client, "create temp table if not exists t(b int); create temp table c(a int references t on delete cascade)")
        .await;
    run(&client, "insert into t values(1); insert into c values(1); delete from t").await;
    assert_eq!(rows(&client, "select count(*) from c").await, "0");
}
