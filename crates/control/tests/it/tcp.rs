//! Three members on real disks, clocks and sockets.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_control::{
    Basis, Config, ControlError, ControlHandle, ControlNode, ControlPlane, LeaseTerms, Machinery, NodeId, Promotion,
    Refusal, Role, TcpTransport,
};
use holdfast_seams::RealDisk;
use holdfast_seams::testing::port;
use holdfast_types::Epoch;
use tokio::time::{sleep, timeout};

/// Long enough for a slow, busy machine; nothing is concluded from it but that something hangs.
const PATIENCE: Duration = Duration::from_secs(120);

fn node(name: &str) -> NodeId {
    name.parse().unwrap()
}

fn addresses() -> BTreeMap<NodeId, String> {
    ["a", "b", "w"].map(|name| (node(name), format!("127.0.0.1:{}", port()))).into()
}

fn start(me: &str, dir: &Path, addresses: &BTreeMap<NodeId, String>) -> Result<ControlHandle, ControlError> {
    let role = |name: &NodeId| if *name == node("w") { Role::Witness } else { Role::Data };
    let config = Config {
        node: node(me),
        dir: dir.join(me),
        members: addresses.keys().map(|name| (*name, role(name))).collect(),
        lease: LeaseTerms::default(),
        by_pulses: false,
        link: None,
    };
    let transport = TcpTransport::bind(&addresses[&node(me)], addresses.clone(), None)?;
    ControlNode::start(config, Machinery::real(Arc::new(RealDisk::new()), Arc::new(transport)))
}

/// What answers that there is no group yet, or was no majority in time, which a stalled machine makes true for a moment,
/// is asked again.
async fn until_quorum<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, ControlError>) -> T {
    let answered = async {
        loop {
            match ask().await {
                Err(ControlError::NoQuorum | ControlError::Refused(Refusal::NotFounded)) => {
                    sleep(Duration::from_millis(200)).await
                }
                answer => return answer.unwrap_or_else(|error| panic!("{what}: {error}")),
            }
        }
    };
    timeout(PATIENCE, answered).await.unwrap_or_else(|_| panic!("{what}: there never was a majority"))
}

/// The new epoch, 10 above that of the record: one attempt may have raised it without an answer, and the next one finds
/// it raised, even between looking and asking.
async fn promote(control: &ControlHandle, me: &str) -> Epoch {
    let promote = async || {
        let record = control.look().await?;
        let epoch_at_least = Epoch(record.epoch.0 + 10);
        let (node, expected_epoch) = (node(me), record.epoch);
        let promotion = Promotion {
            node,
            expected_epoch,
            epoch_at_least,
            accept_loss: false,
            trail_end: None,
            basis: Basis::Asked,
        };
        match control.promote(promotion).await {
            Ok(epoch) => {
                assert_eq!(epoch, epoch_at_least);
                Ok(epoch)
            }
            Err(ControlError::Refused(Refusal::StaleEpoch { .. })) => Err(ControlError::NoQuorum),
            Err(error) => Err(error),
        }
    };
    until_quorum("the promotion", promote).await
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
    timeout(PATIENCE, a.lease_held().wait_for(|held| *held)).await.unwrap().unwrap();
    // Between being told and looking it may run out, and be renewed.
    let valid = async {
        while !a.lease().valid_now() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, valid).await.expect("a lease that is held is valid");
    until_quorum("taking b in", async || a.grow(epoch, node("b")).await).await;
    let seen = |record: &Option<Arc<holdfast_control::Record>>| {
        record.as_ref().is_some_and(|record| record.sync_set.contains(node("b")))
    };
    timeout(PATIENCE, w.watch().wait_for(seen)).await.unwrap().unwrap();

    // The master is gone, without a word; the other two know what was agreed on after a restart, too.
    let lease = a.lease();
    drop((a, b));
    let again = async {
        loop {
            match start("b", dir.path(), &addresses) {
                Ok(b) => return b,
                // Its port or its directory is not given back yet.
                Err(ControlError::Io { .. } | ControlError::InUse(_)) => sleep(Duration::from_millis(100)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let b = timeout(PATIENCE, again).await.expect("b starts again");
    assert!(promote(&b, "b").await.0 >= epoch.0 + 10);
    assert!(!lease.valid_now());
    assert_eq!(until_quorum("a look", async || w.look().await).await.master, Some(node("b")));
}
