//! Compares this node's trail with those of other members, for promotions out of a quorum (the module `compare` of
//! `holdfast_control` defines what is compared, and when).
//!
//! | this node | the end of its trail that it reports |
//! |---|---|
//! | has no role yet, or changes it | none: no trail is open |
//! | is a standby whose base copy is not complete | none: it may lack what it once confirmed under its name |
//! | is a standby that has received more than it has written | after it has written that: it may have been acknowledged at level warm |
//! | is any other | the end of what is durable |
//!
//! Failure: a trail that cannot be read gives no answer; the asking member gets the cause.

use crate::following::Following;
use holdfast_control::{Compared, ComparedTrail, NodeId, Position, TrailTip, judge};
use holdfast_engine::Engine;
use holdfast_standby::Hub;
use holdfast_trail::{Match, Trail, TrailError};
use holdfast_types::{Epoch, Lsn};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often a standby checks whether it has written what it had received, and the pause between two checks.
const CHECKS: usize = 50;
const CHECK_EVERY: Duration = Duration::from_millis(20);

type Later<T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send>>;

/// This node's trail, for comparisons.
#[derive(Clone)]
pub struct TrailComparison {
    pub engine: Engine,
    /// Set on a standby.
    pub following: Option<Arc<Following>>,
    /// Knows what the standbys of a master have confirmed.
    pub hub: Weak<Hub>,
    pub name: String,
}

impl ComparedTrail for TrailComparison {
    fn tip(&self) -> Later<TrailTip> {
        let (engine, following) = (self.engine.clone(), self.following.clone());
        Box::pin(async move {
            if let Some(following) = &following {
                wait_until_written(following).await?;
            }
            let leads = (!engine.is_standby()).then(|| engine.trail().epoch().0);
            let lacks = following.as_ref().and_then(|following| following.lacks());
            let has_followed = following.is_some_and(|following| following.has_followed());
            Ok(TrailTip { leads, settled: Some(engine.settled().0), lacks, has_followed, ..tip_of(engine.trail()) })
        })
    }

    fn compare(&self, other: TrailTip) -> Later<Compared> {
        let engine = self.engine.clone();
        Box::pin(async move {
            let compared = tokio::task::spawn_blocking(move || compare(engine.trail(), &other)).await;
            let compared = compared.map_err(|error| format!("a thread has failed: {error}"))?;
            compared.map_err(|error| format!("this node's own trail: {error}"))
        })
    }

    fn end(&self) -> Position {
        let trail = self.engine.trail();
        Position { epoch: trail.epoch(), lsn: trail.durable().0 }
    }

    fn positions(&self, epoch: Epoch) -> BTreeMap<NodeId, u64> {
        let trail = self.engine.trail();
        if self.engine.is_standby() || trail.epoch() != epoch {
            return BTreeMap::new();
        }
        let durable = trail.durable();
        let own = self.name.parse().ok().map(|name: NodeId| (name, durable.0));
        let standbys = self.hub.upgrade().into_iter().flat_map(|hub| confirmed(&hub, durable));
        standbys.chain(own).collect()
    }

    fn sync_under_way(&self) -> Option<Duration> {
        self.engine.trail().sync_under_way()
    }
}

/// The confirmed positions of nodes that may be members, by name. What a standby has beyond the master's own durable end may
/// still be cut off.
fn confirmed(hub: &Hub, durable: Lsn) -> impl Iterator<Item = (NodeId, u64)> + use<> {
    let confirmed = hub.confirmed().into_iter();
    confirmed.filter_map(move |(name, lsn)| Some((name.parse().ok()?, lsn.min(durable).0)))
}

async fn wait_until_written(following: &Following) -> Result<(), String> {
    if !following.is_whole() {
        return Err("its base copy is not complete".to_owned());
    }
    for _ in 0..CHECKS {
        if following.has_written() {
            return Ok(());
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
    Err("it has not written all that it has received yet".to_owned())
}

fn tip_of(trail: &Trail) -> TrailTip {
    let (lsn, checksum, epoch) = trail.end();
    TrailTip { trail: trail.trail_id().to_string(), epoch, lsn: lsn.0, checksum, ..TrailTip::default() }
}

/// Compares what is durable here with another trail's end.
fn compare(trail: &Trail, other: &TrailTip) -> Result<Compared, TrailError> {
    let own = tip_of(trail);
    // Only what is on the disk counts: what is being written may still be lost.
    let has_it = if other.lsn > own.lsn {
        Some(false)
    } else {
        match trail.ends_with(Lsn(other.lsn), other.checksum)? {
            Match::Yes => Some(true),
            Match::No => Some(false),
            Match::Gone => None,
        }
    };
    Ok(judge(&own, other, has_it))
}
