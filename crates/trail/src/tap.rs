//! Following the trail while it is written, and asking whether two trails are the same up to a position.
//!
//! Failure: a position that has been recycled is [`TrailError::Gone`], one between two boxcars
//! [`TrailError::NotABoundary`]; damage is told by its place.

use std::sync::Arc;

use holdfast_types::{Epoch, Lsn};

use crate::error::TrailError;
use crate::layout::BLOCK;
use crate::live::ProgressHook;
use crate::reader::Reader;
use crate::shared::Shared;
use crate::shipped::Shipped;
use crate::trail::Trail;

/// Boxcars from a position on: those on the disk first, then each one as it is being written. Unlike a [`Reader`] it
/// runs ahead of the durable position.
pub struct Tap {
    shared: Arc<Shared>,
    reader: Reader,
}

/// Whether a boxcar with a given checksum ends at a given position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Match {
    Yes,
    No,
    /// The position is older than what is kept.
    Gone,
}

impl Match {
    fn yes_if(same: bool) -> Match {
        if same { Match::Yes } else { Match::No }
    }
}

impl Tap {
    fn new(shared: Arc<Shared>, from: Lsn) -> Result<Tap, TrailError> {
        let reader = Reader::new(shared.clone(), from)?;
        shared.live.add_tap();
        Ok(Tap { shared, reader })
    }

    /// The next boxcar, or `None` until there is one: see [`Trail::on_progress`]. Waits for nothing but disk reads. The
    /// last boxcar it gave may not be durable on this node yet; a boxcar behind it shows that it is, unless this trail
    /// follows another: then it shows that it is durable on the master.
    #[expect(clippy::should_implement_trait, reason = "it is no iterator: more may come after None")]
    pub fn next(&mut self) -> Result<Option<Shipped>, TrailError> {
        if let Some(boxcar) = self.shared.live.at(self.reader.position()) {
            self.reader.skip_to(boxcar.end);
            return Ok(Some(boxcar));
        }
        let layout = self.shared.layout;
        self.reader.read_as(|head, whole| Shipped::new(head, whole, layout))
    }

    /// Where the next boxcar will start.
    pub fn position(&self) -> Lsn {
        self.reader.position()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.shared.live.remove_tap();
    }
}

impl Trail {
    /// Boxcars from a position on that the trail handed out. The recycle floor must keep what a tap has yet to read.
    pub fn tap(&self, from: Lsn) -> Result<Tap, TrailError> {
        Tap::new(self.shared().clone(), from)
    }

    /// Everything below is durable: where the next boxcar goes, and the checksum of the last one; 0 in a trail without
    /// boxcars.
    pub fn tip(&self) -> (Lsn, u32) {
        self.shared().tip()
    }

    /// The same with the epoch that the last boxcar was written in, which [`Trail::epoch`] may be ahead of; epoch 0 in a
    /// trail without boxcars.
    pub fn end(&self) -> (Lsn, u32, Epoch) {
        let (lsn, last) = self.shared().end();
        last.map_or((lsn, 0, Epoch(0)), |last| (lsn, last.checksum, last.epoch))
    }

    /// Does a boxcar with this checksum end at `lsn`? Two trails that both say yes are the same up to there. A follower
    /// that was founded and has no boxcar yet asks with checksum 0 and the start of a segment: nothing there can differ.
    pub fn ends_with(&self, lsn: Lsn, checksum: u32) -> Result<Match, TrailError> {
        let shared = self.shared();
        // Asked first: what is in flight now is durable or still in flight when the tip is looked at.
        let in_flight = shared.live.is_in_flight(lsn, checksum);
        let (end, last) = shared.tip();
        let layout = shared.layout;
        let founded = checksum == 0 && layout.offset_of(lsn) == BLOCK;
        if lsn > end {
            return Ok(Match::yes_if(in_flight));
        }
        if lsn < shared.first() {
            return Ok(Match::Gone);
        }
        if lsn == end || founded {
            return Ok(Match::yes_if(founded || last == checksum));
        }
        if !lsn.0.is_multiple_of(BLOCK) || layout.offset_of(lsn) == 0 {
            return Ok(Match::No);
        }
        // The boxcar that starts there names the one before it.
        let read =
            Reader::new(shared.clone(), lsn).and_then(|mut reader| reader.read_as(|head, _| head.previous_checksum));
        match read {
            Ok(previous) => Ok(Match::yes_if(previous == Some(checksum))),
            Err(TrailError::Gone { .. }) => Ok(Match::Gone),
            Err(TrailError::NotABoundary { .. }) => Ok(Match::No),
            Err(error) => Err(error),
        }
    }

    /// Has `hook` called after boxcars were handed to taps and after every advance of the durable position, by the
    /// thread that writes. It must not block, append or receive, nor own the trail or a tap: the trail owns it, as long as
    /// it is open.
    pub fn on_progress(&self, hook: ProgressHook) {
        self.shared().live.watch(hook);
    }
}
