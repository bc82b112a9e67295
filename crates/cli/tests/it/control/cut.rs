//! Three servers whose control planes reach each other through proxies that can be cut: each connection between two members by
//! itself.

use super::trio::{LOCAL, Trio};
use crate::node::{asked, asked_with, assert_same, until};
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Proxies that all pass everything on, or nothing.
#[derive(Clone, Default)]
pub struct Switch {
    cut: Arc<AtomicBool>,
}

impl Switch {
    /// The address of a proxy to that address.
    pub fn proxy_to(&self, target: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (cut, target) = (self.cut.clone(), target.to_owned());
        // Ends with the test's process.
        thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(&target)) else { continue };
                for (from, to) in [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))] {
                    let (from, to, cut) = (from.unwrap(), to.unwrap(), cut.clone());
                    thread::spawn(move || pass(from, to, &cut));
                }
            }
        });
        address
    }

    /// Nothing passes any more, and connections stay open, as behind a firewall that drops packets.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    pub fn heal(&self) {
        self.cut.store(false, Ordering::SeqCst);
    }
}

/// Copies until an end; what arrives after the cut is lost.
fn pass(mut from: TcpStream, mut to: TcpStream, cut: &AtomicBool) {
    let mut bytes = [0; 16 << 10];
    while let Ok(len @ 1..) = io::Read::read(&mut from, &mut bytes) {
        if !cut.load(Ordering::SeqCst) && io::Write::write_all(&mut to, &bytes[..len]).is_err() {
            break;
        }
    }
    // Either may be closed already.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// The witness leads Raft, so `b` hears no leader and cannot become one: `a` hears the witness.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_is_cut_off_from_the_witness_alone_is_promoted() {
    let (mut trio, switch) = Trio::start_with_switch("level = \"hot\"").await;
    asked(&trio.a, "create table if not exists t(id int primary key); insert into t values (1) on conflict do nothing")
        .await;
    trio.until_witness_leads().await;
    switch.cut();
    until("b hears no leader", async || trio.b.status_word("leader") == "null").await;
    let promoted = trio.promote_b();
    assert!(promoted.contains("promoted: epoch "), "{promoted}");
    asked_with(&trio.b, LOCAL, "insert into t values (2) on conflict do nothing").await;
    // It keeps its lease, takes its standby into the sync set, and knows what was agreed, all through a.
    trio.a.kill();
    trio.rejoin_a().await;
    asked(&trio.b, "insert into t values (3) on conflict do nothing").await;
    assert_same(&trio.b, &trio.a).await;
    until("b knows the sync set", async || trio.b.status().contains("\"sync_set\":[\"a\",\"b\"]")).await;
    switch.heal();
    until("b hears the leader", async || trio.b.status_word("leader") != "null").await;
}
