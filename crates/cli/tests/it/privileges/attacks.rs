//! Attempts to read or change what a role may not.

use crate::server::{Running, one, run};
use futures::TryStreamExt;
use tokio_postgres::Client;

/// SQLSTATE and message of what fails, `ok` otherwise.
pub(super) async fn answer(client: &Client, sql: &str) -> String {
    let ran = match sql.starts_with("COPY") {
        true => match client.copy_out(sql).await {
            Ok(rows) => rows.try_collect::<Vec<_>>().await.map(|_| ()),
            Err(error) => Err(error),
        },
        false => client.batch_execute(sql).await,
    };
    match ran {
        Ok(()) => "ok".to_owned(),
        Err(error) => {
            let error = error.as_db_error().unwrap_or_else(|| panic!("{sql}: {error}"));
            format!("{} {}", error.code().code(), error.message())
        }
    }
}

pub(super) async fn denied(client: &Client, sql: &str) {
    let answer = answer(client, sql).await;
    assert!(answer.starts_with("42501 "), "{sql}: {answer}");
}

const SECRETS: &str = "
    CREATE TABLE secret (id int PRIMARY KEY, owner text, amount int UNIQUE, CHECK (amount > 0));
    INSERT INTO secret VALUES (1, 'ann', 4711), (2, 'mallory', 5);
    CREATE VIEW own AS SELECT id, amount FROM secret WHERE owner = 'mallory';
    CREATE ROLE mallory; GRANT CREATE ON SCHEMA public TO mallory; GRANT SELECT ON own TO mallory;";

#[tokio::test]
async fn a_view_gives_no_more_than_its_owner_has() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, SECRETS).await;
    run(&client, "SET ROLE mallory").await;
    assert_eq!(one(&client, "SELECT count(*) FROM own").await, "1");
    for sql in [
        "SELECT * FROM secret",
        "SELECT own.id FROM own, secret",
        "WITH own AS (SELECT amount FROM secret) SELECT * FROM own",
        "SELECT (SELECT max(amount) FROM secret) FROM own",
        "COPY (SELECT * FROM secret) TO STDOUT",
        "COPY secret TO STDOUT",
        "EXPLAIN SELECT * FROM secret",
        "SELECT id FROM own WHERE EXISTS (SELECT 1 FROM secret WHERE amount = 4711)",
    ] {
        denied(&client, sql).await;
    }
    // Views that the attacker makes, also over a WITH query with the name of a view that may read the table.
    run(&client, "CREATE VIEW mine AS SELECT * FROM secret").await;
    run(&client, "CREATE VIEW hidden AS WITH own AS (SELECT amount FROM secret) SELECT amount FROM own").await;
    run(&client, "CREATE VIEW counted AS SELECT 1 AS one FROM secret").await;
    run(&client, "CREATE VIEW outside AS SELECT * FROM mine").await;
    for sql in ["SELECT * FROM mine", "SELECT * FROM hidden", "SELECT count(*) FROM counted", "SELECT * FROM outside"] {
        denied(&client, sql).await;
    }
    // A superuser reads a view with its owner's privileges too.
    run(&client, "RESET ROLE").await;
    denied(&client, "SELECT * FROM mine").await;
    denied(&client, "SELECT * FROM hidden").await;
    run(&client, "GRANT SELECT ON secret TO mallory").await;
    assert_eq!(one(&client, "SELECT count(*) FROM hidden").await, "2");
}

#[tokio::test]
async fn what_was_prepared_before_a_revoke_is_checked_again() {
    let server = Running::start();
    let (admin, client) = (server.connect().await, server.connect().await);
    run(&admin, SECRETS).await;
    run(&admin, "GRANT SELECT, UPDATE ON secret TO mallory").await;
    run(&client, "SET ROLE mallory").await;
    let select = client.prepare("SELECT amount FROM secret WHERE id = $1").await.unwrap();
    let update = client.prepare("UPDATE secret SET amount = amount WHERE id = $1").await.unwrap();
    run(&client, "PREPARE p AS SELECT amount FROM secret").await;
    assert_eq!(client.query(&select, &[&1]).await.unwrap().len(), 1);
    assert_eq!(client.execute(&update, &[&1]).await.unwrap(), 1);
    run(&client, "EXECUTE p").await;
    run(&client, "BEGIN; DECLARE c CURSOR FOR SELECT amount FROM secret ORDER BY id").await;
    run(&admin, "REVOKE SELECT, UPDATE ON secret FROM mallory").await;
    // An open cursor has its rows, as in PostgreSQL.
    assert_eq!(one(&client, "FETCH c").await, "4711");
    denied(&client, "DECLARE d CURSOR FOR SELECT amount FROM secret").await;
    run(&client, "ROLLBACK").await;
    for error in [client.query(&select, &[&1]).await.map(|_| ()), client.execute(&update, &[&1]).await.map(|_| ())] {
        assert_eq!(error.unwrap_err().code().unwrap().code(), "42501");
    }
    denied(&client, "EXECUTE p").await;
    // A privilege that a membership gave is gone with the membership.
    run(&admin, "GRANT SELECT ON secret TO mallory").await;
    run(&client, "EXECUTE p").await;
    run(&admin, "REVOKE SELECT ON secret FROM mallory; GRANT pg_read_all_data TO mallory").await;
    run(&client, "EXECUTE p").await;
    run(&admin, "REVOKE pg_read_all_data FROM mallory").await;
    denied(&client, "EXECUTE p").await;
}

#[tokio::test]
async fn errors_show_no_values_of_columns_that_the_role_may_not_read() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, SECRETS).await;
    run(&client, "GRANT INSERT, UPDATE (owner) ON secret TO mallory; SET ROLE mallory").await;
    for sql in [
        "INSERT INTO secret VALUES (3, 'x', 4711)",
        "INSERT INTO secret VALUES (1, 'x', 99)",
        "INSERT INTO secret VALUES (4, 'x', -1)",
        "UPDATE secret SET owner = 'x' WHERE amount / 0 = 1",
    ] {
        let error = client.batch_execute(sql).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        let said = format!("{} {:?} {:?}", error.message(), error.detail(), error.hint());
        assert!(!said.contains("4711") && !said.contains("ann"), "{sql}: {said}");
    }
}

#[tokio::test]
async fn internal_tables_are_neither_seen_nor_changed() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, SECRETS).await;
    run(&client, "CREATE DATABASE lite DIALECT = sqlite").await;
    let seen = one(
        &client,
        "SELECT count(*) FROM pg_class WHERE relname LIKE 'holdfast_%' AND relkind = 'r' AND relnamespace = 2200",
    )
    .await;
    assert_eq!(seen, "0");
    for sql in [
        "SELECT * FROM holdfast_privileges",
        "DELETE FROM holdfast_privileges",
        "GRANT SELECT ON holdfast_privileges TO mallory",
    ] {
        assert!(answer(&client, sql).await.starts_with("42P01"), "{sql}");
    }
    let lite = server.connect_to("lite").await;
    run(&lite, "CREATE TABLE t (a); GRANT SELECT ON t TO mallory").await;
    for sql in [
        "DELETE FROM holdfast_privileges",
        "UPDATE holdfast_privileges SET acl = NULL",
        "INSERT INTO holdfast_privileges VALUES (0, 1, '', 1, NULL)",
        "DROP TABLE holdfast_privileges",
        "ALTER TABLE holdfast_privileges ADD COLUMN z",
        "CREATE TRIGGER tr AFTER INSERT ON holdfast_privileges BEGIN SELECT 1; END",
        "CREATE INDEX i ON holdfast_privileges (acl)",
        "WITH x AS (SELECT 1) DELETE FROM holdfast_privileges",
    ] {
        assert_ne!(answer(&lite, sql).await, "ok", "not even a superuser: {sql}");
    }
    run(&lite, "SET ROLE mallory").await;
    denied(&lite, "SELECT * FROM holdfast_privileges").await;
    denied(&lite, "SELECT * FROM holdfast_meta").await;
}

#[tokio::test]
async fn sqlites_dialect_has_the_same_rules() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "CREATE ROLE mallory; CREATE ROLE ann").await;
    run(&client, "CREATE DATABASE lite DIALECT = sqlite").await;
    let client = server.connect_to("lite").await;
    run(
        &client,
        "CREATE TABLE secret (id INTEGER PRIMARY KEY, v TEXT); INSERT INTO secret (v) VALUES ('s');
         CREATE TABLE open (id INTEGER PRIMARY KEY, a, b); INSERT INTO open (a, b) VALUES (1, 2);
         CREATE VIEW own AS SELECT id FROM secret; CREATE VIEW plain AS SELECT 1 AS one FROM secret;
         CREATE TABLE parent (id INTEGER PRIMARY KEY); CREATE TABLE child (p REFERENCES parent ON DELETE CASCADE);
         INSERT INTO parent VALUES (1); INSERT INTO child VALUES (1);
         CREATE VIRTUAL TABLE words USING fts5(body); INSERT INTO words VALUES ('hidden');
         GRANT SELECT ON own TO mallory; GRANT SELECT (a), UPDATE (a), INSERT (a) ON open TO mallory;
         GRANT SELECT, DELETE ON parent TO mallory",
    )
    .await;
    run(&client, "ANALYZE").await;
    run(&client, "CREATE TABLE seen (n); GRANT INSERT ON open TO ann").await;
    client
        .batch_execute("CREATE TRIGGER tr AFTER INSERT ON open BEGIN INSERT INTO seen VALUES (new.a); END")
        .await
        .unwrap();
    run(&client, "SET ROLE mallory").await;
    for sql in [
        "SELECT id FROM own",
        "SELECT a FROM open",
        "SELECT count(*) FROM open",
        "UPDATE open SET a = a + 1",
        "INSERT INTO open (a) VALUES (5)",
        "DELETE FROM parent WHERE id = 1",
        "SELECT name FROM sqlite_schema WHERE name = 'secret'",
        "SELECT * FROM pragma_table_info('open')",
        "SELECT value FROM json_each('[1,2]')",
        "WITH own AS (SELECT a FROM open) SELECT * FROM own",
    ] {
        assert_eq!(answer(&client, sql).await, "ok", "{sql}");
    }
    for sql in [
        "SELECT * FROM secret",
        "SELECT 1 FROM secret",
        "SELECT rowid FROM secret",
        "SELECT count(*) FROM plain",
        "SELECT * FROM open",
        "SELECT a FROM open WHERE b = 2",
        "UPDATE open SET b = 1",
        "UPDATE open SET a = b",
        "INSERT INTO open (a, b) VALUES (5, 6)",
        "INSERT INTO open VALUES (7, 5, 6)",
        "INSERT OR REPLACE INTO open (a) VALUES (5)",
        "REPLACE INTO open (a) VALUES (5)",
        "INSERT INTO open (a) VALUES (5) RETURNING b",
        "INSERT INTO open (a) SELECT v FROM secret",
        "DELETE FROM open",
        "SELECT * FROM child",
        "DELETE FROM child",
        "WITH own AS (SELECT v FROM secret) SELECT * FROM own",
        "WITH 'own' AS (SELECT v FROM secret) SELECT * FROM own",
        "WITH [own](x) AS NOT MATERIALIZED (SELECT v FROM secret) SELECT * FROM own",
        "SELECT (WITH own AS (SELECT v FROM secret) SELECT * FROM own)",
        "EXPLAIN SELECT * FROM secret",
        "EXPLAIN QUERY PLAN SELECT * FROM secret",
        "SELECT * FROM words",
        "SELECT * FROM words_content",
        "SELECT * FROM sqlite_stat4",
        "SELECT * FROM sqlite_stat1",
        "CREATE TABLE mine (a)",
        "CREATE TABLE mine AS SELECT * FROM secret",
        "CREATE VIEW mine AS SELECT * FROM secret",
        "CREATE VIRTUAL TABLE mine USING fts5(v, content='secret')",
        "CREATE TRIGGER mine AFTER INSERT ON open BEGIN DELETE FROM secret; END",
        "CREATE INDEX mine ON secret (v)",
        "DROP TABLE secret",
        "DROP VIEW own",
        "DROP TRIGGER tr",
        "ALTER TABLE secret RENAME TO mine",
        "REINDEX",
        "GRANT SELECT ON secret TO mallory",
        "COPY secret TO STDOUT",
        "VACUUM INTO '/tmp/stolen'",
    ] {
        denied(&client, sql).await;
    }
    for sql in [
        "ATTACH '/etc/passwd' AS x",
        "PRAGMA writable_schema = on",
        "SELECT load_extension('x')",
        "PRAGMA foreign_keys = off",
    ] {
        assert_ne!(answer(&client, sql).await, "ok", "{sql}");
    }
    // What a foreign key deletes and a trigger inserts needs no privilege of the role.
    run(&client, "RESET ROLE").await;
    assert_eq!(one(&client, "SELECT count(*) FROM child").await, "0");
    assert_eq!(one(&client, "SELECT count(*) FROM seen").await, "1");
    // A trigger's program has the privileges of its table's owner, also for a superuser.
    run(&client, "GRANT CREATE ON SCHEMA public TO mallory; SET ROLE mallory; CREATE TABLE bait (a)").await;
    client.batch_execute("CREATE TRIGGER trap AFTER INSERT ON bait BEGIN DELETE FROM secret; END").await.unwrap();
    denied(&client, "INSERT INTO bait VALUES (1)").await;
    run(&client, "RESET ROLE").await;
    denied(&client, "INSERT INTO bait VALUES (1)").await;
    assert_eq!(one(&client, "SELECT count(*) FROM secret").await, "1");
}

#[tokio::test]
async fn privileges_survive_a_restart_and_follow_renamed_objects() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, SECRETS).await;
    run(&client, "GRANT SELECT (amount, id) ON secret TO mallory; ALTER TABLE secret RENAME TO kept").await;
    run(&client, "ALTER TABLE kept RENAME COLUMN amount TO total").await;
    run(&client, "BEGIN; GRANT SELECT ON kept TO mallory; ROLLBACK").await;
    run(&client, "SET ROLE mallory; CREATE TABLE hers (a int); RESET ROLE; DROP VIEW own").await;
    drop(client);
    let server = Running::start_in(server.kill());
    let client = server.connect().await;
    run(&client, "VACUUM").await;
    run(&client, "SET ROLE mallory").await;
    assert_eq!(answer(&client, "SELECT total FROM kept").await, "ok");
    denied(&client, "SELECT owner FROM kept").await;
    assert_eq!(answer(&client, "ALTER TABLE hers ADD COLUMN b int").await, "ok");
    run(&client, "RESET ROLE; DROP TABLE kept; CREATE TABLE kept (total int); SET ROLE mallory").await;
    denied(&client, "SELECT total FROM kept").await;
    // The role owns a table.
    run(&client, "RESET ROLE").await;
    let refused = client.batch_execute("DROP ROLE mallory").await.unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!(refused.code().code(), "2BP01");
    assert!(refused.detail().unwrap().contains("owner of table hers"), "{:?}", refused.detail());
    run(&client, "REASSIGN OWNED BY mallory TO holdfast; DROP OWNED BY mallory; DROP ROLE mallory").await;
    assert_eq!(one(&client, "SELECT tableowner FROM pg_tables WHERE tablename = 'hers'").await, "holdfast");
}

#[tokio::test]
async fn the_catalogue_shows_owners_and_grants() {
    let server = Running::start();
    let client = server.connect().await;
    run(
        &client,
        "CREATE ROLE ann; CREATE ROLE bob; GRANT CREATE ON SCHEMA public TO ann; SET ROLE ann;
         CREATE TABLE t (id serial PRIMARY KEY, a int); CREATE VIEW v AS SELECT a FROM t; RESET ROLE;
         GRANT SELECT, INSERT ON t TO bob WITH GRANT OPTION; GRANT UPDATE (a) ON t TO PUBLIC; CREATE TABLE u (b int);
         ALTER DEFAULT PRIVILEGES FOR ROLE ann IN SCHEMA public GRANT SELECT ON TABLES TO bob",
    )
    .await;
    for (sql, expected) in [
        (
            "SELECT relowner::regrole || ' ' || array_to_string(relacl, ',') FROM pg_class WHERE relname = 't'",
            "ann ann=arwdDxt/ann,bob=a*r*/ann",
        ),
        (
            "SELECT array_to_string(attacl, ',') FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'a'",
            "=w/ann",
        ),
        ("SELECT viewowner FROM pg_views WHERE viewname = 'v'", "ann"),
        (
            "SELECT array_to_string(nspacl, ',') FROM pg_namespace WHERE nspname = 'public'",
            "pg_database_owner=UC/pg_database_owner,=U/pg_database_owner,ann=C/pg_database_owner",
        ),
        ("SELECT defaclobjtype || array_to_string(defaclacl, ',') FROM pg_default_acl", "rbob=r/ann"),
        ("SELECT has_table_privilege('bob', 't', 'select with grant option')", "t"),
        ("SELECT has_table_privilege('bob', 't', 'delete')", "f"),
        ("SELECT has_column_privilege('bob', 't', 'a', 'update')", "t"),
        ("SELECT has_column_privilege('bob', 't', 'id', 'update')", "f"),
        ("SELECT has_any_column_privilege('public', 't', 'update')", "t"),
        ("SELECT has_sequence_privilege('ann', 't_id_seq', 'usage')", "t"),
        ("SELECT has_sequence_privilege('bob', 't_id_seq', 'usage')", "f"),
        ("SELECT has_schema_privilege('ann', 'public', 'create')", "t"),
        ("SELECT has_schema_privilege('bob', 'public', 'create')", "f"),
        ("SELECT has_database_privilege('bob', current_database(), 'connect')", "t"),
        ("SELECT has_database_privilege('bob', current_database(), 'create')", "f"),
        ("SELECT array_to_string(acldefault('r', 10), ',')", "holdfast=arwdDxt/holdfast"),
        ("SELECT count(*) FROM information_schema.table_privileges WHERE grantee = 'bob' AND table_name = 't'", "2"),
    ] {
        assert_eq!(one(&client, sql).await, expected, "{sql}");
    }
    run(&client, "SET ROLE bob").await;
    for (sql, expected) in [
        ("SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'", "1"),
        ("SELECT count(*) FROM information_schema.columns WHERE table_name = 't'", "2"),
        ("SELECT count(*) FROM information_schema.columns WHERE table_name = 'u'", "0"),
        ("SELECT has_table_privilege('t', 'insert')", "t"),
        ("SELECT has_table_privilege('u'::regclass, 'select')", "f"),
    ] {
        assert_eq!(one(&client, sql).await, expected, "{sql}");
    }
}
