//! The supervisor and its server are two processes: each may die or stop, and clients see as little of it as possible.

use super::bed::{Bed, until_in_recovery};
use crate::control::trio::{LOCAL, answers_reads};
use crate::node::{Node, asked, asked_with, one, refuses, succeeds, until};
use holdfast_cluster::page::{GrantorPage, ProgressPage};
use holdfast_cluster::process::Identity;
use holdfast_seams::testing::skipped;
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use tokio::task::JoinHandle;

/// Clients that insert until they are stopped; any error ends the test.
struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicI64>,
    clients: Vec<JoinHandle<Result<(), tokio_postgres::Error>>>,
}

impl Load {
    async fn start(node: &Node) -> Load {
        asked(node, "create table if not exists t(id int primary key)").await;
        let (stop, acknowledged) = (Arc::<AtomicBool>::default(), Arc::<AtomicI64>::default());
        let mut clients = Vec::new();
        for number in 0..3_i64 {
            let client = node.connect().await;
            let (stop, acknowledged) = (stop.clone(), acknowledged.clone());
            clients.push(tokio::spawn(async move {
                let mut id = 1_000_000 * number;
                while !stop.load(Ordering::Relaxed) {
                    client.batch_execute(&format!("insert into t values ({id})")).await?;
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                    id += 1;
                }
                Ok(())
            }));
        }
        let load = Load { stop, acknowledged, clients };
        load.until_more(100).await;
        load
    }

    async fn until_more(&self, rows: i64) {
        let target = self.acknowledged.load(Ordering::Relaxed) + rows;
        until("commits continue", async || self.acknowledged.load(Ordering::Relaxed) >= target).await;
    }

    /// Stops; no commit has failed, and all that were acknowledged are there.
    async fn end(self, node: &Node) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.await.unwrap().unwrap();
        }
        let rows = asked(node, "select count(*) from t").await;
        assert_eq!(rows, self.acknowledged.load(Ordering::Relaxed).to_string());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_supervisor_that_is_killed_under_load_is_followed_by_one_that_adopts_the_server() {
    let mut bed = Bed::start().await;
    let server = bed.a.until_running().await;
    let load = Load::start(&bed.node_a).await;
    let epoch = bed.a.status()["record"]["epoch"].clone();
    for _ in 0..2 {
        bed.a.kill();
        load.until_more(10).await;
        bed.a.start();
        bed.a.until_event(&format!("adopted: the running server, pid {}", server.pid)).await;
        bed.a.until_event(&format!("resumed: the lease of epoch {epoch} is renewed again")).await;
        load.until_more(100).await;
    }
    // Those of the standby and of the witness as well.
    for other in [&mut bed.b, &mut bed.w] {
        other.kill();
        other.start();
    }
    load.until_more(100).await;
    bed.until_agreed("a", &["a", "b"]).await;
    let status = bed.a.status();
    assert_eq!(status["server"]["pid"], server.pid);
    assert_eq!((&status["server"]["adopted"], &status["record"]["epoch"]), (&true.into(), &epoch), "{status}");
    assert!(status["lease"]["left_ms"].as_u64().unwrap() > 0, "{status}");
    assert!(bed.a.status_text().contains(&format!("server: running, pid {}, adopted", server.pid)));
    load.end(&bed.node_a).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_is_adopted() {
    let mut bed = Bed::start().await;
    let server = bed.a.until_running().await;
    let load = Load::start(&bed.node_a).await;
    bed.a.signal_server(Signal::STOP);
    until("it is stopped", async || bed.a.status()["server"]["state"] == "stopped").await;
    bed.a.kill();
    bed.a.start();
    bed.a.until_event(&format!("adopted: the running server, pid {}, which is stopped", server.pid)).await;
    bed.a.until_event("resumed: ").await;
    bed.a.signal_server(Signal::CONT);
    load.until_more(100).await;
    assert_eq!(bed.a.until_running().await, server);
    load.end(&bed.node_a).await;
}

/// The page names a pid that belongs to another process by now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_has_the_servers_pid_is_not_adopted() {
    let mut bed = Bed::start().await;
    let server = bed.a.until_running().await;
    // No other server can take over.
    assert!(bed.b.stop().success());
    bed.a.kill();
    bed.a.signal_server(Signal::KILL);
    until("the server is gone", async || bed.a.server().is_none()).await;
    let mut other = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    let its = Identity::of_child(other.id()).unwrap();
    drop(ProgressPage::create(&bed.a.runtime, Identity { start: its.start - 1, ..its }).unwrap());
    bed.a.start();
    let new = bed.a.until_running().await;
    assert!(new.pid != its.pid && new.pid != server.pid);
    let events = bed.a.events();
    assert!(!events.iter().any(|event| event.starts_with("adopted: ")), "{events:?}");
    // The page of the one that died was closed, and its lease given up.
    assert!(events.iter().any(|event| event.starts_with("right_ended: ")), "{events:?}");
    assert!(other.try_wait().unwrap().is_none(), "the other process was left alone");
    other.kill().unwrap();
    other.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_page_ends_the_answers_at_once() {
    let bed = Bed::start().await;
    let (reader, writer) = (bed.node_a.connect_with(LOCAL).await, bed.node_a.connect_with(LOCAL).await);
    assert_eq!(one(&reader, "select 1").await, "1");
    let page = GrantorPage::open(&bed.a.lease_page()).unwrap();
    page.close();
    // Not one answer after the store, to nothing that was asked after it.
    assert!(!answers_reads(&bed.node_a).await);
    let read = reader.simple_query("select 1");
    assert!(!matches!(tokio::time::timeout(std::time::Duration::from_millis(300), read).await, Ok(Ok(_))));
    let write = writer.batch_execute("create table u(x int)");
    assert!(!matches!(tokio::time::timeout(std::time::Duration::from_millis(300), write).await, Ok(Ok(()))));
    page.extend(u64::MAX, u64::MAX);
    assert!(!answers_reads(&bed.node_a).await, "a closed page stays closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_has_no_successor_is_started_again() {
    let mut bed = Bed::start().await;
    let server = bed.a.until_running().await;
    let (page, epoch) = (GrantorPage::open(&bed.a.lease_page()).unwrap(), bed.a.status()["record"]["epoch"].as_u64());
    asked(
        &bed.node_a,
        "create table if not exists t(id int primary key); insert into t values (1) on conflict do nothing",
    )
    .await;
    assert!(bed.b.stop().success());
    bed.a.signal_server(Signal::KILL);
    bed.a.until_event(&format!("server_ended: the server, pid {}, has ended: signal: 9", server.pid)).await;
    assert!(page.is_closed());
    bed.a.until_event("released: the lease of epoch").await;
    until("another server runs", async || {
        let status = bed.a.status();
        status["server"]["state"] == "running" && status["server"]["pid"] != server.pid
    })
    .await;
    assert_eq!(asked(&bed.node_a, "select count(*) from t").await, "1");
    bed.b.start();
    let status = bed.a.status();
    assert!(status["record"]["epoch"].as_u64() > epoch && status["server"]["starts"] == 2, "{status}");
    bed.until_agreed("a", &["a", "b"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_group_works_as_one_without_supervisors_does() {
    let mut bed = Bed::start().await;
    asked(
        &bed.node_a,
        "create table if not exists t(id int primary key); insert into t values (1) on conflict do nothing",
    )
    .await;
    // A clean stop gives the lease up, and the standby takes over.
    assert!(bed.a.stop().success());
    assert!(bed.a.server().is_none());
    bed.until_agreed("b", &["b"]).await;
    until_in_recovery(&bed.node_b, false).await;
    assert_eq!(asked_with(&bed.node_b, LOCAL, "select count(*) from t").await, "1");
    // The old master learns of it, and returns as a standby.
    bed.a.start();
    bed.a.until_event("returned: ").await;
    assert!(bed.a.log().contains("b is the master of epoch"), "{}", bed.a.log());
    bed.until_agreed("b", &["a", "b"]).await;
    // And back, while both run: what a was promoted with is compared through both sockets.
    let promoted = succeeds(&["promote", "--at", &bed.node_a.at()]);
    assert!(promoted.contains("promoted: epoch "), "{promoted}");
    asked_with(&bed.node_a, LOCAL, "insert into t values (2) on conflict do nothing").await;
    until("b learns that it was deposed", async || bed.b.log().contains("b was deposed in epoch")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_one_supervisor_and_no_server_beside_it() {
    let mut bed = Bed::start().await;
    let output = bed.a.another();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("another supervisor of this node runs"), "{said}");
    assert!(bed.a.is_running() && answers_reads(&bed.node_a).await);
    // A server started by hand would be a master of its own.
    assert!(bed.a.stop().success());
    let said = refuses(&["serve", "--data", bed.node_a.data()]);
    assert!(said.contains("node a of cluster shop: its server is started by holdfast cluster run"), "{said}");
    let said = refuses(&["serve", "--data", bed.node_a.data(), "--supervisor", bed.a.runtime.to_str().unwrap()]);
    assert!(said.contains("no supervisor answers at"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_user_of_this_machine_is_refused() {
    if !rustix::process::geteuid().is_root() || !std::path::Path::new("/usr/bin/setpriv").exists() {
        return skipped("needs root and setpriv, to become another user");
    }
    let mut bed = Bed::stopped();
    bed.w.start();
    // The directory's mode would already keep it out.
    let socket = bed.w.runtime.join("socket");
    let open = |path: &std::path::Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    open(&socket, 0o666);
    bed.w.runtime.ancestors().take(4).for_each(|dir| open(dir, 0o755));
    let script = "use IO::Socket::UNIX; $SIG{PIPE} = q(IGNORE); my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die qq(no connection: $!); \
                  print $s qq(HFCS); $s->flush; my $n = sysread($s, my $b, 100); print defined $n ? qq(read $n) : qq(reset);";
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "nobody", "--clear-groups", "perl", "-e", script]).arg(&socket).current_dir("/");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(said == "read 0" || said == "reset", "{said}");
    bed.w.until_event("refused: a connection of user id 65534 was refused").await;
}
