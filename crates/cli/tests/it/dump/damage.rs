//! Every kind of object that is not what it must be is refused by its name.

use super::bed::{Bed, fill, wal_lsn};
use crate::node::run;
use std::path::{Path, PathBuf};

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort_unstable();
    files
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// Damages an object in each way, calls `check` with what was done, and puts it back.
fn damage_each_way(object: &Path, other: &Path, mut check: impl FnMut(&str)) {
    let good = std::fs::read(object).unwrap();
    let mut flipped = good.clone();
    let middle = good.len() / 2;
    flipped[middle] ^= 1;
    let foreign = b"not one of ours".to_vec();
    for (what, bytes) in [
        ("a flipped bit", flipped),
        ("truncated", good[..good.len() - 1].to_vec()),
        ("empty", Vec::new()),
        ("longer", [&good[..], b"x"].concat()),
        ("swapped", std::fs::read(other).unwrap()),
        ("foreign", foreign),
    ] {
        std::fs::write(object, bytes).unwrap();
        check(what);
    }
    std::fs::remove_file(object).unwrap();
    check("missing");
    std::fs::write(object, good).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_a_dump_that_are_not_what_they_must_be_are_named() {
    let bed = Bed::start();
    fill(&bed.node.connect().await, 9).await;
    let created = bed.dump();
    let lsn = created["lsn"].to_string();
    let chunks = files(&bed.dumps.join("chunks"));
    assert!(chunks.len() >= 2, "{chunks:?}");
    damage_each_way(&chunks[0], &chunks[1], |what| {
        let (sound, report) = bed.verify();
        assert!(
            !sound && report["problems"][0]["object"].as_str().unwrap().ends_with(&name(&chunks[0])),
            "{what}: {report}"
        );
        assert_eq!(report["problems"][0]["dumps"][0], created["name"], "{what}");
        let error = bed.restore_fails("restored", &["--to-lsn", &lsn]);
        assert!(error.contains(&name(&chunks[0])), "{what}: {error}");
    });
    let manifests = files(&bed.dumps.join("dumps"));
    damage_each_way(&manifests[0], &chunks[1], |what| {
        let error = bed.restore_fails("restored", &["--to-lsn", &lsn]);
        let gone = what == "missing" && error.contains("has no dump");
        assert!(gone || error.contains(&name(&manifests[0])), "{what}: {error}");
        assert!(what == "missing" || !bed.verify().0, "{what}");
    });
    assert!(bed.verify().0);
    bed.restore("restored", &["--to-lsn", &lsn]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_the_archive_that_are_not_what_they_must_be_are_named_with_what_can_be_reached() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    fill(&client, 1).await;
    bed.dump();
    let mut lsns = Vec::new();
    for _ in 0..6 {
        fill(&client, 1).await;
        lsns.push(wal_lsn(&client).await);
    }
    run(&client, "create table last(k int)").await;
    bed.until_archived(&client).await;
    let objects = files(&files(&bed.archive)[0]);
    let (damaged, other) = (&objects[objects.len() - 4], &objects[objects.len() - 3]);
    damage_each_way(damaged, other, |what| {
        let error = bed.restore_fails("restored", &[]);
        let segment = name(damaged)[9..17].to_owned();
        assert!(error.contains(&segment), "{what}: {error}");
        if what == "missing" {
            assert!(error.contains("What can be reached is LSN") && error.contains("--to-lsn"), "{error}");
            // With the time of the last boxcar in front of the gap.
            let moment = error.split("What can be reached is LSN ").nth(1).unwrap().split(": restore").next().unwrap();
            let (_, moment) = moment.split_once(", ").unwrap();
            assert!(moment.ends_with('Z') && moment.starts_with("20") && moment.len() == 24, "{moment}");
            let reachable = error.split("--to-lsn ").nth(1).unwrap().split(',').next().unwrap().to_owned();
            bed.restore("reachable", &["--to-lsn", &reachable]);
        }
        // What lies in front of it can be had.
        let _ = std::fs::remove_dir_all(bed.path("before"));
        bed.restore("before", &["--to-lsn", &lsns[0].to_string()]);
    });
    let _ = std::fs::remove_dir_all(bed.path("restored"));
    bed.restore("restored", &[]);
}

/// The next dump does without a manifest that is damaged, and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_is_made_although_the_one_before_is_damaged() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    fill(&client, 6).await;
    let first = bed.dump();
    assert_eq!(first["warnings"], serde_json::json!([]));
    run(&client, "create table second(k int)").await;
    bed.dump();
    let newest = files(&bed.dumps.join("dumps")).pop().unwrap();
    let good = std::fs::read(&newest).unwrap();
    // In the body, in the head.
    for at in [good.len() - 40, 60] {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        std::fs::write(&newest, bytes).unwrap();
        let made = bed.dump();
        let warnings = made["warnings"].to_string();
        assert!(warnings.contains(&name(&newest)) && warnings.contains("damaged"), "{at}: {warnings}");
        // The pages of the dump before it are used again.
        let stored = |dump: &serde_json::Value| dump["stored_bytes"].as_u64().unwrap();
        assert!(stored(&made) * 4 < stored(&first), "{at}: {made}");
        std::fs::remove_file(bed.dumps.join(made["name"].as_str().unwrap())).unwrap();
    }
    std::fs::write(&newest, good).unwrap();
    assert!(bed.verify().0);
}

/// An older dump is not taken in silence for a newer one that cannot be read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_dump_that_cannot_be_read_is_not_passed_over() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    fill(&client, 1).await;
    bed.dump();
    fill(&client, 1).await;
    bed.dump();
    bed.until_archived(&client).await;
    let newest = files(&bed.dumps.join("dumps")).pop().unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&newest, bytes).unwrap();
    let error = bed.restore_fails("alone", &["--archive", ""]);
    assert!(error.contains(&name(&newest)), "{error}");
    // With the archive nothing is lost; it is reported.
    let (report, _) = bed.restore("rolled", &[]);
    assert!(report["unreadable_dump"].as_str().unwrap().contains(&name(&newest)), "{report}");
}
