//! Every kind of statement by every role, on PostgreSQL 15 and on Holdfast: the answers are equal.

use super::oracle::Postgres;
use crate::server::{Running, run};
use std::collections::BTreeMap;
use tokio_postgres::{Client, SimpleQueryMessage};

/// Objects, roles and grants, made by a superuser.
const SET_UP: &str = "
    CREATE ROLE owner_r; CREATE ROLE all_r; CREATE ROLE nothing_r; CREATE ROLE select_r; CREATE ROLE insert_r;
    CREATE ROLE update_r; CREATE ROLE delete_r; CREATE ROLE truncate_r; CREATE ROLE refs_r; CREATE ROLE column_r;
    CREATE ROLE revoked_r; CREATE ROLE member_r; CREATE ROLE noinherit_r NOINHERIT; CREATE ROLE reader_r;
    CREATE ROLE writer_r; CREATE ROLE creator_r; CREATE ROLE option_r; CREATE ROLE weak_r; CREATE ROLE super_r SUPERUSER;
    GRANT pg_read_all_data TO reader_r; GRANT pg_write_all_data TO writer_r; GRANT all_r TO member_r;
    GRANT all_r TO noinherit_r; GRANT CREATE ON SCHEMA public TO owner_r, creator_r, weak_r;
    SET ROLE owner_r;
    CREATE TABLE t (id int PRIMARY KEY, a int, b text);
    CREATE TABLE u (id int PRIMARY KEY, t_id int, c text);
    CREATE TABLE child (id int PRIMARY KEY, t_id int REFERENCES t ON DELETE CASCADE);
    CREATE VIEW strong AS SELECT id, a FROM t;
    CREATE VIEW outside AS SELECT a FROM strong;
    GRANT SELECT ON strong TO weak_r;
    RESET ROLE;
    INSERT INTO t VALUES (1, 10, 'one'), (2, 20, 'two'); INSERT INTO u VALUES (1, 1, 'u'); INSERT INTO child VALUES (1, 1);
    SET ROLE weak_r;
    CREATE VIEW weak AS SELECT id, a FROM t;
    CREATE VIEW through AS SELECT a FROM strong;
    RESET ROLE;
    GRANT ALL ON t TO all_r; GRANT SELECT ON t, u TO select_r; GRANT INSERT ON t TO insert_r;
    GRANT UPDATE ON t TO update_r; GRANT DELETE ON t TO delete_r; GRANT TRUNCATE ON t TO truncate_r;
    GRANT REFERENCES ON t TO refs_r; GRANT CREATE ON SCHEMA public TO refs_r;
    GRANT SELECT (id, a), INSERT (id, a), UPDATE (a), REFERENCES (id) ON t TO column_r;
    GRANT ALL ON t TO revoked_r; REVOKE ALL ON t FROM revoked_r;
    GRANT SELECT ON t TO option_r WITH GRANT OPTION;
    GRANT SELECT ON strong, weak, outside, through TO all_r, select_r, column_r;
";

const ROLES: [&str; 19] = [
    "owner_r", "all_r", "nothing_r", "select_r", "insert_r", "update_r", "delete_r", "truncate_r", "refs_r",
    "column_r", "revoked_r", "member_r", "noinherit_r", "reader_r", "writer_r", "creator_r", "option_r", "weak_r",
    "super_r",
];

/// Statements, each in a transaction of its own that is rolled back. Several are separated by `;;`: the answer of the last
/// one counts, and the others must succeed or fail alike.
const STATEMENTS: &[&str] = &[
    "SELECT * FROM t",
    "SELECT a FROM t",
    "SELECT b FROM t",
    "SELECT count(*) FROM t",
    "SELECT 1 FROM t",
    "SELECT a FROM t WHERE b = 'one'",
    "SELECT a FROM t ORDER BY b",
    "SELECT max(a) FROM t GROUP BY id",
    "SELECT max(a) FROM t GROUP BY b",
    "SELECT max(a) FROM t GROUP BY id HAVING max(b) > ''",
    "SELECT x.a FROM t AS x",
    "SELECT x.y FROM t AS x(z, y)",
    "SELECT t.a, u.c FROM t JOIN u ON u.t_id = t.id",
    "SELECT u.c FROM u JOIN t USING (id)",
    "SELECT c FROM u NATURAL JOIN t",
    "SELECT u.c FROM u LEFT JOIN t ON t.b = u.c",
    "SELECT 1 FROM u, t",
    "SELECT (SELECT a FROM t WHERE id = 1)",
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM t WHERE b = 'one')",
    "SELECT c FROM u WHERE t_id IN (SELECT id FROM t)",
    "SELECT q.a FROM (SELECT a, b FROM t) AS q",
    "WITH q AS (SELECT a FROM t) SELECT * FROM q",
    "WITH q AS (SELECT b FROM t) SELECT 1 FROM q",
    "WITH strong AS (SELECT b FROM t) SELECT * FROM strong",
    "SELECT a FROM t UNION ALL SELECT id FROM u",
    "SELECT a FROM t FOR UPDATE",
    "SELECT a FROM t FOR SHARE",
    "SELECT id FROM strong",
    "SELECT a FROM weak",
    "SELECT count(*) FROM strong",
    "SELECT a FROM outside",
    "SELECT a FROM through",
    "SELECT t.b FROM t, strong",
    "TABLE t",
    "VALUES (1)",
    "INSERT INTO t VALUES (3, 30, 'three')",
    "INSERT INTO t (id, a) VALUES (3, 30)",
    "INSERT INTO t (id, b) VALUES (3, 'x')",
    "INSERT INTO t (id, a) VALUES (3, 30) RETURNING id",
    "INSERT INTO t (id, a) VALUES (3, 30) RETURNING b",
    "INSERT INTO t (id, a) VALUES (3, 30) RETURNING *",
    "INSERT INTO t (id, a) SELECT id + 10, id FROM u",
    "INSERT INTO t (id, a) SELECT id + 10, a FROM t",
    "INSERT INTO u SELECT id + 10, id, b FROM t",
    "INSERT INTO t (id, a) VALUES (1, 1) ON CONFLICT DO NOTHING",
    "INSERT INTO t (id, a) VALUES (1, 1) ON CONFLICT (id) DO NOTHING",
    "INSERT INTO t (id, a) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET a = excluded.a",
    "INSERT INTO t (id, a) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET a = t.a + 1",
    "INSERT INTO t (id, a) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET b = 'x'",
    "INSERT INTO t (id, a) VALUES (1, 1) ON CONFLICT ON CONSTRAINT t_pkey DO UPDATE SET a = 3",
    "INSERT INTO t (id, a) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET a = 3 WHERE t.b = 'one'",
    "UPDATE t SET a = 1",
    "UPDATE t SET b = 'x'",
    "UPDATE t SET a = a + 1",
    "UPDATE t SET a = 1 WHERE id = 1",
    "UPDATE t SET a = 1 WHERE b = 'one'",
    "UPDATE t SET a = 1 RETURNING a",
    "UPDATE t SET a = 1 RETURNING b",
    "UPDATE t SET a = u.id FROM u WHERE u.t_id = t.id",
    "UPDATE t SET a = (SELECT max(id) FROM u)",
    "UPDATE u SET c = t.b FROM t",
    "DELETE FROM t",
    "DELETE FROM t WHERE id = 1",
    "DELETE FROM t WHERE b = 'one'",
    "DELETE FROM t RETURNING id",
    "DELETE FROM t USING u WHERE u.t_id = t.id",
    "DELETE FROM child",
    "TRUNCATE t, child",
    "TRUNCATE u",
    "COPY t TO STDOUT",
    "COPY t (id, a) TO STDOUT",
    "COPY t (b) TO STDOUT",
    "COPY (SELECT a FROM t) TO STDOUT",
    "COPY (SELECT b FROM t) TO STDOUT",
    "COPY (SELECT a FROM weak) TO STDOUT",
    "EXPLAIN SELECT * FROM t",
    "EXPLAIN SELECT a FROM t",
    "EXPLAIN UPDATE t SET b = 'x'",
    "EXPLAIN DELETE FROM t",
    "EXPLAIN SELECT a FROM weak",
    "DECLARE c CURSOR FOR SELECT b FROM t;; FETCH c",
    "DECLARE c CURSOR FOR SELECT a FROM t;; FETCH c",
    "DECLARE c CURSOR FOR SELECT a FROM weak",
    "PREPARE p AS SELECT b FROM t;; EXECUTE p",
    "PREPARE p AS SELECT a FROM t;; EXECUTE p",
    "PREPARE p AS UPDATE t SET a = 1;; EXECUTE p",
    "LOCK TABLE t",
    "LOCK TABLE t IN ACCESS SHARE MODE",
    "LOCK TABLE t IN ROW SHARE MODE",
    "LOCK TABLE t IN ROW EXCLUSIVE MODE",
    "LOCK TABLE t IN SHARE MODE",
    "LOCK TABLE t IN EXCLUSIVE MODE",
    "CREATE TABLE made (a int)",
    "CREATE TABLE made AS SELECT b FROM t",
    "CREATE TABLE made AS SELECT a FROM t",
    "CREATE TABLE made AS SELECT a FROM weak",
    "CREATE TABLE made (a int REFERENCES t)",
    "CREATE TABLE made (a int REFERENCES t (id))",
    "CREATE TEMP TABLE made (a int)",
    "CREATE TEMP TABLE made AS SELECT b FROM t",
    "CREATE VIEW made AS SELECT b FROM t",
    "CREATE VIEW made AS SELECT b FROM t;; SELECT * FROM made",
    "CREATE OR REPLACE VIEW strong AS SELECT id, a FROM t",
    "CREATE TABLE made (a int);; INSERT INTO made VALUES (1);; ALTER TABLE made ADD COLUMN b int;; DROP TABLE made",
    "CREATE INDEX made ON t (a)",
    "CREATE UNIQUE INDEX made ON u (c)",
    "ALTER TABLE t ADD COLUMN z int",
    "ALTER TABLE t DROP COLUMN b",
    "ALTER TABLE t RENAME COLUMN b TO z",
    "ALTER TABLE t RENAME TO z",
    "ALTER TABLE t ADD CONSTRAINT t_a_key UNIQUE (a)",
    "ALTER TABLE t OWNER TO creator_r",
    "ALTER TABLE t OWNER TO CURRENT_ROLE",
    "ALTER VIEW weak OWNER TO owner_r",
    "ALTER VIEW weak OWNER TO CURRENT_ROLE",
    "ALTER SCHEMA public OWNER TO owner_r",
    "DROP TABLE t, child",
    "DROP TABLE u",
    "DROP TABLE IF EXISTS u",
    "DROP VIEW weak",
    "DROP VIEW weak, through",
    "GRANT SELECT ON t TO nothing_r",
    "GRANT SELECT ON t TO nothing_r WITH GRANT OPTION",
    "GRANT SELECT, INSERT ON t TO nothing_r",
    "GRANT ALL ON t TO nothing_r",
    "GRANT SELECT (a) ON t TO nothing_r",
    "GRANT INSERT (a), SELECT (b) ON t TO nothing_r",
    "GRANT ALL (a) ON t TO nothing_r",
    "GRANT USAGE ON t TO nothing_r",
    "GRANT DELETE (a) ON t TO nothing_r",
    "GRANT SELECT (z) ON t TO nothing_r",
    "GRANT SELECT ON nowhere TO nothing_r",
    "GRANT SELECT ON t TO nobody_r",
    "GRANT SELECT ON t TO PUBLIC WITH GRANT OPTION",
    "GRANT SELECT ON strong TO nothing_r",
    "GRANT SELECT ON ALL TABLES IN SCHEMA public TO nothing_r",
    "GRANT SELECT ON ALL TABLES IN SCHEMA nowhere TO nothing_r",
    "GRANT CREATE ON SCHEMA public TO nothing_r",
    "GRANT SELECT ON SCHEMA public TO nothing_r",
    "GRANT USAGE ON SCHEMA public TO nothing_r",
    "GRANT SELECT ON t TO nothing_r GRANTED BY owner_r",
    "GRANT SELECT ON t TO nothing_r GRANTED BY CURRENT_ROLE",
    "REVOKE SELECT ON t FROM select_r",
    "REVOKE ALL ON t FROM all_r",
    "REVOKE SELECT ON t FROM option_r",
    "REVOKE GRANT OPTION FOR SELECT ON t FROM option_r",
    "REVOKE SELECT (a) ON t FROM column_r",
    "REVOKE CREATE ON SCHEMA public FROM creator_r",
    "GRANT SELECT ON t TO nothing_r;; SET ROLE nothing_r;; SELECT b FROM t",
    "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO nothing_r",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO nothing_r",
    "ALTER DEFAULT PRIVILEGES FOR ROLE owner_r GRANT SELECT ON TABLES TO nothing_r",
    "ALTER DEFAULT PRIVILEGES GRANT USAGE ON TABLES TO nothing_r",
    "ALTER DEFAULT PRIVILEGES GRANT SELECT (a) ON TABLES TO nothing_r",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE ON SCHEMAS TO nothing_r",
    "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO nothing_r;; CREATE TABLE made (a int);; SET ROLE nothing_r;; SELECT * FROM made",
    "REASSIGN OWNED BY weak_r TO owner_r",
    "REASSIGN OWNED BY CURRENT_ROLE TO CURRENT_ROLE",
    "DROP OWNED BY weak_r",
    "DROP OWNED BY column_r",
    "DROP OWNED BY CURRENT_ROLE",
];

/// The last statement's answer: `ok`, or SQLSTATE and message; warnings are not part of it.
async fn answer(client: &Client, role: &str, statements: &str) -> String {
    run(client, "BEGIN").await;
    run(client, &format!("SET ROLE {role}")).await;
    let mut last = String::new();
    for statement in statements.split(";;") {
        last = match client.simple_query(statement).await {
            Ok(messages) => match messages.last() {
                Some(SimpleQueryMessage::CommandComplete(_)) | Some(_) | None => "ok".to_owned(),
            },
            Err(error) => match error.as_db_error() {
                Some(error) => format!("{} {}", error.code().code(), error.message()),
                None => panic!("{role}: {statement}: {error}"),
            },
        };
        if last != "ok" {
            break;
        }
    }
    run(client, "ROLLBACK").await;
    // A prepared statement outlives its transaction.
    let _ = client.batch_execute("DEALLOCATE ALL; RESET ROLE").await;
    last
}

async fn answers(client: &Client) -> BTreeMap<(usize, usize), String> {
    run(client, SET_UP).await;
    let mut answers = BTreeMap::new();
    for (s, statement) in STATEMENTS.iter().enumerate() {
        for (r, role) in ROLES.iter().enumerate() {
            answers.insert((s, r), answer(client, role, statement).await);
        }
    }
    answers
}

/// What Holdfast refuses, or answers otherwise, and why: COMPAT.md.
fn accepted(statement: &str, theirs: &str, ours: &str) -> Option<&'static str> {
    let is = |text: &str| statement.contains(text);
    match () {
        () if ours.starts_with("0A000 ") && !theirs.starts_with("42501") => Some("not supported"),
        () if is("DROP VIEW") && theirs.starts_with("2BP01") => Some("views do not hold what they read"),
        () if is("DROP TABLE") && theirs.starts_with("2BP01") => Some("views do not hold what they read"),
        () if is("DROP COLUMN") && theirs.starts_with("2BP01") => Some("views do not hold what they read"),
        () => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_by_every_role_has_postgresqls_answer() {
    let Some(postgres) = Postgres::start() else { return };
    let theirs = answers(&postgres.connect().await).await;
    let server = Running::start();
    let ours = answers(&server.connect().await).await;
    let (mut wrong, mut named) = (Vec::new(), BTreeMap::<&str, usize>::new());
    for (key @ (s, r), theirs) in &theirs {
        let (statement, ours) = (STATEMENTS[*s], &ours[key]);
        if theirs == ours {
            continue;
        }
        match accepted(statement, theirs, ours) {
            Some(why) => *named.entry(why).or_default() += 1,
            None => wrong.push(format!("{} | {statement}\n    PostgreSQL: {theirs}\n    Holdfast:   {ours}", ROLES[*r])),
        }
    }
    println!("{} answers compared, accepted differences: {named:?}", theirs.len());
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}
