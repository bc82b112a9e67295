//! A standby that is made of a dump and the archive: what its master has to send.

use crate::dump::bed::{Bed, fill, launch};
use crate::node::{Node, assert_same, run, succeeds, until, until_followed};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Hands connections on to a server, and counts what it sends back.
struct Counting {
    port: u16,
    connections: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
}

impl Counting {
    fn to(server: u16) -> Counting {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (connections, bytes) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let counts = (connections.clone(), bytes.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                counts.0.fetch_add(1, Ordering::Relaxed);
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let counted = counts.1.clone();
                std::thread::spawn(move || pass(client, server, &AtomicU64::new(0)));
                std::thread::spawn(move || pass(back.0, back.1, &counted));
            }
        });
        Counting { port, connections, bytes }
    }

    fn at(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, counted: &AtomicU64) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        counted.fetch_add(n as u64, Ordering::Relaxed);
        if to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    // The other end may be gone.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_sends_only_what_the_archive_lacks() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    fill(&client, 24).await;
    run(&client, "create database other").await;
    let dump = bed.dump();
    fill(&client, 4).await;
    run(&client, "use other; create table o(k int primary key); insert into o select g from generate_series(1, 500) g; use holdfast").await;
    bed.until_archived(&client).await;
    let proxy = Counting::to(bed.node.port);
    let mut b = Node::new(&bed.scratch, "b");
    let (from, data) = (proxy.at(), b.data().to_owned());
    let create = ["standby", "create", "--from", &from, "--data", &data, "--name", "b", "--from-dump", bed.place()];
    // Killed on the way it is nothing, and begins again.
    let mark = b.dir.join("restoring");
    let mut killed = 0;
    for round in 0..6u64 {
        let mut begun = launch(&create);
        until("it has begun, or is done", async || mark.exists() || begun.try_wait().unwrap().is_some()).await;
        tokio::time::sleep(Duration::from_millis(round * 80)).await;
        begun.kill().unwrap();
        begun.wait().unwrap();
        if !mark.exists() {
            break;
        }
        killed += 1;
        let refused = b.refuses_to_start();
        assert!(refused.contains("restore that did not complete"), "{refused}");
    }
    assert!(killed > 0);
    if mark.exists() || !b.dir.join("databases.toml").exists() {
        let made = succeeds(&create);
        assert!(made.contains("nothing came from"), "{made}");
    }
    assert_eq!(proxy.connections.load(Ordering::Relaxed), 0, "the master is not even reached");
    b.start();
    until_followed(&bed.node, &b).await;
    assert_same(&bed.node, &b).await;
    let (sent, databases) = (proxy.bytes.load(Ordering::Relaxed), dump["bytes"].as_u64().unwrap());
    eprintln!("the master sent {sent} bytes to a standby of {databases} bytes of databases");
    assert!(sent < databases / 4, "{sent} of {databases}");
    run(&client, "insert into t(v) values ('later')").await;
    assert_same(&bed.node, &b).await;
    // It is a standby as any other: it can be promoted.
    let mut master = bed.node;
    assert!(master.stop().success());
    succeeds(&["promote", "--at", &b.at(), "--accept-divergence"]);
    run(&b.connect().await, "insert into t(v) values ('mine')").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_of_another_server_makes_no_standby_that_follows() {
    let bed = Bed::start();
    fill(&bed.node.connect().await, 1).await;
    bed.dump();
    let mut other = Node::new(&bed.scratch, "other");
    other.start();
    let mut b = Node::new(&bed.scratch, "b");
    let (from, data) = (other.at(), b.data().to_owned());
    let create = ["standby", "create", "--from", &from, "--data", &data, "--name", "b", "--from-dump", bed.place()];
    succeeds(&create);
    b.start();
    until("it is refused", async || b.status().contains("trail")).await;
    let refused = crate::node::refuses(&create);
    assert!(refused.contains("is a data directory already"), "{refused}");
}
