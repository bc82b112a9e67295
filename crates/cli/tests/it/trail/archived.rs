//! The trail that the data directory no longer has, and an archive alone.

use super::{found, newest, table};
use crate::dump::bed::Bed;
use crate::node::{holdfast, run, succeeds};
use holdfast_types::lsn::lsn_text;
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_postgres::Client;

/// Twenty rows, and an update of all of them that is in the archive.
async fn archived_update(bed: &Bed) -> Client {
    let client = bed.node.connect().await;
    run(&client, "create table orders(id int primary key, v text)").await;
    run(&client, "insert into orders select g, 'good' from generate_series(1, 20) g").await;
    run(&client, "update orders set v = 'bad'").await;
    bed.until_archived(&client).await;
    client
}

#[tokio::test]
async fn the_archive_is_read_where_the_trail_does_not_reach_back() {
    let bed = Bed::start();
    let client = archived_update(&bed).await;
    // The directory's trail keeps a few segments: until it has recycled those with the update.
    let data = bed.node.data().to_owned();
    let with = ["--table", "orders", "--where", "id = 7"];
    crate::node::until_settled("the update is in the archive only", async || {
        bed.until_archived(&client).await;
        let objects = found(&data, &with)["read"]["objects"].as_u64().unwrap();
        (objects == 0).then(|| format!("{:?}", holdfast(&["archive", "status", "--data", &data, "--json"]).stdout))
    })
    .await;
    let by_both = found(&data, &with);
    assert_eq!(by_both["changes"].as_array().unwrap().len(), 3, "{by_both}");
    let (id, lsn) = newest(&by_both);
    let archive = bed.archive.to_str().unwrap();
    let alone = ["trail", "find", "--archive", archive, "--at", &bed.node.at(), "--json"];
    let output = holdfast(&[&alone[..], &with].concat());
    // Over TCP the role needs a password; the socket of the directory needs none.
    let alone: Value = match output.status.success() {
        true => serde_json::from_slice(&output.stdout).unwrap(),
        false => panic!("{output:?}"),
    };
    assert_eq!(alone["changes"], by_both["changes"]);
    assert_eq!(alone["read"]["has_newest"], false);
    let at = bed.node.at();
    // As pg_current_wal_lsn() shows it; other tests give the number.
    let lsn = lsn_text(lsn.parse().unwrap());
    let undo = ["trail", "undo", "--archive", archive, "--at", &at, "--transaction", &id, "--lsn", &lsn, "--apply"];
    succeeds(&undo);
    assert_eq!(table(&client, "select v, count(*) from orders group by v").await, ["good|20"]);
    // What is not archived is not seen, but the values are.
    run(&client, "update orders set v = 'new' where id = 3").await;
    let refused = crate::node::refuses(&undo);
    assert!(refused.contains("nothing was changed") && refused.contains("orders id=3"), "{refused}");
    // Nor is a schema change, but the number of the schema is.
    run(&client, "alter table orders rename column v to w; alter table orders add column v text").await;
    let refused = crate::node::refuses(&undo);
    assert!(
        refused.contains("the schema of database holdfast was changed by a transaction that is not archived yet"),
        "{refused}"
    );
}

/// What the server recycles while `trail find` reads the directory, `trail find` reads in the archive.
#[tokio::test(flavor = "multi_thread")]
async fn it_is_read_while_the_server_recycles_segments() {
    let bed = Bed::start();
    let client = archived_update(&bed).await;
    let data = bed.node.data().to_owned();
    let trail = bed.node.dir.join("trail");
    let before = oldest_segment(&trail);
    let recycled = Arc::new(AtomicBool::new(false));
    let until = recycled.clone();
    let reading = std::thread::spawn(move || {
        for read in 0.. {
            let found = found(&data, &["--table", "orders", "--where", "id = 7"]);
            assert_eq!(found["changes"].as_array().unwrap().len(), 3, "{found}");
            if read >= 20 && until.load(Ordering::Relaxed) {
                break;
            }
        }
    });
    // A slow machine makes twenty reads before its first checkpoint: until segments were recycled under a reader.
    crate::node::until_settled("a segment is recycled", async || {
        bed.until_archived(&client).await;
        (oldest_segment(&trail) == before && !reading.is_finished()).then(|| format!("{before:?}"))
    })
    .await;
    recycled.store(true, Ordering::Relaxed);
    while !reading.is_finished() {
        bed.until_archived(&client).await;
    }
    reading.join().unwrap();
    assert_ne!(oldest_segment(&trail), before, "nothing was recycled meanwhile");
}

fn oldest_segment(trail: &Path) -> Option<OsString> {
    let names = std::fs::read_dir(trail).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().is_some_and(|name| name.starts_with('0'))).min()
}
