//! The master is lost: its standby takes its place, and it comes back as the standby of that.

use crate::node::{
    LOCAL, Pair, asked, asked_with, assert_same, dump, holdfast, lost_files, one, refuses, rows, run, state, succeeds,
    until, until_equal, until_followed,
};
use tokio_postgres::error::SqlState;

/// Makes `b` the master, `a` being stopped.
fn promote(pair: &Pair) -> String {
    succeeds(&["promote", "--at", &pair.b.at()])
}

/// Makes `b` the master, which has not followed `a` since it started: nothing shows what it lacks.
fn promote_in_doubt(pair: &Pair) -> String {
    let said = refuses(&["promote", "--at", &pair.b.at()]);
    assert!(said.contains("b has not followed"), "{said}");
    succeeds(&["promote", "--at", &pair.b.at(), "--accept-divergence"])
}

/// Brings `a` back as the standby of `b`, and starts it.
async fn rejoin(pair: &mut Pair) -> String {
    let (from, data) = (pair.b.at(), pair.a.data().to_owned());
    let said = succeeds(&["rejoin", "--from", &from, "--data", &data, "--name", "a"]);
    pair.a.start();
    until_followed(&pair.b, &pair.a).await;
    said
}

#[tokio::test]
async fn a_promotion_beside_a_running_master_is_refused() {
    let mut pair = Pair::start("").await;
    run(&pair.a.connect().await, "create table t(x int)").await;
    let said = refuses(&["promote", "--at", &pair.b.at()]);
    assert!(said.contains("still takes connections") && said.contains("--accept-divergence"), "{said}");
    // One that says nothing proves nothing either.
    pair.a.hang();
    refuses(&["promote", "--at", &pair.b.at()]);
    pair.a.resume();
    run(&pair.a.connect().await, "insert into t values (1)").await;
    pair.until_equal().await;
    assert_eq!(one(&pair.b.connect().await, "select pg_is_in_recovery()").await, "t");
    assert!(succeeds(&["promote", "--at", &pair.a.at()]).contains("is the master already"));
    let nobody = holdfast(&["promote", "--at", "127.0.0.1:1"]);
    assert_eq!(nobody.status.code(), Some(1));

    pair.a.kill();
    let reader = pair.b.connect().await;
    let said = promote(&pair);
    assert!(said.contains("promoted: epoch 2") && !said.contains("accepted loss"), "{said}");
    assert!(reader.batch_execute("select 1").await.is_err(), "its sessions were ended");
    let client = pair.b.connect().await;
    run(&client, "insert into t values (2)").await;
    assert_eq!(one(&client, "select count(*) from t").await, "2");
    assert_eq!(one(&client, "select pg_is_in_recovery()").await, "f");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_at_hot_survives_its_master() {
    let mut pair = Pair::start("level = \"hot\"").await;
    let client = pair.a.connect().await;
    run(&client, "create table t(id int primary key, v int); insert into t values (1, 0)").await;
    run(&client, "begin; insert into t values (2, 0); update t set v = 1 where id = 1; prepare transaction 'kept'")
        .await;
    run(&client, "begin; insert into t values (3, 0); prepare transaction 'undone'").await;
    let mut writers = Vec::new();
    for number in 0..8_i64 {
        let client = pair.a.connect().await;
        writers.push(tokio::spawn(async move {
            let mut acknowledged = 0;
            while client
                .batch_execute(&format!("insert into t values ({})", 1000 * (number + 1) + acknowledged))
                .await
                .is_ok()
            {
                acknowledged += 1;
            }
            acknowledged
        }));
    }
    let reader = pair.a.connect().await;
    crate::node::until("there is load", async || one(&reader, "select count(*) > 200 from t").await == "t").await;
    pair.a.kill();
    promote(&pair);
    let client = pair.b.connect().await;
    for (number, writer) in (0_i64..).zip(writers) {
        let acknowledged: i64 = writer.await.unwrap();
        let first = 1000 * (number + 1);
        let there = format!("select count(*) from t where id >= {first} and id < {first} + {acknowledged}");
        assert_eq!(one(&client, &there).await, acknowledged.to_string(), "writer {number}");
    }
    // Prepared transactions wait with their locks, and end as they are told to.
    assert_eq!(one(&client, "select count(*) from pg_prepared_xacts").await, "2");
    run(&client, "set lock_timeout = 50").await;
    assert_eq!(state(&client, "update t set v = 9 where id = 1").await, Some(SqlState::LOCK_NOT_AVAILABLE));
    // The new master has no standby yet.
    run(&client, "set holdfast.level = 'local'").await;
    run(&client, "commit prepared 'kept'").await;
    run(&client, "rollback prepared 'undone'").await;
    assert_eq!(
        rows(&client, "select id, v from t where id < 10").await,
        ["Some(\"1\"), Some(\"1\")", "Some(\"2\"), Some(\"0\")"]
    );
    rejoin(&mut pair).await;
    assert_same(&pair.b, &pair.a).await;
}

/// What only the old master had is written down so that it can be done again, is not on the pair any more, and everything
/// else is.
#[tokio::test]
async fn what_only_the_old_master_had_is_written_down() {
    let mut pair = Pair::start("").await;
    let client = pair.a.connect().await;
    run(&client, "create table t(id int primary key, v text, b bytea, n numeric, f float8, yes bool, at timestamptz); create table keyed(k text primary key, v int)").await;
    run(
        &client,
        "insert into t values (1, 'one'), (2, 'two'), (3, 'three'); insert into keyed values ('a', 1), ('b', 2)",
    )
    .await;
    run(&client, "create table plain(x int); insert into plain values (1), (2)").await;
    pair.until_equal().await;
    let before = dump(&pair.a).await;

    pair.b.hang();
    run(
        &client,
        "insert into t values (10, E'two\\nlines, ''quoted'', a \\\\ and ü', '\\x00ff', 12345678901234567890.5, 1.5)",
    )
    .await;
    run(&client, "begin; update t set v = null, n = 0.1 where id = 1; update t set id = 20 where id = 2; delete from t where id = 3; commit").await;
    run(&client, "insert into keyed values ('c', 3); insert into plain values (3)").await;
    run(&client, "create table made(id int primary key, v text); insert into made values (1, 'made')").await;
    run(&client, "create database lone").await;
    let after = dump(&pair.a).await;
    pair.a.kill();
    pair.b.kill();
    pair.b.start();
    promote_in_doubt(&pair);
    let new = pair.b.connect().await;
    assert_eq!(dump(&pair.b).await, before, "the new master has none of it");

    let said = rejoin(&mut pair).await;
    assert!(said.contains("has another history") && said.contains("lost-"), "{said}");
    assert_same(&pair.b, &pair.a).await;
    assert_eq!(dump(&pair.a).await, before);
    let files = lost_files(&pair.a.dir);
    assert_eq!(files.len(), 1, "{files:?}");
    let sql = std::fs::read_to_string(&files[0]).unwrap();
    assert!(sql.contains("CREATE DATABASE \"lone\""), "{sql}");
    run(&new, "create database lone").await;
    let again: String =
        sql.lines().filter(|line| !line.starts_with("CREATE DATABASE")).map(|line| format!("{line}\n")).collect();
    new.batch_execute(&again).await.unwrap_or_else(|e| panic!("{e:?}\n{again}"));
    assert_eq!(dump(&pair.b).await, after, "done again:\n{again}");
    assert_same(&pair.b, &pair.a).await;
}

/// Far more than the trail keeps between checkpoints: the old master's files are ahead of what is left of its trail.
#[tokio::test]
async fn a_master_that_was_far_ahead_comes_back_by_a_copy() {
    let mut pair = Pair::start("redo_bytes_max = 1048576\nsegment_bytes = 1048576").await;
    let client = pair.a.connect().await;
    run(&client, "create table t(id int primary key, v text); insert into t values (0, 'both')").await;
    pair.until_equal().await;
    pair.b.hang();
    let numbers = "with recursive r(i) as (select 1 union all select i + 1 from r where i < 2000)";
    for round in 0..10 {
        let row = format!("{round} * 2000 + i, 'only the old master, ' || repeat('x', 300)");
        run(&client, &format!("insert into t {numbers} select {row} from r")).await;
    }
    // Parts of transactions that never were committed may stand in the trail.
    let open = pair.a.connect().await;
    run(&open, &format!("begin; insert into t {numbers} select 100000 + i, repeat('open', 300) from r")).await;
    assert!(pair.a.stop().success());
    pair.b.kill();
    pair.b.start();
    promote_in_doubt(&pair);
    run(&pair.b.connect().await, "insert into t values (-1, 'new')").await;
    let said = rejoin(&mut pair).await;
    assert!(said.contains("were copied again") && said.contains("10 transactions"), "{said}");
    assert_same(&pair.b, &pair.a).await;
    let sql = std::fs::read_to_string(&lost_files(&pair.a.dir)[0]).unwrap();
    let rows: Vec<&str> = sql.lines().filter(|line| line.starts_with("INSERT INTO \"t\"")).collect();
    assert_eq!(rows.len(), 20_000);
    assert!(!sql.contains("open"), "what was never committed is not lost");
    pair.b.connect().await.batch_execute(&sql).await.unwrap();
    assert_eq!(one(&pair.b.connect().await, "select count(*) from t").await, "20002");
}

#[tokio::test]
async fn roles_go_back_and_forth() {
    let mut pair = Pair::start("").await;
    run(&pair.a.connect().await, "create table t(x int); insert into t values (0)").await;
    for round in 1..=3 {
        pair.until_equal().await;
        pair.a.kill();
        promote(&pair);
        run(&pair.b.connect().await, &format!("insert into t values ({round})")).await;
        let said = rejoin(&mut pair).await;
        assert!(said.contains("has everything that this server had"), "{said}");
        assert_same(&pair.b, &pair.a).await;
        // And the same with the other one; its restart in between changes nothing.
        pair.a.kill();
        pair.a.start();
        until_followed(&pair.b, &pair.a).await;
        until_equal(&pair.b, &pair.a).await;
        assert!(pair.b.stop().success());
        succeeds(&["promote", "--at", &pair.a.at()]);
        let (from, data) = (pair.a.at(), pair.b.data().to_owned());
        succeeds(&["rejoin", "--from", &from, "--data", &data, "--name", "b"]);
        pair.b.start();
        pair.until_followed().await;
        assert_same(&pair.a, &pair.b).await;
        assert_eq!(pair.a.status_word("epoch"), (1 + 2 * round).to_string());
    }
    assert_eq!(one(&pair.b.connect().await, "select count(*) from t").await, "4");
    assert!(lost_files(&pair.a.dir).is_empty() && lost_files(&pair.b.dir).is_empty());
}

/// Each start of a master begins an epoch. Those that nobody heard of do not keep it from coming back.
#[tokio::test]
async fn a_master_that_was_restarted_alone_comes_back() {
    let mut pair = Pair::start("").await;
    run(&pair.a.connect().await, "create table t(x int)").await;
    pair.until_equal().await;
    pair.b.kill();
    for _ in 0..3 {
        pair.a.kill();
        pair.a.start();
    }
    assert_eq!(pair.a.status_word("epoch"), "4");
    pair.a.kill();
    pair.b.start();
    promote_in_doubt(&pair);
    rejoin(&mut pair).await;
    run(&pair.b.connect().await, "insert into t values (1)").await;
    assert_same(&pair.b, &pair.a).await;
}

/// A copy that could not begin is begun when the command is run again.
#[tokio::test]
async fn a_rejoining_that_was_interrupted_goes_on() {
    let mut pair = Pair::start("").await;
    run(&pair.a.connect().await, "create table t(x int)").await;
    pair.until_equal().await;
    pair.b.hang();
    run(&pair.a.connect().await, "create table u(x int); insert into u values (1)").await;
    pair.a.kill();
    pair.b.kill();
    pair.b.start();
    promote_in_doubt(&pair);
    // As it is when it had made way and was killed.
    std::fs::write(pair.a.dir.join("standby.toml"), format!("from = \"{}\"\nname = \"a\"\n", pair.b.at())).unwrap();
    std::fs::remove_file(pair.a.dir.join("trail/control")).unwrap();
    let said = rejoin(&mut pair).await;
    assert!(said.contains("were copied again"), "{said}");
    assert_same(&pair.b, &pair.a).await;
}

/// A master that was taken for dead and goes on: what it does alone is not acknowledged at hot, and it comes back.
#[tokio::test]
async fn a_hung_master_that_goes_on_acknowledges_nothing_at_hot() {
    let mut pair = Pair::start("level = \"hot\"").await;
    let client = pair.a.connect().await;
    run(&client, "create table t(x int); insert into t values (1)").await;
    pair.until_equal().await;
    pair.a.hang();
    let said = succeeds(&["promote", "--at", &pair.b.at(), "--accept-divergence"]);
    for words in [&pair.a.at(), "from LSN", "epoch known here is 1", "is connected", "holdfast rejoin", "lost-LSN.sql"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(pair.b.log().contains("accepted loss: "), "{}", pair.b.log());
    pair.a.resume();
    until("it knows that it is deposed", async || pair.a.status_word("role") == "deposed").await;
    assert!(client.batch_execute("insert into t values (4)").await.is_err());
    // Started again, it does not know while the new master cannot reach it.
    pair.a.kill();
    pair.b.hang();
    pair.a.start();
    let client = pair.a.connect().await;
    let alone = tokio::spawn(async move { client.batch_execute("insert into t values (2)").await });
    pair.a.until_commits_wait(1).await;
    assert_eq!(one(&pair.a.connect().await, "select count(*) from t").await, "1");
    pair.a.kill();
    pair.b.resume();
    assert!(alone.await.unwrap().is_err());
    run(&pair.b.connect().await, "set holdfast.level = 'local'; insert into t values (3)").await;
    let said = rejoin(&mut pair).await;
    assert!(said.contains("1 transactions"), "{said}");
    assert_same(&pair.b, &pair.a).await;
    assert_eq!(rows(&pair.a.connect().await, "select x from t").await, ["Some(\"1\")", "Some(\"3\")"]);
}

/// An old master that is started instead of being brought back cannot take its standby's successor in.
#[tokio::test]
async fn wrong_directories_are_refused_with_the_way_out() {
    let pair = Pair::start("").await;
    run(&pair.a.connect().await, "create table t(x int)").await;
    let (from, data) = (pair.a.at(), pair.b.data().to_owned());
    let said = refuses(&["standby", "create", "--from", &from, "--data", &data, "--name", "b"]);
    assert!(said.contains("data directory already"), "{said}");
    let elsewhere = pair.beside("empty");
    let said = refuses(&["rejoin", "--from", &from, "--data", elsewhere.to_str().unwrap(), "--name", "x"]);
    assert!(said.contains("is not a data directory"), "{said}");
    // A running server's directory is its own.
    let said = refuses(&["rejoin", "--from", &pair.b.at(), "--data", pair.a.data(), "--name", "a"]);
    assert!(!said.is_empty());
    run(&pair.a.connect().await, "insert into t values (1)").await;
    pair.until_equal().await;
    // A server with a history of its own.
    let mut other = Pair::master("");
    run(&other.a.connect().await, "create table u(x int)").await;
    other.a.kill();
    let said = refuses(&["rejoin", "--from", &from, "--data", other.a.data(), "--name", "other"]);
    assert!(said.contains("trail"), "{said}");
    other.a.start();
    assert_eq!(one(&other.a.connect().await, "select count(*) from u").await, "0", "nothing was touched");
}

/// Without `--name` the old master keeps the name that it had, so that the new master knows it again; a restart of the new
/// master, whose epoch its standby has not seen yet, is no reason to call that standby a master.
#[tokio::test]
async fn a_rejoined_master_is_known_by_its_name_and_never_called_a_master() {
    let mut pair = Pair::start("").await;
    run(&pair.a.connect().await, "create table t(x int); insert into t values (1)").await;
    pair.until_equal().await;
    pair.a.kill();
    promote(&pair);
    // The standby is named otherwise: the watch stays, and must not warn.
    let (from, data) = (pair.b.at(), pair.a.data().to_owned());
    succeeds(&["rejoin", "--from", &from, "--data", &data, "--name", "other"]);
    pair.a.start();
    let follows = "select count(*) from pg_stat_replication where application_name = 'other'";
    for _ in 0..3 {
        until("the standby follows", async || asked(&pair.b, follows).await == "1").await;
        assert!(pair.b.stop().success());
        pair.b.start();
    }
    until("the standby follows", async || asked(&pair.b, follows).await == "1").await;
    assert!(!pair.b.log().contains("RUNS as a master"), "{}", pair.b.log());
    pair.a.kill();
    std::fs::remove_file(pair.a.dir.join("standby.toml")).unwrap();
    let said = succeeds(&["rejoin", "--from", &from, "--data", &data]);
    assert!(said.contains("as the standby a with"), "{said}");
    pair.a.start();
    until("the watch has ended", async || !pair.b.dir.join("old_master").exists()).await;
}

/// An operator starts the old master again instead of bringing it back: restarts raise its epoch as the promotion did.
#[tokio::test]
async fn an_old_master_that_is_started_again_acknowledges_nothing_and_both_warn() {
    let mut pair = Pair::start("").await;
    run(&pair.a.connect().await, "create table t(x int); insert into t values (1)").await;
    pair.until_equal().await;
    pair.a.kill();
    promote(&pair);
    for _ in 0..3 {
        pair.a.start();
        until("it is deposed", async || pair.a.status_word("role") == "deposed").await;
        until("the new master warns", async || pair.b.status().contains("RUNS as a master")).await;
        pair.a.kill();
    }
    assert!(pair.a.log().contains("a was deposed: another server is the master of epoch"), "{}", pair.a.log());
    assert!(pair.b.log().contains("RUNS as a master"), "{}", pair.b.log());
    // It survives a restart of the new master, and ends when the old one is back.
    assert!(pair.b.stop().success());
    pair.b.start();
    pair.a.start();
    until("it is deposed", async || pair.a.status_word("role") == "deposed").await;
    let people = succeeds(&["standby", "status", "--at", &pair.b.at()]);
    assert!(people.contains("WARNING: the old master at"), "{people}");
    let people = succeeds(&["standby", "status", "--at", &pair.a.at()]);
    assert!(people.contains("a is a deposed master") && people.contains("NOTHING is acknowledged"), "{people}");
    pair.a.kill();
    run(&pair.b.connect().await, "insert into t values (2)").await;
    rejoin(&mut pair).await;
    until("the watch has ended", async || !pair.b.dir.join("old_master").exists()).await;
    assert!(!pair.b.status().contains("RUNS as a master"));
    assert_same(&pair.b, &pair.a).await;
}

/// A master that was frozen before it saw its old master return still looks for that one when it continues; by then that one is the
/// master again.
#[tokio::test]
async fn a_master_that_was_replaced_by_the_one_before_it_does_not_depose_that_one() {
    let mut pair = Pair::start("").await;
    run(&pair.a.connect().await, "create table t(x int); insert into t values (1)").await;
    pair.until_equal().await;
    pair.a.kill();
    promote(&pair);
    let watched = std::fs::read(pair.b.dir.join("old_master")).unwrap();
    rejoin(&mut pair).await;
    until("the watch has ended", async || !pair.b.dir.join("old_master").exists()).await;
    assert!(pair.b.stop().success());
    succeeds(&["promote", "--at", &pair.a.at()]);
    // As it was before b had looked again.
    std::fs::write(pair.b.dir.join("old_master"), watched).unwrap();
    pair.b.start();
    until("b has found a, and a has found b", async || {
        pair.b.log().contains("RUNS as a master") && pair.b.status_word("role") == "deposed"
    })
    .await;
    assert_eq!(pair.a.status_word("role"), "master");
    run(&pair.a.connect().await, "set holdfast.level = 'local'; insert into t values (2)").await;
}

/// Clients write while the node is brought back: more than the master would keep for itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_rejoining_node_needs_is_kept_until_it_follows() {
    let mut pair = Pair::start("level = \"hot\"\nsegment_bytes = 4194304\nredo_bytes_max = 1048576").await;
    asked(&pair.a, "create table if not exists t(id int primary key, v text)").await;
    pair.until_equal().await;
    pair.a.kill();
    promote(&pair);
    let client = pair.b.connect_with(LOCAL).await;
    run(&client, "insert into t values (0, 'of the new master')").await;
    let (from, data) = (pair.b.at(), pair.a.data().to_owned());
    let said = succeeds(&["rejoin", "--from", &from, "--data", &data, "--name", "a"]);
    assert!(!said.contains("copied again"), "{said}");
    let kept = "select count(*) from holdfast_stat_standbys where name = 'a'";
    assert_eq!(asked_with(&pair.b, LOCAL, kept).await, "1");
    for id in 1..=120 {
        run(&client, &format!("insert into t values ({id}, repeat('x', 1000000))")).await;
    }
    pair.a.start();
    until("it follows, or cannot", async || {
        pair.b.status().contains("\"streaming\"") || pair.a.log().contains("has recycled that part")
    })
    .await;
    assert!(!pair.a.log().contains("has recycled that part"), "{}", pair.a.log());
    until_followed(&pair.b, &pair.a).await;
    assert_same(&pair.b, &pair.a).await;
}
