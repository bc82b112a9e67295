//! Where this node's trail ends, and how two ends of trails compare. The control plane knows nothing else of trails.
//!
//! | its trail and that of the one asked | |
//! |---|---|
//! | has the boxcar that the other one ends with | has all |
//! | the other one's last boxcar is of an older epoch | has all: what else the other one has was never acknowledged |
//! | the other one's last boxcar is of a newer epoch, or of the same and farther on | the other one is ahead |
//! | is older than what is kept, and the last boxcars are of one epoch | has all |
//! | otherwise | they have diverged: unknown |

use std::sync::Arc;

use futures::future::BoxFuture;
use holdfast_types::Epoch;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Where a trail ends on its node's disk. The control plane knows nothing else of trails.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TrailTip {
    /// Which trail that is.
    pub trail: String,
    /// In which the last boxcar was written.
    #[serde(with = "crate::record::epoch")]
    pub epoch: Epoch,
    pub lsn: u64,
    /// Of the last boxcar; 0 where there is none.
    pub checksum: u32,
    /// It is open as the trail of the master of this epoch.
    pub leads: Option<u32>,
}

/// What one trail has of another; see the table of the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compared {
    HasAll,
    OtherIsAhead,
    Parted,
}

/// Decides by the module's table. `has_it`: whether the boxcar that the other trail ends with is in this one, on its disk;
/// `None`: it is older than what is kept here.
pub fn judge(own: &TrailTip, other: &TrailTip, has_it: Option<bool>) -> Compared {
    match has_it {
        _ if own.trail != other.trail => Compared::Parted,
        Some(true) => Compared::HasAll,
        // One master wrote both ends: there was nothing beside it.
        None if other.epoch == own.epoch => Compared::HasAll,
        _ if other.epoch < own.epoch => Compared::HasAll,
        Some(false) if (other.epoch, other.lsn) > (own.epoch, own.lsn) => Compared::OtherIsAhead,
        Some(false) | None => Compared::Parted,
    }
}

/// The trail of this node, for comparisons. An error says why there is no answer.
pub trait ComparedTrail: Send + Sync {
    /// Its end on the disk, at some moment after the call; everything that was received before is below it.
    fn tip(&self) -> BoxFuture<'static, Result<TrailTip, String>>;

    /// What it has, on its disk, of the trail that ends there.
    fn compare(&self, other: TrailTip) -> BoxFuture<'static, Result<Compared, String>>;
}

/// The trail that is open on this node, if one is.
#[derive(Clone, Default)]
pub struct TrailSlot(Arc<Mutex<Option<Arc<dyn ComparedTrail>>>>);

impl TrailSlot {
    pub fn set(&self, trail: Option<Arc<dyn ComparedTrail>>) {
        *self.0.lock() = trail;
    }

    pub fn get(&self) -> Result<Arc<dyn ComparedTrail>, String> {
        self.0.lock().clone().ok_or_else(|| "it has no open trail".to_owned())
    }

    pub async fn tip(&self) -> Result<TrailTip, String> {
        self.get()?.tip().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_decision_table() {
        let tip = |epoch, lsn| TrailTip { trail: "t".to_owned(), epoch: Epoch(epoch), lsn, checksum: 1, leads: None };
        let own = tip(5, 100);
        let table = [
            (tip(5, 90), Some(true), Compared::HasAll),
            (tip(6, 90), Some(true), Compared::HasAll),
            (tip(4, 200), Some(false), Compared::HasAll),
            (tip(4, 90), None, Compared::HasAll),
            (tip(5, 90), None, Compared::HasAll),
            (tip(5, 101), Some(false), Compared::OtherIsAhead),
            (tip(6, 90), Some(false), Compared::OtherIsAhead),
            (tip(5, 100), Some(false), Compared::Parted),
            (tip(5, 90), Some(false), Compared::Parted),
            (tip(6, 90), None, Compared::Parted),
            (TrailTip { trail: "u".to_owned(), ..tip(5, 100) }, Some(true), Compared::Parted),
        ];
        for (other, has_it, expected) in table {
            assert_eq!(judge(&own, &other, has_it), expected, "{other:?} {has_it:?}");
        }
    }
}
