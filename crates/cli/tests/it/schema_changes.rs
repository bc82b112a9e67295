//! Schema changes beside open transactions, as clients meet them.

use crate::server::{Running, one, run, state, until};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

/// A statement on a task of its own; the client comes back with the outcome.
struct Apart {
    pid: String,
    task: JoinHandle<(Client, Option<SqlState>)>,
}

async fn apart(client: Client, sql: &'static str) -> Apart {
    let pid = one(&client, "select pg_backend_pid()").await;
    let task = tokio::spawn(async move {
        let failed = state(&client, sql).await;
        (client, failed)
    });
    Apart { pid, task }
}

impl Apart {
    /// Waits until the server names the holder's session among those that the statement waits for. A statement that ends
    /// instead has not waited.
    async fn until_blocked_by(&self, holder: &Client) {
        let blocked = format!("select coalesce(pg_backend_pid() = any(pg_blocking_pids({})), false)", self.pid);
        until("it waits for the holder", async || {
            let ended = self.task.is_finished();
            let waits = one(holder, &blocked).await == "t";
            assert!(waits || !ended, "it ended without waiting");
            waits
        })
        .await;
    }

    async fn end(self) -> (Client, Option<SqlState>) {
        soon(self.task).await.unwrap()
    }
}

/// Longer than anything here takes that ends at all.
const SOON: Duration = Duration::from_secs(600);

/// Fails when the work waits for somebody.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, work).await.expect("it waits")
}

async fn two(schema: &str) -> (Running, Client, Client) {
    let server = Running::start();
    let (a, b) = (server.connect().await, server.connect().await);
    run(&a, schema).await;
    (server, a, b)
}

#[tokio::test]
async fn a_schema_changes_beside_open_transactions_on_other_tables() {
    let (server, a, b) = two(
        "create table t(id serial primary key, v int); create table u(id int primary key); insert into t(v) values (1)",
    )
    .await;
    run(&a, "begin; update t set v = 2; insert into t(v) values (10)").await;
    soon(run(&b, "create table alone(id int)")).await;
    soon(run(
        &b,
        "begin; create table x(id serial primary key, t int references u(id)); drop table x; \
        create table w(id serial primary key, v text); insert into w(v) values ('one'), ('two'); savepoint s; \
        alter table w add column more int default 7; update w set more = 8 where v = 'two'; rollback to s",
    ))
    .await;
    assert_eq!(state(&b, "select more from w").await, Some(SqlState::UNDEFINED_COLUMN));
    soon(run(
        &b,
        "rollback to s; \
        create index wi on w(v); alter table u add column extra text; insert into u values (1, 'x')",
    ))
    .await;
    assert_eq!(one(&b, "select count(*) from w where v = 'two'").await, "1");
    assert_eq!(state(&a, "select * from w").await, Some(SqlState::UNDEFINED_TABLE), "not yet");
    run(&a, "rollback; begin; update t set v = 2; insert into t(v) values (10)").await;
    soon(run(&b, "commit")).await;
    // The ids that the open transaction holds are not given again.
    soon(run(&b, "insert into t(v) values (100)")).await;
    assert_eq!(one(&a, "select count(*) from w").await, "2");
    run(&a, "insert into w(v) values ('three'); insert into t(v) values (11); commit").await;
    assert_eq!(one(&b, "select sum(v) from t").await, "123");
    assert_eq!(one(&b, "select max(id) from w").await, "3");
    let dir = server.kill();
    let server = Running::start_in(dir);
    let c = server.connect().await;
    assert_eq!(one(&c, "select count(*) from w").await, "3");
    assert_eq!(one(&c, "select extra from u").await, "x");
    assert_eq!(one(&c, "select sum(v) from t").await, "123");
}

#[tokio::test]
async fn what_is_rolled_back_never_was() {
    let (_server, a, b) = two("create table t(id int primary key, v int)").await;
    run(&b, "begin; insert into t values (1, 1)").await;
    run(&a, "begin; create table n(id serial primary key); insert into n default values; insert into n default values")
        .await;
    assert_eq!(one(&a, "select max(id) from n").await, "2");
    run(&a, "rollback").await;
    assert_eq!(state(&a, "select * from n").await, Some(SqlState::UNDEFINED_TABLE));
    run(&a, "create table n(id serial primary key); insert into n default values").await;
    assert_eq!(one(&a, "select max(id) from n").await, "1", "ids of the one that never was are forgotten");
    // A statement that fails leaves a transaction that can go on from its savepoint.
    run(&a, "begin; create table m(id int); savepoint s").await;
    assert_eq!(state(&a, "create table m(id int)").await, Some(SqlState::DUPLICATE_TABLE));
    run(&a, "rollback to s; insert into m values (1); create unique index mi on m(id); savepoint r").await;
    assert_eq!(state(&a, "insert into m values (1)").await, Some(SqlState::UNIQUE_VIOLATION));
    run(&a, "rollback to r; insert into m values (2); commit").await;
    assert_eq!(one(&b, "select count(*) from m").await, "2");
    run(&b, "commit").await;
}

#[tokio::test]
async fn a_change_of_a_table_waits_for_who_has_changed_it() {
    let (server, a, b) = two("create table t(id int primary key, v int); insert into t values (1, 1), (2, 2)").await;
    for change in ["alter table t add column more int", "create index ti on t(v)", "drop index ti"] {
        run(&a, "begin; update t set v = v + 1 where id = 1").await;
        let b = server.connect().await;
        let waits = apart(b, change).await;
        waits.until_blocked_by(&a).await;
        run(&a, "commit").await;
        let (_, failed) = waits.end().await;
        assert_eq!(failed, None, "{change}");
    }
    // And who wants to change a row waits for the change of its table.
    run(&b, "begin; alter table t add column last text default 'z'").await;
    let waits = apart(a, "update t set v = 9 where id = 1").await;
    waits.until_blocked_by(&b).await;
    run(&b, "commit").await;
    let (a, failed) = waits.end().await;
    assert_eq!(failed, None);
    assert_eq!(one(&a, "select v || last from t where id = 1").await, "9z");
}

/// Its transaction is older than the change, its statement is not.
#[tokio::test]
async fn an_older_transaction_sees_the_new_schema() {
    let (_server, a, b) = two("create table t(id int primary key, v int); create table u(id int)").await;
    run(&a, "begin; insert into u values (1)").await;
    run(&b, "insert into t values (1, 1); alter table t add column more int default 5; create unique index ti on t(v)")
        .await;
    run(&a, "insert into t(id, v, more) values (2, 2, 6)").await;
    assert_eq!(one(&a, "select sum(more) from t").await, "11");
    assert_eq!(state(&a, "savepoint s; insert into t(id, v) values (3, 1)").await, Some(SqlState::UNIQUE_VIOLATION));
    run(&a, "rollback to s; commit").await;
    assert_eq!(one(&b, "select count(*) from t").await, "2");
}

/// The statement has begun before the change, and comes to the table after it.
#[tokio::test]
async fn a_statement_begun_under_the_old_schema_begins_again() {
    let (_server, mut a, b) = two("create table t(id serial primary key, v int)").await;
    let counts = "select count(*) from pg_stat_activity where state = 'active' and query like 'insert into t(v)%'";
    let mut rows = 1_000_000;
    loop {
        run(&a, "begin").await;
        let slow = format!("insert into t(v) select count(*) from generate_series(1, {rows})");
        let long = tokio::spawn(async move {
            let failed = state(&a, &slow).await;
            (a, failed)
        });
        until("it counts", async || long.is_finished() || one(&b, counts).await == "1").await;
        run(&b, "alter table t add column more int not null default 5").await;
        let in_time = !long.is_finished();
        let failed;
        (a, failed) = long.await.unwrap();
        assert_eq!(failed, None);
        run(&a, "commit").await;
        if in_time {
            break;
        }
        // A fast machine has counted before the table was changed.
        run(&b, "delete from t; alter table t drop column more").await;
        rows *= 4;
    }
    assert_eq!(one(&b, "select v + more from t").await, (rows + 5).to_string());
}

#[tokio::test]
async fn what_a_new_table_refers_to_is_guarded() {
    let (_server, a, b) = two("create table p(id int primary key); insert into p values (1), (2)").await;
    run(&a, "begin; delete from p where id = 1").await;
    let waits = apart(b, "begin; create table c(p int references p)").await;
    waits.until_blocked_by(&a).await;
    run(&a, "commit").await;
    let (b, failed) = waits.end().await;
    assert_eq!(failed, None);
    assert_eq!(state(&b, "insert into c values (1)").await, Some(SqlState::FOREIGN_KEY_VIOLATION));
    run(&b, "rollback; create table c(p int references p)").await;
    // A row that refers to it keeps the table as it is.
    run(&b, "begin; insert into c values (2)").await;
    let waits = apart(a, "alter table p add column v int").await;
    waits.until_blocked_by(&b).await;
    run(&b, "commit").await;
    let (_, failed) = waits.end().await;
    assert_eq!(failed, None);
}

#[tokio::test]
async fn a_deadlock_with_a_schema_change_is_found() {
    let (_server, a, b) = two("create table t(id int primary key); create table u(id int primary key)").await;
    run(&a, "begin; insert into t values (1)").await;
    run(&b, "begin; alter table u add column v int").await;
    let waits = apart(a, "insert into u values (1)").await;
    waits.until_blocked_by(&b).await;
    let second = state(&b, "alter table t add column v int").await;
    let (_, first) = waits.end().await;
    let dead = Some(SqlState::T_R_DEADLOCK_DETECTED);
    assert!(second == dead || first == dead, "{first:?} {second:?}");
}

/// Sessions change rows of two tables while another one makes, changes, fills and drops tables, in transactions that
/// are committed or not: no session meets an error, the sums hold, and the trail has it all.
#[tokio::test]
async fn rows_and_schemas_change_side_by_side() {
    let (server, a, _) =
        two("create table t(id int primary key, v int); insert into t select i, 0 from generate_series(1, 20) i").await;
    run(&a, "create table log(id serial primary key, t int, w int)").await;
    let over = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for w in 0..4 {
        let (client, over) = (server.connect().await, over.clone());
        writers.push(tokio::spawn(async move {
            let mut done = 0;
            while !over.load(Ordering::Relaxed) {
                let t = done % 20 + 1;
                run(&client, "begin").await;
                run(&client, &format!("update t set v = v + 1 where id = {t}")).await;
                run(&client, &format!("insert into log(t, w) values ({t}, {w})")).await;
                run(&client, "commit").await;
                done += 1;
            }
            done
        }));
    }
    for round in 0..15 {
        run(&a, &format!("begin; create table n{round}(id serial primary key, t int references t, v int)")).await;
        run(&a, &format!("insert into n{round}(t, v) select id, v from t")).await;
        run(&a, &format!("create index n{round}_i on n{round}(v); alter table log add column c{round} int")).await;
        run(&a, &format!("update log set c{round} = {round} where id = 1")).await;
        run(&a, if round % 3 == 2 { "rollback" } else { "commit" }).await;
        if round % 3 == 1 {
            run(&a, &format!("drop table n{round}")).await;
        }
    }
    over.store(true, Ordering::Relaxed);
    let mut done = 0;
    for writer in writers {
        done += writer.await.unwrap();
    }
    let check = async |client: &Client| {
        assert_eq!(one(client, "select sum(v) from t").await, done.to_string());
        assert_eq!(one(client, "select count(*) from log").await, done.to_string());
        assert_eq!(one(client, "select count(*) from (select id from log group by id) d").await, done.to_string());
        assert_eq!(
            one(client, "select c0 + c1 + c3 + c4 + c6 + c7 + c9 + c10 + c12 + c13 from log where id = 1").await,
            "65"
        );
        assert_eq!(one(client, "select count(*) from n12").await, "20");
        assert_eq!(state(client, "select count(*) from n13").await, Some(SqlState::UNDEFINED_TABLE));
    };
    check(&a).await;
    let server = Running::start_in(server.kill());
    check(&server.connect().await).await;
}

/// Who waits for its table is no deadlock, and later statements see what is new.
#[tokio::test]
async fn a_change_may_take_long() {
    let (server, a, b) =
        two("create table t(id int primary key, v int); create table u(id int primary key, v int)").await;
    run(&a, "insert into t select i, i % 1000 from generate_series(1, 100000) i; insert into u values (1, 1)").await;
    run(&b, "begin; create index ti on t(v, id); create index tj on t(id, v)").await;
    run(&a, "begin; update u set v = 2").await;
    let waits = apart(a, "update t set v = 0 where id = 1").await;
    waits.until_blocked_by(&b).await;
    let c = server.connect().await;
    for i in 2..30 {
        run(&c, &format!("insert into u values ({i}, 0)")).await;
        run(&b, &format!("insert into t values (-{i}, 0)")).await;
    }
    assert_eq!(one(&b, "select count(*) from t where v = 0").await, (100 + 28).to_string());
    run(&c, "update u set v = v + 1 where id = 29").await;
    run(&b, "update u set v = v + 1 where id = 29; commit").await;
    let (a, failed) = waits.end().await;
    assert_eq!(failed, None);
    run(&a, "commit").await;
    assert_eq!(one(&a, "select v from u where id = 29").await, "2");
    assert_eq!(one(&a, "select count(*) from t where v = 0").await, "129");
}

/// What only the writer can change takes everything at once: two of them queue.
#[tokio::test]
async fn changes_that_need_everything_queue() {
    let (server, a, _) = two("create database other").await;
    drop(a);
    let mut tasks = Vec::new();
    for i in 0..3 {
        let client = server.connect().await;
        run(&client, &format!("create table t{i}(id int)")).await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                run(&client, "analyze").await;
                run(&client, &format!("alter table t{i} add column v int; alter table t{i} drop column v")).await;
            }
        }));
    }
    for task in tasks {
        soon(task).await.unwrap();
    }
}

#[tokio::test]
async fn a_table_made_again_counts_from_one() {
    let (_server, a, _) = two("create table t(id serial primary key); insert into t default values").await;
    run(&a, "begin; drop table t; create table t(id serial primary key, v int); insert into t(v) values (7)").await;
    assert_eq!(one(&a, "select id from t where v = 7").await, "1");
    run(&a, "commit; insert into t(v) values (8)").await;
    assert_eq!(one(&a, "select id from t where v = 8").await, "2");
}

/// Who has waited for a change is translated again under the new schema.
#[tokio::test]
async fn what_waited_for_a_change_obeys_it() {
    let (server, a, b) =
        two("create table t(id int primary key, v text); create table r(id int primary key, a int, c int)").await;
    run(&a, "insert into r values (1, 1, 42); create table p(id int primary key); insert into p values (1)").await;
    run(&b, "begin; drop table t; create table t(id int primary key, v int)").await;
    let waits = apart(a, "insert into t values (2, 'abc')").await;
    waits.until_blocked_by(&b).await;
    run(&b, "commit").await;
    let (a, failed) = waits.end().await;
    assert_eq!(failed, Some(SqlState::INVALID_TEXT_REPRESENTATION));
    run(&b, "begin; alter table r drop column c").await;
    let waits = apart(a, "update r set a = 7 where id = 1 returning id, c").await;
    waits.until_blocked_by(&b).await;
    run(&b, "commit").await;
    let (a, failed) = waits.end().await;
    assert_eq!(failed, Some(SqlState::UNDEFINED_COLUMN));
    assert_eq!(one(&a, "select a from r").await, "1", "nothing was changed");
    run(
        &b,
        "begin; create table c(id int primary key, p int references p on delete cascade); insert into c values (1, 1)",
    )
    .await;
    let waits = apart(a, "begin; drop table p").await;
    waits.until_blocked_by(&b).await;
    run(&b, "commit").await;
    let (_, failed) = waits.end().await;
    assert_eq!(failed, Some(SqlState::DEPENDENT_OBJECTS_STILL_EXIST));
    assert_eq!(one(&b, "select count(*) from c").await, "1");
    let late = server.connect().await;
    run(&b, "begin; create table n(id int); insert into n values (1)").await;
    let waits = apart(late, "create table if not exists n(id int)").await;
    waits.until_blocked_by(&b).await;
    run(&b, "commit").await;
    let (_, failed) = waits.end().await;
    assert_eq!(failed, None);
}

/// Between its publication and its sync a change is neither half there nor in the way.
#[tokio::test]
async fn readers_see_the_one_schema_or_the_other() {
    let (server, a, _) = two("create table t(id int primary key, v int); insert into t values (1, 1)").await;
    let over = Arc::new(AtomicBool::new(false));
    let mut readers = Vec::new();
    for _ in 0..3 {
        let (client, over) = (server.connect().await, over.clone());
        readers.push(tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                run(&client, "select * from t where id = 1").await;
            }
        }));
    }
    for _ in 0..60 {
        run(&a, "alter table t add column z int").await;
        run(&a, "alter table t drop column z").await;
    }
    over.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.unwrap();
    }
}

/// SQLite allows a foreign key that names no columns of its parent: they are those of the primary key.
#[tokio::test]
async fn a_foreign_key_without_names_of_columns_shows_those_of_the_primary_key() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "create database lite dialect sqlite").await;
    run(&client, "use lite; create table p(a int, k text primary key)").await;
    run(&client, "create table c(x integer primary key, y text references p on delete set null)").await;
    run(&client, "create table d(x integer primary key, y text references p(k))").await;
    let keys = "select group_concat(confkey, ' ') from pg_constraint where contype = 'f'";
    assert_eq!(one(&client, keys).await, "{2} {2}");
}

/// Constraints, types, defaults and columns of an existing table: in a transaction, rolled back, and after a kill.
#[tokio::test]
async fn a_table_is_altered_in_transactions_and_stays_so_after_a_kill() {
    let (server, a, b) = two(
        "create table p(id int primary key); create table c(id serial primary key, p int, v text, w int default 3); \
         insert into p values (1), (2); insert into c(p, v) values (1, '10'), (2, '20')",
    )
    .await;
    let change = "alter table c add constraint c_p foreign key (p) references p(id) deferrable initially deferred, \
         add constraint c_w check (w < 9), alter column v type int using v::int, alter column w drop default, \
         add column x int not null default 4; create index ci on c(v); alter table c drop column w";
    run(&a, "begin").await;
    soon(run(&a, change)).await;
    assert_eq!(one(&b, "select sum(w) from c").await, "6", "other sessions read the table as it was");
    assert_eq!(one(&a, "select sum(v + x) from c").await, "38");
    run(&a, "rollback").await;
    assert_eq!(one(&a, "select string_agg(v, ',' order by id) from c").await, "10,20");
    run(&a, "insert into c(p, v) values (7, 'orphan')").await;
    let failed = state(&a, "alter table c add foreign key (p) references p(id)").await;
    assert_eq!(failed, Some(SqlState::FOREIGN_KEY_VIOLATION));
    run(&a, "delete from c where p = 7; begin").await;
    soon(run(&a, change)).await;
    run(&a, "commit").await;
    let dir = server.kill();
    let server = Running::start_in(dir);
    let d = server.connect().await;
    assert_eq!(one(&d, "select sum(v + x) from c").await, "38");
    assert_eq!(state(&d, "select w from c").await, Some(SqlState::UNDEFINED_COLUMN));
    run(&d, "begin; insert into c(p, v) values (3, 30); insert into p values (3); commit").await;
    let failed = state(&d, "insert into c(p, v) values (9, 1)").await;
    assert_eq!(failed, Some(SqlState::FOREIGN_KEY_VIOLATION));
    assert_eq!(
        one(&d, "select pg_get_constraintdef(c.oid) from pg_constraint c where conname = 'c_p'").await,
        "FOREIGN KEY (p) REFERENCES p(id) DEFERRABLE INITIALLY DEFERRED"
    );
    run(&d, "alter table c alter column x set default 8; insert into c(p, v) values (1, 1)").await;
    assert_eq!(one(&d, "select sum(x) from c").await, "20", "a new default is not that of older rows");
}
