//! The receiver: the writer of a trail that follows another one. It writes the boxcars of the master at the positions
//! they have there, byte for byte, with this node's own proof before each.
//!
//! Boxcars that arrived together share a write and a sync if they are in one segment. All of them carry as their proof
//! the position that was durable before that write, so that none is evidence for another one of the write. Before the
//! first byte is written, everything is checked, room is ensured, and a higher epoch is durable. So boxcars that are
//! refused, or find the disk full, have changed nothing and can be sent again. A failed write or sync ends the process.
//!
//! The receiver writes no proofs of its own, because those would be boxcars that the master does not have. The master's
//! proofs arrive as boxcars and are proofs here too. So the last boxcar received is unproven: if it is damaged before
//! the next one arrives, it is a tail, which is cut off and received again.

use std::io::{self, IoSlice};
use std::sync::Arc;

use holdfast_seams::AlignedBuf;
use holdfast_types::{Epoch, Lsn};

use crate::boxcar::{BoxcarKind, Last, put_received};
use crate::control::Control;
use crate::error::{ReceiveError, TrailError};
use crate::layout::FIRST_SEGMENT;
use crate::options::Failure;
use crate::preparer::is_full;
use crate::shared::{Phase, Ready, Shared};
use crate::shipped::Shipped;

/// Maximum bytes in one write, unless a single boxcar is longer.
const WRITE_BYTES_MAX: u64 = 8 << 20;

pub struct Receiver {
    shared: Arc<Shared>,
    current: Ready,
    /// Position of the next boxcar.
    position: Lsn,
    /// The last boxcar; `None` while there is none.
    last: Option<Last>,
    buf: AlignedBuf,
}

impl Receiver {
    pub fn new(shared: Arc<Shared>, current: Ready, position: Lsn, last: Option<Last>) -> Receiver {
        Receiver { shared, current, position, last, buf: AlignedBuf::default() }
    }

    /// Makes boxcars that follow the last one durable, in this order, or refuses them all.
    pub fn receive(&mut self, boxcars: &[Shipped]) -> Result<(), ReceiveError> {
        let boxcars = self.check(boxcars)?;
        self.wait_for_segments(boxcars.iter().filter(|boxcar| boxcar.kind == BoxcarKind::SegmentEnd).count())?;
        if let Some(newest) = boxcars.last() {
            self.know_epoch(newest.epoch)?;
        }
        let mut rest = &boxcars[..];
        while !rest.is_empty() {
            let (group, behind) = rest.split_at(group_len(rest));
            self.write(group)?;
            rest = behind;
        }
        Ok(())
    }

    /// Parses the bytes again instead of trusting the fields next to them, which the caller could have changed.
    fn check(&self, boxcars: &[Shipped]) -> Result<Vec<Shipped>, ReceiveError> {
        let (trail_id, segment_bytes) = (self.shared.trail_id, self.shared.layout.segment_bytes);
        let (mut end, mut last) = (self.position, self.last);
        let mut checked = Vec::with_capacity(boxcars.len());
        for boxcar in boxcars {
            let boxcar = Shipped::parse(boxcar.bytes.clone(), trail_id, segment_bytes)
                .map_err(|flaw| ReceiveError::Flaw { lsn: end, flaw })?;
            self.check_place(&boxcar, end, last)?;
            end = boxcar.end;
            last = Some(Last { checksum: boxcar.checksum, epoch: boxcar.epoch });
            checked.push(boxcar);
        }
        Ok(checked)
    }

    fn check_place(&self, boxcar: &Shipped, expected: Lsn, last: Option<Last>) -> Result<(), ReceiveError> {
        let (lsn, found) = (boxcar.lsn, boxcar.previous_checksum);
        if lsn != expected {
            return Err(ReceiveError::Position { found: lsn, expected });
        }
        let Some(last) = last else {
            // A follower may begin in the middle of a trail; only the very first boxcar of a trail follows none.
            let has_none_before = lsn == self.shared.layout.first_lsn(FIRST_SEGMENT);
            let fits = !has_none_before || found == 0;
            return if fits { Ok(()) } else { Err(ReceiveError::Chain { lsn, found, expected: 0 }) };
        };
        if boxcar.epoch < last.epoch {
            return Err(ReceiveError::OldEpoch { lsn, found: boxcar.epoch, last: last.epoch });
        }
        if found != last.checksum {
            return Err(ReceiveError::Chain { lsn, found, expected: last.checksum });
        }
        Ok(())
    }

    /// Waits until `count` segments are ready: a segment end is written only when the next segment exists.
    fn wait_for_segments(&self, count: usize) -> Result<(), ReceiveError> {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        loop {
            match state.phase {
                Phase::Running => {}
                Phase::Failed => return Err(ReceiveError::Failed),
                Phase::Stopping | Phase::Stopped => return Err(ReceiveError::Closed),
            }
            if state.ready.len() >= count {
                return Ok(());
            }
            if state.disk_full {
                // Makes the preparer try again: disk space may have been freed since.
                state.retry = true;
                shared.prepare.notify_one();
                return Err(ReceiveError::Full { dir: shared.options.dir.clone() });
            }
            state.stats.segment_waits += 1;
            state.waiters += 1;
            shared.prepare.notify_one();
            shared.room.wait(&mut state);
            state.waiters -= 1;
        }
    }

    /// Makes the epoch durable before the first boxcar of that epoch is written. A known epoch costs nothing.
    pub fn know_epoch(&self, epoch: Epoch) -> Result<(), ReceiveError> {
        let shared = &self.shared;
        if epoch <= shared.epoch() {
            return Ok(());
        }
        let dir = &shared.options.dir;
        let mut control = shared.control.lock();
        let raised = Control { epoch, ..*control };
        match raised.write(&*shared.disk, dir) {
            Ok(()) => {
                *control = raised;
                shared.set_epoch(epoch);
                Ok(())
            }
            Err(TrailError::Io { source, .. }) if is_full(&source) => Err(ReceiveError::Full { dir: dir.clone() }),
            Err(error) => {
                drop(control);
                shared.fail(&Failure::of(error, dir));
                Err(ReceiveError::Failed)
            }
        }
    }

    /// Writes boxcars that come next and are in one segment, and makes them durable.
    fn write(&mut self, group: &[Shipped]) -> Result<(), ReceiveError> {
        let shared = self.shared.clone();
        let len = self.fill(group);
        if shared.live.is_tapped() {
            group.iter().for_each(|boxcar| shared.live.hand(boxcar.clone(), self.position));
            shared.live.progress();
        }
        let offset = shared.layout.offset_of(self.position);
        let blocks = &self.buf.as_slice()[..len as usize];
        let started = shared.sync_begins();
        let written = self.current.file.write_at(&[IoSlice::new(blocks)], offset);
        self.check_io("write", offset, written)?;
        self.check_io("sync", offset, shared.options.sync_method.sync(&*self.current.file))?;
        shared.sync_ended(started);
        self.account(group, len);
        if let Some(last) = group.last() {
            if last.kind == BoxcarKind::SegmentEnd {
                self.enter_next_segment()?;
            }
            self.position = last.end;
            let end = Last { checksum: last.checksum, epoch: last.epoch };
            self.last = Some(end);
            shared.advance(last.end, end);
        }
        Ok(())
    }

    /// Puts the group into the buffer. Returns the number of bytes to write.
    fn fill(&mut self, group: &[Shipped]) -> u64 {
        let len: u64 = group.iter().map(Shipped::disk_bytes).sum();
        self.buf.grow_to(len as usize);
        let mut rest = &mut self.buf.as_mut_slice()[..len as usize];
        for boxcar in group {
            let (blocks, behind) = rest.split_at_mut(boxcar.disk_bytes() as usize);
            put_received(blocks, &boxcar.bytes, self.position, self.shared.incarnation);
            rest = behind;
        }
        len
    }

    fn account(&self, group: &[Shipped], disk_bytes: u64) {
        let mut state = self.shared.state.lock();
        state.stats.boxcars += group.iter().filter(|boxcar| boxcar.kind == BoxcarKind::Data).count() as u64;
        state.stats.proofs += group.iter().filter(|boxcar| boxcar.kind == BoxcarKind::Proof).count() as u64;
        state.stats.body_bytes += group.iter().map(|boxcar| boxcar.body().len() as u64).sum::<u64>();
        state.stats.disk_bytes += disk_bytes;
    }

    fn enter_next_segment(&mut self) -> Result<(), ReceiveError> {
        let mut state = self.shared.state.lock();
        // It was ready before the first byte was written, and no other thread takes it.
        self.current = state.ready.pop_front().ok_or(ReceiveError::Failed)?;
        state.room.segment_entered();
        self.shared.prepare.notify_one();
        Ok(())
    }

    fn check_io(&self, what: &'static str, offset: u64, result: io::Result<()>) -> Result<(), ReceiveError> {
        result.map_err(|error| {
            self.shared.fail(&Failure { what, file: self.current.path.clone(), offset, error });
            ReceiveError::Failed
        })
    }
}

/// How many of the boxcars go into one write: those of one segment, up to the maximum bytes of a write.
fn group_len(boxcars: &[Shipped]) -> usize {
    let mut bytes = 0;
    for (index, boxcar) in boxcars.iter().enumerate() {
        bytes += boxcar.disk_bytes();
        if index > 0 && bytes > WRITE_BYTES_MAX {
            return index;
        }
        if boxcar.kind == BoxcarKind::SegmentEnd {
            return index + 1;
        }
    }
    boxcars.len()
}
