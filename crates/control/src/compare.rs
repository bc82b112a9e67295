//! A promotion out of a quorum: the candidate must have everything that enough other standbys have.
//!
//! In a sync set in which each commit has reached n of m standbys ([`crate::sync_members`]), a candidate asks the
//! others where their trails end on their disks, and compares. It uses the control plane's own connections, because
//! they are the only known connections between any two members.
//!
//! The table of [`crate::trail_tip`] says what the answers mean.
//!
//! Why the older epoch has nothing: a quorum is named only when n standbys have everything and, as the last of it, a boxcar
//! of the epoch in which it is named ([`crate::ControlPlane::name_quorum`]). So whatever was acknowledged is at n standbys
//! whose last boxcar is of that epoch, the newest there is. One whose last boxcar is older than another's is none of them.
//! Without that rule it might be: a master may acknowledge, in a new epoch, what it wrote in an older one.
//!
//! When the others are asked: after the old master was deposed and its lease has expired or was released. From then on
//! it acknowledges nothing, because it checks the lease when an answer is sent. So everything acknowledged was on the
//! disks of n standbys before the request, and stays there. A standby that has answered may continue to receive and
//! confirm boxcars of the deposed master: that master counts them and may not acknowledge them. It cannot get a new
//! lease in its epoch; if it were promoted again, the record would have another epoch, for which this comparison does
//! not count. So the answer needs no promise. The set does not change in between either: only a serving master changes
//! it.
//!
//! The old master is also asked: while it is open in its epoch it has everything that it acknowledged, so it alone is
//! enough.
//!
//! An answer from a trail that ends before the position that the record knows of that node does not count: its directory was
//! put back from an older copy.
//!
//! Where no person has asked for the promotion, a standby counts only if it has followed this master since its process started
//! (rule K6): after a power cut of all, what stands in for the lost master might be a directory that was put back, and an older
//! one than the record knows of.
//!
//! All are also asked once before the master is deposed, so that it is not deposed for a promotion that cannot succeed.
//! That answer alone is not enough: the master may acknowledge more until its lease expires.
//!
//! How it fails: a standby that is ahead or unreachable is asked again for [`PATIENCE`]; then the error names it. If
//! the old master is already deposed, the record stays so: promote the standby that is ahead, or retry later.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use holdfast_types::Epoch;
use tokio::time::{Instant, sleep, timeout};

use crate::core::Core;
use crate::error::ControlError;
use crate::id::NodeId;
use crate::record::{Position, Record, Role};
use crate::trail_tip::{Compared, TrailTip};
use crate::wire::{Reply, Request};

/// The time for which the others are asked again: the candidate soon catches up with a standby that is ahead only by
/// what the old master still sends.
const PATIENCE: Duration = Duration::from_secs(3);
/// The time that each of them has to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The result of asking each member.
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

    /// Refuses a promotion of this node if its trail was put back from an older copy: if the group knows that it had more, or,
    /// where it was the last master itself, if another node has what was durable here.
    pub async fn check_not_rolled_back(
        &self,
        expected_epoch: Epoch,
        trail_end: Option<Position>,
    ) -> Result<(), ControlError> {
        // Of another epoch: the group will say so.
        let Some(record) = self.published.get().filter(|record| record.epoch == expected_epoch) else { return Ok(()) };
        self.check_position(&record, trail_end)?;
        let Some(end) = self.own_end(trail_end).filter(|_| record.master == Some(self.me)) else { return Ok(()) };
        let is_asked = |node: &NodeId| *node != self.me && record.members.get(node) == Some(&Role::Data);
        let others = record.members.keys().copied().filter(is_asked);
        let asked = others.map(|node| async move { (node, self.tip_of(node).await) });
        for (ahead, tip) in join_all(asked).await {
            // A node that does not answer shows nothing, and what is of an older epoch was written by another master.
            let is_own = |tip: &TrailTip| tip.epoch >= record.master_since && tip.shows_loss_in(end);
            if tip.as_ref().is_ok_and(is_own) {
                let known = tip.map_or(end, |tip| Position { epoch: tip.epoch, lsn: tip.settled.unwrap_or(tip.lsn) });
                return Err(ControlError::RolledBackMaster { node: self.me, end, ahead, known });
            }
        }
        Ok(())
    }

    /// Refuses this node if the group has seen more of its trail than there is.
    pub fn check_position(&self, record: &Record, trail_end: Option<Position>) -> Result<(), ControlError> {
        let trail_end = self.own_end(trail_end);
        #[cfg(test)]
        if self.sabotage == crate::simulation::Sabotage::AnyPosition {
            return Ok(());
        }
        let Some(known) = record.missing_at(self.me, trail_end) else { return Ok(()) };
        let end = trail_end.map_or_else(|| "it has no trail".to_owned(), |end| format!("its trail ends at {end}"));
        let others = record.sync_set.members().iter().filter(|node| **node != self.me);
        let others: Vec<String> = others.map(NodeId::to_string).collect();
        Err(ControlError::RolledBackTrail { node: self.me, end, known, others: others.join(" or ") })
    }

    /// The end of this node's trail: of the open one now, because it may have grown since the promotion was requested, and the
    /// record with it; else what was found when it was not open.
    fn own_end(&self, found: Option<Position>) -> Option<Position> {
        self.trail.get().ok().map(|trail| trail.end()).or(found)
    }

    async fn tip_of(&self, other: NodeId) -> Result<TrailTip, String> {
        let asked = timeout(2 * ANSWER_TIMEOUT, self.peers.ask(other, Request::Tip, ANSWER_TIMEOUT)).await;
        match asked.map_err(std::io::Error::from).and_then(|asked| asked) {
            Ok(Reply::Tip(tip)) => tip,
            Ok(_) => Err("it sent an unexpected answer".to_owned()),
            Err(error) => Err(error.to_string()),
        }
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
        let tip = self.tip_of(other).await?;
        // Its trail may know a newer epoch in which nothing was written, so the position alone counts.
        let missing = record.missing_at(other, Some(Position { epoch: record.epoch, lsn: tip.lsn }));
        #[cfg(test)]
        let missing = missing.filter(|_| self.sabotage != crate::simulation::Sabotage::AnyPosition);
        if let Some(known) = missing {
            let why = "its directory was put back from an older copy";
            return Err(format!("its trail ends at LSN {}, but it had everything up to {known}: {why}", tip.lsn));
        }
        // The old master vouches for everything, so it has to be what it was when it was deposed.
        if record.master == Some(other) && tip.leads != Some(record.epoch.0) {
            return Err(format!("it is not open as the master of epoch {}", record.epoch));
        }
        #[cfg(test)]
        let is_trusted = self.sabotage == crate::simulation::Sabotage::AnyFollower;
        #[cfg(not(test))]
        let is_trusted = false;
        if record.automatic && record.master != Some(other) && !tip.has_followed && !is_trusted {
            return Err("it has not followed this master since its process started: a person has to promote".to_owned());
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
