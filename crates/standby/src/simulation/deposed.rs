//! Masters that were deposed, and masters that were put back from an older copy: what they ship, and what their standbys take.

use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_seams::testing::FaultDisk;
use holdfast_types::Lsn;

use super::net::Net;
use super::nodes::{MasterNode, StandbyNode, identity};
use super::refusals::{master, standby_of};
use crate::link_server::LinkServer;
use crate::standby::{LinkPhase, Standby};

/// Waits, in virtual time, until the standby has everything up to `lsn`.
async fn until_it_has(standby: &StandbyNode, lsn: Lsn) {
    let arrived = async {
        while standby.trail().durable() < lsn {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), arrived).await.expect("it arrives");
}

/// A master whose lease has expired sends nothing of what it still writes, and continues when it has the lease again.
#[tokio::test(start_paused = true)]
async fn without_its_lease_a_master_ships_nothing() {
    let (net, master) = (Net::new(1), master());
    let (hub, _serving) = master.serve(&net);
    let standby = standby_of(&master);
    let (_stop, _following) = standby.follow(&net, 1);
    let before = master.trail().durable();
    until_it_has(&standby, before).await;
    master.may_ship.store(false, Ordering::Relaxed);
    master.append(100).unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!((standby.trail().durable(), hub.standbys().len()), (before, 1), "connected, and nothing is sent");
    master.may_ship.store(true, Ordering::Relaxed);
    hub.wake_links();
    until_it_has(&standby, master.trail().durable()).await;
}

/// A standby that learns elsewhere that there is a newer epoch takes nothing more of the old master.
#[tokio::test(start_paused = true)]
async fn a_standby_that_knows_a_newer_epoch_takes_nothing_of_the_old_master() {
    let (net, master) = (Net::new(1), master());
    let (hub, _serving) = master.serve(&net);
    let standby = standby_of(&master);
    let (_stop, _following) = standby.follow(&net, 1);
    let before = master.trail().durable();
    until_it_has(&standby, before).await;
    standby.newest_epoch.store(master.trail().epoch().0 + 1, Ordering::Relaxed);
    master.append(100).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(
        (standby.trail().durable(), standby.applied_lsn()),
        (before, before),
        "nothing written, nothing applied"
    );
    assert!(hub.standbys().is_empty(), "it does not follow");
    let refused = |phase: &LinkPhase| matches!(phase, LinkPhase::Waiting { why, .. } if why.contains("was deposed"));
    assert!(standby.phases.lock().iter().any(refused), "the phase says why");
}

/// A master that was put back from an older copy hears it from the standby that has more, and the standby keeps what it has.
#[tokio::test(start_paused = true)]
async fn a_master_that_was_put_back_is_reported_by_its_standby() {
    let (net, master) = (Net::new(1), master());
    let (_, serving) = master.serve(&net);
    let standby = standby_of(&master);
    let (stop, following) = standby.follow(&net, 1);
    let end = master.trail().durable();
    until_it_has(&standby, end).await;
    stop.send_replace(true);
    following.await.unwrap();
    drop(serving);
    // The same trail and the same epoch, with one boxcar instead of twenty.
    let back = MasterNode::open(&FaultDisk::new(9));
    back.append(9000).unwrap();
    assert_eq!(identity(back.trail()), identity(master.trail()));
    let net = Net::new(2);
    let (_, _serving) = back.serve(&net);
    let (_stop, _following) = standby.follow(&net, 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(back.rolled_back.lock().len() > 1, "the master hears it, and again after a start");
    assert_eq!(standby.trail().durable(), end, "the standby keeps what it has");
    let refused = |phase: &LinkPhase| matches!(phase, LinkPhase::Waiting { why, .. } if why.contains("Do not rejoin"));
    assert!(standby.phases.lock().iter().any(refused), "the phase names the side that has the acknowledged commits");
}
