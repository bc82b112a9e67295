//! Shipping to one standby: boxcars are sent while this node still writes them; durable positions are sent at once;
//! acks are received, checked and counted.
//!
//! What the trail has recycled is read from the archive, if there is one ([`crate::source`]).
//!
//! Sending and receiving run concurrently, so that acks are read while a large boxcar is sent.
//!
//! | the standby sends | what is done |
//! |---|---|
//! | Ack within what was sent, not before the last one | counted |
//! | any other Ack | the link ends: an ack that overstates would let commits be acknowledged that no other node has |
//! | Ping | answered |
//! | Pong | the round trip is noted |
//! | Stop | the link ends in order |
//! | anything else | the link ends |
//!
//! A master ships only under its lease ([`LinkServer::may_ship`]): one that was stopped and continues after its successor was
//! promoted sends nothing of what it still writes.
//!
//! Failure: whatever ends the link ends shipping; what the standby has acknowledged until then counts. It reconnects.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_types::Lsn;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::LinkError;
use crate::frame::{FrameReader, FrameWriter};
use crate::hub::{Order, Registered};
use crate::identity::{Ack, Tip};
use crate::link::{Link, Stream};
#[cfg(doc)]
use crate::link_server::LinkServer;
use crate::message::{Message, Position, Stop};
use crate::packing::{Packer, Packing, pack};
use crate::refusal::{Reason, Refusal};
use crate::source::Source;

/// Ships from `start` on until the link ends.
pub(crate) async fn ship<S: Stream>(
    registered: &Registered,
    link: &mut Link<S>,
    start: Tip,
    packing: Packing,
) -> Result<(), LinkError> {
    let master = registered.hub.master.clone();
    let source = link.busy(registered.hub.options.heartbeat, Source::begin(master, start)).await?;
    // Only after it is known that the standby can start there.
    registered.hub.master.hold(&registered.name, start.lsn, true)?;
    let lsn = || AtomicU64::new(start.lsn.0);
    let shared = Shared { sent: lsn(), durable: lsn(), ..Shared::default() };
    let mut receiving = pin!(receive(registered, &shared, &mut link.reader, start));
    let packer = Packer::new(packing);
    let sending = pin!(send(registered, &shared, &mut link.writer, source, packer));
    tokio::select! {
        biased;
        received = &mut receiving => return received,
        sent = sending => sent?,
    }
    // Everything is sent, including Stop: the standby acknowledges the rest and closes the link.
    let stop_max = registered.hub.options.stop_max;
    match tokio::time::timeout(stop_max, receiving).await {
        Ok(Err(LinkError::Closed)) => Ok(()),
        Ok(received) => received,
        Err(_) => Err(LinkError::TooSlow { what: "stop" }),
    }
}

/// The state that the two directions of a link share.
#[derive(Default)]
struct Shared {
    /// Everything below this position has been written to the link.
    sent: AtomicU64,
    /// Everything below this position is on the standby's disk.
    durable: AtomicU64,
    /// The number of a ping to send back.
    pong: Mutex<Option<u64>>,
    /// The number of the outstanding ping, and when it was sent.
    pinged: Mutex<Option<(u64, Instant)>>,
    nudge: Notify,
}

async fn send<W: AsyncWrite + Unpin>(
    registered: &Registered,
    shared: &Shared,
    writer: &mut FrameWriter<W>,
    mut source: Source,
    mut packer: Packer,
) -> Result<(), LinkError> {
    let heartbeat = registered.hub.options.heartbeat;
    let mut progress = registered.progress();
    let mut stall = Stall { max: registered.hub.options.silence_max * 2, since: None };
    let (mut known, mut pings, mut last) = (Lsn(0), 0, Instant::now());
    loop {
        progress.borrow_and_update();
        let stopping = match registered.orders.get() {
            Some(Order::Replaced) => return Err(replaced(&registered.name)),
            order => order == Some(Order::Stop),
        };
        if source.is_used_up() {
            // Reading the next segment from an archive is slow: the standby gets heartbeats meanwhile.
            let mut reading = pin!(source.go_on());
            loop {
                tokio::select! {
                    biased;
                    read = &mut reading => break read?,
                    () = tokio::time::sleep(heartbeat) => writer.send(&Message::Ping(0)).await?,
                }
            }
        }
        gather(registered, shared, writer, &mut source, &mut known, packer.packs())?;
        if let Some(number) = shared.pong.lock().take() {
            writer.put(&Message::Pong(number))?;
        }
        if !writer.is_empty() {
            let (bytes, begun) = (writer.len(), Instant::now());
            writer.flush().await?;
            last = Instant::now();
            packer.wrote(bytes, last - begun);
            // Lets other links on this thread run.
            tokio::task::yield_now().await;
            continue;
        }
        if source.is_used_up() {
            continue;
        }
        stall.look(Lsn(shared.durable.load(Ordering::Acquire)), source.position())?;
        if stopping && source.position() <= registered.hub.master.trail().durable() {
            let orderly = registered.hub.master.may_ship();
            let stop = Stop { orderly, why: "the master stops shipping".to_owned() };
            return writer.send(&Message::Stop(stop)).await;
        }
        tokio::select! {
            biased;
            _ = progress.changed() => {}
            () = shared.nudge.notified() => {}
            () = registered.orders.given.notified() => {}
            () = tokio::time::sleep_until(last + heartbeat) => {
                pings += 1;
                *shared.pinged.lock() = Some((pings, Instant::now()));
                writer.put(&Message::Ping(pings))?;
            }
        }
    }
}

/// Detects a standby that was sent everything and makes nothing of it durable: its disk hangs, but its link is alive.
struct Stall {
    max: Duration,
    /// Its durable position, and since when it has not changed.
    since: Option<(Lsn, Instant)>,
}

impl Stall {
    /// Called when there is nothing more to send.
    fn look(&mut self, durable: Lsn, sent: Lsn) -> Result<(), LinkError> {
        if durable >= sent {
            self.since = None;
            return Ok(());
        }
        match self.since {
            Some((at, since)) if at == durable && since.elapsed() > self.max => {
                Err(LinkError::TooSlow { what: "make what it has received durable" })
            }
            Some((at, _)) if at == durable => Ok(()),
            _ => {
                self.since = Some((durable, Instant::now()));
                Ok(())
            }
        }
    }
}

/// Buffers what the trail has and the standby does not, up to a full buffer; then the durable position of this node.
/// Nothing without the right to ship ([`LinkServer::may_ship`]).
fn gather<W: AsyncWrite + Unpin>(
    registered: &Registered,
    shared: &Shared,
    writer: &mut FrameWriter<W>,
    source: &mut Source,
    known: &mut Lsn,
    packs: bool,
) -> Result<(), LinkError> {
    if !registered.hub.master.may_ship() {
        return Ok(());
    }
    let before = source.position();
    while !writer.is_full() {
        let Some(boxcar) = source.next()? else { break };
        match packs.then(|| pack(&boxcar.bytes)).flatten() {
            Some(packed) => writer.put_packed(&packed),
            None => writer.put_boxcar(&boxcar.bytes)?,
        }
    }
    let position = source.position();
    if position > before {
        shared.sent.store(position.0, Ordering::Release);
        registered.sent(position);
    }
    let durable = registered.hub.master.durable().min(position);
    if durable > *known {
        *known = durable;
        writer.put(&Message::Durable(Position { lsn: durable }))?;
    }
    Ok(())
}

async fn receive<R: AsyncRead + Unpin>(
    registered: &Registered,
    shared: &Shared,
    reader: &mut FrameReader<R>,
    start: Tip,
) -> Result<(), LinkError> {
    let segment_bytes = registered.hub.master.identity().segment_bytes;
    let mut last = Ack { received: start.lsn, durable: start.lsn, applied: Lsn(0) };
    loop {
        match reader.next().await? {
            Message::Ack(ack) => {
                check_ack(ack, last, Lsn(shared.sent.load(Ordering::Acquire)))?;
                shared.durable.store(ack.durable.0, Ordering::Release);
                registered.acked(ack);
                if ack.durable.0 / segment_bytes != last.durable.0 / segment_bytes {
                    registered.hub.master.hold(&registered.name, ack.durable, false)?;
                }
                last = ack;
            }
            Message::Ping(number) => {
                *shared.pong.lock() = Some(number);
                shared.nudge.notify_one();
            }
            Message::Pong(number) => {
                let pinged = shared.pinged.lock().take_if(|(of, _)| *of == number);
                let elapsed = pinged.map(|(_, at)| at.elapsed());
                elapsed.into_iter().for_each(|elapsed: Duration| registered.round_trip(elapsed.as_micros() as u64));
            }
            Message::Stop(stop) => {
                tracing::info!(target: "holdfast::ship", standby = %registered.name, why = %stop.why, "the standby stops");
                return Ok(());
            }
            Message::Refused(refusal) => return Err(LinkError::Refused(refusal)),
            other => return Err(LinkError::Unexpected { kind: other.kind(), expected: "an Ack" }),
        }
    }
}

/// Checks an ack: a standby confirms no more than was sent, nothing that it has not received, and takes nothing back.
fn check_ack(ack: Ack, last: Ack, sent: Lsn) -> Result<(), LinkError> {
    let refuse = |what: String| Err(LinkError::Ack { what });
    if ack.received > sent {
        return refuse(format!("it confirms LSN {}, but only LSN {sent} was sent", ack.received));
    }
    if ack.durable > ack.received || ack.applied > ack.durable {
        return refuse(format!(
            "received up to LSN {}, durable up to {}, applied up to {}",
            ack.received, ack.durable, ack.applied
        ));
    }
    if ack.received < last.received || ack.durable < last.durable || ack.applied < last.applied {
        return refuse("it takes back a position that was confirmed before".to_owned());
    }
    Ok(())
}

fn replaced(name: &str) -> LinkError {
    let message = format!("{name} has reconnected; this is its older link");
    Refusal::new(Reason::NameTaken, message, "No action is needed").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(received: u64, durable: u64, applied: u64) -> Ack {
        Ack { received: Lsn(received), durable: Lsn(durable), applied: Lsn(applied) }
    }

    #[test]
    fn acks_that_are_taken_and_refused() {
        let last = ack(30, 20, 10);
        let check = |ack| check_ack(ack, last, Lsn(40));
        assert!(check(last).is_ok() && check(ack(40, 40, 40)).is_ok());
        for forged in
            [ack(41, 20, 10), ack(30, 31, 10), ack(30, 20, 21), ack(29, 20, 10), ack(30, 19, 10), ack(30, 20, 9)]
        {
            assert!(matches!(check(forged), Err(LinkError::Ack { .. })), "{forged:?}");
        }
    }
}
