//! A master in a process of its own is stopped by SIGSTOP, another one is promoted, and the first goes on: it must not
//! acknowledge anything any more.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, mpsc::RecvTimeoutError};
use std::time::Duration;

use holdfast_control::{
    BootClock, Config, ControlHandle, ControlNode, ControlPlane, LeaseClock, LeaseTerms, Machinery, NodeId, Promotion,
    Role, TcpTransport,
};
use holdfast_seams::RealDisk;
use holdfast_types::Epoch;
use rustix::process::{Pid, Signal, kill_process};

/// Names the directory to the process that is to be the master; without it this is the test itself.
const CHILD_DIR: &str = "HOLDFAST_TEST_CHILD_DIR";
const CHILD_ADDRESSES: &str = "HOLDFAST_TEST_CHILD_ADDRESSES";
const PATIENCE: Duration = Duration::from_secs(120);

fn start(me: NodeId, dir: &Path, addresses: &BTreeMap<NodeId, String>) -> ControlHandle {
    let role = |name: &NodeId| if name.as_str() == "w" { Role::Witness } else { Role::Data };
    let config = Config {
        node: me,
        dir: dir.join(me.as_str()),
        members: addresses.keys().map(|name| (*name, role(name))).collect(),
        lease: LeaseTerms { lease_ms: 2_000, drift_percent: 10 },
    };
    let transport = TcpTransport::bind(&addresses[&me], addresses.clone(), None).unwrap();
    ControlNode::start(config, Machinery::real(Arc::new(RealDisk::new()), Arc::new(transport))).unwrap()
}

async fn promote(control: &ControlHandle, node: NodeId) -> Epoch {
    loop {
        if let Ok(record) = control.look().await {
            let (expected_epoch, epoch_at_least) = (record.epoch, Epoch(0));
            let promotion = Promotion { node, expected_epoch, epoch_at_least, accept_loss: true };
            if let Ok(epoch) = control.promote(promotion).await {
                return epoch;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The master: acknowledges as often as it can, each time with the moment before it looked at its lease.
#[test]
fn child() {
    let Ok(dir) = std::env::var(CHILD_DIR) else { return };
    let addresses = std::env::var(CHILD_ADDRESSES).unwrap();
    let addresses = addresses.split(',').map(|one| one.split_once('=').unwrap());
    let addresses = addresses.map(|(name, address)| (name.parse().unwrap(), address.to_owned())).collect();
    let me: NodeId = "a".parse().unwrap();
    let control = start(me, Path::new(&dir), &addresses);
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(promote(&control, me));
    let lease = control.lease();
    let mut out = std::io::stderr();
    loop {
        let now_ns = BootClock.now_ns();
        if lease.valid_now() && writeln!(out, "ack {now_ns}").is_err() {
            return;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn a_stopped_master_acknowledges_nothing_after_the_promotion_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<_> = listeners.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect();
    drop(listeners);
    let listed = ["a", "b", "w"].iter().zip(&ports).map(|(name, address)| format!("{name}={address}"));
    let listed = listed.collect::<Vec<_>>().join(",");
    let addresses: BTreeMap<NodeId, String> =
        ["a", "b", "w"].iter().map(|name| name.parse().unwrap()).zip(ports).collect();
    let mut master = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD_DIR, dir.path())
        .env(CHILD_ADDRESSES, listed)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&master);
    let (sender, acks) = mpsc::channel();
    let lines = BufReader::new(master.stderr.take().unwrap()).lines();
    let reader = std::thread::spawn(move || {
        let acks = lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("ack ")?.parse::<u64>().ok());
        for ack in acks {
            sender.send(ack).unwrap();
        }
    });
    let b: NodeId = "b".parse().unwrap();
    let (control, _witness) = (start(b, dir.path(), &addresses), start("w".parse().unwrap(), dir.path(), &addresses));
    let first = acks.recv_timeout(PATIENCE).expect("the master never got a lease");

    kill_process(pid, Signal::STOP).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, promote(&control, b)).await.unwrap() });
    let promoted_ns = BootClock.now_ns();
    kill_process(pid, Signal::CONT).unwrap();
    let mut last = first;
    let goes_on = loop {
        if last >= promoted_ns {
            break true;
        }
        match acks.recv_timeout(Duration::from_secs(3)) {
            Ok(ack) => last = last.max(ack),
            Err(RecvTimeoutError::Timeout) => break master.try_wait().unwrap().is_none(),
            Err(RecvTimeoutError::Disconnected) => break false,
        }
    };
    kill_process(pid, Signal::KILL).unwrap();
    master.wait().unwrap();
    reader.join().unwrap();
    assert!(goes_on, "the old master must have gone on for the test to mean anything");
    assert!(last < promoted_ns, "acknowledged {} us after the promotion", (last - promoted_ns) / 1_000);
}
