//! A master in a process of its own is stopped by SIGSTOP, another one is promoted, and the first goes on: it must not
//! acknowledge anything any more.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use holdfast_control::{
    Basis, BootClock, Config, ControlHandle, ControlNode, ControlPlane, LeaseClock, LeaseTerms, Machinery, NodeId,
    Promotion, Role, TcpTransport,
};
use holdfast_seams::RealDisk;
use holdfast_seams::testing::port;
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
        by_pulses: false,
        link: None,
    };
    let transport = TcpTransport::bind(&addresses[&me], addresses.clone(), None).unwrap();
    ControlNode::start(config, Machinery::real(Arc::new(RealDisk::new()), Arc::new(transport))).unwrap()
}

async fn promote(control: &ControlHandle, node: NodeId) -> Epoch {
    loop {
        if let Ok(record) = control.look().await {
            let (expected_epoch, epoch_at_least) = (record.epoch, Epoch(0));
            let promotion = Promotion {
                node,
                expected_epoch,
                epoch_at_least,
                accept_loss: true,
                trail_end: None,
                basis: Basis::Asked,
            };
            if let Ok(epoch) = control.promote(promotion).await {
                return epoch;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// How long the old master has to go on after the promotion without an acknowledgement: longer than its lease.
const GOES_ON_NS: u64 = 3_000_000_000;

/// The master: acknowledges as often as it can, each time with the moment before it looked at its lease. Where it may not
/// it says that it is alive.
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
        let says = if lease.valid_now() { "ack" } else { "alive" };
        if writeln!(out, "{says} {now_ns}").is_err() {
            return;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn a_stopped_master_acknowledges_nothing_after_the_promotion_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let addresses: BTreeMap<NodeId, String> =
        ["a", "b", "w"].map(|name| (name.parse().unwrap(), format!("127.0.0.1:{}", port()))).into();
    let listed = addresses.iter().map(|(name, address)| format!("{name}={address}")).collect::<Vec<_>>().join(",");
    let mut master = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sigstop::child", "--nocapture"])
        .env(CHILD_DIR, dir.path())
        .env(CHILD_ADDRESSES, listed)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&master);
    let (sender, said) = mpsc::channel();
    let lines = BufReader::new(master.stderr.take().unwrap()).lines();
    let reader = std::thread::spawn(move || {
        let said = lines.map_while(Result::ok).filter_map(|line| {
            let (word, now_ns) = line.split_once(' ')?;
            Some((word == "ack", now_ns.parse::<u64>().ok()?))
        });
        for (is_ack, now_ns) in said {
            sender.send((is_ack, now_ns)).unwrap();
        }
    });
    let b: NodeId = "b".parse().unwrap();
    let (control, _witness) = (start(b, dir.path(), &addresses), start("w".parse().unwrap(), dir.path(), &addresses));
    let hears = || said.recv_timeout(PATIENCE).expect("the master says nothing");
    let mut last_ack = loop {
        let (is_ack, now_ns) = hears();
        if is_ack {
            break now_ns;
        }
    };

    kill_process(pid, Signal::STOP).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, promote(&control, b)).await.unwrap() });
    let promoted_ns = BootClock.now_ns();
    kill_process(pid, Signal::CONT).unwrap();
    // What it had said before it was stopped comes first; that it goes on is seen by what it says long after.
    loop {
        let (is_ack, now_ns) = hears();
        last_ack = if is_ack { now_ns } else { last_ack };
        if now_ns >= promoted_ns + GOES_ON_NS {
            break;
        }
    }
    kill_process(pid, Signal::KILL).unwrap();
    master.wait().unwrap();
    reader.join().unwrap();
    let after_us = last_ack.saturating_sub(promoted_ns) / 1_000;
    assert!(last_ack < promoted_ns, "acknowledged {after_us} us after the promotion");
}
