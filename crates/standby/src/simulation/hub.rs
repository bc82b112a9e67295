//! How the hub combines the acks of several standbys.

use std::time::Duration;

use holdfast_seams::testing::FaultDisk;
use holdfast_types::Lsn;
use tokio::io::DuplexStream;

use super::net::Net;
use super::nodes::{MasterNode, identity, link_options};
use crate::hub::Hub;
use crate::identity::{Ack, Tip};
use crate::link::{Link, greet};
use crate::link_server::LinkServer;
use crate::message::{Message, Wants};
use crate::receive::Connect;
use crate::sync_set::{Reached, SyncSet};

/// A standby that acknowledges what the test says.
async fn acking(net: &Net, master: &MasterNode, name: &str, lsn: Lsn) -> Link<DuplexStream> {
    let identity = identity(master.trail());
    let stream = net.connect().await.unwrap();
    let greeted = greet(stream, name, 1, Wants::Follow(identity), &link_options()).await;
    let (mut link, _) = greeted.unwrap();
    link.allow_boxcars(identity.segment_bytes);
    let start = Tip { lsn: master.trail().first(), checksum: 0 };
    link.writer.send(&Message::Start(start)).await.unwrap();
    // What is acknowledged must have been sent.
    while !matches!(link.reader.next().await.unwrap(), Message::Durable(durable) if durable.lsn >= lsn) {}
    let ack = Ack { received: lsn, durable: lsn, applied: lsn };
    link.writer.send(&Message::Ack(ack)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    link
}

fn waits_for(hub: &Hub, setting: &str) -> Reached {
    hub.set_sync_set(SyncSet::parse(setting).unwrap());
    hub.reached()
}

#[tokio::test(start_paused = true)]
async fn what_was_reached_stays_reached_whoever_leaves_and_whatever_is_set() {
    let (net, master) = (Net::new(1), MasterNode::open(&FaultDisk::new(1)));
    let middle = master.append(5000).unwrap().end;
    let (hub, _serving) = master.serve(&net);
    let all = |lsn| Reached { warm: lsn, hot: lsn, commit: lsn };

    assert_eq!(waits_for(&hub, "slow, fast"), Reached::default());
    let slow = acking(&net, &master, "slow", middle).await;
    assert_eq!(hub.reached(), all(middle));
    let end = master.append(5000).unwrap().end;
    let _fast = acking(&net, &master, "fast", end).await;
    assert_eq!(hub.reached(), all(middle), "the first of the list counts");
    assert_eq!(waits_for(&hub, "ANY 2 (slow, fast)"), all(middle));
    assert_eq!(waits_for(&hub, "ANY 1 (slow, fast)"), all(end));
    assert_eq!(waits_for(&hub, "slow"), all(end), "nothing is taken back");
    assert!(hub.is_in_sync());
    drop(slow);
    tokio::time::sleep(link_options().silence_max * 2).await;
    assert!(!hub.is_in_sync() && hub.reached() == all(end));
    assert_eq!(*master.reached.lock(), all(end), "the master has all of it");
}

/// A standby that is still catching up delays no commit that another standby can confirm, and does not count as
/// connected.
#[tokio::test(start_paused = true)]
async fn a_standby_counts_when_it_has_caught_up_with_what_was_there() {
    let (net, master) = (Net::new(1), MasterNode::open(&FaultDisk::new(1)));
    let middle = master.append(5000).unwrap().end;
    let end = master.append(5000).unwrap().end;
    let (hub, _serving) = master.serve(&net);
    hub.set_sync_set(SyncSet::parse("slow, fast").unwrap());
    let mut slow = acking(&net, &master, "slow", middle).await;
    assert!(!hub.is_in_sync() && hub.reached() == Reached::default());
    let _fast = acking(&net, &master, "fast", end).await;
    assert_eq!(hub.reached(), Reached { warm: end, hot: end, commit: end }, "the first of the list is not here yet");
    slow.writer.send(&Message::Ack(Ack { received: end, durable: end, applied: end })).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(hub.standbys().iter().all(|standby| standby.counts));
    // It returns with less than it has confirmed: the master is notified before it follows.
    drop(slow);
    tokio::time::sleep(link_options().silence_max * 2).await;
    let _slow = acking(&net, &master, "slow", middle).await;
    assert_eq!(*master.fell_back.lock(), ["slow"]);
}

/// A standby whose disk hangs while its link is alive counts as disconnected.
#[tokio::test(start_paused = true)]
async fn a_standby_that_makes_nothing_durable_is_given_up() {
    let (net, master) = (Net::new(1), MasterNode::open(&FaultDisk::new(1)));
    let first = master.append(5000).unwrap().end;
    let (hub, _serving) = master.serve(&net);
    let mut hangs = acking(&net, &master, "hangs", first).await;
    assert!(hub.is_in_sync());
    master.append(5000).unwrap();
    let mut pings = 0;
    let ended = loop {
        match hangs.reader.next().await {
            Ok(Message::Ping(number)) => {
                pings += 1;
                hangs.writer.send(&Message::Pong(number)).await.unwrap();
                hangs.writer.send(&Message::Ping(number)).await.unwrap();
            }
            Ok(_) => {}
            Err(error) => break error,
        }
        assert!(pings < 1000, "for ever");
    };
    assert!(!hub.is_in_sync(), "{ended}");
}

/// How long a standby was silent before its link ended counts for how long it has been away.
#[tokio::test(start_paused = true)]
async fn the_silence_before_the_end_of_a_link_is_reported() {
    let (net, master) = (Net::new(1), MasterNode::open(&FaultDisk::new(1)));
    let first = master.append(5000).unwrap().end;
    let (hub, _serving) = master.serve(&net);
    let silent = acking(&net, &master, "b", first).await;
    assert!(hub.is_in_sync() && hub.silent_before() == Duration::ZERO);
    tokio::time::sleep(link_options().silence_max * 2).await;
    assert!(!hub.is_in_sync());
    assert_eq!(hub.silent_before(), link_options().silence_max);
    drop(silent);
    let closed = acking(&net, &master, "b", first).await;
    assert!(hub.is_in_sync() && hub.silent_before() == Duration::ZERO);
    drop(closed);
    tokio::time::sleep(link_options().silence_max / 2).await;
    assert!(!hub.is_in_sync() && hub.silent_before() == Duration::ZERO);
}

/// No commit waits for a node that counts as lost, though its link seems alive; one that still makes something durable is not lost.
#[tokio::test(start_paused = true)]
async fn a_lost_standby_counts_only_if_its_link_proves_to_be_alive() {
    let (net, master) = (Net::new(1), MasterNode::open(&FaultDisk::new(1)));
    let first = master.append(5000).unwrap().end;
    let (hub, _serving) = master.serve(&net);
    hub.set_sync_set(SyncSet::parse("b").unwrap());
    let mut b = acking(&net, &master, "b", first).await;
    assert!(hub.is_in_sync());
    hub.set_lost(["b".to_owned()].into());
    assert!(!hub.is_in_sync() && !hub.standbys()[0].counts);
    // What it had made durable before proves nothing.
    b.writer.send(&Message::Ack(Ack { received: first, durable: first, applied: first })).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!hub.is_in_sync());
    let second = master.append(5000).unwrap().end;
    while !matches!(b.reader.next().await.unwrap(), Message::Durable(durable) if durable.lsn >= second) {}
    b.writer.send(&Message::Ack(Ack { received: second, durable: second, applied: second })).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(hub.is_in_sync() && hub.reached().hot == second);
    hub.set_lost(["b".to_owned()].into());
    assert!(hub.is_in_sync(), "nothing has changed");
    // A link that a lost node makes is on probation until the node counts as there.
    drop(b);
    tokio::time::sleep(link_options().silence_max * 2).await;
    let _b = acking(&net, &master, "b", second).await;
    assert!(!hub.is_in_sync());
    hub.set_lost([].into());
    assert!(hub.is_in_sync() && hub.standbys()[0].counts);
}
