//! A standby as a server for readers, and what both tell about themselves.

use crate::node::{Node, Pair, holdfast, one, run, state, succeeds, until};
use holdfast_seams::testing::skipped;
use std::process::Command;
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

#[tokio::test]
async fn what_would_change_something_is_refused_and_the_connection_stays() {
    let pair = Pair::start("").await;
    let master = pair.a.connect().await;
    run(&master, "create table t(id int primary key, v int); insert into t values (1, 1)").await;
    pair.until_equal().await;
    let reader = pair.b.connect().await;
    let refused = [
        "insert into t values (2, 2)",
        "update t set v = 2",
        "delete from t",
        "truncate t",
        "create table u(x int)",
        "alter table t add column x int",
        "drop table t",
        "create index on t(v)",
        "create database d",
        "alter database holdfast set lock_timeout = 5",
        "select * from t for update",
        "begin; insert into t values (3, 3)",
        "vacuum",
        "begin isolation level serializable; insert into t values (4, 4)",
    ];
    for sql in refused {
        assert_eq!(state(&reader, sql).await, Some(SqlState::READ_ONLY_SQL_TRANSACTION), "{sql}");
        run(&reader, "rollback").await;
        assert_eq!(one(&reader, "select v from t where id = 1").await, "1", "after {sql}");
    }
    for sql in ["begin read write", "begin; set transaction read write"] {
        assert_eq!(state(&reader, sql).await, Some(SqlState::FEATURE_NOT_SUPPORTED), "{sql}, as in PostgreSQL");
        run(&reader, "rollback").await;
    }
    let error = reader.execute("insert into t values ($1, $2)", &[&2, &2]).await.unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::READ_ONLY_SQL_TRANSACTION));
    let hint = error.as_db_error().unwrap().hint().unwrap();
    assert!(hint.contains("standby"), "{hint}");
    run(&reader, "begin; select * from t; commit; begin read only; select * from t; commit").await;
    assert_eq!(reader.query("select v from t where id = $1", &[&1]).await.unwrap().len(), 1);
    run(&reader, "begin isolation level repeatable read").await;
    assert_eq!(one(&reader, "select v from t").await, "1");
    run(&master, "update t set v = 5").await;
    pair.until_equal().await;
    assert_eq!(one(&reader, "select v from t").await, "1", "its snapshot stays");
    run(&reader, "commit").await;
    assert_eq!(one(&reader, "select v from t").await, "5");
    // What is a session's own is its own.
    run(&reader, "create temp table mine(x int); insert into mine values (1); set lock_timeout = 7").await;
    assert_eq!(one(&reader, "select count(*) from mine").await, "1");
}

#[tokio::test]
async fn each_server_says_what_it_is() {
    let pair = Pair::start("").await;
    for (node, is_standby) in [(&pair.a, false), (&pair.b, true)] {
        let config = format!("host=127.0.0.1 port={} user=holdfast dbname=holdfast", node.port);
        drop(node.connect().await);
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
        let (on, letter) = if is_standby { ("on", "t") } else { ("off", "f") };
        assert_eq!(connection.parameter("in_hot_standby"), Some(on), "{}", node.name);
        assert_eq!(connection.parameter("default_transaction_read_only"), Some("off"));
        tokio::spawn(connection);
        assert_eq!(one(&client, "select pg_is_in_recovery()").await, letter);
        assert_eq!(one(&client, "show transaction_read_only").await, on);
        assert_eq!(one(&client, "show in_hot_standby").await, on);
        let role = if is_standby { "standby" } else { "master" };
        assert_eq!(node.status_word("role"), role);
        assert_eq!(node.status_word("name"), node.name);
        assert_eq!(node.status_word("epoch"), "1");
    }
}

#[tokio::test]
async fn the_views_and_the_command_show_the_pair() {
    let mut pair = Pair::start("").await;
    let (master, reader) = (pair.a.connect().await, pair.b.connect().await);
    run(&master, "create table t(x int); insert into t values (1)").await;
    pair.until_equal().await;
    let shown = "select application_name || ' ' || state || ' ' || sync_state from pg_stat_replication";
    assert_eq!(one(&master, shown).await, "b streaming sync");
    // The ack of the last boxcar may be on its way yet.
    let lag = "select sent_lsn = replay_lsn and replay_lsn = pg_current_wal_lsn() from pg_stat_replication";
    // So may the trail's proof that it is idle, which moves all of this once more.
    until("the master knows", async || one(&master, lag).await == "t").await;
    let shown = "select name || ' ' || connected || ' ' || lag_bytes || ' ' || delay_us from holdfast_stat_standbys";
    until("there is no lag", async || one(&master, shown).await == "b true 0 0").await;
    let (shown, expected) = (
        "select master || ' ' || state || ' ' || behind_bytes from holdfast_stat_standby",
        format!("{} following 0", pair.a.at()),
    );
    until("the standby knows", async || one(&reader, shown).await == expected).await;
    assert_eq!(one(&master, "select count(*) from holdfast_stat_standby").await, "0");
    assert_eq!(one(&reader, "select count(*) from pg_stat_replication").await, "0");

    until("both tell the same", async || pair.a.status_word("durable_lsn") == pair.b.status_word("applied_lsn")).await;
    assert_eq!(pair.a.status_word("state"), "streaming");
    assert_eq!(pair.b.status_word("state"), "following");
    let people = succeeds(&["standby", "status", "--at", &pair.a.at()]);
    assert!(people.contains("a is a master") && people.contains("streaming"), "{people}");
    let people = succeeds(&["standby", "status", "--at", &pair.b.at()]);
    assert!(people.contains("b is a standby") && people.contains("it follows"), "{people}");

    pair.a.kill();
    until("the standby says so", async || pair.b.status_word("state") == "waiting").await;
    let people = succeeds(&["standby", "status", "--at", &pair.b.at()]);
    assert!(people.contains("waiting"), "{people}");
    let nobody = holdfast(&["standby", "status", "--at", &pair.a.at()]);
    assert_eq!(nobody.status.code(), Some(1));
}

/// It holds the trail until it is too far behind, and the operator is told.
#[tokio::test]
async fn a_standby_that_is_away_is_shown_until_it_is_given_up() {
    let told = tempfile::NamedTempFile::new().unwrap();
    let sizes = "segment_bytes = 1048576\nredo_bytes_max = 1048576\nstandby_keep_bytes_max = 4194304";
    let notify = format!("notify_command = \"printf '%s\\\\n' >> {}\"", told.path().display());
    let mut pair = Pair::start(&format!("{sizes}\n{notify}")).await;
    let master = pair.a.connect().await;
    run(&master, "create table t(v text)").await;
    pair.until_equal().await;
    pair.b.kill();
    let shown = "select name || ' ' || connected || ' ' || state from holdfast_stat_standbys";
    until("it is away", async || one(&master, shown).await == "b false away").await;
    assert_eq!(one(&master, "select count(*) from pg_stat_replication").await, "0");
    assert_eq!(pair.a.status_word("connected"), "false");
    let rows = "with recursive r(i) as (select 1 union all select i + 1 from r where i < 1000)";
    until("it is given up", async || {
        run(&master, &format!("insert into t {rows} select repeat('x', 300) from r")).await;
        one(&master, "select count(*) from holdfast_stat_standbys").await == "0"
    })
    .await;
    let said = async || std::fs::read_to_string(told.path()).unwrap().contains("standby b was dropped");
    until("notify_command was told", said).await;
}

#[tokio::test]
async fn ones_own_write_can_be_waited_for() {
    let pair = Pair::start("").await;
    let (master, reader) = (pair.a.connect().await, pair.b.connect().await);
    run(&master, "create table t(x int)").await;
    for i in 1..=50 {
        run(&master, &format!("insert into t values ({i})")).await;
        let lsn = one(&master, "select pg_current_wal_lsn()").await;
        assert_eq!(one(&reader, &format!("select holdfast_wait_for_lsn('{lsn}', 60000)")).await, "t");
        assert_eq!(one(&reader, "select max(x) from t").await, i.to_string());
    }
    pair.b.hang();
    run(&master, "insert into t values (100)").await;
    pair.b.resume();
    let ahead = "select holdfast_wait_for_lsn('7FFFFFFF/0', 50)";
    assert_eq!(one(&reader, ahead).await, "f", "it is not there yet");
    assert_eq!(
        state(&reader, "select holdfast_wait_for_lsn('nonsense', 50)").await.map(|s| s.code().to_owned()),
        Some("22P02".to_owned())
    );
}

/// From version 14 on `target_session_attrs` knows standbys.
fn psql_knows_standbys() -> Result<(), String> {
    let output = Command::new("psql").arg("--version").output().map_err(|error| format!("psql: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = said.split_whitespace().find_map(|word| word.split('.').next()?.parse::<u32>().ok());
    if version.is_some_and(|version| version >= 14) { Ok(()) } else { Err(format!("{} is too old", said.trim())) }
}

#[tokio::test]
async fn libpq_finds_the_server_it_wants() {
    if let Err(why) = psql_knows_standbys() {
        return skipped(&why);
    }
    let psql = |conninfo: &str, sql: &str| {
        let mut command = Command::new("psql");
        command.args(["-X", "-A", "-t", "-c", sql, conninfo]).env_remove("PGSERVICE");
        command.output()
    };
    let pair = Pair::start("").await;
    let (a, b) = (pair.a.port, pair.b.port);
    for ports in [format!("{a},{b}"), format!("{b},{a}")] {
        let both = format!("host=127.0.0.1,127.0.0.1 port={ports} user=holdfast dbname=holdfast");
        let choices =
            [("read-write", "f"), ("primary", "f"), ("read-only", "t"), ("standby", "t"), ("prefer-standby", "t")];
        for (wanted, in_recovery) in choices {
            let conninfo = format!("{both} target_session_attrs={wanted}");
            let output = psql(&conninfo, "select pg_is_in_recovery()").unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), in_recovery, "{conninfo}: {said}");
        }
    }
    let alone = format!("host=127.0.0.1 port={b} user=holdfast dbname=holdfast target_session_attrs=read-write");
    assert!(!psql(&alone, "select 1").unwrap().status.success(), "there is no master among them");
}

/// One number of the first standby in the status, and one of the server itself.
fn positions(node: &Node, of_standby: &str, own: &str) -> (Option<u64>, u64) {
    let status: serde_json::Value = serde_json::from_str(&node.status()).unwrap();
    (status["standbys"][0][of_standby].as_u64(), status[own].as_u64().unwrap())
}

/// What is kept for a standby begins with a segment; what it has is what it has reported.
#[tokio::test]
async fn a_standby_that_is_away_is_shown_where_its_trail_ends() {
    let mut pair = Pair::start("").await;
    let master = pair.a.connect().await;
    let rows = "with recursive r(i) as (select 1 union all select i + 1 from r where i < 5000)";
    run(&master, &format!("create table t(v text); insert into t {rows} select repeat('x', 300) from r")).await;
    pair.until_equal().await;
    until("it has all", async || {
        let (has, end) = positions(&pair.a, "durable_lsn", "durable_lsn");
        has == Some(end)
    })
    .await;
    let (had, _) = positions(&pair.a, "durable_lsn", "durable_lsn");
    pair.b.kill();
    until("it is away", async || pair.a.status_word("state") == "away").await;
    run(&master, "insert into t values ('x')").await;
    let (has, end) = positions(&pair.a, "durable_lsn", "durable_lsn");
    assert!(has >= had && has < Some(end), "{has:?} {had:?} {end}");
    until("the lag is what it lacks", async || {
        let (has, end) = positions(&pair.a, "durable_lsn", "durable_lsn");
        let (lag, still) = positions(&pair.a, "lag_bytes", "durable_lsn");
        end == still && lag == has.map(|has| end - has)
    })
    .await;
    let shown = "select durable_lsn - lag_bytes < durable_lsn and applied_lsn is null from holdfast_stat_standbys";
    assert_eq!(one(&master, shown).await, "t");
    // A master that has started since does not know, and says so.
    assert!(pair.a.stop().success());
    pair.a.start();
    assert_eq!(positions(&pair.a, "durable_lsn", "durable_lsn").0, None);
    assert_eq!(positions(&pair.a, "lag_bytes", "durable_lsn").0, None);
    let people = succeeds(&["standby", "status", "--at", &pair.a.at()]);
    assert!(people.contains("b has not been connected since this server started"), "{people}");
}

/// The master's directory is an older copy: what the standby has more is not shown as a lag.
#[tokio::test]
async fn a_standby_that_has_more_than_its_master_is_shown_ahead() {
    let mut pair = Pair::start("").await;
    run(&pair.a.connect().await, "create table t(v text)").await;
    pair.until_equal().await;
    assert!(pair.a.stop().success());
    let copy = pair.beside("copy");
    let copied = Command::new("cp").args(["-a", pair.a.data()]).arg(&copy).status().unwrap();
    assert!(copied.success());
    pair.a.start();
    pair.until_followed().await;
    let rows = "with recursive r(i) as (select 1 union all select i + 1 from r where i < 5000)";
    run(&pair.a.connect().await, &format!("insert into t {rows} select repeat('x', 300) from r")).await;
    pair.until_equal().await;
    pair.a.kill();
    std::fs::remove_dir_all(&pair.a.dir).unwrap();
    std::fs::rename(&copy, &pair.a.dir).unwrap();
    pair.a.start();
    until("the master knows", async || pair.a.status().contains("\"state\":\"ahead\"")).await;
    let (ahead, _) = positions(&pair.a, "ahead_bytes", "durable_lsn");
    assert!(ahead > Some(1 << 20), "{ahead:?}");
    let people = succeeds(&["standby", "status", "--at", &pair.a.at()]);
    assert!(people.contains("bytes of trail that this server lacks"), "{people}");
}
