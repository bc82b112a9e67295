//! Disks that accept a sync and do not return from it, while the processes on them run: the servers' and the supervisors'.

use super::bed::{Bed, until_b_serves, until_in_recovery};
use crate::control::trio::LOCAL;
use crate::node::{asked, insert_until_it_is_gone, one, until};
use holdfast_seams::testing::skipped;
use holdfast_unsafe_disk::{Options, UnsafeDisk, cannot_mount};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// Each sync takes 20 s, which is much longer than a lease here.
const HANG: &str = "slow sync * us=20000000";
/// The same of the trail alone: the control plane has its majority.
const TRAIL_HANGS: &str = "slow sync */trail/* us=20000000";
/// Much less than `standby_timeout_ms` here.
const PATIENCE: Duration = Duration::from_secs(240);

/// The disk of one node.
struct Place {
    disk: UnsafeDisk,
    mount: PathBuf,
}

impl Place {
    fn new(scratch: &TempDir, name: &str) -> Place {
        let (mount, backing) = (scratch.path().join(name), scratch.path().join(format!("{name}-backing")));
        std::fs::create_dir(&mount).unwrap();
        std::fs::create_dir(&backing).unwrap();
        Place { disk: UnsafeDisk::mount(&mount, Options::new(backing)).unwrap(), mount }
    }

    fn tell(&self, command: &str) {
        self.disk.disk().command_text(command).unwrap();
    }
}

/// All three run, and each of a and b has a disk of its own. Field order: the servers end before their disks go.
struct Disks {
    bed: Bed,
    a: Place,
    b: Place,
    _scratch: TempDir,
}

impl Disks {
    /// `None`: no disk can be mounted here, which was said.
    async fn start() -> Option<Disks> {
        Disks::start_with("").await
    }

    /// `lines`: more of the section `[database]`.
    async fn start_with(lines: &str) -> Option<Disks> {
        if let Some(why) = cannot_mount() {
            skipped(&why);
            return None;
        }
        let scratch = TempDir::new().unwrap();
        let (a, b) = (Place::new(&scratch, "a"), Place::new(&scratch, "b"));
        let mut bed = Bed::stopped_on(&a.mount, &b.mount);
        bed.node_a.configure("standby_timeout_ms = 600000");
        bed.add_to_database(lines);
        bed.start_all().await;
        asked(&bed.node_a, "create table t(id int primary key)").await;
        Some(Disks { bed, a, b, _scratch: scratch })
    }
}

/// The standby has everything that was acknowledged, and its disk moves. The old master is its standby when its disk moves again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_standby_of_a_master_whose_disk_hangs_takes_over() {
    let Some(Disks { bed, a, .. }) = &Disks::start().await else { return };
    let writer = tokio::spawn(insert_until_it_is_gone(bed.node_a.port, 0));
    until("there is load", async || asked(&bed.node_a, "select count(*) > 100 from t").await == "t").await;
    a.tell(HANG);
    until_b_serves(bed).await;
    bed.a.until_event("waits for its disk: a sync of its trail has lasted").await;
    let client = bed.node_b.connect_with(LOCAL).await;
    let acknowledged = writer.await.unwrap();
    let there = format!("select count(*) from t where id >= 0 and id < {acknowledged}");
    assert_eq!(one(&client, &there).await, acknowledged.to_string());
    asked(&bed.node_b, "insert into t values (-1)").await;
    a.tell("clear");
    until_in_recovery(&bed.node_a, true).await;
    bed.until_agreed("b", &["a", "b"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_do_not_wait_for_a_standby_whose_disk_hangs() {
    let Some(Disks { bed, b, .. }) = &Disks::start().await else { return };
    b.tell(HANG);
    let insert = asked(&bed.node_a, "insert into t values (1)");
    tokio::time::timeout(PATIENCE, insert).await.expect("it waits for a disk that hangs");
    bed.a.until_event("node_lost: b counts as lost: a sync of its trail does not return").await;
    b.tell("clear");
    bed.until_agreed("a", &["a", "b"]).await;
    assert_eq!(asked(&bed.node_a, "select count(*) from t").await, "1");
}

/// Rule C8: a node whose disk hangs is no better. Between two syncs that hang it counts as one whose disk does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_whose_disk_hangs_keeps_its_right_while_that_of_its_standby_hangs_as_well() {
    // Commits wait, so that b stays in the sync set.
    let Some(Disks { bed, a, b, .. }) = &Disks::start_with("alone = \"wait\"\n").await else { return };
    b.tell(TRAIL_HANGS);
    let insert = |id: i64| tokio::spawn(insert_until_it_is_gone(bed.node_a.port, id));
    let first = insert(0);
    bed.a.until_event("node_lost: b counts as lost: a sync of its trail does not return").await;
    a.tell(TRAIL_HANGS);
    let second = insert(1_000);
    bed.a.until_event("hung: a keeps the database, because no other node can take its place").await;
    a.tell("clear");
    b.tell("clear");
    asked(&bed.node_a, "insert into t values (-1)").await;
    bed.until_agreed("a", &["a", "b"]).await;
    assert_eq!(bed.w.status()["record"]["epoch"], 2, "no other master since: {}", bed.w.status()["record"]);
    first.abort();
    second.abort();
}
