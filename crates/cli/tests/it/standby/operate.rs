//! What an operator does to a pair that is up: stops and starts it, checks it, chains it.

use crate::node::{Node, Pair, assert_same, holdfast, one, refuses, run, succeeds, until, until_followed};

#[tokio::test]
async fn following_is_stopped_and_started_from_either_side() {
    let pair = Pair::start("").await;
    let client = pair.a.connect().await;
    run(&client, "create table t(x int)").await;
    let here = || pair.a.status().contains("\"connected\":true");
    // From the master's side.
    let said = succeeds(&["standby", "stop", "--at", &pair.a.at(), "--name", "b"]);
    assert!(said.contains("shipping to b is stopped"), "{said}");
    until("it is gone", async || !here()).await;
    run(&client, "insert into t values (1)").await;
    until("the standby says why", async || pair.b.status().contains("stopped")).await;
    succeeds(&["standby", "start", "--at", &pair.a.at(), "--name", "b"]);
    pair.until_followed().await;
    assert_same(&pair.a, &pair.b).await;
    // From the standby's.
    let said = succeeds(&["standby", "stop", "--at", &pair.b.at()]);
    assert!(said.contains("no longer follows"), "{said}");
    until("it is gone", async || !here()).await;
    assert!(pair.b.status().contains("stopped by the operator"));
    assert_eq!(one(&pair.b.connect().await, "select count(*) from t").await, "1", "it goes on answering reads");
    run(&client, "insert into t values (2)").await;
    succeeds(&["standby", "start", "--at", &pair.b.at()]);
    pair.until_followed().await;
    assert_same(&pair.a, &pair.b).await;
    let said = refuses(&["standby", "stop", "--at", &pair.a.at(), "--name", "x"]);
    assert!(said.contains("no standby named x") && said.contains("follow: b"), "{said}");
}

#[tokio::test]
async fn a_check_says_what_is_missing_before_anything_is_started() {
    let mut pair = Pair::master("");
    let (at, data) = (pair.a.at(), pair.b.data().to_owned());
    let check = |more: &[&str]| holdfast(&[&["standby", "check", "--data", &data], more].concat());
    let said = |output: &std::process::Output| String::from_utf8_lossy(&output.stdout).into_owned();
    // Before the copy.
    let fresh = check(&["--from", &at, "--name", "b"]);
    assert!(fresh.status.success() && said(&fresh).contains("a base copy of"), "{}", said(&fresh));
    let taken = check(&["--from", &at, "--name", "a"]);
    assert!(taken.status.code() == Some(1) && said(&taken).contains("the master itself has this name"));
    pair.create_standby();
    let copied = check(&[]);
    assert!(copied.status.success() && said(&copied).contains("they can be paired"), "{}", said(&copied));
    // While it runs.
    pair.b.start();
    pair.until_followed().await;
    let running = check(&["--json"]);
    assert_eq!(running.status.code(), Some(1));
    assert!(said(&running).contains("\"can_be_paired\":false") && said(&running).contains("follows already"));
    // Without a master.
    pair.b.stop();
    pair.a.stop();
    let alone = check(&[]);
    assert!(alone.status.code() == Some(1) && said(&alone).contains("Is the server running"), "{}", said(&alone));
    // A master's directory.
    pair.a.start();
    let own = holdfast(&["standby", "check", "--data", pair.a.data(), "--from", &pair.a.at(), "--name", "x"]);
    assert!(own.status.code() == Some(1) && said(&own).contains("holdfast rejoin"), "{}", said(&own));
    assert_eq!(holdfast(&["standby", "check", "--data", &data, "--from", "nonsense"]).status.code(), Some(1));
    let bad = refuses(&["standby", "configure", "--data", &data, "--from", "nonsense"]);
    assert!(bad.contains("is not HOST:PORT"), "{bad}");
    pair.b.start();
    pair.until_followed().await;
}

/// A standby of a standby: who must be stopped before it is promoted is the master at the end of the chain.
#[tokio::test]
async fn a_chain_is_followed_and_its_end_must_be_stopped() {
    let mut pair = Pair::start("").await;
    pair.b.stop();
    let mut c = pair.third("c");
    succeeds(&["standby", "create", "--from", &pair.a.at(), "--data", c.data(), "--name", "c"]);
    pair.b.start();
    pair.until_followed().await;
    succeeds(&["standby", "configure", "--data", c.data(), "--from", &pair.b.at()]);
    c.start();
    until_followed(&pair.b, &c).await;
    run(&pair.a.connect().await, "create table t(x int); insert into t values (1)").await;
    assert_same(&pair.a, &c).await;
    pair.b.kill();
    let said = refuses(&["promote", "--at", &c.at()]);
    assert!(said.contains("still takes connections"), "{said}");
    run(&pair.a.connect().await, "insert into t values (2)").await;
    pair.a.kill();
    succeeds(&["promote", "--at", &c.at()]);
    assert_eq!(one(&c.connect().await, "select count(*) from t").await, "1", "b did not hand the second on");
}

/// A server comes back to a master only: a standby may lack what it has.
#[tokio::test]
async fn nobody_comes_back_to_a_standby() {
    let mut pair = Pair::start("").await;
    run(&pair.a.connect().await, "create table t(x int)").await;
    pair.until_equal().await;
    succeeds(&["standby", "stop", "--at", &pair.b.at()]);
    run(&pair.a.connect().await, "insert into t values (1)").await;
    pair.a.stop();
    let said = refuses(&["rejoin", "--from", &pair.b.at(), "--data", pair.a.data(), "--name", "a"]);
    assert!(said.contains("it is a standby") && said.contains("promote it first"), "{said}");
    pair.a.start();
    assert_eq!(one(&pair.a.connect().await, "select count(*) from t").await, "1", "nothing was cut");
}

fn segments(node: &Node) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(node.dir.join("trail")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "segment")).collect();
    paths.sort();
    paths
}

/// The new master has gone so far that it cannot say any more what the old one had alone: that is written down all the
/// same, and an earlier file stays.
#[tokio::test]
async fn what_the_new_master_cannot_be_asked_about_any_more_is_written_down() {
    let mut pair = Pair::start("segment_bytes = 1048576").await;
    run(&pair.a.connect().await, "create table t(x int primary key, v text)").await;
    pair.until_equal().await;
    succeeds(&["standby", "stop", "--at", &pair.b.at()]);
    run(&pair.a.connect().await, "insert into t values (7, 'only here')").await;
    pair.a.kill();
    succeeds(&["promote", "--at", &pair.b.at()]);
    let first = segments(&pair.b).remove(0);
    let client = pair.b.connect().await;
    let mut number = 1000;
    until("the beginning of the trail is recycled", async || {
        for _ in 0..20 {
            number += 1;
            run(&client, &format!("insert into t values ({number}, repeat('x', 100000))")).await;
        }
        run(&client, "checkpoint").await;
        !first.exists()
    })
    .await;
    let said = succeeds(&["rejoin", "--from", &pair.b.at(), "--data", pair.a.data(), "--name", "a"]);
    assert!(said.contains("no longer keeps the trail") && said.contains("unsure-"), "{said}");
    let unsure = std::fs::read_dir(&pair.a.dir).unwrap().map(|entry| entry.unwrap().path());
    let unsure = unsure.filter(|path| path.to_string_lossy().contains("unsure-")).collect::<Vec<_>>();
    assert!(unsure.len() == 1 && std::fs::read_to_string(&unsure[0]).unwrap().contains("only here"), "{unsure:?}");
    // Who asks again is shown the file again.
    let again = succeeds(&["rejoin", "--from", &pair.b.at(), "--data", pair.a.data(), "--name", "a"]);
    assert!(again.contains("earlier rejoin") && again.contains(unsure[0].to_str().unwrap()), "{again}");
    pair.a.start();
    until_followed(&pair.b, &pair.a).await;
    assert_same(&pair.b, &pair.a).await;
}

/// While a standby lags commits wait for it, though they ask for nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn levels_rise_while_a_standby_lags_and_fall_again() {
    let pair = Pair::start("level_raising = true\nstandby_lag_bytes_max = 1048576\nstandby_timeout_ms = 60000").await;
    let client = pair.a.connect().await;
    run(&client, "create table t(v text)").await;
    pair.until_equal().await;
    pair.b.hang();
    let writer = tokio::spawn(async move {
        for _ in 0..12 {
            run(&client, "insert into t values (repeat('x', 60000))").await;
        }
    });
    let told = |text: &str| pair.a.log().contains(text);
    until("the level is raised", async || told("commits wait for at least level")).await;
    pair.b.resume();
    writer.await.unwrap();
    until("it is lowered again", async || told("commit levels are no longer raised")).await;
}

/// Logs by role in files; SIGHUP opens them again.
#[tokio::test]
async fn logs_are_by_role_and_opened_again() {
    let mut pair = Pair::master("log_directory = \"logs\"");
    pair.create_standby();
    pair.b.configure("log_directory = \"logs\"");
    pair.b.start();
    pair.until_followed().await;
    let log = |node: &Node, name: &str| std::fs::read_to_string(node.dir.join("logs").join(name)).unwrap_or_default();
    until("the master ships", async || log(&pair.a, "ship.log").contains("a standby follows")).await;
    until("it caught up", async || log(&pair.a, "catchup.log").contains("has caught up")).await;
    pair.b.stop();
    until("it is told", async || log(&pair.a, "ship.log").contains("no longer follows")).await;
    assert!(log(&pair.b, "standby.log").contains("follows a from LSN"));
    assert!(log(&pair.b, "holdfast.log").contains("stopped") && pair.b.log().is_empty());
    std::fs::rename(pair.a.dir.join("logs/holdfast.log"), pair.beside("moved.log")).unwrap();
    pair.a.hang_up();
    until("it is opened again", async || log(&pair.a, "holdfast.log").contains("SIGHUP")).await;
}

/// A setting that has no effect is told, and only where somebody has set it.
#[tokio::test]
async fn a_size_of_segments_that_the_trail_does_not_have_is_told() {
    let mut pair = Pair::master("segment_bytes = 1048576");
    pair.create_standby();
    pair.b.start();
    pair.until_followed().await;
    assert!(pair.a.stop().success());
    let toml = pair.a.dir.join("holdfast.toml");
    let text = std::fs::read_to_string(&toml).unwrap();
    std::fs::write(&toml, text.replace("segment_bytes = 1048576", "segment_bytes = 2097152")).unwrap();
    pair.a.start();
    pair.until_followed().await;
    for words in ["WARN", "segment_bytes = 2097152 in", "has no effect", "Write segment_bytes = 1048576 there"] {
        assert!(pair.a.log().contains(words), "{words}: {}", pair.a.log());
    }
    assert!(!pair.b.log().contains("has no effect"), "it has its master's size and sets none: {}", pair.b.log());
}

#[tokio::test]
async fn a_standby_does_not_follow_itself() {
    let mut pair = Pair::start("").await;
    let (a, b, data) = (pair.a.at(), pair.b.at(), pair.b.data().to_owned());
    let configure = |from: &str| ["standby", "configure", "--data", &data, "--from", from].map(str::to_owned);
    let configure = |from: &str| holdfast(&configure(from).iter().map(String::as_str).collect::<Vec<_>>());
    // It runs, and answers by its name.
    let running = configure(&b);
    let said = String::from_utf8_lossy(&running.stderr).into_owned();
    assert!(running.status.code() == Some(1) && said.contains("is the address of b itself"), "{said}");
    // Its settings name the address.
    pair.b.stop();
    pair.b.configure(&format!("listen = \"{b}\""));
    let said = String::from_utf8_lossy(&configure(&b).stderr).into_owned();
    assert!(said.contains("is the address of b itself"), "{said}");
    // Otherwise only the start can know.
    let settings = std::fs::read_to_string(pair.b.dir.join("holdfast.toml")).unwrap();
    std::fs::write(pair.b.dir.join("holdfast.toml"), settings.replace(&format!("listen = \"{b}\""), "")).unwrap();
    assert!(configure(&b).status.success());
    let said = pair.b.refuses_to_start();
    assert!(said.contains("this server's own address") && said.contains("standby configure --data"), "{said}");
    assert!(configure(&a).status.success());
    pair.b.start();
    pair.until_followed().await;
}

/// The old master listened where its command said.
#[tokio::test]
async fn the_command_after_a_rejoin_is_complete() {
    let mut pair = Pair::start("").await;
    pair.until_equal().await;
    pair.a.kill();
    succeeds(&["promote", "--at", &pair.b.at()]);
    let said = succeeds(&["rejoin", "--from", &pair.b.at(), "--data", pair.a.data(), "--name", "a"]);
    let serve = format!("holdfast serve --data {} --listen HOST:PORT\n", pair.a.data());
    assert!(said.contains(&serve), "{said}");
    pair.a.configure(&format!("listen = \"{}\"", pair.a.at()));
    let said = succeeds(&["rejoin", "--from", &pair.b.at(), "--data", pair.a.data(), "--name", "a"]);
    assert!(said.contains(&format!("holdfast serve --data {}\n", pair.a.data())), "{said}");
}

/// A third server has more than the new master: the message has the whole command, and it works.
#[tokio::test]
async fn the_advice_to_rejoin_names_address_and_directory() {
    let mut pair = Pair::start("").await;
    let mut c = pair.third("c");
    succeeds(&["standby", "create", "--from", &pair.a.at(), "--data", c.data(), "--name", "c"]);
    c.start();
    until_followed(&pair.a, &c).await;
    run(&pair.a.connect().await, "create table t(x int)").await;
    pair.until_equal().await;
    succeeds(&["standby", "stop", "--at", &pair.a.at(), "--name", "b"]);
    run(&pair.a.connect().await, "insert into t values (1)").await;
    crate::node::until_equal(&pair.a, &c).await;
    pair.a.kill();
    c.stop();
    succeeds(&["promote", "--at", &pair.b.at()]);
    run(&pair.b.connect().await, "insert into t values (2)").await;
    succeeds(&["standby", "configure", "--data", c.data(), "--from", &pair.b.at()]);
    c.start();
    let (b, data) = (pair.b.at(), c.data().to_owned());
    let command = ["rejoin", "--from", &b, "--data", &data, "--name", "c"];
    let named = format!("holdfast {}", command.join(" "));
    until("the command is in the log", async || c.log().contains(&named)).await;
    c.stop();
    succeeds(&command);
    c.start();
    until_followed(&pair.b, &c).await;
    assert_same(&pair.b, &c).await;
}
