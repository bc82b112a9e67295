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
use holdfast_control::{Compared, ComparedTrail, TrailTip, judge};
use holdfast_engine::Engine;
use holdfast_trail::{Match, Trail, TrailError};
use holdfast_types::Lsn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// How often, and how long apart, a standby looks whether it has written what it had received.
const LOOKS: usize = 50;
const LOOK_EVERY: Duration = Duration::from_millis(20);

type Later<T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send>>;

/// See the module.
#[derive(Clone)]
pub struct Comparing {
    pub engine: Engine,
    /// Of a standby.
    pub following: Option<Arc<Following>>,
}

impl ComparedTrail for Comparing {
    fn tip(&self) -> Later<TrailTip> {
        let (engine, following) = (self.engine.clone(), self.following.clone());
        Box::pin(async move {
            if let Some(following) = following {
                until_written(&following).await?;
            }
            let leads = (!engine.is_standby()).then(|| engine.trail().epoch().0);
            Ok(TrailTip { leads, ..tip_of(engine.trail()) })
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
    TrailTip { trail: trail.trail_id().to_string(), epoch, lsn: lsn.0, checksum, leads: None }
}

/// What is durable here of the trail that ends there.
fn compare(trail: &Trail, other: &TrailTip) -> Result<Compared, TrailError> {
    let own = tip_of(trail);
    // Asked of what is on the disk only: what is being written may still be lost.
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
