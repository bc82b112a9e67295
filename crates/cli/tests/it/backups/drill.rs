//! Drills: what they prove, and what they say when a dump cannot be restored.

use super::{Backed, stat, stat_number};
use crate::dump::bed::fill;
use crate::node::{holdfast, run, succeeds, until};
use serde_json::Value;
use std::path::PathBuf;

fn files(dir: PathBuf) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort_unstable();
    files
}

fn drill(bed: &Backed, more: &[&str]) -> (bool, Value) {
    let scratch = bed.scratch.path().join("scratch").display().to_string();
    let begin = ["dump", "drill", "--from", bed.place(), "--scratch", &scratch, "--json"];
    let output = holdfast(&[&begin[..], more].concat());
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    assert_eq!(files(scratch.into()).len(), 0, "scratch is emptied");
    (output.status.success(), report)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drill_restores_and_compares_every_row_with_the_live_server() {
    let bed = Backed::started("dump.every = \"1 h\"\ndump.node = \"none\"");
    let client = bed.node.connect().await;
    fill(&client, 3).await;
    run(&client, "create table kinds(a int primary key, b numeric, c text, d bytea, e timestamptz, f boolean, g json)")
        .await;
    run(&client, "insert into kinds values (1, 1.50, 'x', '\\x00ff', now(), true, '{\"a\": 1}'), (2, null, null, null, null, null, null)").await;
    run(&client, "create index on kinds(c); create view w as select a from kinds").await;
    succeeds(&["dump", "create", "--at", &bed.node.at(), "--to", bed.place()]);
    fill(&client, 2).await;
    run(&client, "create database other").await;
    run(&client, "use other; create table o(k serial primary key, v text); insert into o(v) select md5(g::text) from generate_series(1, 999) g").await;
    run(&client, "use holdfast; update kinds set c = 'y' where a = 2; delete from t where id % 3 = 0; alter table kinds add h int").await;
    run(&client, "vacuum").await;
    run(&client, "analyze").await;
    let (ok, report) = drill(&bed, &["--at", &bed.node.at()]);
    assert!(ok, "{report}");
    assert_eq!(report["compared_with"], "a");
    assert!(
        report["compared_rows"].as_u64().unwrap() > 4000 && report["trail_bytes"].as_u64().unwrap() > 1 << 20,
        "{report}"
    );
    assert!(report["lsn"].as_u64().unwrap() > report["dump_lsn"].as_u64().unwrap());
    // Without a live server: up to the archive's end, and checked.
    let (ok, report) = drill(&bed, &[]);
    assert!(ok && report["compared_with"].is_null(), "{report}");
    // A directory with something in it is not touched.
    let mine = bed.scratch.path().join("mine");
    std::fs::create_dir(&mine).unwrap();
    std::fs::write(mine.join("file"), "mine").unwrap();
    let output = holdfast(&["dump", "drill", "--from", bed.place(), "--scratch", mine.to_str().unwrap()]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("is not empty"));
    assert!(mine.join("file").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drill_that_fails_on_a_damaged_object_names_it_to_the_operator() {
    let bed = Backed::started("dump.every = \"1 h\"\ndrill.every = \"1 s\"");
    let client = bed.node.connect().await;
    until("there is a dump and a drill", async || stat(&client, "last_drill_ok").await == "t").await;
    let heard = |word: &str| bed.told().into_iter().find(|line| line.contains(word));
    until("the operator knows", async || heard("succeeded").is_some()).await;
    let report = heard("succeeded").unwrap();
    assert!(report.contains("a: the drill of the dumps in") && report.contains("are equal to those of a"), "{report}");
    eprintln!("notify_command got: {report}");
    assert!(stat(&client, "last_restore_seconds").await.parse::<f64>().unwrap() > 0.0);
    let chunk = files(bed.dumps.join("chunks")).remove(0);
    let good = std::fs::read(&chunk).unwrap();
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    std::fs::write(&chunk, bad).unwrap();
    until("the drill fails", async || stat(&client, "last_drill_ok").await == "f").await;
    let name = chunk.file_name().unwrap().to_string_lossy().into_owned();
    let last = stat(&client, "last_drill").await;
    assert!(last.contains("FAILED") && last.contains(&name) && last.contains("damaged"), "{last}");
    assert!(stat_number(&client, "drill_failed_count").await > 0);
    until("the operator knows", async || heard("FAILED").is_some()).await;
    let heard = heard("FAILED").unwrap();
    eprintln!("notify_command got: {heard}");
    assert!(heard.contains(&name), "{heard}");
    let (ok, report) = drill(&bed, &[]);
    assert!(!ok && report["problems"][0].as_str().unwrap().contains(&name), "{report}");
    std::fs::write(&chunk, good).unwrap();
    until("the next one succeeds", async || stat(&client, "last_drill_ok").await == "t").await;
    // An object of the archive that is gone is named as well.
    run(&client, "create table t(k int)").await;
    let lsn = stat_number(&client, "last_drill_lsn").await;
    until("a drill has passed it", async || stat_number(&client, "last_drill_lsn").await > lsn).await;
    for object in files(files(bed.archive.clone()).remove(0)) {
        std::fs::remove_file(object).unwrap();
    }
    run(&client, "insert into t values (1)").await;
    let (ok, report) = drill(&bed, &["--at", &bed.node.at(), "--wait-s", "3"]);
    assert!(!ok && report["problems"].to_string().contains("archive"), "{report}");
}
