//! kill -9 while a dump or a restore is under way, and chunks that are removed meanwhile.

use super::bed::{Bed, fill, launch, sum};
use crate::node::{dump, holdfast, run, succeeds, until};
use holdfast_seams::testing::Patience;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;
use tempfile::TempDir;

fn chunks(bed: &Bed) -> usize {
    let is_chunk = |name: &str| name.ends_with(".hfc");
    let entries = std::fs::read_dir(bed.dumps.join("chunks")).into_iter().flatten();
    entries.filter(|entry| is_chunk(&entry.as_ref().unwrap().file_name().to_string_lossy())).count()
}

/// A slow dump that has stored some chunks.
async fn begun(bed: &Bed, at: &str) -> Child {
    let before = chunks(bed);
    let slow = [bed.create_arguments(at), vec!["--rate-mb", "8"]].concat();
    let mut dump = launch(&slow);
    until("some chunks are stored", async || {
        if let Some(status) = dump.try_wait().unwrap() {
            panic!("the dump has ended: {status}");
        }
        chunks(bed) > before + 1
    })
    .await;
    dump
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_dump_is_no_dump_and_the_next_one_uses_its_chunks() {
    let bed = Bed::start();
    fill(&bed.node.connect().await, 40).await;
    let at = bed.node.at();
    for _ in 0..2 {
        let mut killed = begun(&bed, &at).await;
        killed.kill().unwrap();
        killed.wait().unwrap();
    }
    assert_eq!(succeeds(&["dump", "list", "--from", bed.place(), "--json"]).trim(), "[]");
    let created = bed.dump();
    assert!(created["found_chunks"].as_u64().unwrap() >= 2, "{created}");
    assert!(bed.verify().0);
    let (_, mut node) = bed.restore("restored", &["--to-lsn", &created["lsn"].to_string()]);
    node.start();
    assert_eq!(dump(&node).await, dump(&bed.node).await);
    // No mark of a process that has ended is left, and no chunk without a dump.
    let forgotten: Value =
        serde_json::from_str(&succeeds(&["dump", "forget", "--from", bed.place(), "--keep-last", "1", "--json"]))
            .unwrap();
    assert_eq!(
        (&forgotten["chunks_left"], &forgotten["removed"]),
        (&Value::Null, &Value::Array(vec![])),
        "{forgotten}"
    );
    assert_eq!(std::fs::read_dir(bed.dumps.join("running")).unwrap().count(), 0);
    assert!(bed.verify().0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_restore_is_not_served_and_begins_again() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    fill(&client, 8).await;
    bed.dump();
    fill(&client, 8).await;
    let expected = sum(&bed.node).await;
    bed.until_archived(&client).await;
    let arguments = bed.restore_arguments("restored", &[]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mark = bed.path("restored").join("restoring");
    let mut killed = 0;
    for round in 0..12u64 {
        let mut restore = launch(&arguments);
        until("it has begun, or is done", async || mark.exists() || restore.try_wait().unwrap().is_some()).await;
        tokio::time::sleep(Duration::from_millis(round * 60)).await;
        restore.kill().unwrap();
        restore.wait().unwrap();
        if !mark.exists() {
            break;
        }
        killed += 1;
        let serve = holdfast(&["serve", "--data", bed.path("restored").to_str().unwrap(), "--listen", "127.0.0.1:0"]);
        let said = String::from_utf8_lossy(&serve.stderr);
        assert!(!serve.status.success() && said.contains("a restore that did not complete"), "{said}");
    }
    assert!(killed > 0);
    if mark.exists() {
        succeeds(&arguments);
    }
    let mut node = crate::node::Node::new_in(bed.path("restored"));
    node.start();
    assert_eq!(sum(&node).await, expected);
    assert!(bed.restore_fails("restored", &[]).contains("is not empty"));
}

/// A place where a restore looks for dumps for a while, and finds none.
struct Unreadable {
    dumps: PathBuf,
    dir: PathBuf,
    mark: PathBuf,
    _scratch: TempDir,
}

impl Unreadable {
    fn make() -> Unreadable {
        let scratch = TempDir::new().unwrap();
        let (dumps, dir) = (scratch.path().join("dumps"), scratch.path().join("restored"));
        std::fs::create_dir_all(dumps.join("dumps")).unwrap();
        for n in 0..2000 {
            let name = format!("dumps/20261123T185415069Z-0000000004004000-{n:016x}.hfd");
            std::fs::write(dumps.join(name), "not a dump").unwrap();
        }
        let mark = dir.join("restoring");
        Unreadable { dumps, dir, mark, _scratch: scratch }
    }

    fn restore(&self) -> [&str; 5] {
        ["restore", "--from", self.dumps.to_str().unwrap(), "--data", self.dir.to_str().unwrap()]
    }

    /// A restore that has just marked its directory.
    fn marked(&self) -> Child {
        let mut patience = Patience::new();
        loop {
            patience.look("a restore is seen that has marked its directory");
            let mut child = launch(&self.restore());
            while child.try_wait().unwrap().is_none() {
                if self.mark.exists() {
                    return child;
                }
                std::thread::yield_now();
            }
        }
    }
}

/// Dumps that go away when the mark is there are not found.
#[test]
fn a_restore_marks_its_directory_before_it_looks_for_dumps() {
    let place = Unreadable::make();
    let (there, away) = (place.dumps.join("dumps"), place.dumps.join("away"));
    let mut patience = Patience::new();
    let mut said = String::new();
    // It may have looked before it was frozen.
    while !said.contains("has no dump") {
        patience.look("the dumps are looked for after the mark");
        let child = place.marked();
        kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
        std::fs::rename(&there, &away).unwrap();
        kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
        said = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
        std::fs::rename(&away, &there).unwrap();
    }
    assert!(!place.dir.exists(), "a refused restore leaves nothing of its own");
}

#[test]
fn a_restore_that_is_killed_at_its_first_step_is_not_served() {
    let place = Unreadable::make();
    while !place.mark.exists() {
        let mut killed = place.marked();
        killed.kill().unwrap();
        killed.wait().unwrap();
    }
    let (dir, data) = (&place.dir, place.dir.to_str().unwrap());
    let file = place.dumps.join("f.db").display().to_string();
    std::fs::write(&file, "").unwrap();
    for refused in [
        &["serve", "--data", data, "--listen", "127.0.0.1:0"][..],
        &["import", &file, "--data", data, "--database", "f"],
        &["check", "--data", data],
    ] {
        let said = crate::node::refuses(refused);
        assert!(said.contains("a restore that did not complete") && said.contains("holdfast restore"), "{said}");
        let left: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["restoring"], "{refused:?}");
    }
}

/// Chunks of a dump that is under way are not removed, although no manifest names them yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_under_way_keeps_its_chunks() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    fill(&client, 24).await;
    let first = bed.dump();
    run(&client, "delete from t").await;
    run(&client, "vacuum").await;
    fill(&client, 32).await;
    let mut slow = begun(&bed, &bed.node.at()).await;
    let forget = ["dump", "forget", "--from", bed.place(), "--keep-last", "1", "--json"];
    let forgotten: Value = serde_json::from_str(&succeeds(&forget)).unwrap();
    assert!(forgotten["chunks_left"].as_str().is_some_and(|why| why.contains("a dump is being made")), "{forgotten}");
    assert_eq!(forgotten["removed"], Value::Array(vec![]), "the last one stays");
    let ended = slow.wait().unwrap();
    assert!(ended.success());
    assert!(bed.verify().0);
    // Now the first one goes, with what only it needed.
    let before = chunks(&bed);
    let forgotten: Value = serde_json::from_str(&succeeds(&forget)).unwrap();
    assert_eq!(forgotten["removed"][0], first["name"], "{forgotten}");
    assert!(forgotten["removed_chunks"].as_u64().unwrap() > 0 && chunks(&bed) < before, "{forgotten}");
    assert!(bed.verify().0);
    let (_, mut node) = bed.restore("restored", &[]);
    node.start();
    assert_eq!(sum(&node).await, sum(&bed.node).await);
}

/// Chunks whose pages are in the directory already are not asked for: the store does not even have them any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_restore_fetches_only_what_is_missing() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    fill(&client, 30).await;
    bed.dump();
    fill(&client, 2).await;
    let expected = sum(&bed.node).await;
    bed.until_archived(&client).await;
    // Damage that shows when the trail is applied: all pages are laid by then.
    let files = |dir: &std::path::Path| {
        let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort_unstable();
        files
    };
    // The last object may be on its way still: the server reads it back and compares it.
    let object = files(&files(&bed.archive)[0]).into_iter().nth_back(1).unwrap();
    let good = std::fs::read(&object).unwrap();
    let mut bytes = good.clone();
    bytes[good.len() / 2] ^= 1;
    std::fs::write(&object, bytes).unwrap();
    let error = bed.restore_fails("restored", &[]);
    assert!(error.contains("The directory is not complete"), "{error}");
    std::fs::write(&object, good).unwrap();
    let all = chunks(&bed);
    let (there, away) = (bed.dumps.join("chunks"), bed.path("away"));
    std::fs::rename(&there, &away).unwrap();
    std::fs::create_dir(&there).unwrap();
    let arguments = bed.restore_arguments("restored", &[]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut needed = 0;
    loop {
        let output = holdfast(&arguments);
        if output.status.success() {
            break;
        }
        let said = String::from_utf8(output.stderr).unwrap();
        let name = said.split("chunks/").nth(1).unwrap_or_else(|| panic!("{said}")).split(' ').next().unwrap();
        assert!(said.contains("is missing"), "{said}");
        std::fs::rename(away.join(name), there.join(name)).unwrap();
        needed += 1;
    }
    assert!(needed * 2 <= all, "{needed} of {all} chunks were fetched again");
    let mut node = crate::node::Node::new_in(bed.path("restored"));
    node.start();
    assert_eq!(sum(&node).await, expected);
}

/// Two restores on one directory would mix two moments: the second is refused while the first is at work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_one_restore_is_at_work_on_a_directory() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    fill(&client, 24).await;
    bed.dump();
    bed.until_archived(&client).await;
    let expected = sum(&bed.node).await;
    let arguments = bed.restore_arguments("restored", &[]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut first = launch(&arguments);
    let volumes = bed.path("restored").join("volumes");
    until("it is at work", async || volumes.exists() || first.try_wait().unwrap().is_some()).await;
    let pid = rustix::process::Pid::from_child(&first);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    assert!(first.try_wait().unwrap().is_none(), "it was faster than the test");
    let refused = bed.restore_fails("restored", &[]);
    assert!(refused.contains("another restore is at work in"), "{refused}");
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    assert!(first.wait().unwrap().success());
    let mut node = crate::node::Node::new_in(bed.path("restored"));
    node.start();
    assert_eq!(sum(&node).await, expected);
}
