//! Attempts to pass the checks in databases of SQLite's dialect by the spelling of a text, by schema changes, and by the
//! server's own functions and tables.

use super::attacks::{answer, denied};
use super::oracle;
use crate::server::{Running, one, run};
use holdfast_testbed::oracle::Postgres;
use tokio_postgres::Client;

/// A database of SQLite's dialect with a table of `holdfast`, and the roles `cdb` and `eve` without any grant.
async fn lite(server: &Running) -> Client {
    let client = server.connect().await;
    run(&client, "CREATE ROLE cdb LOGIN PASSWORD 'x'; CREATE ROLE eve LOGIN").await;
    run(&client, "CREATE DATABASE lite DIALECT 'sqlite'").await;
    let client = server.connect_to("lite").await;
    run(
        &client,
        "CREATE TABLE secret (id INTEGER PRIMARY KEY, v TEXT, w INT); INSERT INTO secret VALUES (1, 'top', 2);
         CREATE TABLE open (a); GRANT ALL ON open TO cdb; CREATE VIEW see AS SELECT v FROM secret;
         CREATE INDEX by_v ON secret (v)",
    )
    .await;
    client.batch_execute("CREATE TRIGGER tr AFTER UPDATE ON secret BEGIN SELECT 1; END").await.unwrap();
    client
}

#[tokio::test]
async fn verifiers_of_passwords_are_read_by_superusers_only() {
    let server = Running::start();
    let client = lite(&server).await;
    let read = "SELECT rolpassword FROM 'pg_authid' WHERE rolname = 'cdb'";
    assert!(one(&client, read).await.starts_with("SCRAM-SHA-256$"), "a superuser");
    run(&client, "SET ROLE cdb").await;
    for sql in [
        read,
        "SELECT rolname FROM 'pg_catalog'.'pg_authid'",
        "SELECT 1 FROM 'pg_authid'",
        "SELECT count(*) FROM 'pg_shadow'",
        "WITH x AS (SELECT passwd FROM 'pg_catalog' . 'pg_shadow') SELECT * FROM x",
        "CREATE TEMP TABLE stolen AS SELECT * FROM 'pg_authid'",
        "INSERT INTO open SELECT rolpassword FROM 'pg_authid'",
        "EXPLAIN SELECT * FROM 'pg_authid'",
    ] {
        denied(&client, sql).await;
    }
    run(&client, "RESET ROLE; GRANT CREATE ON SCHEMA public TO cdb; SET ROLE cdb").await;
    denied(&client, "CREATE TABLE stolen AS SELECT * FROM 'pg_authid'").await;
    // A view of the attacker's.
    let made = answer(&client, "CREATE VIEW stolen AS SELECT rolpassword FROM 'pg_authid'").await;
    let read = answer(&client, "SELECT * FROM stolen").await;
    assert_ne!(read, "ok", "{made}");
}

#[tokio::test]
async fn temporary_tables_need_their_privilege_and_copy_nothing() {
    let server = Running::start();
    let client = lite(&server).await;
    run(&client, "SET ROLE cdb").await;
    for sql in [
        "CREATE TEMP TABLE t AS SELECT * FROM secret",
        "CREATE TEMPORARY TABLE t AS SELECT v FROM see",
        "CREATE TABLE temp.t AS SELECT count(*) FROM secret",
        "BEGIN; INSERT INTO open VALUES (1); CREATE TEMP TABLE t AS SELECT * FROM secret",
    ] {
        denied(&client, sql).await;
        run(&client, "ROLLBACK").await;
    }
    assert_eq!(answer(&client, "CREATE TEMP TABLE t AS SELECT * FROM open; DROP TABLE t").await, "ok");
    run(&client, "RESET ROLE; REVOKE TEMPORARY ON DATABASE lite FROM PUBLIC; SET ROLE cdb").await;
    denied(&client, "CREATE TEMP TABLE t (a)").await;
    denied(&client, "CREATE TABLE temp.t (a)").await;
    // PostgreSQL's dialect: through a view of the attacker's.
    let client = server.connect().await;
    run(&client, "CREATE TABLE kept (v text); GRANT CREATE ON SCHEMA public TO cdb; SET ROLE cdb").await;
    run(&client, "CREATE VIEW mine AS SELECT * FROM kept; CREATE TABLE own (v text)").await;
    denied(&client, "CREATE TEMP TABLE t AS SELECT * FROM mine").await;
    denied(&client, "CREATE TABLE t AS SELECT * FROM mine").await;
    denied(&client, "BEGIN; INSERT INTO own VALUES ('x'); CREATE TEMP TABLE t AS SELECT * FROM mine").await;
}

#[tokio::test]
async fn no_spelling_of_a_name_passes_the_checks() {
    let server = Running::start();
    let client = lite(&server).await;
    run(&client, "GRANT CREATE ON SCHEMA public TO cdb; SET ROLE cdb").await;
    let statements = [
        "SELECT * FROM@secret",
        "SELECT count(*) FROM@secret",
        "INSERT INTO@secret(v) VALUES('x')",
        "REPLACE INTO@secret VALUES(1, 'x', 1)",
        "UPDATE@secret SET v = 'x'",
        "DELETE FROM@secret",
        "WITH x AS (SELECT * FROM@secret) SELECT * FROM x",
        "SELECT * FROM@see",
        "INSERT INTO open SELECT v FROM@secret",
        "UPDATE open SET a = (SELECT v FROM@secret)",
        "DROP TABLE@secret",
        "DROP VIEW@see",
        "DROP INDEX@by_v",
        "DROP TRIGGER@tr",
        "ALTER TABLE@secret ADD COLUMN x",
        "ALTER TABLE@secret RENAME TO mine",
        "CREATE INDEX i ON@secret(v)",
        "CREATE TRIGGER mine AFTER DELETE ON@secret BEGIN SELECT 1; END",
        "REINDEX@secret",
        "REINDEX@by_v",
        "SELECT * FROM@sqlite_stat1",
        "SELECT * FROM@holdfast_meta",
        "CREATE TABLE copied AS SELECT * FROM@secret",
        "CREATE TABLE k (a, FOREIGN KEY (a) REFERENCES@secret(id))",
    ];
    run(&client, "RESET ROLE; ANALYZE; SET ROLE cdb").await;
    for between in
        [" ", "\u{feff}", " \u{feff}", "\u{feff} \u{feff}", "\u{c}", " \u{b}", "\t", "/**/", "/*/*/", "--\n", "--\r\n"]
    {
        for statement in statements {
            let sql = statement.replace('@', between);
            let answer = answer(&client, &sql).await;
            let refused = answer.starts_with("42501") || (between.contains('\u{feff}') && answer.starts_with("42601"));
            assert!(refused, "{sql:?}: {answer}");
        }
    }
    for (open, close) in [("\"", "\""), ("[", "]"), ("`", "`"), ("'", "'"), ("main.\"", "\""), ("main.", "/**/")] {
        for statement in statements {
            let (head, tail) = statement.split_once('@').unwrap();
            let end = tail.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(tail.len());
            let sql = format!("{head} {open}{}{close}{}", &tail[..end], &tail[end..]);
            let answer = answer(&client, &sql).await;
            // Not every place takes every form.
            assert!(answer.starts_with("42501") || answer.starts_with("42601"), "{sql:?}: {answer}");
        }
    }
    // A program and a view that are stored.
    run(&client, "CREATE TABLE bait (a)").await;
    for sql in [
        "CREATE TRIGGER trap AFTER INSERT ON bait BEGIN DELETE FROM\u{feff}secret; END",
        "CREATE VIEW trap AS SELECT * FROM\u{feff}secret",
    ] {
        assert!(answer(&client, sql).await.starts_with("42601"), "{sql}");
    }
    run(&client, "RESET ROLE").await;
    assert_eq!(one(&client, "SELECT v FROM secret").await, "top");
    assert_eq!(one(&client, "SELECT '\u{feff}' = char(65279)").await, "1");
}

#[tokio::test]
async fn every_schema_change_is_checked() {
    let server = Running::start();
    let client = lite(&server).await;
    run(&client, "ANALYZE; GRANT CREATE ON SCHEMA public TO cdb; SET ROLE cdb").await;
    for sql in [
        "CREATE TABLE view AS SELECT * FROM secret",
        "CREATE TABLE trigger AS SELECT * FROM secret",
        "CREATE/**/TABLE x1 AS SELECT * FROM secret",
        "CREATE TABLE/**/\"index\" AS SELECT v FROM see",
        "CREATE TABLE x1 AS SELECT count(*) FROM secret",
        "CREATE TABLE IF NOT EXISTS x1 AS WITH see AS (SELECT v FROM secret) SELECT * FROM see",
        "DROP TABLE sqlite_stat1",
        "CREATE TABLE k (x REFERENCES secret (id))",
        "CREATE TABLE k (x REFERENCES secret)",
        "CREATE TABLE k (x, FOREIGN KEY (x) REFERENCES \"SECRET\")",
        "CREATE TABLE k (x REFERENCES not_yet)",
    ] {
        denied(&client, sql).await;
    }
    run(&client, "CREATE TABLE k (id INTEGER PRIMARY KEY, parent REFERENCES k, u UNIQUE); CREATE INDEX i ON k (u)")
        .await;
    denied(&client, "ALTER TABLE k ADD COLUMN z REFERENCES secret (id)").await;
    for sql in [
        "ALTER TABLE k ADD COLUMN z REFERENCES k (id)",
        "CREATE TABLE IF NOT EXISTS k (a)",
        "CREATE TABLE copied AS SELECT * FROM k",
        "CREATE VIEW seen AS SELECT * FROM k",
        "REINDEX k",
        "REINDEX i",
        "ALTER TABLE k RENAME COLUMN z TO y",
        "ALTER TABLE k DROP COLUMN y",
        "DROP VIEW seen",
        "DROP INDEX i",
        "DROP TABLE IF EXISTS none",
        "DROP TABLE copied",
        "ALTER TABLE k RENAME TO l",
        "DROP TABLE l",
    ] {
        assert_eq!(answer(&client, sql).await, "ok", "{sql}");
    }
    run(&client, "RESET ROLE; GRANT REFERENCES (id) ON secret TO cdb; SET ROLE cdb").await;
    denied(&client, "CREATE TABLE k (x REFERENCES secret (w))").await;
    assert_eq!(answer(&client, "CREATE TABLE k (x REFERENCES secret (id))").await, "ok");
    assert_eq!(answer(&client, "CREATE TABLE kk (x REFERENCES secret)").await, "ok");
    // What the foreign key reads needs no privilege.
    assert_eq!(answer(&client, "INSERT INTO k VALUES (1); UPDATE k SET x = 1; DELETE FROM k").await, "ok");
    run(&client, "RESET ROLE; DROP TABLE sqlite_stat1").await;
}

#[tokio::test]
async fn names_of_the_rowid_are_the_key_or_the_whole_table() {
    let server = Running::start();
    let client = lite(&server).await;
    run(
        &client,
        "CREATE TABLE colt (id INTEGER PRIMARY KEY, v, pay); INSERT INTO colt VALUES (1, 'a', 9);
         CREATE TABLE bare (v, pay); INSERT INTO bare VALUES ('a', 9);
         GRANT SELECT (v), INSERT (v), UPDATE (v) ON colt TO cdb; GRANT SELECT (v), INSERT (v), UPDATE (v) ON bare TO cdb;
         GRANT SELECT, INSERT, UPDATE ON bare TO eve; SET ROLE cdb",
    )
    .await;
    for table in ["colt", "bare"] {
        for name in ["rowid", "_rowid_", "\"oid\"", "[ROWID]", "'rowid'"] {
            denied(&client, &format!("INSERT INTO {table} ({name}, v) VALUES (50, 'x')")).await;
            denied(&client, &format!("UPDATE {table} SET {name} = 77")).await;
        }
        denied(&client, &format!("SELECT rowid FROM {table}")).await;
        denied(&client, &format!("SELECT v FROM {table} WHERE oid = 1")).await;
        denied(&client, &format!("UPDATE OR REPLACE {table} SET v = 1")).await;
        assert_eq!(answer(&client, &format!("INSERT INTO {table} (v) VALUES ('y')")).await, "ok");
        assert_eq!(answer(&client, &format!("UPDATE {table} SET v = v || '.'")).await, "ok");
        assert_eq!(answer(&client, &format!("SELECT v FROM {table}")).await, "ok");
    }
    run(&client, "RESET ROLE; GRANT SELECT (id), INSERT (id), UPDATE (id) ON colt TO cdb; SET ROLE cdb").await;
    assert_eq!(answer(&client, "INSERT INTO colt (rowid, v) VALUES (60, 'x')").await, "ok");
    assert_eq!(answer(&client, "UPDATE colt SET _rowid_ = 61 WHERE oid = 60").await, "ok");
    run(&client, "RESET ROLE; SET ROLE eve").await;
    assert_eq!(answer(&client, "UPDATE bare SET rowid = 71 WHERE rowid = 1").await, "ok");
}

#[tokio::test]
async fn the_servers_own_functions_and_tables_are_closed() {
    let server = Running::start();
    let client = lite(&server).await;
    run(&client, "GRANT CREATE ON SCHEMA public TO cdb; SET ROLE cdb; CREATE TABLE mine (a)").await;
    for sql in [
        "SELECT holdfast_next_id('secret')",
        "SELECT \"holdfast_next_id\" ('secret')",
        "SELECT hf_reload_conf('holdfast')",
        "SELECT [hf_right]/**/('a', 1)",
        "SELECT 1 FROM open JOIN open AS x ON hf_sleep(1)",
        "UPDATE open SET a = Hf_Signal(1, 2)",
        "CREATE VIEW calls AS SELECT holdfast_next_id('secret')",
        "CREATE TRIGGER calls AFTER INSERT ON mine BEGIN SELECT hf_reload_conf('holdfast'); END",
        "CREATE TABLE calls (a DEFAULT (holdfast_next_id('secret')))",
        "CREATE INDEX calls ON mine (hf_right(a, 1))",
        "CREATE TEMP TABLE calls AS SELECT hf_reload_conf('holdfast')",
        "PREPARE calls AS SELECT holdfast_next_id('secret')",
        "SELECT name FROM dbstat",
        "SELECT count(*) FROM dbstat('main', 1)",
    ] {
        denied(&client, sql).await;
    }
    run(&client, "CREATE TABLE numbered (id INTEGER PRIMARY KEY, a); INSERT INTO numbered (a) VALUES (1)").await;
    assert_eq!(one(&client, "SELECT count(*) FROM numbered").await, "1");
    let client = server.connect().await;
    for sql in ["SELECT hf_reload_conf('holdfast')", "SELECT holdfast_next_id('secret')"] {
        assert!(answer(&client, sql).await.starts_with("42883"), "{sql}");
    }
    run(&client, "CREATE DATABASE closed").await;
    run(&client, "REVOKE CONNECT ON DATABASE closed FROM PUBLIC; SET ROLE cdb").await;
    denied(&client, "SELECT pg_database_size('closed')").await;
    denied(&client, "SELECT pg_database_size(oid) FROM pg_database WHERE datname = 'closed'").await;
    assert_eq!(answer(&client, "SELECT pg_database_size('lite')").await, "ok");
    run(&client, "RESET ROLE; GRANT pg_read_all_stats TO cdb; SET ROLE cdb").await;
    assert_eq!(answer(&client, "SELECT pg_database_size('closed')").await, "ok");
}

/// What every role has by default, it can lose.
#[tokio::test]
async fn usage_of_the_schema_is_needed_as_in_postgresql() {
    const SET_UP: &str = "
        CREATE ROLE cdb; CREATE TABLE t (id int PRIMARY KEY, v text); CREATE VIEW vw AS SELECT * FROM t;
        GRANT ALL ON t, vw TO cdb";
    let statements = [
        "SELECT * FROM t",
        "SELECT * FROM public.t",
        "SELECT * FROM vw",
        "SELECT * FROM public.vw",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO public.t VALUES (2)",
        "UPDATE t SET v = 'x'",
        "UPDATE public.t SET v = 'x'",
        "DELETE FROM t",
        "DELETE FROM public.t",
        "COPY public.t TO STDOUT",
        "COPY (SELECT * FROM t) TO STDOUT",
        "TRUNCATE public.t",
        "SELECT 1",
        "EXECUTE p",
        "EXECUTE q",
    ];
    let server = Running::start();
    let ours = server.connect().await;
    let prepare =
        "SET ROLE cdb; PREPARE p AS SELECT * FROM t; PREPARE q AS SELECT * FROM public.t; EXECUTE p; EXECUTE q";
    let take = "RESET ROLE; REVOKE ALL ON SCHEMA public FROM PUBLIC; SET ROLE cdb";
    for client in [&ours] {
        for sql in [SET_UP, prepare, take] {
            run(client, sql).await;
        }
    }
    let expected = match Postgres::start() {
        Some(postgres) => {
            let theirs = oracle::connect(&postgres).await;
            for sql in [SET_UP, prepare, take] {
                run(&theirs, sql).await;
            }
            let mut answers = Vec::new();
            for sql in statements {
                answers.push(answer(&theirs, sql).await);
            }
            answers
        }
        None => return,
    };
    for (sql, expected) in statements.iter().zip(expected) {
        assert_eq!(answer(&ours, sql).await, expected, "{sql}");
    }
    run(&ours, "RESET ROLE; GRANT USAGE ON SCHEMA public TO cdb; SET ROLE cdb").await;
    assert_eq!(answer(&ours, "EXECUTE p").await, "ok");
    run(&ours, "RESET ROLE").await;
    run(&ours, "CREATE DATABASE lite DIALECT 'sqlite'").await;
    let lite = server.connect_to("lite").await;
    run(&lite, "CREATE TABLE t (a); GRANT ALL ON t TO cdb; REVOKE ALL ON SCHEMA public FROM PUBLIC; SET ROLE cdb")
        .await;
    for sql in ["SELECT * FROM t", "INSERT INTO t VALUES (1)", "SELECT count(*) FROM main.t", "DROP TABLE t"] {
        assert_eq!(answer(&lite, sql).await, "42501 permission denied for schema public", "{sql}");
    }
    assert_eq!(answer(&lite, "SELECT 1; CREATE TEMP TABLE own (a); SELECT * FROM own").await, "ok");
}
