//! The trail of this node in comparisons with those of other members, for promotions out of a quorum
//! (`holdfast_control`'s module `compare`, which says what is compared, and when).
//!
//! | this node | its answer to where its trail ends |
//! |---|---|
//! | has begun no role, or is between two | none: nothing is open |
//! | a standby whose base copy is not whole | none: what it once confirmed under its name may not be there again yet |
//! | a standby that has received more than it has written | after it has written that: it may have been acknowledged at level warm |
//! | any other | the end of what is durable |
//!
//! Failure: a trail that cannot be read gives no answer, and the one who asks is told why.

use super::Following;
use futures::FutureExt;
use futures::future::BoxFuture;
use holdfast_control::{Compared, ComparedTrail, TrailTip};
use holdfast_engine::Engine;
use holdfast_trail::{Match, Trail, TrailError};
use holdfast_types::Lsn;
use std::sync::Arc;
use std::time::Duration;

/// How often, and how long apart, a standby looks whether it has written what it had received.
const LOOKS: usize = 50;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// See the module.
pub struct Comparing {
    pub engine: Engine,
    /// Of a standby.
    pub following: Option<Arc<Following>>,
}

impl ComparedTrail for Comparing {
    fn tip(&self) -> BoxFuture<'static, Result<TrailTip, String>> {
        let (engine, following) = (self.engine.clone(), self.following.clone());
        async move {
            if let Some(following) = following {
                until_written(&following).await?;
            }
            Ok(tip_of(engine.trail()))
        }
        .boxed()
    }

    fn compare(&self, other: TrailTip) -> BoxFuture<'static, Result<Compared, String>> {
        let engine = self.engine.clone();
        async move {
            let compared = tokio::task::spawn_blocking(move || compare(engine.trail(), &other)).await;
            let compared = compared.map_err(|error| format!("a thread has failed: {error}"))?;
            compared.map_err(|error| format!("this node's own trail: {error}"))
        }
        .boxed()
    }
}

async fn until_written(following: &Following) -> Result<(), String> {
    if !following.is_whole() {
        return Err("its base copy is not whole".to_owned());
    }
    for _ in 0..LOOKS {
        if following.has_written() {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err("it has not written all that it has received yet".to_owned())
}

fn tip_of(trail: &Trail) -> TrailTip {
    let (lsn, checksum, epoch) = trail.end();
    TrailTip { trail: trail.trail_id().to_string(), epoch, lsn: lsn.0, checksum }
}

/// What is durable here of the trail that ends there.
fn compare(trail: &Trail, other: &TrailTip) -> Result<Compared, TrailError> {
    let own = tip_of(trail);
    if own.trail != other.trail {
        return Ok(Compared::Parted);
    }
    // Asked of what is on the disk only: what is being written may still be lost.
    let found = if other.lsn > own.lsn { Match::No } else { trail.ends_with(Lsn(other.lsn), other.checksum)? };
    Ok(match found {
        Match::Yes => Compared::HasAll,
        // Recycled here, and one master wrote both ends: there was nothing beside it.
        Match::Gone if other.epoch == own.epoch => Compared::HasAll,
        Match::No | Match::Gone if other.epoch < own.epoch => Compared::HasAll,
        Match::No if (other.epoch, other.lsn) > (own.epoch, own.lsn) => Compared::OtherIsAhead,
        Match::No | Match::Gone => Compared::Parted,
    })
}
