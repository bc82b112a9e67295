//! Follows the trail while it is written, and finds out whether two trails are equal up to a position.
//!
//! Failure: a position that was recycled is [`TrailError::Gone`], a position between two boxcars is
//! [`TrailError::NotABoundary`]; an error about damage names the position.

use std::sync::Arc;

use holdfast_types::{Epoch, Lsn};

use crate::error::TrailError;
use crate::layout::BLOCK;
use crate::live::ProgressHook;
use crate::reader::Reader;
use crate::shared::Shared;
use crate::shipped::Shipped;
use crate::trail::Trail;

/// Returns boxcars from a position on: first those on the disk, then each one as it is being written. Unlike a
/// [`Reader`] it runs ahead of the durable position.
pub struct Tap {
    shared: Arc<Shared>,
    reader: Reader,
}

/// Whether a boxcar with a given checksum ends at a given position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Match {
    Yes,
    No,
    /// The position is older than the oldest kept segment.
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

    /// The next boxcar, or `None` until there is one: see [`Trail::on_progress`]. Waits only for disk reads. The last
    /// boxcar returned may not be durable on this node yet. When a later one is returned, it is durable here; if this
    /// trail follows another one, it is durable on the master.
    #[expect(clippy::should_implement_trait, reason = "it is not an iterator: more may come after None")]
    pub fn next(&mut self) -> Result<Option<Shipped>, TrailError> {
        if let Some(boxcar) = self.shared.live.at(self.reader.position()) {
            self.reader.skip_to(boxcar.end);
            return Ok(Some(boxcar));
        }
        let layout = self.shared.layout;
        self.reader.read_as(|head, whole| Shipped::new(head, whole, layout))
    }

    /// LSN at which the next boxcar will start.
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
    /// Returns boxcars from a position that the trail has returned. Boxcars that a tap has yet to read must be retained
    /// ([`Trail::retain_from`]).
    pub fn tap(&self, from: Lsn) -> Result<Tap, TrailError> {
        Tap::new(self.shared().clone(), from)
    }

    /// The durable position, where the next boxcar starts, and the checksum of the last boxcar; 0 in a trail without
    /// boxcars.
    pub fn tip(&self) -> (Lsn, u32) {
        self.shared().tip()
    }

    /// The durable position, and the checksum and epoch of the last boxcar, to which [`Trail::epoch`] may be ahead; 0
    /// and epoch 0 in a trail without boxcars.
    pub fn end(&self) -> (Lsn, u32, Epoch) {
        let (lsn, last) = self.shared().end();
        last.map_or((lsn, 0, Epoch(0)), |last| (lsn, last.checksum, last.epoch))
    }

    /// Whether a boxcar with this checksum ends at `lsn`. Two trails that both answer yes are equal up to there. A new
    /// follower without a boxcar passes checksum 0 and the start of a segment, before which nothing can differ.
    pub fn ends_with(&self, lsn: Lsn, checksum: u32) -> Result<Match, TrailError> {
        let shared = self.shared();
        // Checked first: a boxcar in flight now is durable or still in flight when the tip is read.
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
        // The boxcar that starts there has the checksum of the one before it.
        let read =
            Reader::new(shared.clone(), lsn).and_then(|mut reader| reader.read_as(|head, _| head.previous_checksum));
        match read {
            Ok(previous) => Ok(Match::yes_if(previous == Some(checksum))),
            Err(TrailError::Gone { .. }) => Ok(Match::Gone),
            Err(TrailError::NotABoundary { .. }) => Ok(Match::No),
            Err(error) => Err(error),
        }
    }

    /// Sets a hook that the writing thread calls after boxcars were handed to taps and after every advance of the
    /// durable position. The hook must not block, append or receive, and must not own the trail or a tap, because the
    /// trail owns the hook while it is open.
    pub fn on_progress(&self, hook: ProgressHook) {
        self.shared().live.watch(hook);
    }
}
