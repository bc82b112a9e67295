//! Peers that violate the protocol: forged epochs and frames, acks that overstate, requests out of order.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_seams::testing::FaultDisk;
use holdfast_types::{Epoch, Lsn};
use tokio::io::{AsyncWriteExt, DuplexStream};

use super::net::Net;
use super::nodes::{MasterNode, StandbyNode, identity, link_options, shipped};
use crate::error::LinkError;
use crate::frame::PREAMBLE;
use crate::identity::{Ack, Identity, Tip};
use crate::link::{Link, greet, take_preamble};
use crate::link_server::{LinkServer, Peer};
use crate::message::{Answer, Hello, Message, Position, Wants, Welcome};
use crate::pairing::Decision;
use crate::receive::{Connect, Ended};
use crate::refusal::Reason;
use crate::standby::{LinkPhase, Standby};
use crate::{ask, receive};

/// A master with some boxcars over several segments.
pub fn master() -> Arc<MasterNode> {
    let master = MasterNode::open(&FaultDisk::new(1));
    (0..20).for_each(|_| {
        master.append(9000).unwrap();
    });
    master
}

pub fn standby_of(master: &MasterNode) -> Arc<StandbyNode> {
    let disk = FaultDisk::new(2);
    StandbyNode::found(&disk, master.trail());
    StandbyNode::open(&disk, "b", Lsn(0)).unwrap()
}

/// Greets as a standby that asks to follow.
async fn follow_as(net: &Net, identity: Identity, name: &str, instance: u64) -> Result<Link<DuplexStream>, LinkError> {
    let stream = net.connect().await.unwrap();
    let greeted = greet(stream, name, instance, Wants::Follow(identity), &link_options()).await;
    greeted.map(|(mut link, _)| {
        link.allow_boxcars(identity.segment_bytes);
        link
    })
}

fn reason<T>(result: Result<T, LinkError>) -> Reason {
    match result {
        Err(LinkError::Refused(refusal)) => refusal.reason,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("not refused"),
    }
}

/// Reads until the master refuses or the link ends.
async fn refused(link: &mut Link<DuplexStream>) -> Reason {
    loop {
        match link.reader.next().await {
            Ok(Message::Refused(refusal)) => return refusal.reason,
            Ok(_) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn greetings_that_are_refused() {
    let (net, master) = (Net::new(1), master());
    let (_, _serving) = master.serve(&net);
    let ours = identity(master.trail());
    let newer = Identity { epoch: Epoch(ours.epoch.0 + 1), ..ours };
    assert_eq!(reason(follow_as(&net, newer, "b", 1).await), Reason::Deposed);
    assert_eq!(*master.deposed_by.lock(), Some(newer.epoch), "it is reported to the master");
    assert_eq!(reason(follow_as(&net, ours, "stranger", 1).await), Reason::NotAdmitted);
    assert_eq!(reason(follow_as(&net, ours, "no name", 1).await), Reason::Protocol);
    let older = Identity { format: 0, ..ours };
    assert_eq!(reason(follow_as(&net, older, "b", 1).await), Reason::Format);
    // A program with a much newer version.
    let mut stream = net.connect().await.unwrap();
    stream.write_all(&PREAMBLE).await.unwrap();
    let mut link = Link::over(stream, &link_options());
    let wants = Wants::Follow(ours);
    let hello =
        Hello { newest: 200, oldest: 100, name: "b".to_owned(), instance: 1, wants, unpacks: true, grouped: false };
    assert_eq!(reason(link.ask(&Message::Hello(hello)).await), Reason::Version);
}

#[tokio::test(start_paused = true)]
async fn what_a_standby_says_out_of_order_or_too_much_is_refused() {
    let (net, master) = (Net::new(1), master());
    let (hub, _serving) = master.serve(&net);
    let ours = identity(master.trail());
    let end = master.trail().durable();
    let start = Tip { lsn: master.trail().first(), checksum: 0 };
    let forged = [
        vec![Message::Ack(Ack::default())],
        vec![Message::Start(Tip { lsn: end, checksum: 5 })],
        vec![Message::Start(start), Message::Start(start)],
        vec![Message::Start(start), Message::Durable(Position { lsn: end })],
        vec![Message::Start(start), Message::Boxcar(Bytes::from_static(b"a boxcar"))],
        vec![
            Message::Start(start),
            Message::Ack(Ack { received: Lsn(end.0 + 4096), durable: start.lsn, applied: Lsn(0) }),
        ],
        vec![Message::Start(start), Message::Ack(Ack { received: start.lsn, durable: end, applied: Lsn(0) })],
    ];
    for messages in forged {
        let mut link = follow_as(&net, ours, "b", 1).await.unwrap();
        for message in &messages {
            link.writer.send(message).await.unwrap();
        }
        let expected = if matches!(messages[0], Message::Start(Tip { checksum: 5, .. })) {
            Reason::Diverged
        } else {
            Reason::Protocol
        };
        assert_eq!(refused(&mut link).await, expected, "{messages:?}");
    }
    assert_eq!(hub.reached().warm, Lsn(0), "nothing of it counted");
}

#[tokio::test(start_paused = true)]
async fn another_node_of_the_same_name_waits_and_the_same_one_takes_over() {
    let (net, master) = (Net::new(1), master());
    let (hub, _serving) = master.serve(&net);
    let ours = identity(master.trail());
    let start = Message::Start(Tip { lsn: master.trail().first(), checksum: 0 });
    let mut first = follow_as(&net, ours, "b", 1).await.unwrap();
    first.writer.send(&start).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut other = follow_as(&net, ours, "b", 2).await.unwrap();
    other.writer.send(&start).await.unwrap();
    assert_eq!(refused(&mut other).await, Reason::NameTaken);
    let mut again = follow_as(&net, ours, "b", 1).await.unwrap();
    again.writer.send(&start).await.unwrap();
    assert_eq!(refused(&mut first).await, Reason::NameTaken, "the older link ends");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(hub.standbys().len(), 1, "the end of the older link takes nothing from the newer one");
}

/// A master that greets, answers yes to every request and then sends these messages.
async fn scripted_master(mut stream: DuplexStream, welcome: Welcome, messages: Vec<Message>) {
    take_preamble(&mut stream).await.unwrap();
    let mut link = Link::over(stream, &link_options());
    link.allow_boxcars(welcome.identity.segment_bytes);
    let Ok(Message::Hello(_)) = link.reader.next().await else { return };
    link.writer.send(&Message::Welcome(welcome)).await.unwrap();
    while let Ok(Message::Ask(_)) = link.reader.next().await {
        link.writer.send(&Message::Answer(Answer::Yes)).await.unwrap();
    }
    for message in &messages {
        link.writer.put(message).unwrap();
    }
    let _ = link.writer.flush().await;
    // Until the standby ends the link.
    while link.reader.next().await.is_ok() {}
}

/// How following ends with a master that sends these messages.
async fn followed(standby: &Arc<StandbyNode>, identity: Identity, messages: Vec<Message>) -> Ended {
    let net = Net::new(1);
    let mut listener = net.listen();
    let (lsn, checksum) = standby.trail().tip();
    let welcome = Welcome {
        version: 1,
        name: "a".to_owned(),
        identity,
        tip: Tip { lsn, checksum },
        follows: None,
        grouped: false,
        masterships: vec![],
    };
    let serving = tokio::spawn(async move {
        while let Some(stream) = listener.recv().await {
            scripted_master(stream, welcome.clone(), messages.clone()).await;
        }
    });
    let (_stop, following) = standby.follow(&net, 1);
    let ended = tokio::time::timeout(Duration::from_secs(60), following).await.expect("it ends").unwrap();
    serving.abort();
    ended
}

fn boxcar(bytes: &[u8]) -> Message {
    Message::Boxcar(Bytes::copy_from_slice(bytes))
}

/// The boxcar with another epoch and a matching checksum.
fn with_epoch(bytes: &[u8], epoch: u32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[12..16].copy_from_slice(&epoch.to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..60]), &bytes[64..]);
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[tokio::test(start_paused = true)]
async fn a_forged_older_epoch_is_refused() {
    let disk = FaultDisk::new(1);
    // A master of epoch 3.
    drop(MasterNode::open(&disk));
    drop(MasterNode::open(&disk));
    let master = MasterNode::open(&disk);
    (0..3).for_each(|_| {
        master.append(100).unwrap();
    });
    let (ours, all) = (identity(master.trail()), shipped(master.trail()));
    assert_eq!(ours.epoch, Epoch(3));
    let standby = standby_of(&master);

    // The deposed master is recognized by its greeting.
    let net = Net::new(1);
    let mut listener = net.listen();
    let (lsn, checksum) = standby.trail().tip();
    let identity = Identity { epoch: Epoch(2), ..ours };
    let welcome = Welcome {
        version: 1,
        name: "old".to_owned(),
        identity,
        tip: Tip { lsn, checksum },
        follows: None,
        grouped: false,
        masterships: vec![],
    };
    tokio::spawn(async move { scripted_master(listener.recv().await.unwrap(), welcome, vec![]).await });
    let follower = standby.follower(&net, 1, tokio::sync::watch::channel(false).1);
    let place = receive::check(&follower).await.unwrap();
    assert!(matches!(place, Decision::Refused(refusal) if refusal.reason == Reason::Deposed));

    // It claims the newer epoch, but its boxcars show the older one: within one link, and compared with the trail.
    let old = with_epoch(&all[1].bytes, 2);
    let ended = followed(&standby, ours, vec![boxcar(&all[0].bytes), boxcar(&old)]).await;
    assert!(matches!(ended, Ended::Failed(LinkError::OldEpoch { .. })), "{ended:?}");
    assert_eq!(standby.trail().durable(), all[0].end);
    let ended = followed(&standby, ours, vec![boxcar(&old)]).await;
    assert!(matches!(ended, Ended::Failed(LinkError::Receive(_))), "{ended:?}");
    assert_eq!(standby.trail().durable(), all[0].end);
}

#[tokio::test(start_paused = true)]
async fn boxcars_out_of_order_and_durable_positions_out_of_reach_are_refused() {
    let master = master();
    let (ours, all) = (identity(master.trail()), shipped(master.trail()));
    let standby = standby_of(&master);
    let ended = followed(&standby, ours, vec![boxcar(&all[0].bytes), boxcar(&all[2].bytes)]).await;
    assert!(matches!(ended, Ended::Failed(LinkError::Order { .. })), "{ended:?}");
    let ended = followed(&standby, ours, vec![Message::Durable(Position { lsn: Lsn(1 << 40) })]).await;
    assert!(matches!(ended, Ended::Failed(LinkError::Order { .. })), "{ended:?}");
    let ended = followed(&standby, ours, vec![Message::CopyDone]).await;
    assert!(matches!(ended, Ended::Failed(LinkError::Unexpected { .. })), "{ended:?}");
    assert_eq!(standby.trail().durable(), all[0].end, "what was right before is kept");
    assert!(standby.applied_lsn() <= all[0].end);
}

#[tokio::test(start_paused = true)]
async fn other_questions_are_answered_or_refused() {
    let (net, master) = (Net::new(1), master());
    let (_, _serving) = master.serve(&net);
    let options = link_options();
    let status = ask::status(net.connect().await.unwrap(), "operator", &options).await;
    assert_eq!(status.unwrap(), "{}");
    let promoted =
        ask::command(net.connect().await.unwrap(), "operator", Wants::Promote { accept_divergence: false }, &options)
            .await;
    assert_eq!(reason(promoted), Reason::NotAdmitted);
}

/// A check says where a standby would start, and changes nothing.
#[tokio::test(start_paused = true)]
async fn a_check_does_not_follow() {
    let (net, master) = (Net::new(1), master());
    let (hub, _serving) = master.serve(&net);
    let standby = standby_of(&master);
    let follower = standby.follower(&net, 1, tokio::sync::watch::channel(false).1);
    let place = receive::check(&follower).await.unwrap();
    assert_eq!(place, Decision::Start(Tip { lsn: master.trail().first(), checksum: 0 }));
    assert!(hub.standbys().is_empty() && standby.trail().tip().1 == 0);
}

/// A base copy taken from a history that the master no longer has.
#[tokio::test(start_paused = true)]
async fn a_copy_of_a_lost_history_is_refused() {
    let (net, master) = (Net::new(1), master());
    let (_, _serving) = master.serve(&net);
    let disk = FaultDisk::new(2);
    StandbyNode::found(&disk, master.trail());
    let standby = StandbyNode::open(&disk, "b", Lsn(0)).unwrap();
    let mut standby = Arc::into_inner(standby).unwrap();
    standby.anchor = Some(Tip { lsn: master.trail().durable(), checksum: 1 });
    let standby = Arc::new(standby);
    let (_stop, following) = standby.follow(&net, 1);
    let ended = tokio::time::timeout(Duration::from_secs(60), following).await.expect("it ends").unwrap();
    assert!(matches!(ended, Ended::Refused(refusal) if refusal.reason == Reason::Diverged));
    assert_eq!(standby.trail().tip().1, 0, "nothing was received");
}

/// Pauses grow while links fail at once, and a link that has brought something ends that, however short it was.
#[tokio::test(start_paused = true)]
async fn after_a_link_that_worked_the_next_one_is_made_soon() {
    let (net, master) = (Net::new(1), master());
    let standby = standby_of(&master);
    let (hub, serving) = master.serve(&net);
    serving.abort();
    let mut listener = net.listen();
    let (stop, following) = standby.follow(&net, 1);
    let last_pause = || {
        let phases = standby.phases.lock();
        phases.iter().rev().find_map(|phase| match phase {
            LinkPhase::Waiting { pause, .. } => Some(*pause),
            _ => None,
        })
    };
    while last_pause() != Some(link_options().retry_max) {
        drop(listener.recv().await.unwrap());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for _ in 0..3 {
        let mut stream = listener.recv().await.unwrap();
        master.append(5000).unwrap();
        let peer = Peer { address: "simulated".to_owned(), certificate: None };
        take_preamble(&mut stream).await.unwrap();
        let served = tokio::time::timeout(Duration::from_secs(1), hub.serve(stream, peer)).await;
        assert!(served.is_err(), "it follows for a second");
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(last_pause(), Some(link_options().retry));
    }
    stop.send_replace(true);
    drop(listener);
    assert!(matches!(following.await.unwrap(), Ended::Stopped));
}

/// A server that changes its role answers a node as it answers clients, with 57P03: the standby tries again.
#[tokio::test(start_paused = true)]
async fn a_server_that_answers_as_it_answers_clients_is_tried_again() {
    let (net, master) = (Net::new(1), master());
    let standby = standby_of(&master);
    let (hub, serving) = master.serve(&net);
    serving.abort();
    let mut listener = net.listen();
    let (stop, following) = standby.follow(&net, 1);
    let mut stream = listener.recv().await.unwrap();
    take_preamble(&mut stream).await.unwrap();
    stream.write_all(b"E\0\0\0\x22SFATAL\0VFATAL\0C57P03\0Mstarting\0\0").await.unwrap();
    drop(stream);
    let mut stream = listener.recv().await.unwrap();
    take_preamble(&mut stream).await.unwrap();
    let peer = Peer { address: "simulated".to_owned(), certificate: None };
    let served = tokio::time::timeout(Duration::from_secs(1), hub.serve(stream, peer)).await;
    assert!(served.is_err(), "it follows");
    assert_eq!(standby.trail().durable(), master.trail().durable());
    stop.send_replace(true);
    drop(listener);
    assert!(matches!(following.await.unwrap(), Ended::Stopped));
}
