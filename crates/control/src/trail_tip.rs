//! Where this node's trail ends, and how two ends of trails compare. The control plane knows nothing else of trails.
//!
//! | its trail and that of the one asked | |
//! |---|---|
//! | has the boxcar that the other one ends with | has all |
//! | the other one's last boxcar is of an older epoch | has all: what else the other one has was never acknowledged |
//! | the other one's last boxcar is of a newer epoch, or of the same and farther on | the other one is ahead |
//! | is older than what is kept, and the last boxcars are of one epoch | has all |
//! | otherwise | they have diverged: unknown |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use holdfast_types::Epoch;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::id::NodeId;
use crate::record::Position;

/// Where a trail ends on its node's disk. The control plane knows nothing else of trails.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
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
    /// Everything below was durable at the master that wrote it. What a standby has beyond that may be cut off without
    /// loss; what it has below that, the master must have, too. Older programs do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<u64>,
    /// Why its node cannot become the master by itself; `None`: nothing is known that would prevent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
    /// A standby's: it has followed the server that it follows since its process started. Before that its directory may be an older
    /// copy (rule K6).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_followed: bool,
}

impl TrailTip {
    /// Whether a trail that knows `own.epoch` and ends at `own.lsn`, and that was the master's, has lost what this one took
    /// over from it. Where this trail's last boxcar is of an older epoch, the two may have parted without a loss.
    pub fn shows_loss_in(&self, own: Position) -> bool {
        self.epoch > own.epoch || (self.epoch == own.epoch && self.settled.is_some_and(|settled| settled > own.lsn))
    }
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

    /// The newest epoch that it knows, and the end of what is on its disk, now.
    fn end(&self) -> Position;

    /// If it is open as the trail of the master of this epoch: what this node has on its disk, and what each other node
    /// has confirmed to have of that. Everything below these positions is on the disks of both, for good.
    fn positions(&self, epoch: Epoch) -> BTreeMap<NodeId, u64>;

    /// For how long a sync of it has been under way; `None`: none is.
    fn sync_under_way(&self) -> Option<Duration> {
        None
    }
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

    /// See [`ComparedTrail::positions`]; empty while no trail is open.
    pub fn positions(&self, epoch: Epoch) -> BTreeMap<NodeId, u64> {
        self.get().map(|trail| trail.positions(epoch)).unwrap_or_default()
    }

    pub async fn tip(&self) -> Result<TrailTip, String> {
        self.get()?.tip().await
    }
}

/// Where this node takes the links of other nodes.
#[derive(Clone, Default)]
pub struct LinkSlot(Arc<Mutex<Option<String>>>);

impl LinkSlot {
    pub fn set(&self, link: Option<String>) {
        *self.0.lock() = link;
    }

    pub fn get(&self) -> Option<String> {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_that_has_more_of_what_was_durable_shows_a_loss() {
        let tip = |epoch, settled| TrailTip {
            trail: "t".to_owned(),
            epoch: Epoch(epoch),
            lsn: 200,
            checksum: 1,
            leads: None,
            settled,
            ..TrailTip::default()
        };
        let own = Position { epoch: Epoch(5), lsn: 100 };
        assert!(tip(5, Some(101)).shows_loss_in(own) && tip(6, Some(90)).shows_loss_in(own));
        // A tail that the master never made durable; a history that ended before this node was master; an older program.
        let no_loss = [tip(5, Some(100)), tip(4, Some(150)), tip(5, None)];
        assert!(no_loss.iter().all(|tip| !tip.shows_loss_in(own)));
    }

    #[test]
    fn the_decision_table() {
        let tip = |epoch, lsn| TrailTip {
            trail: "t".to_owned(),
            epoch: Epoch(epoch),
            lsn,
            checksum: 1,
            leads: None,
            settled: None,
            ..TrailTip::default()
        };
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
