//! The progress of a standby: what it may apply, what it has applied, and how far its files are.

use holdfast_trail::Trail;
use holdfast_types::{Lsn, SqlError, SqlResult, SqlState, VolumeId};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A volume's last batch in the trail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastBatch {
    pub number: u64,
    pub start: Lsn,
    pub end: Lsn,
}

/// Called with the new position when more has been applied; it must not block.
pub type OnApplied = Arc<dyn Fn(Lsn) + Send + Sync>;

/// What a standby has in addition to what a master has.
#[derive(Default)]
pub struct Follow {
    pub state: Mutex<FollowProgress>,
    pub changed: Condvar,
}

#[derive(Default)]
pub struct FollowProgress {
    /// Everything below is durable at the master.
    pub allowed: Lsn,
    /// Everything below is applied and visible to readers.
    pub applied: Lsn,
    /// Readers are admitted from here on: before, the volumes may show different points in time. The trail's last
    /// boxcar begins here, unless a base copy ends later: only the master knows whether that one is durable there.
    /// Readers may have seen it before the restart, and see it again as soon as the master is back.
    pub whole_from: Lsn,
    /// Each volume's last batch in the trail at the time it was opened.
    pub last: BTreeMap<VolumeId, LastBatch>,
    /// Numbers of batches that were published, and where they end in the trail, since each volume's last checkpoint.
    pub ends: BTreeMap<VolumeId, VecDeque<(u64, Lsn)>>,
    pub stop: bool,
    pub failure: Option<String>,
    pub on_applied: Option<OnApplied>,
    /// The file `checkpoints` could not be written: the trail keeps what it has.
    pub unwritten: bool,
}

impl Follow {
    /// Waits until there is something to apply behind `position`; returns the end of it. `None` means stop.
    pub fn wait(&self, trail: &Trail, position: Lsn) -> Option<Lsn> {
        let mut state = self.state.lock();
        loop {
            let until = state.allowed.min(trail.durable());
            if state.stop {
                return None;
            }
            if until > position {
                return Some(until);
            }
            self.changed.wait(&mut state);
        }
    }

    pub fn stops(&self) -> bool {
        self.state.lock().stop
    }

    pub fn allow(&self, lsn: Lsn) {
        let mut state = self.state.lock();
        state.allowed = lsn.max(state.allowed);
        drop(state);
        self.changed.notify_all();
    }

    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }

    pub fn applied_to(&self, lsn: Lsn) {
        let mut state = self.state.lock();
        if lsn <= state.applied {
            return;
        }
        state.applied = lsn;
        let tell = state.on_applied.clone();
        drop(state);
        self.changed.notify_all();
        if let Some(tell) = tell {
            tell(lsn);
        }
    }

    /// Batch `number` of a volume was published; it ends at `end`.
    pub fn published(&self, id: VolumeId, number: u64, end: Lsn) {
        self.state.lock().ends.entry(id).or_default().push_back((number, end));
    }

    /// Where the batch ends that is the last in a file, or, for one that was there before this start, a place behind that end
    /// up to which the master cannot have lost anything. 0: in front of the trail.
    pub fn end_of(&self, id: VolumeId, number: u64) -> Lsn {
        let mut state = self.state.lock();
        let mut end = found_end(&state.last, id, number);
        if let Some(ends) = state.ends.get_mut(&id) {
            while let Some((n, lsn)) = ends.front().copied().filter(|(n, _)| *n <= number) {
                end = lsn;
                // The last one stays: the next checkpoint may find nothing newer.
                if n == number || ends.get(1).is_none_or(|(next, _)| *next > number) {
                    break;
                }
                ends.pop_front();
            }
        }
        end
    }

    /// Returns 57P03 while the volumes do not show the same point in time.
    pub fn refuse_before_whole(&self) -> SqlResult<()> {
        let state = self.state.lock();
        if state.applied >= state.whole_from {
            return Ok(());
        }
        let message = match &state.failure {
            Some(why) => format!("the standby cannot apply what it has received: {why}"),
            None => "the database system is starting up".to_owned(),
        };
        Err(SqlError::new(SqlState::CANNOT_CONNECT_NOW, message)
            .with_detail(format!("Applied up to LSN {}; readers are admitted at {}.", state.applied, state.whole_from)))
    }

    /// Why the trail must keep everything: the standby's own checkpoints are not recorded.
    pub fn is_unwritten(&self) -> bool {
        self.state.lock().unwritten
    }
}

/// Computes [`Follow::end_of`] from the last batches of the trail as it was found.
pub fn found_end(last: &BTreeMap<VolumeId, LastBatch>, id: VolumeId, number: u64) -> Lsn {
    match last.get(&id) {
        Some(last) if number >= last.number => last.end,
        // What is before a boxcar was durable at the master before that one was written.
        Some(last) if number > 0 => last.start,
        _ => Lsn(0),
    }
}
