//! One link of a standby, from Start to its end. Three tasks run concurrently:
//!
//! ```text
//! reading    the link -> checks -> the queue; notes what was received
//! writing    the queue -> the trail, as many boxcars at a time as have come; notes what is durable
//! acking     what was noted -> the link, together with what was applied
//! ```
//! The first one to end ends the link. What is in the queue is still written: it was acknowledged as received, and the
//! master may be lost.
//!
//! Failure: a boxcar that does not follow the last one ends the link before any of it is written; so does a trail that
//! refuses or cannot write, see [`LinkError`].

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_trail::Shipped;
use holdfast_types::{Epoch, Lsn};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::error::LinkError;
use crate::frame::{FrameReader, FrameWriter};
use crate::identity::{Ack, Identity, Tip};
use crate::limits::LinkOptions;
use crate::link::{Link, Stream};
use crate::message::{Message, Stop};
use crate::pairing::superseded;
use crate::receive::queue::Queue;
use crate::receive::{Blocking, Connect, Follower, Over, asked_to_stop};
use crate::standby::Standby;

/// The positions to acknowledge.
struct Progress {
    received: AtomicU64,
    durable: AtomicU64,
    pong: Mutex<Option<u64>>,
    nudge: Notify,
}

impl Progress {
    fn note(&self, what: &AtomicU64, lsn: Lsn) {
        what.store(lsn.0, Ordering::Release);
        self.nudge.notify_one();
    }

    /// The positions are read from the last stage to the first, so that no stage is ahead of the one before it.
    fn ack(&self, applied: Lsn) -> Ack {
        let durable = Lsn(self.durable.load(Ordering::Acquire));
        let received = Lsn(self.received.load(Ordering::Acquire));
        Ack { received, durable, applied: applied.min(durable) }
    }
}

pub(super) async fn run<C: Connect, S: Stream>(
    follower: &mut Follower<C>,
    link: &mut Link<S>,
    start: Tip,
    master: Identity,
) -> Result<Over, LinkError> {
    let Follower { standby, options, blocking, stop, .. } = follower;
    if master.epoch > standby.trail().epoch() {
        // A master may be lost before it has written anything in its epoch.
        let standby = standby.clone();
        blocking.run(move || standby.trail().know_epoch(master.epoch)).await??;
    }
    link.writer.send(&Message::Start(start)).await?;
    let queue = Queue::new(options.queue_bytes_max);
    let progress = Progress {
        received: AtomicU64::new(start.lsn.0),
        durable: AtomicU64::new(start.lsn.0),
        pong: Mutex::default(),
        nudge: Notify::new(),
    };
    let applied = standby.applied();
    let over = {
        let incoming = Incoming { standby: &**standby, queue: &queue, progress: &progress, start, master };
        let reading = incoming.read(&mut link.reader);
        let mut writing = pin!(write(standby, &queue, &progress, *blocking));
        let acking = ack(&mut link.writer, &progress, applied.clone(), options);
        let (over, written) = tokio::select! {
            biased;
            read = reading => (read.map(Over::StoppedThere), None),
            written = &mut writing => (Err(LinkError::Closed), Some(written)),
            acked = acking => (acked.map(|()| Over::StoppedHere), None),
            () = asked_to_stop(stop) => (Ok(Over::StoppedHere), None),
        };
        queue.close();
        // A failure of this node's own disk is more useful than the error of the link.
        match written {
            Some(failed) => failed?,
            None => writing.await?,
        }
        over
    };
    let over = over?;
    // An orderly stop: the rest of what was received is acknowledged before Stop is sent.
    let last = progress.ack(*applied.borrow());
    link.writer.put(&Message::Ack(last))?;
    link.writer.send(&Message::Stop(Stop { orderly: true, why: "the standby stops".to_owned() })).await?;
    Ok(over)
}

/// The reading task.
struct Incoming<'a> {
    standby: &'a dyn Standby,
    queue: &'a Queue,
    progress: &'a Progress,
    start: Tip,
    master: Identity,
}

/// The end of the last boxcar received.
struct Chain {
    end: Lsn,
    /// 0 before the trail's first boxcar.
    checksum: u32,
    epoch: Epoch,
}

impl Chain {
    /// Reads the boxcar in these bytes and checks that it is the next one.
    fn check(&mut self, bytes: &[u8], master: &Identity) -> Result<Shipped, LinkError> {
        let boxcar = Shipped::parse(bytes.into(), master.trail_id, master.segment_bytes)
            .map_err(|flaw| LinkError::Flaw { lsn: self.end, flaw })?;
        let lsn = boxcar.lsn;
        if lsn != self.end {
            return Err(LinkError::Order { found: lsn, expected: self.end });
        }
        if boxcar.epoch < self.epoch {
            return Err(LinkError::OldEpoch { lsn, found: boxcar.epoch, known: self.epoch });
        }
        if self.checksum != 0 && boxcar.previous_checksum != self.checksum {
            return Err(LinkError::Chain { lsn });
        }
        *self = Chain { end: boxcar.end, checksum: boxcar.checksum, epoch: boxcar.epoch };
        Ok(boxcar)
    }
}

impl Incoming<'_> {
    /// Checks that the master has not been deposed since the link began.
    fn is_current(&self) -> Result<(), LinkError> {
        match superseded(&self.master, self.standby.newest_epoch()) {
            Some(refusal) => Err(LinkError::Refused(refusal)),
            None => Ok(()),
        }
    }

    /// Receives boxcars until the master sends Stop; returns its reason.
    async fn read<R: AsyncRead + Unpin>(self, reader: &mut FrameReader<R>) -> Result<String, LinkError> {
        let mut chain = Chain { end: self.start.lsn, checksum: self.start.checksum, epoch: Epoch(0) };
        loop {
            match reader.next().await? {
                Message::Boxcar(bytes) => {
                    self.is_current()?;
                    let boxcar = chain.check(&bytes, &self.master)?;
                    // The master writes one boxcar at a time, so the one before is durable there.
                    self.standby.allow_apply(boxcar.lsn);
                    self.queue.push(boxcar).await;
                    self.standby.received(chain.end);
                    self.progress.note(&self.progress.received, chain.end);
                }
                Message::Durable(durable) if durable.lsn > chain.end => {
                    return Err(LinkError::Order { found: durable.lsn, expected: chain.end });
                }
                Message::Durable(durable) => {
                    self.is_current()?;
                    self.standby.allow_apply(durable.lsn);
                }
                Message::Ping(number) => {
                    *self.progress.pong.lock() = Some(number);
                    self.progress.nudge.notify_one();
                }
                Message::Pong(_) => {}
                Message::Stop(stop) => return Ok(stop.why),
                Message::Refused(refusal) => return Err(LinkError::Refused(refusal)),
                other => return Err(LinkError::Unexpected { kind: other.kind(), expected: "a Boxcar" }),
            }
        }
    }
}

/// Writes what has arrived to the trail until the queue is closed and empty.
async fn write(
    standby: &Arc<dyn Standby>,
    queue: &Queue,
    progress: &Progress,
    blocking: Blocking,
) -> Result<(), LinkError> {
    while let Some(boxcars) = queue.take().await {
        let Some(end) = boxcars.last().map(|boxcar| boxcar.end) else { continue };
        let standby = standby.clone();
        blocking.run(move || standby.receive(&boxcars)).await??;
        progress.note(&progress.durable, end);
    }
    Ok(())
}

/// Sends an ack whenever there is something new to acknowledge.
async fn ack<W: AsyncWrite + Unpin>(
    writer: &mut FrameWriter<W>,
    progress: &Progress,
    mut applied: watch::Receiver<Lsn>,
    options: &LinkOptions,
) -> Result<(), LinkError> {
    let (mut reported, mut pings, mut last) = (None, 0, Instant::now());
    let mut applies = true;
    loop {
        let now = progress.ack(*applied.borrow_and_update());
        if reported != Some(now) {
            reported = Some(now);
            writer.put(&Message::Ack(now))?;
        }
        if let Some(number) = progress.pong.lock().take() {
            writer.put(&Message::Pong(number))?;
        }
        if !writer.is_empty() {
            writer.flush().await?;
            last = Instant::now();
            continue;
        }
        tokio::select! {
            biased;
            () = progress.nudge.notified() => {}
            changed = applied.changed(), if applies => applies = changed.is_ok(),
            () = tokio::time::sleep_until(last + options.heartbeat) => {
                pings += 1;
                writer.put(&Message::Ping(pings))?;
            }
        }
    }
}
