//! Roles survive: a kill, a restart, a base copy, a promotion. A transaction has its roles and its data or neither.

use crate::node::{Pair, succeeds};
use crate::server::{Running, one, run, state};
use tempfile::TempDir;
use tokio_postgres::Client;

/// A role with everything that a role has.
const MADE: &str = "create role team; \
    create role app login createdb connection limit 7 password 'secret' valid until '2031-01-01 00:00:00+00' in role team; \
    create role chief in role team admin app; \
    alter role app set lock_timeout = '3s'; \
    alter role app in database holdfast set statement_timeout = '4s'; \
    alter role all set idle_session_timeout = '1h'; \
    create database shop owner app connection limit 9";

/// What can be seen of it.
async fn seen(client: &Client) -> String {
    let mut all = String::new();
    for sql in [
        "select string_agg(rolname || rolcreatedb || rolconnlimit || coalesce(rolvaliduntil::text, '-') || oid || coalesce(rolconfig::text, '-'), ' ' order by oid) from pg_roles",
        "select string_agg(roleid || '>' || member || '>' || grantor || admin_option, ' ' order by roleid, member) from pg_auth_members",
        "select string_agg(setdatabase || ':' || setrole || setconfig::text, ' ' order by setdatabase, setrole) from pg_db_role_setting",
        "select string_agg(datname || ':' || pg_get_userbyid(datdba) || datconnlimit, ' ' order by datname) from pg_database",
    ] {
        all.push_str(&one(client, sql).await);
        all.push('\n');
    }
    all
}

async fn make(client: &Client) {
    for statement in MADE.split("; ") {
        run(client, statement).await;
    }
}

#[tokio::test]
async fn roles_outlive_a_kill() {
    let server = Running::start();
    let client = server.connect().await;
    make(&client).await;
    let before = seen(&client).await;
    assert!(before.contains("lock_timeout=3s") && before.contains("shop:app9"), "{before}");
    let dir = server.kill();
    let list = std::fs::read_to_string(dir.path().join("databases.toml")).unwrap();
    assert!(list.contains("SCRAM-SHA-256$") && !list.contains("secret"), "{list}");
    let server = Running::start_in(dir);
    let client = server.connect().await;
    assert_eq!(seen(&client).await, before);
    // The list of databases may be older than the trail: the trail is right.
    drop(client);
    let dir = server.kill();
    let mut older: Vec<&str> = list.split("[[role]]").collect();
    older.truncate(1);
    std::fs::write(dir.path().join("databases.toml"), older[0]).unwrap();
    let server = Running::start_in(dir);
    assert_eq!(seen(&server.connect().await).await, before);
}

#[tokio::test]
async fn a_transaction_has_its_roles_and_its_data_or_neither() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "create table t(id int primary key)").await;
    run(&client, "begin; create role r1; insert into t values (1); rollback").await;
    assert_eq!(state(&client, "set role r1").await.unwrap().code(), "22023");
    run(&client, "begin; create role r2; insert into t values (2); commit").await;
    run(
        &client,
        "begin; insert into t values (3); create role r3; savepoint s; create role r4; insert into t values (4); \
        rollback to s; commit",
    )
    .await;
    // Another session has made the role first: all of the transaction is undone.
    let other = server.connect().await;
    run(&client, "begin; insert into t values (5); create role taken").await;
    run(&other, "create role taken").await;
    assert_eq!(state(&client, "commit").await.unwrap().code(), "42710");
    // Both have computed their change from the same state.
    run(&client, "begin; insert into t values (6); alter role taken login").await;
    run(&other, "alter role taken createdb").await;
    assert_eq!(state(&client, "commit").await.unwrap().code(), "40001");
    let dir = server.kill();
    let server = Running::start_in(dir);
    let client = server.connect().await;
    assert_eq!(one(&client, "select string_agg(id::text, ' ' order by id) from t").await, "2 3");
    let roles = "select string_agg(rolname, ' ' order by rolname) from pg_roles where oid >= 16384";
    assert_eq!(one(&client, roles).await, "r2 r3 taken");
}

#[tokio::test]
async fn a_promoted_standby_has_the_roles_of_its_master() {
    let mut pair = Pair::master("");
    let master = pair.a.connect().await;
    run(&master, "create role before_the_copy password 'x'").await;
    pair.create_standby();
    pair.b.start();
    pair.until_followed().await;
    run(&master, "set holdfast.level = hot").await;
    make(&master).await;
    run(&master, "create role late; drop role before_the_copy; alter role late rename to later").await;
    pair.until_equal().await;
    let before = seen(&master).await;
    let standby = pair.b.connect().await;
    assert_eq!(seen(&standby).await, before);
    assert_eq!(state(&standby, "create role x").await.unwrap().code(), "25006");
    let password = |dir: &std::path::Path| {
        let list = std::fs::read_to_string(dir.join("databases.toml")).unwrap();
        list.lines().find(|line| line.starts_with("password")).map(str::to_owned)
    };
    drop((master, standby));
    pair.a.kill();
    succeeds(&["promote", "--at", &pair.b.at()]);
    let client = pair.b.connect().await;
    assert_eq!(seen(&client).await, before);
    assert!(password(&pair.a.dir).is_some());
    assert_eq!(password(&pair.b.dir), password(&pair.a.dir));
    // Its OID is new there as well.
    run(&client, "create role newest").await;
    assert_eq!(one(&client, "select count(*) from pg_roles where oid = (select max(oid) from pg_roles)").await, "1");
    assert_eq!(one(&client, "select rolname from pg_roles order by oid desc limit 1").await, "newest");
}

#[tokio::test]
async fn a_password_is_nowhere() {
    const PASSWORD: &str = "topsecret-7391";
    let server = Running::start_in(TempDir::new().unwrap());
    let client = server.connect().await;
    let watcher = server.connect().await;
    let shown = async || one(&watcher, "select string_agg(query, '|') from pg_stat_activity").await;
    run(&client, &format!("create role app login password '{PASSWORD}'")).await;
    assert!(shown().await.contains("create role app login password <hidden>"), "{}", shown().await);
    let statement = client.prepare(&format!("alter role app encrypted password '{PASSWORD}'")).await.unwrap();
    client.execute(&statement, &[]).await.unwrap();
    assert!(!shown().await.contains(PASSWORD), "{}", shown().await);
    for sql in [
        format!("create role app password '{PASSWORD}'"),
        format!("create role other password '{PASSWORD}' flies"),
        format!("create role other password 'x' '{PASSWORD}'"),
        format!("alter role nobody password '{PASSWORD}'"),
        format!("begin; alter role app password '{PASSWORD}'; rollback"),
    ] {
        if let Err(error) = client.batch_execute(&sql).await {
            assert!(!format!("{error:?}").contains(PASSWORD), "{error:?}");
        }
        assert!(!shown().await.contains(PASSWORD), "{}", shown().await);
        run(&client, "rollback").await;
    }
    let verifier = one(&client, "select rolpassword from pg_authid where rolname = 'app'").await;
    assert!(verifier.starts_with("SCRAM-SHA-256$4096:"), "{verifier}");
    // One that is carried over is stored as it is.
    run(&client, &format!("create role copied password '{verifier}'")).await;
    assert_eq!(one(&client, "select rolpassword from pg_authid where rolname = 'copied'").await, verifier);
    assert_eq!(
        state(&client, "create role old password 'md5a3556571e93b0d20722ba62be61e8c2d'").await.unwrap().code(),
        "0A000"
    );
    assert!(!server.log().contains(PASSWORD));
    let (status, dir) = server.stop();
    assert!(status.success());
    let mut files = vec![dir.path().to_owned()];
    let mut looked_at = 0;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        assert!(memchr::memmem::find(&bytes, PASSWORD.as_bytes()).is_none(), "{}", path.display());
        looked_at += 1;
    }
    assert!(looked_at > 4);
    let dump = succeeds(&["trail", "dump", "--data", dir.path().to_str().unwrap()]);
    assert!(dump.contains("\"app\": inherit login") && !dump.contains("SCRAM-SHA-256"), "{dump}");
}
