//! Three servers, and commits that wait for any one of two standbys: whoever lacks something of what was acknowledged is
//! not promoted, and who it is, is known only when the master is gone.

use super::trio::LOCAL;
use crate::node::{
    Node, asked, asked_with, assert_same, insert_until_it_is_gone, refuses, succeeds, until, until_followed,
    until_settled,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use tempfile::TempDir;

pub struct Three {
    pub a: Node,
    pub b: Node,
    pub c: Node,
    _scratch: TempDir,
}

impl Three {
    /// All run, `b` and `c` follow the master `a`, whose commits wait for any one of them.
    pub async fn start() -> Three {
        let scratch = TempDir::new().unwrap();
        let [mut a, b, c] = ["a", "b", "c"].map(|name| Node::new(&scratch, name));
        a.configure("node_name = \"a\"");
        a.start();
        for node in [&b, &c] {
            succeeds(&["standby", "create", "--from", &a.at(), "--data", node.data(), "--name", node.name]);
        }
        assert!(a.stop().success());
        let [x, y, z] = [(); 3].map(|()| holdfast_seams::testing::port());
        let members = format!("a=127.0.0.1:{x}, b=127.0.0.1:{y}, c=127.0.0.1:{z}");
        for (node, others) in [(&a, "b, c"), (&b, "a, c"), (&c, "a, b")] {
            let names = format!("synchronous_standby_names = \"ANY 1 ({others})\"");
            node.configure(&format!("control_members = \"{members}\"\nlevel = \"hot\"\n{names}"));
        }
        let mut three = Three { a, b, c, _scratch: scratch };
        three.b.start();
        three.c.start();
        three.a.start();
        until_followed(&three.a, &three.b).await;
        until_followed(&three.a, &three.c).await;
        until_quorum(&three.a).await;
        three
    }

    /// Kills a standby, lets clients commit without it, and kills the master among them. How many rows each was told of.
    async fn lose_the_master_while_one_is_away(&mut self, away: &str) -> Vec<i64> {
        asked(&self.a, "create table if not exists t(id int primary key)").await;
        let mut writers = Vec::new();
        for number in 0..4_i64 {
            writers.push(tokio::spawn(insert_until_it_is_gone(self.a.port, 100_000 * number)));
        }
        until("there is load", async || asked(&self.a, "select count(*) > 100 from t").await == "t").await;
        if away == "b" {
            self.b.kill()
        } else {
            self.c.kill()
        }
        let so_far: i64 = asked(&self.a, "select count(*) from t").await.parse().unwrap();
        let goes_on = format!("select count(*) > {so_far} + 200 from t");
        until("commits go on", async || asked(&self.a, &goes_on).await == "t").await;
        assert_eq!(self.a.status_word("quorum"), "1", "nothing had to be agreed on");
        self.a.kill();
        let mut acknowledged = Vec::new();
        for writer in writers {
            acknowledged.push(writer.await.unwrap());
        }
        acknowledged
    }
}

pub async fn until_quorum(master: &Node) {
    until("the quorum is named", async || {
        let status = master.status();
        status.contains("\"sync_set\":[\"a\",\"b\",\"c\"]") && status.contains("\"quorum\":1")
    })
    .await;
}

async fn assert_nothing_is_missing(master: &Node, acknowledged: &[i64]) {
    for (number, acknowledged) in (0_i64..).zip(acknowledged) {
        let first = 100_000 * number;
        let there = format!("select count(*) from t where id >= {first} and id < {first} + {acknowledged}");
        assert_eq!(asked_with(master, LOCAL, &there).await, acknowledged.to_string(), "writer {number}");
    }
}

/// Lets a standby of the old master follow the new one.
pub async fn follow(standby: &mut Node, master: &Node) {
    assert!(standby.stop().success());
    succeeds(&["standby", "configure", "--data", standby.data(), "--from", &master.at()]);
    standby.start();
    until_followed(master, standby).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_one_that_is_behind_is_refused_and_the_one_ahead_has_everything() {
    let mut three = Three::start().await;
    let acknowledged = three.lose_the_master_while_one_is_away("c").await;
    // One of three is no majority, nor can it know whether c has more.
    let said = refuses(&["promote", "--at", &three.b.at()]);
    assert!(said.contains("no majority of the members answered"), "{said}");
    three.c.start();
    let said = refuses(&["promote", "--at", &three.c.at()]);
    assert!(said.contains("b has more of the trail; promote b") && said.contains("--accept-divergence"), "{said}");
    assert!(succeeds(&["promote", "--at", &three.b.at()]).contains("promoted: epoch "));
    assert_nothing_is_missing(&three.b, &acknowledged).await;
    // Any one of the others is enough again, and then both are there.
    follow(&mut three.c, &three.b).await;
    asked(&three.b, "insert into t values (-1) on conflict do nothing").await;
    assert_same(&three.b, &three.c).await;
    until_quorum(&three.b).await;
    let (from, data) = (three.b.at(), three.a.data().to_owned());
    succeeds(&["rejoin", "--from", &from, "--data", &data, "--name", "a"]);
    three.a.start();
    until_followed(&three.b, &three.a).await;
    assert_same(&three.b, &three.a).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_one_that_is_ahead_is_promoted_though_the_other_was_there_first() {
    let mut three = Three::start().await;
    let acknowledged = three.lose_the_master_while_one_is_away("b").await;
    three.b.start();
    // Otherwise it would follow the new master.
    succeeds(&["standby", "stop", "--at", &three.b.at()]);
    assert!(succeeds(&["promote", "--at", &three.c.at()]).contains("promoted: epoch "));
    assert_nothing_is_missing(&three.c, &acknowledged).await;
    let said = refuses(&["promote", "--at", &three.b.at()]);
    assert!(said.contains("b may lack acknowledged commits"), "{said}");
    succeeds(&["standby", "start", "--at", &three.b.at()]);
    until_followed(&three.c, &three.b).await;
    assert_same(&three.c, &three.b).await;
}

/// The old master is alive and says what it has; it is not waited for that it stops.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_of_a_running_master_takes_over_with_everything() {
    let mut three = Three::start().await;
    let two_rows =
        "create table if not exists t(id int primary key); insert into t values (1), (2) on conflict do nothing";
    asked(&three.a, two_rows).await;
    three.c.kill();
    // c cannot be asked, and need not be: the old master has everything.
    succeeds(&["promote", "--at", &three.b.at()]);
    assert_eq!(asked_with(&three.b, LOCAL, "select count(*) from t").await, "2");
}

/// A master that is deposed while clients write writes nothing more: neither it nor the third one parts from the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switchover_under_load_parts_nobody() {
    let mut three = Three::start().await;
    asked(&three.a, "create table if not exists t(id int primary key)").await;
    let (port, ended) = (three.a.port, Arc::new(AtomicBool::new(false)));
    let written = Arc::new(AtomicI64::new(0));
    let mut writers = Vec::new();
    for _ in 0..6 {
        let (ended, written) = (Arc::clone(&ended), Arc::clone(&written));
        writers.push(tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            // Like any pool of connections: whoever was sent away comes again.
            while !ended.load(Ordering::SeqCst) {
                let config = format!("host=127.0.0.1 port={port} user=holdfast dbname=holdfast");
                let Ok((client, connection)) = tokio_postgres::connect(&config, tokio_postgres::NoTls).await else {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                };
                tokio::spawn(connection);
                loop {
                    let id = written.fetch_add(1, Ordering::SeqCst);
                    if client.batch_execute(&format!("insert into t values ({id})")).await.is_err() {
                        break;
                    }
                    acknowledged.push(id);
                }
            }
            acknowledged
        }));
    }
    until("there is load", async || written.load(Ordering::SeqCst) > 500).await;
    succeeds(&["promote", "--at", &three.b.at()]);
    until_settled("the old master knows that it was deposed", async || {
        let status = succeeds(&["standby", "status", "--at", &three.a.at()]);
        let knows = status.contains("NOTHING is acknowledged") && !status.contains("NO LEASE");
        (!knows).then_some(status)
    })
    .await;
    // A volume is checkpointed when nothing has changed it for some seconds, and the record of that in the trail of the old
    // master would part the third one, too. The new master's volume is changed later than that one, so its turn is later.
    asked_with(&three.b, LOCAL, "insert into t values (-2) on conflict do nothing").await;
    let checkpoints = async || asked_with(&three.b, LOCAL, "select checkpoints_timed from pg_stat_bgwriter").await;
    let before = checkpoints().await;
    until("the new master has checkpointed", async || checkpoints().await != before).await;
    ended.store(true, Ordering::SeqCst);
    three.a.kill();
    for writer in writers {
        let ids = writer.await.unwrap();
        let list: Vec<String> = ids.iter().map(i64::to_string).collect();
        let found = format!("select count(*) from t where id in (-1, {})", list.join(", "));
        assert_eq!(asked_with(&three.b, LOCAL, &found).await, ids.len().to_string());
    }
    follow(&mut three.c, &three.b).await;
    let (from, data) = (three.b.at(), three.a.data().to_owned());
    let said = succeeds(&["rejoin", "--from", &from, "--data", &data, "--name", "a"]);
    assert!(said.contains("has everything that this server had"), "{said}");
    assert_same(&three.b, &three.c).await;
}

/// What would be weaker to follow is refused with the way out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_setting_under_which_nobody_could_say_who_has_what_is_refused() {
    let mut three = Three::start().await;
    assert!(three.c.stop().success());
    let file = three.c.dir.join("holdfast.toml");
    let settings = std::fs::read_to_string(&file).unwrap();
    for bad in ["FIRST 1 (a, b)", "a, b", "*", "ANY 1 (*)", "ANY 1 (a, x)", "ANY 1 (a, a)"] {
        std::fs::write(&file, settings.replace("ANY 1 (a, b)", bad)).unwrap();
        let said = three.c.refuses_to_start();
        assert!(said.contains("ANY n with n or more of") && said.contains("a, b"), "{bad}: {said}");
    }
    std::fs::write(&file, settings.replace("ANY 1 (a, b)", "ANY 2 (b, a)")).unwrap();
    three.c.start();
}
