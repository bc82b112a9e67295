//! The archive as the operator meets it: real processes, a directory.

use crate::node::{
    LOCAL, Node, Pair, asked_with, assert_same, holdfast, one, run, state, succeeds, until, until_settled,
};
use holdfast_seams::testing::Patience;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

/// Small segments that are soon recycled.
const SMALL: &str = "segment_bytes = 1048576\nredo_bytes_max = 1048576\n";

/// A running master that archives into a directory of its own.
fn archiving(lines: &str) -> (Pair, PathBuf, TempDir) {
    let scratch = TempDir::new().unwrap();
    let archive = scratch.path().join("archive");
    std::fs::create_dir(&archive).unwrap();
    (Pair::master(&format!("{SMALL}archive = \"{}\"\n{lines}", archive.display())), archive, scratch)
}

async fn make_table(client: &Client) {
    run(client, "create table t(id serial primary key, v text)").await;
}

/// Writes as many MiB.
async fn write(client: &Client, mib: usize) {
    for _ in 0..mib * 4 {
        run(client, "insert into t(v) select repeat('x', 4000) || g from generate_series(1, 64) g").await;
    }
}

async fn shown(client: &Client, column: &str) -> String {
    one(client, &format!("select {column} from holdfast_stat_archive")).await
}

/// Waits until everything that is finished is archived.
async fn until_archived(client: &Client) {
    until_settled("everything is archived", async || {
        let state = "waiting_segments || ', archived ' || archived_count";
        Some(shown(client, state).await).filter(|state| !state.starts_with("0,"))
    })
    .await;
}

/// Waits until everything that is finished is archived, and the trail has recycled up to there.
async fn until_recycled(node: &Node) {
    let client = node.connect().await;
    until_archived(&client).await;
    // The trail recycles at a checkpoint, which comes when a changed database has been idle. On a busy machine the last
    // one may have come before the last segment was archived; this change brings another.
    asked_with(node, LOCAL, "create table if not exists later(x int); insert into later values (1)").await;
    until_settled("the trail is recycled", async || {
        let trail = &report(node, "status")["trails"][0];
        let reached = trail["last"]["segment"].as_u64().zip(trail["trail_begins"].as_u64());
        reached.is_none_or(|(last, begins)| begins <= last).then(|| trail.to_string())
    })
    .await;
}

fn report(node: &Node, what: &str) -> Value {
    let output = holdfast(&["archive", what, "--data", node.data(), "--json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

/// Everything from the first segment on is in the archive or in the trail.
fn assert_whole(node: &Node) {
    let said = succeeds(&["archive", "verify", "--data", node.data()]);
    assert!(said.contains("sound") && !said.contains("problem"), "{said}");
    let report = report(node, "verify");
    let trail = &report["trails"][0];
    assert_eq!((trail["first"]["segment"].as_u64(), trail["missing"].is_null()), (Some(1), true), "{report}");
}

/// The files of an archive, in order.
pub fn objects(archive: &Path) -> Vec<PathBuf> {
    let directories = std::fs::read_dir(archive).unwrap().map(|entry| entry.unwrap().path());
    let mut objects: Vec<PathBuf> =
        directories.flat_map(|d| std::fs::read_dir(d).unwrap()).map(|entry| entry.unwrap().path()).collect();
    objects.sort_unstable();
    objects
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_segments_are_archived_shown_and_recycled() {
    let (mut pair, archive, _scratch) = archiving("");
    let client = pair.a.connect().await;
    make_table(&client).await;
    write(&client, 6).await;
    until_recycled(&pair.a).await;
    let count: u64 = shown(&client, "archived_count").await.parse().unwrap();
    assert!(count >= 6 && objects(&archive).len() as u64 == count, "{count}");
    assert_eq!(one(&client, "select archived_count from pg_stat_archiver").await, count.to_string());
    assert_eq!(one(&client, "select failed_count from pg_stat_archiver").await, "0");
    let last = objects(&archive).pop().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    assert_eq!(one(&client, "select last_archived_wal from pg_stat_archiver").await, last);
    assert_eq!(shown(&client, "state").await, "idle");
    assert_whole(&pair.a);
    // A restart begins a new epoch and goes on; nothing is archived twice.
    assert!(pair.a.stop().success());
    pair.a.start();
    let client = pair.a.connect().await;
    write(&client, 3).await;
    until_recycled(&pair.a).await;
    assert_whole(&pair.a);
    let again: u64 = shown(&client, "archived_count").await.parse().unwrap();
    assert_eq!(objects(&archive).len() as u64, count + again);
    // Without the setting the trail is no longer kept for it, and that is said.
    assert!(pair.a.stop().success());
    let path = pair.a.dir.join("holdfast.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let without: Vec<&str> = text.lines().filter(|line| !line.starts_with("archive")).collect();
    std::fs::write(&path, without.join("\n")).unwrap();
    pair.a.start();
    assert!(pair.a.log().contains("the setting archive was removed"), "{}", pair.a.log());
    assert_eq!(one(&pair.a.connect().await, "select count(*) from holdfast_stat_archive").await, "0");
}

/// The empty directory that an archive is mounted on takes everything as well as the archive does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_that_is_not_mounted_is_not_begun_anew() {
    let (mut pair, archive, scratch) = archiving("");
    let client = pair.a.connect().await;
    make_table(&client).await;
    write(&client, 4).await;
    until_recycled(&pair.a).await;
    let away = scratch.path().join("away");
    std::fs::rename(&archive, &away).unwrap();
    std::fs::create_dir(&archive).unwrap();
    write(&client, 4).await;
    let failing = "state || ' ' || coalesce(last_error, '')";
    until("it is told", async || shown(&client, failing).await.contains("was archived and is not in")).await;
    // Nor after a restart, and whoever asks is told.
    assert!(pair.a.stop().success());
    pair.a.start();
    let client = pair.a.connect().await;
    until("it is told", async || shown(&client, failing).await.contains("was archived and is not in")).await;
    assert_eq!(objects(&archive), Vec::<PathBuf>::new());
    let verified = holdfast(&["archive", "verify", "--data", pair.a.data()]);
    let said = String::from_utf8_lossy(&verified.stdout);
    assert!(!verified.status.success() && said.contains("check that the archive is mounted"), "{said}");
    std::fs::remove_dir(&archive).unwrap();
    std::fs::rename(&away, &archive).unwrap();
    until_recycled(&pair.a).await;
    assert_whole(&pair.a);
}

/// Damaged, say: the trail still has its segment, and the archive is known by the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_was_moved_away_is_put_again() {
    let (mut pair, archive, _scratch) = archiving("");
    let client = pair.a.connect().await;
    make_table(&client).await;
    // One that is away keeps the trail.
    pair.create_standby();
    pair.b.start();
    pair.until_followed().await;
    assert!(pair.b.stop().success());
    write(&client, 4).await;
    until_archived(&client).await;
    assert!(pair.a.stop().success());
    let all = objects(&archive);
    for gone in [&all[1], all.last().unwrap()] {
        std::fs::remove_file(gone).unwrap();
    }
    pair.a.start();
    until("both are put again", async || all.iter().all(|object| object.exists())).await;
    assert_whole(&pair.a);
}

/// An object that has lost its end is no reason to recycle the segment, also where an earlier run had archived it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_has_lost_its_end_is_seen_at_the_start() {
    let (mut pair, archive, _scratch) = archiving("");
    let client = pair.a.connect().await;
    make_table(&client).await;
    // One that is away keeps the trail.
    pair.create_standby();
    pair.b.start();
    pair.until_followed().await;
    assert!(pair.b.stop().success());
    write(&client, 4).await;
    until_archived(&client).await;
    pair.a.kill();
    let cut = &objects(&archive)[1];
    let bytes = std::fs::metadata(cut).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(cut).unwrap().set_len(bytes / 2).unwrap();
    pair.a.start();
    let client = pair.a.connect().await;
    until("it is seen", async || shown(&client, "state").await == "failing").await;
    let error = shown(&client, "last_error").await;
    assert!(error.contains("damaged") && error.contains(&cut.file_name().unwrap().to_string_lossy()[..]), "{error}");
    std::fs::remove_file(cut).unwrap();
    until("it is put again", async || cut.exists() && shown(&client, "waiting_segments").await == "0").await;
    assert_whole(&pair.a);
}

/// An archive that is away for a while is waited for by a standby that needs it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_waits_for_an_archive_that_is_not_mounted() {
    let (mut pair, archive, scratch) = archiving("standby_keep_bytes_max = 1048576\n");
    let client = pair.a.connect().await;
    make_table(&client).await;
    pair.create_standby();
    pair.b.start();
    pair.until_followed().await;
    pair.until_equal().await;
    assert!(pair.b.stop().success());
    write(&client, 8).await;
    until_recycled(&pair.a).await;
    let aside = scratch.path().join("aside");
    std::fs::rename(&archive, &aside).unwrap();
    std::fs::create_dir(&archive).unwrap();
    pair.b.start();
    until("it is told why it waits", async || pair.b.log().contains("check that the right archive is mounted")).await;
    std::fs::remove_dir(&archive).unwrap();
    std::fs::rename(&aside, &archive).unwrap();
    assert_same(&pair.a, &pair.b).await;
    assert!(!pair.b.log().contains("standby create"), "{}", pair.b.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment_nothing_is_missing() {
    let (mut pair, _, _scratch) = archiving("");
    make_table(&pair.a.connect().await).await;
    let mut acknowledged = 0u64;
    let archived = |pair: &Pair| report(&pair.a, "status")["trails"][0]["objects"].as_u64().unwrap_or(0);
    let mut patience = Patience::new();
    // Ten times, and as often as a slow machine needs to archive something.
    for round in 0u64.. {
        if round >= 10 && archived(&pair) > 5 {
            break;
        }
        patience.look("enough is archived");
        let client = pair.a.connect().await;
        let writing = tokio::spawn(async move {
            let mut done = 0u64;
            let insert = "insert into t(v) select repeat('x', 4000) || g from generate_series(1, 64) g";
            while client.batch_execute(insert).await.is_ok() {
                done += 64;
            }
            done
        });
        // Somewhere in writing, archiving and recycling.
        tokio::time::sleep(Duration::from_millis(137 * (round % 7) + 60)).await;
        pair.a.kill();
        acknowledged += writing.await.unwrap();
        pair.a.start();
    }
    until_recycled(&pair.a).await;
    assert_whole(&pair.a);
    let rows: u64 = one(&pair.a.connect().await, "select count(*) from t").await.parse().unwrap();
    assert!(rows >= acknowledged, "{rows} {acknowledged}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_was_away_too_long_catches_up_from_the_archive() {
    let (mut pair, archive, _scratch) = archiving("standby_keep_bytes_max = 1048576\n");
    let client = pair.a.connect().await;
    make_table(&client).await;
    pair.create_standby();
    pair.b.start();
    pair.until_followed().await;
    write(&client, 2).await;
    pair.until_equal().await;
    assert!(pair.b.stop().success());
    let had = pair.a.status_word("durable_lsn").parse::<u64>().unwrap() / (1 << 20);
    write(&client, 12).await;
    until_recycled(&pair.a).await;
    let begins = report(&pair.a, "status")["trails"][0]["trail_begins"].as_u64().unwrap();
    assert!(begins > had + 5, "the trail begins with segment {begins}, the standby is in {had}");
    // One of the objects it needs is rotten: it is told which, and nothing of it is taken.
    let needed = objects(&archive).into_iter().rev().nth(3).unwrap();
    let whole = std::fs::read(&needed).unwrap();
    let mut rotten = whole.clone();
    rotten[whole.len() / 2] ^= 1;
    std::fs::write(&needed, &rotten).unwrap();
    pair.b.start();
    let name = needed.file_name().unwrap().to_string_lossy().into_owned();
    until("the standby says what is rotten", async || pair.b.log().contains(&name)).await;
    assert!(pair.a.log().contains("damaged"), "{}", pair.a.log());
    let output = holdfast(&["archive", "verify", "--data", pair.a.data()]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.code() == Some(1) && said.contains(&name) && said.contains("damaged"), "{said}");
    // Put back, it goes on by itself, while the master writes.
    std::fs::write(&needed, &whole).unwrap();
    write(&client, 2).await;
    assert_same(&pair.a, &pair.b).await;
    assert!(pair.a.log().contains("shipping from the archive"), "{}", pair.a.log());
    write(&client, 1).await;
    assert_same(&pair.a, &pair.b).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_archive_lacks_is_refused_as_before() {
    let (mut pair, archive, _scratch) = archiving("standby_keep_bytes_max = 1048576\n");
    let client = pair.a.connect().await;
    make_table(&client).await;
    pair.create_standby();
    pair.b.start();
    pair.until_followed().await;
    pair.until_equal().await;
    assert!(pair.b.stop().success());
    write(&client, 8).await;
    until_recycled(&pair.a).await;
    std::fs::remove_file(&objects(&archive)[4]).unwrap();
    let status = report(&pair.a, "status");
    assert_eq!(status["trails"][0]["gaps"][0][0], 5, "{status}");
    pair.b.start();
    until("it is refused", async || pair.b.log().contains("standby create")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_that_cannot_be_reached_stops_nobody_until_the_limit() {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let (pair, archive, _scratch) = archiving(&format!(
        "archive_keep_bytes_max = 4194304\narchive_keep_beyond = \"refuse\"\nnotify_command = \"echo >> {}\"\n",
        notes.path().display()
    ));
    let client = pair.a.connect().await;
    make_table(&client).await;
    let away = archive.with_extension("away");
    std::fs::rename(&archive, &away).unwrap();
    write(&client, 2).await;
    until("it is loud", async || pair.a.log().contains("cannot be archived, the trail keeps it")).await;
    assert!(!archive.exists(), "what is not mounted is not made");
    until("the operator is told", async || {
        std::fs::read_to_string(notes.path()).unwrap().contains("the trail cannot be archived")
    })
    .await;
    assert_eq!(shown(&client, "state").await, "failing");
    assert!(shown(&client, "last_error").await.contains("does not exist"));
    assert_ne!(one(&client, "select failed_count from pg_stat_archiver").await, "0");
    let insert = "insert into t(v) select repeat('x', 4000) || g from generate_series(1, 64) g";
    let mut written = 0;
    until("writes are refused", async || match state(&client, insert).await {
        None => {
            written += 1;
            false
        }
        Some(code) => {
            assert_eq!(code, SqlState::DISK_FULL);
            true
        }
    })
    .await;
    assert!(written > 0 && written < 100, "{written}");
    assert_eq!(shown(&client, "is_beyond").await, "t");
    assert_ne!(one(&client, "select count(*) from t").await, "0", "reads go on");
    std::fs::rename(&away, &archive).unwrap();
    until("writes go on", async || state(&client, insert).await.is_none()).await;
    until_recycled(&pair.a).await;
    assert_whole(&pair.a);
    assert!(std::fs::read_to_string(notes.path()).unwrap().contains("archived again"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_limit_it_is_kept_and_said_unless_told_otherwise() {
    let (pair, archive, _scratch) = archiving("archive_keep_bytes_max = 2097152\n");
    let client = pair.a.connect().await;
    make_table(&client).await;
    let away = archive.with_extension("away");
    std::fs::rename(&archive, &away).unwrap();
    write(&client, 6).await;
    until("it is said", async || pair.a.log().contains("more of the trail waits for the archive")).await;
    write(&client, 1).await;
    assert!(shown(&client, "waiting_segments").await.parse::<u64>().unwrap() >= 6);
    std::fs::rename(&away, &archive).unwrap();
    until_recycled(&pair.a).await;
    assert_whole(&pair.a);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_standby_goes_on_with_the_archive() {
    let (mut pair, archive, _scratch) = archiving("");
    let client = pair.a.connect().await;
    make_table(&client).await;
    pair.create_standby();
    pair.b.configure(&format!("{SMALL}archive = \"{}\"", archive.display()));
    pair.b.start();
    pair.until_followed().await;
    write(&client, 3).await;
    until_recycled(&pair.a).await;
    // From here on nothing is archived before the master is lost: the standby has kept it.
    let away = archive.with_extension("away");
    std::fs::rename(&archive, &away).unwrap();
    write(&client, 4).await;
    pair.until_equal().await;
    let beside = pair.b.connect().await;
    until("the standby waits for its master", async || shown(&beside, "waiting_segments").await != "0").await;
    assert_eq!(shown(&beside, "archived_count").await, "0");
    pair.a.kill();
    std::fs::rename(&away, &archive).unwrap();
    let at = pair.b.at();
    tokio::task::block_in_place(|| succeeds(&["promote", "--at", &at]));
    let client = pair.b.connect().await;
    write(&client, 3).await;
    until_recycled(&pair.b).await;
    assert_whole(&pair.b);
    let epochs = |report: &Value| {
        report["trails"][0]["last"]["object"].as_str().unwrap().split('/').nth(1).unwrap()[..8].to_owned()
    };
    assert_eq!(epochs(&report(&pair.b, "status")), "00000002");
    assert_ne!(shown(&client, "archived_count").await, "0");
}
