//! A promotion out of a quorum: whoever is to be promoted has to have all that enough others have.
//!
//! Of a sync set in which each commit has reached n of m standbys ([`crate::sync_members`]) one that wants to be promoted
//! asks the others where their trails end on their disks, and compares. Asked is over the control plane's own
//! connections, because they are the only ones between any two members that are known beforehand.
//!
//! | its trail and that of the one asked | |
//! |---|---|
//! | has the boxcar that the other one ends with | has all |
//! | the other one's last boxcar is of an older epoch | has all: what else the other one has was never acknowledged |
//! | the other one's last boxcar is of a newer epoch, or of the same and farther on | the other one is ahead |
//! | is older than what is kept, and the last boxcars are of one epoch | has all |
//! | otherwise | they have parted: nobody can say |
//!
//! Why the older epoch has nothing: a quorum is named only when n standbys have everything and, as the last of it, a boxcar
//! of the epoch in which it is named ([`crate::ControlPlane::name_quorum`]). So whatever was acknowledged is at n standbys
//! whose last boxcar is of that epoch, the newest there is. One whose last boxcar is older than another's is none of them.
//! Without that rule it might be: a master may acknowledge, in a new epoch, what it wrote in an older one.
//!
//! When is asked: after the old master has been deposed and its lease has been waited out, or was given up. From then on
//! it acknowledges nothing: the lease is looked at when an answer leaves. So whatever was acknowledged was on the disks
//! of n standbys before the question, and stays there. A standby that has answered may go on taking boxcars of the deposed
//! master and confirming them: that master counts them and may tell nobody. It cannot get a new lease in its epoch, and
//! were it promoted anew, the record's epoch would be another, for which this comparison is not taken. So nothing has to
//! be promised with the answer. The set does not change in between either: only a master that serves changes it.
//!
//! The old master is asked as well: as long as it is open in its epoch it has everything that it acknowledged, so it alone
//! is enough.
//!
//! All are asked once before, too, so that nobody is deposed for a promotion that cannot succeed. That answer alone would not
//! do: the master may acknowledge more until its lease is out.
//!
//! How it fails: who is ahead, or cannot be asked, is asked again for [`PATIENCE`], and then named. When that happens after
//! the old master was deposed the record stays so: the one that is ahead is promoted, or the same one again later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use holdfast_types::Epoch;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use crate::core::Core;
use crate::error::ControlError;
use crate::id::NodeId;
use crate::record::{Record, Role};
use crate::wire::{Reply, Request};

/// How long others are asked again: one that is ahead by what the old master still sends is soon caught up with.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long one of them has to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_AFTER: Duration = Duration::from_millis(100);

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

/// What one trail has of another; see the module's table.
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

    fn get(&self) -> Result<Arc<dyn ComparedTrail>, String> {
        self.0.lock().clone().ok_or_else(|| "it has no trail open at the moment".to_owned())
    }

    pub async fn tip(&self) -> Result<TrailTip, String> {
        self.get()?.tip().await
    }
}

/// What came of asking each member.
type Found = BTreeMap<NodeId, Result<Compared, String>>;

impl Core {
    /// Those that this node has all of, as many of them as the record asks for before `node` is promoted.
    pub async fn compared(&self, record: &Record, node: NodeId) -> Result<BTreeSet<NodeId>, ControlError> {
        let mut enough = BTreeSet::new();
        #[cfg(test)]
        if self.sabotage.claims_all(record) {
            return Ok(record.sync_set.members().clone());
        }
        let until = Instant::now() + PATIENCE;
        while !record.has_everything(node, &enough) {
            let found = self.compare_with_others(record, node).await;
            let has_all = found.iter().filter(|(_, found)| **found == Ok(Compared::HasAll));
            enough = has_all.map(|(other, _)| *other).collect();
            if !record.has_everything(node, &enough) {
                if Instant::now() >= until {
                    return Err(not_enough(record, node, found));
                }
                sleep(RETRY_AFTER).await;
            }
        }
        Ok(enough)
    }

    async fn compare_with_others(&self, record: &Record, node: NodeId) -> Found {
        let is_asked = |other: &&NodeId| **other != node && record.members.get(other) == Some(&Role::Data);
        let others = record.sync_set.members().iter().filter(is_asked);
        let asked = others.map(|other| async { (*other, self.compare_with(record, node, *other).await) });
        join_all(asked).await.into_iter().collect()
    }

    async fn compare_with(&self, record: &Record, node: NodeId, other: NodeId) -> Result<Compared, String> {
        if node != self.me {
            return Err(format!("only {node} itself can compare its trail"));
        }
        let asked = timeout(2 * ANSWER_TIMEOUT, self.peers.ask(other, Request::Tip, ANSWER_TIMEOUT)).await;
        let tip = match asked.map_err(std::io::Error::from).and_then(|asked| asked) {
            Ok(Reply::Tip(tip)) => tip?,
            Ok(_) => return Err("it answered something else".to_owned()),
            Err(error) => return Err(error.to_string()),
        };
        // The old master vouches for everything, so it has to be what it was when it was deposed.
        if record.master == Some(other) && tip.leads != Some(record.epoch.0) {
            return Err(format!("it is not open as the master of epoch {}", record.epoch));
        }
        self.trail.get()?.compare(tip).await
    }
}

/// Why this is not enough: rather who is ahead than who is silent, and the old master only where it alone could tell.
fn not_enough(record: &Record, node: NodeId, found: Found) -> ControlError {
    let is_standby = |(other, _): &(&NodeId, &Result<Compared, String>)| Some(**other) != record.master;
    let first =
        |what: Compared| found.iter().filter(is_standby).find(|(_, f)| **f == Ok(what)).map(|(other, _)| *other);
    if let Some(ahead) = first(Compared::OtherIsAhead) {
        return ControlError::Behind { node, ahead };
    }
    if let Some(other) = first(Compared::Parted) {
        return ControlError::Parted { node, other };
    }
    let silent = |all: bool| -> Vec<String> {
        let silent = found.iter().filter(|other| all || is_standby(other));
        silent.filter_map(|(other, found)| Some(format!("{other} ({})", found.as_ref().err()?))).collect()
    };
    let mut others = silent(false);
    if others.is_empty() {
        others = silent(true);
    }
    ControlError::NotCompared { node, others: others.join(", ") }
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
