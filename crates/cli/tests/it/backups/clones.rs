//! A server and another one on a copy of its directory, both with the same archive.

use super::Backed;
use crate::dump::bed::fill;
use crate::node::{Node, asked, until};
use std::process::Command;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_servers_of_one_trail_one_is_refused_by_the_archive() {
    let mut bed = Backed::started("dump.every = \"1 h\"\ndump.node = \"none\"");
    fill(&bed.node.connect().await, 1).await;
    assert!(bed.node.stop().success());
    let mut copy = Node::new(&bed.scratch, "copy");
    assert!(Command::new("cp").arg("-a").args([&bed.node.dir, &copy.dir]).status().unwrap().success());
    bed.node.start();
    copy.start();
    let refused = |node: &Node| {
        let log = node.log();
        log.lines().find(|line| line.contains("another server of this trail archives to")).map(str::to_owned)
    };
    let (one, two) = (bed.node.connect().await, copy.connect().await);
    until("one of the two is refused", async || {
        fill(&one, 1).await;
        fill(&two, 1).await;
        refused(&bed.node).or(refused(&copy)).is_some()
    })
    .await;
    let (first, second) = (refused(&bed.node), refused(&copy));
    assert!(first.is_none() || second.is_none(), "only one: {first:?} {second:?}");
    let said = first.clone().or(second).unwrap();
    assert!(said.contains(".hfa is of its epoch") && said.contains("holdfast restore"), "{said}");
    // The other one archives everything, and the trail of the refused one keeps everything.
    let (good, bad) = if first.is_none() { (&bed.node, &copy) } else { (&copy, &bed.node) };
    let count = "select archived_count from holdfast_stat_archive";
    let before: u64 = asked(good, count).await.parse().unwrap();
    let client = good.connect().await;
    until("the other one continues", async || {
        fill(&client, 1).await;
        asked(good, count).await.parse::<u64>().unwrap() > before + 2
    })
    .await;
    assert_eq!(asked(bad, "select state from holdfast_stat_archive").await, "failing");
}
