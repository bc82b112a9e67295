//! The first start, the next ones, what is refused, and what the mirror counts for.

use super::bed::{Bed, Load};
use crate::node::{one, refuses, rows, run, succeeds, until};

#[tokio::test]
async fn an_empty_directory_is_copied_and_followed_and_later_gets_what_is_missing_only() {
    let mut bed = Bed::plain("");
    let main = bed.main.dir.clone();
    bed.start_on(&main, None);
    let sql = "create table big(id int primary key, v text); create database other;
               insert into big select g, repeat('x', 500) from generate_series(1, 5000) g";
    for statement in sql.split(';') {
        run(&bed.connect().await, statement).await;
    }
    bed.stop();
    bed.start();
    bed.until_state("streaming").await;
    let client = bed.connect().await;
    run(&client, "update big set v = 'changed' where id < 100").await;
    let row = "select application_name, state, sync_state from pg_stat_replication";
    assert_eq!(rows(&client, row).await, ["Some(\"mirror\"), Some(\"streaming\"), Some(\"async\")"]);
    let row = "select name, reason from holdfast_stat_standbys";
    assert_eq!(rows(&client, row).await, ["Some(\"mirror\"), Some(\"commits wait for both disks\")"]);
    let said = succeeds(&["standby", "status", "--at", &format!("127.0.0.1:{}", bed.port)]);
    assert!(said.contains("its mirror") && said.contains("commits wait for both disks"), "{said}");
    assert!(bed.stop().success());
    bed.assert_equal().await;

    // Without its mirror for a while: that is written down, and said.
    bed.start_on(&main, None);
    assert!(bed.log().contains("is left behind"), "{}", bed.log());
    run(&bed.connect().await, "insert into big values (6000, 'alone')").await;
    bed.kill();
    let copies = bed.log().matches("is copied:").count();
    bed.start();
    bed.until_state("streaming").await;
    assert_eq!(bed.status("has_everything"), true);
    assert!(bed.stop().success());
    assert_eq!(bed.log().matches("is copied:").count(), copies, "what is missing only");
    bed.assert_equal().await;
}

#[tokio::test]
async fn what_is_refused() {
    let mut bed = Bed::plain("");
    bed.start();
    bed.until_state("streaming").await;
    run(&bed.connect().await, "create table t(id int primary key)").await;
    // Neither while it runs ...
    let said = refuses(&["mirror", "promote", "--data", bed.mirror.path()]);
    assert!(said.contains("a server runs on the main directory"), "{said}");
    bed.stop();
    // ... nor ever is the mirror served as it is, or written by something else.
    let said = refuses(&["serve", "--listen", "127.0.0.1:0", "--data", bed.mirror.path()]);
    assert!(said.contains("is the mirror of") && said.contains("holdfast mirror promote --data"), "{said}");
    let said = refuses(&["mirror", "promote", "--data", bed.main.path()]);
    assert!(said.contains("is not a mirror"), "{said}");

    // The main disk is new and empty: what the mirror has is not followed by nothing.
    let lost = bed.beside("lost");
    std::fs::rename(&bed.main.dir, &lost).unwrap();
    let said = bed.start_refused();
    assert!(said.contains("has no databases yet") && said.contains("holdfast mirror promote"), "{said}");
    assert!(!bed.main.dir.join("trail").exists(), "nothing was made");
    // Nor by another server.
    let mirror = bed.mirror.dir.clone();
    let main = bed.main.dir.clone();
    bed.start_on(&main, None);
    bed.stop();
    let said = bed.start_refused();
    assert!(said.contains("is of another server"), "{said}");
    std::fs::remove_dir_all(&main).unwrap();
    std::fs::rename(&lost, &main).unwrap();

    // A directory with something else in it, the directory itself, a group of three.
    let other = bed.beside("photos");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("cat.jpg"), "").unwrap();
    let serve = |mirror: &str, line: &str| {
        let at = main.to_str().unwrap();
        let settings = std::fs::read_to_string(main.join("holdfast.toml")).unwrap();
        std::fs::write(main.join("holdfast.toml"), format!("{settings}{line}")).unwrap();
        let said = refuses(&["serve", "--listen", "127.0.0.1:0", "--data", at, "--mirror", mirror]);
        std::fs::write(main.join("holdfast.toml"), settings).unwrap();
        said
    };
    assert!(serve(other.to_str().unwrap(), "").contains("cat.jpg"));
    assert!(serve(main.to_str().unwrap(), "").contains("are the same"));
    let said = serve(mirror.to_str().unwrap(), "control_members = \"a=127.0.0.1:1, b=127.0.0.1:2, w=127.0.0.1:3\"\n");
    assert!(said.contains("do not go together"), "{said}");
}

/// An import changes the stopped main directory alone: the mirror says so, and is copied anew.
#[tokio::test]
async fn an_import_goes_past_the_mirror_until_the_next_start() {
    let mut bed = Bed::plain("");
    bed.start();
    bed.until_state("streaming").await;
    bed.stop();
    let file = bed.beside("old.db");
    let mut sqlite = std::process::Command::new("sqlite3");
    let made = sqlite.arg(&file).arg("create table t(x); insert into t values (1)").status();
    if !made.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("CI").is_none(), "cannot run: there is no sqlite3");
        return;
    }
    succeeds(&["import", file.to_str().unwrap(), "--data", bed.main.path()]);
    let said = refuses(&["mirror", "promote", "--data", bed.mirror.path()]);
    assert!(said.contains("was left behind") && said.contains("it is only there"), "{said}");
    bed.start();
    until("it is copied anew", async || bed.log().matches("is copied:").count() == 2).await;
    bed.until_state("streaming").await;
    run(&bed.connect().await, "create table t(x int primary key)").await;
    bed.stop();
    bed.assert_equal().await;
}

/// Hot means another node, and stays so.
#[tokio::test]
async fn the_mirror_is_no_synchronous_standby() {
    let mut bed = Bed::plain("synchronous_standby_names = \"*\"");
    bed.start();
    bed.until_state("streaming").await;
    let client = bed.connect().await;
    run(&client, "set synchronous_commit = local; create table t(id int primary key)").await;
    let waiting = bed.connect().await;
    let commit = tokio::spawn(async move { waiting.batch_execute("insert into t values (1)").await });
    let status = ["standby", "status", "--json", "--at", &format!("127.0.0.1:{}", bed.port)].map(str::to_owned);
    until("the commit waits for a standby", async || {
        succeeds(&status.each_ref().map(String::as_str)).contains("\"commits_waiting\":1")
    })
    .await;
    let had = bed.status("durable_lsn");
    assert!(had.as_u64() >= Some(1), "the mirror has it: {had}");
    assert!(!commit.is_finished());
    bed.kill();
    assert!(commit.await.unwrap().is_err());
}

/// The main directory comes back when the mirror has taken its place; the two change places.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_main_directory_that_has_a_successor_is_not_served_and_becomes_its_mirror() {
    let mut bed = Bed::plain("");
    bed.start();
    bed.until_state("streaming").await;
    let load = Load::start(&bed, 4, 0).await;
    load.until_rows(&bed, 200).await;
    bed.kill();
    let acknowledged = load.acknowledged().await;
    let hidden = bed.beside("hidden");
    std::fs::rename(&bed.main.dir, &hidden).unwrap();
    let said = succeeds(&["mirror", "promote", "--data", bed.mirror.path()]);
    assert!(
        said.contains("It has everything that was acknowledged while")
            && said.contains("cannot be read, so it is not known"),
        "{said}"
    );
    let said = refuses(&["mirror", "promote", "--data", bed.mirror.path()]);
    assert!(said.contains("promoted already"), "{said}");
    std::fs::rename(&hidden, &bed.main.dir).unwrap();

    let said = bed.start_refused();
    assert!(said.contains("was promoted") && said.contains("holdfast rejoin"), "{said}");
    let (main, mirror) = (bed.main.dir.clone(), bed.mirror.dir.clone());
    bed.start_on(&mirror, None);
    let client = bed.connect().await;
    acknowledged.assert_there(&client).await;
    run(&client, "insert into t values (-1, 'after')").await;
    let at = format!("127.0.0.1:{}", bed.port);
    succeeds(&["rejoin", "--from", &at, "--data", main.to_str().unwrap(), "--name", "mirror"]);
    bed.stop();
    bed.start_on(&mirror, Some(&main));
    bed.until_state("streaming").await;
    let client = bed.connect().await;
    run(&client, "insert into t values (-2, 'on both')").await;
    assert_eq!(one(&client, "select count(*) from t where id < 0").await, "2");
    bed.stop();
    bed.assert_equal().await;
    let said = refuses(&["serve", "--listen", "127.0.0.1:0", "--data", main.to_str().unwrap()]);
    assert!(said.contains("is the mirror of"), "{said}");
}
