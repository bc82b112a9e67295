//! The archive's retention: it keeps what a kept dump needs, and no more.

use super::stat_number;
use crate::dump::bed::{Bed, fill, sum, wal_lsn};
use crate::node::{Node, run, succeeds, until};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The folder of the trail; the archive has another one for places of dumps.
fn trail_of(archive: &Path) -> Option<PathBuf> {
    let mut entries = std::fs::read_dir(archive).unwrap().map(|entry| entry.unwrap().path());
    entries.find(|path| !path.ends_with("places"))
}

/// The first segment in the archive: new ones come at the end meanwhile.
fn first(bed: &Bed) -> String {
    let objects = trail_of(&bed.archive).into_iter().flat_map(|trail| std::fs::read_dir(trail).unwrap());
    objects.map(|object| object.unwrap().file_name().to_string_lossy()[9..17].to_owned()).min().unwrap()
}

fn forget(bed: &Bed, more: &[&str]) -> Value {
    forget_in(bed, bed.place(), more)
}

fn forget_in(bed: &Bed, place: &str, more: &[&str]) -> Value {
    let archive = bed.archive.display().to_string();
    let begin = ["dump", "forget", "--from", place, "--archive", &archive, "--json"];
    serde_json::from_str(&succeeds(&[&begin[..], more].concat())).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_never_breaks_a_kept_dump_and_frees_what_none_needs() {
    let mut bed = Bed::start();
    let mut sums = Vec::new();
    for _ in 0..3 {
        let client = bed.node.connect().await;
        fill(&client, 4).await;
        bed.until_archived(&client).await;
        // Its checkpoint is the end of what the next dump needs of the trail.
        assert!(bed.node.stop().success());
        bed.node.start();
        let client = bed.node.connect().await;
        let dump = bed.dump();
        fill(&client, 3).await;
        sums.push((wal_lsn(&client).await, sum(&bed.node).await, dump));
        bed.until_archived(&client).await;
    }
    let mut before = first(&bed);
    // Objects of the last day stay, unless told otherwise; and a dry run removes nothing.
    let forgotten = forget(&bed, &["--keep-last", "3"]);
    assert_eq!(
        (&forgotten["archive_objects"], &forgotten["archive_left"]),
        (&Value::from(0), &Value::Null),
        "{forgotten}"
    );
    let shown = forget(&bed, &["--keep-last", "3", "--archive-keep-hours", "0", "--dry-run"]);
    assert!(shown["archive_objects"].as_u64().unwrap() > 0 && first(&bed) == before, "{shown}");
    for kept in [3, 2, 1] {
        let forgotten = forget(&bed, &["--keep-last", &kept.to_string(), "--archive-keep-hours", "0"]);
        assert!(forgotten["archive_objects"].as_u64().unwrap() > 0 && first(&bed) > before, "{forgotten}");
        before = first(&bed);
        // Each kept dump can be rolled forward to any later moment.
        for (lsn, expected, dump) in &sums[3 - kept..] {
            let name = format!("kept{kept}-{lsn}");
            let begin = ["--to-lsn", &lsn.to_string(), "--dump", dump["name"].as_str().unwrap()];
            let (_, mut node) = bed.restore(&name, &begin);
            node.start();
            assert_eq!(sum(&node).await, *expected);
        }
        if kept < 3 {
            let error = bed.restore_fails("gone", &["--to-lsn", &sums[2 - kept].0.to_string()]);
            assert!(error.contains("no dump that ends at or before"), "{error}");
        }
    }
    // The server continues to archive, also after a restart.
    assert!(bed.node.stop().success());
    bed.node.start();
    let client = bed.node.connect().await;
    fill(&client, 2).await;
    bed.until_archived(&client).await;
    let archive = bed.archive.display().to_string();
    succeeds(&["archive", "verify", "--archive", &archive, "--data", bed.path("none").to_str().unwrap()]);
}

/// Two places of dumps with one archive: the retention of one leaves what a dump in the other needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_dump_of_another_place_keeps_its_trail() {
    let mut bed = Bed::start();
    let client = bed.node.connect().await;
    fill(&client, 4).await;
    bed.until_archived(&client).await;
    let old = bed.dump();
    assert_eq!(old["unregistered"], Value::Null);
    let needs = first(&bed);
    let mut all = String::new();
    let other = bed.path("other");
    std::fs::create_dir(&other).unwrap();
    let other = other.to_str().unwrap();
    for in_other in [true, false] {
        let client = bed.node.connect().await;
        fill(&client, 4).await;
        bed.until_archived(&client).await;
        // Its checkpoint is the end of what the next dump needs of the trail.
        drop(client);
        assert!(bed.node.stop().success());
        bed.node.start();
        if in_other {
            succeeds(&["dump", "create", "--at", &bed.node.at(), "--to", other]);
            let client = bed.node.connect().await;
            fill(&client, 2).await;
            bed.until_archived(&client).await;
            all = sum(&bed.node).await;
            // The other place may know nothing of this one's dump but what the archive says.
            let forgotten = forget_in(&bed, other, &["--keep-last", "1", "--archive-keep-hours", "0"]);
            let why = forgotten["archive_left"].as_str().unwrap_or_default().to_owned();
            assert!(why.contains(bed.place()) && why.contains("places/"), "{forgotten}");
            let (_, mut node) = bed.restore("old", &["--dump", old["name"].as_str().unwrap()]);
            node.start();
            assert_eq!(sum(&node).await, all);
        } else {
            bed.dump();
        }
    }
    assert!(!all.is_empty());
    // When this place no longer has that dump, the archive says so, and the other one's retention goes on.
    let forgotten = forget(&bed, &["--keep-last", "1"]);
    assert_eq!((forgotten["removed"].as_array().unwrap().len(), forgotten["archive_objects"].as_u64()), (1, Some(0)));
    let forgotten = forget_in(&bed, other, &["--keep-last", "1", "--archive-keep-hours", "0"]);
    assert!(forgotten["archive_objects"].as_u64() > Some(0) && first(&bed) > needs, "{forgotten}");
    assert_eq!(forgotten["archive_left"], Value::Null, "{forgotten}");
    // What is registered and cannot be read keeps everything.
    let object = std::fs::read_dir(bed.archive.join("places")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&object, "{").unwrap();
    let forgotten = forget_in(&bed, other, &["--keep-last", "1", "--archive-keep-hours", "0"]);
    let why = forgotten["archive_left"].as_str().unwrap_or_default();
    assert!(why.contains(object.file_name().unwrap().to_str().unwrap()) && why.contains("cannot be read"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schedule_shortens_the_archive_where_that_is_set() {
    let bed = super::Backed::started("dump.every = \"1 s\"\ndump.keep = { last = 1 }\ndump.archive_keep = \"1 ms\"");
    let client = bed.node.connect().await;
    let segments = || {
        let names = trail_of(&bed.archive)
            .map(|dir| std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>());
        let mut numbers: Vec<String> =
            names.unwrap_or_default().into_iter().map(|n| n.to_string_lossy()[9..17].to_owned()).collect();
        numbers.sort_unstable();
        numbers
    };
    fill(&client, 1).await;
    until("something is archived", async || !segments().is_empty()).await;
    let first = segments().remove(0);
    until("the first segment is no longer needed", async || {
        fill(&client, 1).await;
        let now = segments();
        !now.is_empty() && now[0] > first
    })
    .await;
    let dumps = stat_number(&client, "dump_count").await;
    until("it dumps again", async || stat_number(&client, "dump_count").await > dumps + 1).await;
    let expected = sum(&bed.node).await;
    let dir = bed.scratch.path().join("restored");
    succeeds(&["restore", "--from", bed.place(), "--data", dir.to_str().unwrap()]);
    let mut node = Node::new_in(dir);
    node.start();
    assert_eq!(sum(&node).await, expected);
    run(&client, "select 1").await;
}
