//! One of the two disks dies, for good or for a while.

use super::bed::{Bed, Load};
use crate::node::{one, refuses, run, succeeds, until};
use crate::standby::schema::answered;
use std::fs;

/// A mirror that is slow: what does not wait for it is well ahead of it.
const SLOW: &str = "slow sync * us=4000\nslow write *.segment us=4000";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_main_disk_dies_under_load_and_the_mirror_has_everything() {
    for round in 0..3 {
        let Some(mut bed) = Bed::on_disks("") else { return };
        bed.start();
        bed.until_state("streaming").await;
        bed.mirror.tell(SLOW);
        let load = Load::start(&bed, 8, round).await;
        load.until_rows(&bed, 100 + 150 * round).await;
        bed.main.dies();
        assert!(!bed.until_it_ends().await.success(), "a fault is loud");
        let acknowledged = load.acknowledged().await;
        assert!(acknowledged.count() >= 100);
        let said = succeeds(&["mirror", "promote", "--data", bed.mirror.path()]);
        assert!(said.contains("It has everything that was acknowledged"), "{said}");
        let mirror = bed.mirror.dir.clone();
        bed.start_on(&mirror, None);
        acknowledged.assert_there(&bed.connect().await).await;
        run(&bed.connect().await, "insert into t values (-1, 'it goes on')").await;
        // The old disk recovers; it does not fork.
        bed.main.comes_back();
        let said = bed.start_refused();
        assert!(said.contains("was promoted") && said.contains("holdfast rejoin"), "{said}");
        bed.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_main_disk_is_wiped_and_the_mirror_has_everything() {
    let Some(mut bed) = Bed::on_disks("") else { return };
    bed.start();
    bed.until_state("streaming").await;
    bed.mirror.tell(SLOW);
    let load = Load::start(&bed, 8, 0).await;
    load.until_rows(&bed, 300).await;
    bed.kill();
    let acknowledged = load.acknowledged().await;
    fs::remove_dir_all(&bed.main.dir).unwrap();
    let said = bed.start_refused();
    assert!(said.contains("has no databases yet"), "{said}");
    succeeds(&["mirror", "promote", "--data", bed.mirror.path()]);
    let (main, mirror) = (bed.main.dir.clone(), bed.mirror.dir.clone());
    bed.start_on(&mirror, None);
    acknowledged.assert_there(&bed.connect().await).await;
    bed.stop();
    // The wiped disk is the mirror from now on.
    bed.start_on(&mirror, Some(&main));
    bed.until_state("streaming").await;
    run(&bed.connect().await, "insert into t values (-1, 'on both')").await;
    bed.stop();
    bed.assert_equal().await;
}

/// Commits wait, nobody is told anything false, and all goes on when the disk does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mirrors_disk_dies_and_commits_wait() {
    let Some(mut bed) = Bed::on_disks("") else { return };
    bed.start();
    bed.until_state("streaming").await;
    let load = Load::start(&bed, 4, 0).await;
    load.until_rows(&bed, 100).await;
    bed.mirror.dies();
    bed.until_state("away").await;
    assert_eq!((bed.status("commits_wait"), bed.status("distrusted").is_string()), (true.into(), true));
    assert!(bed.log().contains("commits WAIT until it is back"), "{}", bed.log());
    let client = bed.connect().await;
    let before = one(&client, "select count(*) from t").await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(one(&client, "select count(*) from t").await, before, "readers see nothing that is on one disk only");
    bed.mirror.comes_back();
    bed.until_state("streaming").await;
    assert!(bed.log().contains("is copied: its disk has failed"), "it was not believed: {}", bed.log());
    let more = format!("select count(*) > {before} from t");
    until("commits go on", async || one(&client, &more).await == "t").await;
    bed.main.dies();
    bed.until_it_ends().await;
    let acknowledged = load.acknowledged().await;
    succeeds(&["mirror", "promote", "--data", bed.mirror.path()]);
    let mirror = bed.mirror.dir.clone();
    bed.start_on(&mirror, None);
    acknowledged.assert_there(&bed.connect().await).await;
}

/// Commits go on, which is said and written down; a promotion says what is missing; the mirror comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mirrors_disk_dies_and_commits_go_on() {
    let Some(mut bed) = Bed::on_disks("mirror_away = \"go_on\"") else { return };
    fs::write(bed.beside("told.sh"), format!("echo \"$1\" >> {}", bed.beside("told").display())).unwrap();
    let line = format!("notify_command = \"sh {}\"\n", bed.beside("told.sh").display());
    let settings = bed.main.dir.join("holdfast.toml");
    fs::write(&settings, fs::read_to_string(&settings).unwrap() + &line).unwrap();
    bed.start();
    bed.until_state("streaming").await;
    let load = Load::start(&bed, 4, 0).await;
    load.until_rows(&bed, 100).await;
    bed.mirror.dies();
    bed.until_state("away").await;
    let client = bed.connect().await;
    let before: u64 = one(&client, "select count(*) from t").await.parse().unwrap();
    load.until_rows(&bed, before + 50).await;
    assert_eq!((bed.status("commits_wait"), bed.status("has_everything")), (false.into(), false.into()));
    assert!(bed.status("left_behind_at_lsn").is_u64());
    let told = fs::read_to_string(bed.beside("told")).unwrap();
    assert!(told.contains("commits continue WITHOUT it"), "{told}");
    bed.kill();
    drop(load.acknowledged().await);

    // The mirror could not be told; the main directory was.
    bed.mirror.comes_back();
    let said = refuses(&["mirror", "promote", "--data", bed.mirror.path()]);
    assert!(said.contains("was left behind at") && said.contains("is NOT here"), "{said}");
    assert!(said.contains("up to LSN") && said.contains("s ago") && said.contains("--accept-divergence"), "{said}");
    let hidden = bed.main.dir.with_file_name("hidden");
    fs::rename(&bed.main.dir, &hidden).unwrap();
    let said = refuses(&["mirror", "promote", "--data", bed.mirror.path()]);
    assert!(said.contains("may be missing here") || said.contains("is NOT here"), "{said}");
    fs::rename(&hidden, &bed.main.dir).unwrap();

    bed.start();
    bed.until_state("streaming").await;
    assert_eq!((bed.status("commits_wait"), bed.status("has_everything")), (true.into(), true.into()));
    let load = Load::start(&bed, 4, 1).await;
    load.until_rows(&bed, 100).await;
    bed.kill();
    let acknowledged = load.acknowledged().await;
    let said = succeeds(&["mirror", "promote", "--data", bed.mirror.path()]);
    assert!(said.contains("It has everything that was acknowledged"), "the main directory says so: {said}");
    let mirror = bed.mirror.dir.clone();
    bed.start_on(&mirror, None);
    acknowledged.assert_there(&bed.connect().await).await;
}

/// Full is not broken: it goes on where it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mirrors_disk_is_full_for_a_while() {
    let Some(mut bed) = Bed::on_disks("") else { return };
    bed.start();
    bed.until_state("streaming").await;
    let load = Load::start(&bed, 4, 0).await;
    load.until_rows(&bed, 100).await;
    bed.mirror.tell("capacity 1");
    bed.until_state("away").await;
    let before: u64 = one(&bed.connect().await, "select count(*) from t").await.parse().unwrap();
    bed.mirror.tell("capacity none");
    bed.until_state("streaming").await;
    load.until_rows(&bed, before + 100).await;
    bed.kill();
    let acknowledged = load.acknowledged().await;
    succeeds(&["mirror", "promote", "--data", bed.mirror.path()]);
    let mirror = bed.mirror.dir.clone();
    bed.start_on(&mirror, None);
    acknowledged.assert_there(&bed.connect().await).await;
}

/// A disk that says nothing is away as well, where commits may go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mirrors_disk_hangs() {
    let Some(mut bed) = Bed::on_disks("mirror_away = \"go_on\"") else { return };
    bed.start();
    bed.until_state("streaming").await;
    let load = Load::start(&bed, 4, 0).await;
    load.until_rows(&bed, 100).await;
    bed.mirror.tell("slow write * us=6000000\nslow sync * us=6000000");
    until("commits go on without it", async || bed.status("commits_wait") == false).await;
    assert!(bed.log().contains("has not answered for 1000 ms: commits continue WITHOUT it"), "{}", bed.log());
    let before: u64 = one(&bed.connect().await, "select count(*) from t").await.parse().unwrap();
    load.until_rows(&bed, before + 50).await;
    bed.mirror.tell("clear");
    until("it is in service again", async || bed.status("has_everything") == true).await;
    assert_eq!(bed.status("commits_wait"), true);
    bed.kill();
    drop(load.acknowledged().await);
}

/// A schema change waits for the mirror as any commit does; readers work under the schema before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_change_that_waits_for_the_mirror_stops_no_reader() {
    let Some(mut bed) = Bed::on_disks("") else { return };
    bed.start();
    bed.until_state("streaming").await;
    let client = bed.connect().await;
    run(&client, "create table t(x int); insert into t values (1)").await;
    bed.mirror.dies();
    let change = tokio::spawn(async move { run(&client, "create table u(x int)").await });
    bed.until_state("away").await;
    let at = format!("127.0.0.1:{}", bed.port);
    let waits = || succeeds(&["standby", "status", "--json", "--at", &at]).contains("\"commits_waiting\":1");
    until("the change waits", async || waits()).await;
    let reader = bed.connect().await;
    let reader = answered("a new session reads", async move {
        assert_eq!(one(&reader, "select count(*) from t").await, "1");
        assert_eq!(one(&reader, "select count(*) from pg_class where relname = 'u'").await, "0");
        reader
    });
    let reader = reader.await;
    assert!(!change.is_finished());
    bed.mirror.comes_back();
    bed.until_state("streaming").await;
    change.await.unwrap();
    assert_eq!(one(&reader, "select count(*) from u").await, "0");
    bed.stop();
    bed.assert_equal().await;
}
