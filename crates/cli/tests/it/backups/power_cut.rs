//! The disk that dumps go to loses power: a disk that forgets what was not synced.

use crate::dump::bed::{Bed, fill, launch, sum};
use crate::node::{holdfast, succeeds, until};
use holdfast_unsafe_disk::{Options, UnsafeDisk, cannot_mount};
use serde_json::Value;

fn json(arguments: &[&str]) -> Value {
    let output = holdfast(arguments);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {output:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_that_is_listed_after_a_power_cut_is_whole() {
    if let Some(why) = cannot_mount() {
        assert!(std::env::var_os("CI").is_none(), "cannot run: {why}");
        return eprintln!("SKIPPED: {why}");
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
