//! Three members on real disks, clocks and sockets.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_control::{
    Config, ControlError, ControlHandle, ControlNode, ControlPlane, LeaseTerms, Machinery, NodeId, Promotion, Role,
    TcpTransport,
};
use holdfast_seams::RealDisk;
use holdfast_types::Epoch;
use tokio::time::{sleep, timeout};

/// Long enough for a slow, busy machine; nothing is concluded from it but that something hangs.
const PATIENCE: Duration = Duration::from_secs(120);

fn node(name: &str) -> NodeId {
    name.parse().unwrap()
}

fn addresses() -> BTreeMap<NodeId, String> {
    // Taken all at once, so that they differ; given back for the members.
    let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports = listeners.iter().map(|listener| listener.local_addr().unwrap().to_string());
    ["a", "b", "w"].map(node).into_iter().zip(ports).collect()
}

fn start(me: &str, dir: &Path, addresses: &BTreeMap<NodeId, String>) -> Result<ControlHandle, ControlError> {
    let role = |name: &NodeId| if *name == node("w") { Role::Witness } else { Role::Data };
    let config = Config {
        node: node(me),
        dir: dir.join(me),
        members: addresses.keys().map(|name| (*name, role(name))).collect(),
        lease: LeaseTerms::default(),
    };
    let transport = TcpTransport::bind(&addresses[&node(me)], addresses.clone(), None)?;
    ControlNode::start(config, Machinery::real(Arc::new(RealDisk::new()), Arc::new(transport)))
}

async fn promote(control: &ControlHandle, me: &str) -> Epoch {
    let promoted = async {
        loop {
            let Ok(record) = control.look().await else {
                sleep(Duration::from_millis(200)).await;
                continue;
            };
            let promotion = Promotion {
                node: node(me),
                expected_epoch: record.epoch,
                epoch_at_least: Epoch(record.epoch.0 + 10),
                accept_loss: false,
            };
            match control.promote(promotion).await {
                Ok(epoch) => return epoch,
                Err(ControlError::NoQuorum) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    timeout(PATIENCE, promoted).await.expect("no promotion")
}

#[tokio::test]
async fn a_group_is_founded_has_a_master_and_outlives_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let addresses = addresses();
    let a = start("a", dir.path(), &addresses).unwrap();
    let b = start("b", dir.path(), &addresses).unwrap();
    let w = start("w", dir.path(), &addresses).unwrap();
    assert!(matches!(start("a", dir.path(), &addresses), Err(ControlError::Io { .. } | ControlError::InUse(_))));

    let epoch = promote(&a, "a").await;
    assert_eq!(epoch, Epoch(10));
    timeout(PATIENCE, a.lease_held().wait_for(|held| *held)).await.unwrap().unwrap();
    assert!(a.lease().valid_now());
    a.grow(epoch, node("b")).await.unwrap();
    let seen = |record: &Option<Arc<holdfast_control::Record>>| {
        record.as_ref().is_some_and(|record| record.sync_set.contains(&node("b")))
    };
    timeout(PATIENCE, w.watch().wait_for(seen)).await.unwrap().unwrap();

    // The master is gone, without a word; the other two know what was agreed on after a restart, too.
    let lease = a.lease();
    drop((a, b));
    let b = loop {
        match start("b", dir.path(), &addresses) {
            Ok(b) => break b,
            Err(ControlError::Io { .. } | ControlError::InUse(_)) => sleep(Duration::from_millis(100)).await,
            Err(error) => panic!("{error}"),
        }
    };
    let epoch = promote(&b, "b").await;
    assert_eq!(epoch, Epoch(20));
    assert!(!lease.valid_now());
    assert_eq!(w.look().await.unwrap().master, Some(node("b")));
}
