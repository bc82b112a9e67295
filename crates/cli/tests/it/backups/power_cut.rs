//! The disk that dumps, or a restore, go to loses power: a disk that forgets what was not synced.

use crate::dump::bed::{Bed, fill, launch, sum};
use crate::node::{holdfast, succeeds, until};
use holdfast_seams::testing::skipped;
use holdfast_unsafe_disk::{Options, UnsafeDisk, cannot_mount};
use serde_json::Value;

fn json(arguments: &[&str]) -> Value {
    let output = holdfast(arguments);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {output:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_that_is_listed_after_a_power_cut_is_whole() {
    if let Some(why) = cannot_mount() {
        return skipped(&why);
    }
    let bed = Bed::start();
    let client = bed.node.connect().await;
    fill(&client, 24).await;
    let (mount, backing) = (bed.path("disk"), bed.path("backing"));
    [&mount, &backing].into_iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
    let disk = UnsafeDisk::mount(&mount, Options::new(backing)).unwrap();
    let dumps = mount.join("dumps");
    std::fs::create_dir(&dumps).unwrap();
    disk.disk().sync_all().unwrap();
    let (at, place) = (bed.node.at(), dumps.display().to_string());
    let (mut killed, mut whole) = (0, 0);
    for round in 0..5usize {
        fill(&client, 1).await;
        let mut dump = launch(&["dump", "create", "--at", &at, "--to", &place, "--rate-mb", "40"]);
        let files = |folder: &str| std::fs::read_dir(dumps.join(folder)).map_or(0, Iterator::count);
        let before = files("chunks");
        until("it has stored something, or is done", async || {
            files("chunks") > before + round || dump.try_wait().unwrap().is_some()
        })
        .await;
        disk.disk().command_text("cut").unwrap();
        let succeeded = dump.wait().unwrap().success();
        disk.disk().restore().unwrap();
        let listed = json(&["dump", "list", "--from", &place, "--json"]);
        let listed = listed.as_array().unwrap();
        whole += usize::from(succeeded);
        killed += usize::from(!succeeded);
        // A manifest may be there although the command did not live to report it.
        assert!(listed.len() >= whole && listed.len() <= round + 1, "{listed:?}");
        for dump in listed {
            assert!(dump["problem"].is_null(), "{dump}");
            let report =
                json(&["dump", "verify", "--from", &place, "--dump", dump["name"].as_str().unwrap(), "--json"]);
            assert_eq!(report["problems"], Value::Array(vec![]), "{report}");
        }
    }
    assert!(killed > 0, "{whole} were whole");
    succeeds(&["dump", "create", "--at", &at, "--to", &place]);
    succeeds(&["dump", "verify", "--from", &place]);
    let dir = bed.path("restored").display().to_string();
    bed.until_archived(&client).await;
    succeeds(&["restore", "--from", &place, "--data", &dir]);
    let mut node = crate::node::Node::new_in(dir.into());
    node.start();
    assert_eq!(sum(&node).await, sum(&bed.node).await);
}

/// The restored directory's disk loses power: what is left is refused, and continued, or whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_whose_disk_loses_power_is_refused_or_whole() {
    if let Some(why) = cannot_mount() {
        return skipped(&why);
    }
    let bed = Bed::start();
    let client = bed.node.connect().await;
    fill(&client, 8).await;
    bed.dump();
    fill(&client, 4).await;
    let expected = sum(&bed.node).await;
    bed.until_archived(&client).await;
    let (mount, backing) = (bed.path("disk"), bed.path("backing"));
    [&mount, &backing].into_iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
    let disk = UnsafeDisk::mount(&mount, Options::new(backing)).unwrap();
    let (dir, data) = (mount.join("data"), mount.join("data").display().to_string());
    let restore = ["restore", "--from", bed.place(), "--data", &data];
    let (mark, list) = (dir.join("restoring"), dir.join("databases.toml"));
    let mut cut = 0;
    // In front of the first page, between pages, while the trail is applied, at the end.
    for round in 0..8u64 {
        let mut begun = launch(&restore);
        until("it has come that far, or is done", async || {
            let is_far = match round {
                0 => mark.exists(),
                1..4 => dir.join("volumes").exists(),
                _ => list.exists(),
            };
            is_far || begun.try_wait().unwrap().is_some()
        })
        .await;
        tokio::time::sleep(std::time::Duration::from_millis(round % 4 * 40)).await;
        disk.disk().command_text("cut").unwrap();
        // Its end may be behind the cut: then everything was synced before.
        let succeeded = begun.wait().unwrap().success();
        disk.disk().restore().unwrap();
        let is_whole = list.exists() && !mark.exists();
        assert!(is_whole || !succeeded, "it has reported a restore that is lost");
        if is_whole {
            break;
        }
        cut += 1;
        if mark.exists() {
            let said = holdfast(&["serve", "--data", &data, "--listen", "127.0.0.1:0"]);
            let said = String::from_utf8_lossy(&said.stderr).into_owned();
            assert!(said.contains("a restore that did not complete"), "round {round}: {said}");
        } else {
            let left = std::fs::read_dir(&dir).map_or(0, Iterator::count);
            assert_eq!(left, 0, "round {round}: without its mark nothing of it is there");
        }
    }
    assert!(cut > 0);
    if !list.exists() || mark.exists() {
        succeeds(&restore);
    }
    let mut node = crate::node::Node::new_in(dir);
    node.start();
    assert_eq!(sum(&node).await, expected);
    drop(node);
}
