//! The standby's side of a link: connects, pairs, receives boxcars, and starts again when the link ends.
//!
//! | phase | what happens |
//! |---|---|
//! | connecting | to the master, with pauses that double |
//! | pairing | module [`crate::pairing`] judges, [`find_start`] asks |
//! | following | [`session`] |
//! | waiting | the link has ended; the phase says why and how long the pause is |
//!
//! [`follow`] ends in one of four ways ([`Ended`]); errors that may disappear without action do not end it. If the
//! standby's own disk fails or is full, it ends: its master continues without it.
//!
//! A wait for several events checks them in a fixed order, so that a simulation can be repeated.
//!
//! It is stopped through the given channel, never by dropping the future, so that what was acknowledged as received is
//! written first.

mod find_start;
mod queue;
mod session;

use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast_trail::Trail;
use holdfast_types::Epoch;
use tokio::sync::watch;

use crate::error::LinkError;
use crate::identity::{Identity, Tip};
use crate::limits::LinkOptions;
use crate::link::{Link, Stream, greet};
use crate::message::{Message, Stop, Wants, Welcome};
use crate::pairing::{self, Decision, Finding};
use crate::refusal::{Reason, Refusal};
use crate::standby::{LinkPhase, Standby};

/// Connects to the master. It is called again after each end of a link; the address may have changed meanwhile.
pub trait Connect: Send + Sync {
    type Stream: Stream;

    fn connect(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

/// Why following has ended.
#[derive(Debug)]
pub enum Ended {
    /// It was stopped through the channel.
    Stopped,
    /// Cut the trail at this end (offline, `Trail::cut_back`), then follow again: see [`crate::pairing`].
    CutBack(Tip),
    /// Master and standby do not match; the operator must act.
    Refused(Refusal),
    /// This node's own trail failed, or the other side violates the protocol.
    Failed(LinkError),
}

/// Where the standby's own blocking work runs.
#[derive(Clone, Copy, Debug)]
pub enum Blocking {
    /// On threads that may block.
    Threads,
    /// In the calling task, after a simulated time for the work: for simulations, which must not depend on threads.
    Here(Duration),
}

impl Blocking {
    async fn run<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, LinkError> {
        match self {
            Blocking::Threads => {
                let done = tokio::task::spawn_blocking(work).await;
                done.map_err(|error| LinkError::Node(format!("a thread of the standby failed: {error}")))
            }
            Blocking::Here(takes) => {
                tokio::time::sleep(takes).await;
                Ok(work())
            }
        }
    }
}

/// A random number for [`Follower::instance`], drawn once when the process starts.
pub fn draw_instance() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The parameters of [`follow`].
pub struct Follower<C> {
    pub standby: Arc<dyn Standby>,
    pub connect: C,
    pub options: LinkOptions,
    pub blocking: Blocking,
    /// The result of [`draw_instance`], once for this process.
    pub instance: u64,
    /// True stops following.
    pub stop: watch::Receiver<bool>,
}

/// How one link ended without an error.
enum Over {
    /// This side was stopped.
    StoppedHere,
    /// The master sent Stop, with this reason.
    StoppedThere(String),
    CutBack(Tip),
}

/// Follows the master until it is stopped or cannot continue.
pub async fn follow<C: Connect>(mut follower: Follower<C>) -> Ended {
    let (mut pause, mut reported) = (follower.options.retry, false);
    loop {
        let mut was_following = false;
        let (began, had) = (tokio::time::Instant::now(), follower.standby.trail().durable());
        let over = one_link(&mut follower, &mut was_following).await;
        // A link that ends immediately, and has brought nothing, will probably do so the next time, too.
        let brought = follower.standby.trail().durable() > had;
        if was_following && (brought || began.elapsed() > pause.min(follower.options.silence_max)) {
            pause = follower.options.retry;
        }
        let why = match over {
            Ok(Over::StoppedHere) => return Ended::Stopped,
            Ok(Over::CutBack(tip)) => return Ended::CutBack(tip),
            Ok(Over::StoppedThere(why)) => why,
            Err(LinkError::Refused(refusal)) if refusal.reason == Reason::RolledBack => {
                // Once, although it is met again with each new link.
                if !std::mem::replace(&mut reported, true) {
                    tracing::warn!(target: "holdfast::receive", "{refusal}");
                }
                refusal.to_string()
            }
            Err(error) if error.may_pass() => error.to_string(),
            Err(LinkError::Refused(refusal)) => return Ended::Refused(refusal),
            Err(error) => return Ended::Failed(error),
        };
        tracing::info!(target: "holdfast::receive", %why, "the link to the master has ended; connecting again");
        follower.standby.changed(&LinkPhase::Waiting { why, pause });
        tokio::select! {
            biased;
            () = asked_to_stop(&mut follower.stop) => return Ended::Stopped,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(follower.options.retry_max);
    }
}

/// Asks a master what it has of the trail that is open here, in any epoch: for a node that was a master and is to
/// follow another one. Its databases are not examined.
pub async fn compare<C: Connect>(
    connect: &C,
    name: &str,
    trail: &Trail,
    identity: Identity,
    options: &LinkOptions,
) -> Result<Finding, LinkError> {
    let connected = tokio::time::timeout(options.greeting_max, connect.connect()).await;
    let stream = connected.map_err(|_| LinkError::TooSlow { what: "connect" })?.map_err(LinkError::Io)?;
    let identity = Identity { epoch: Epoch(0), ..identity };
    let (mut link, welcome) = greet(stream, name, 0, Wants::Follow(identity), options).await?;
    pairing::check(&identity, &welcome.identity)?;
    let finding = find_start::find(&mut link, trail, None).await?;
    let stop = Stop { orderly: true, why: "the comparison is done".to_owned() };
    link.writer.send(&Message::Stop(stop)).await?;
    link.end(&Ok(())).await;
    Ok(finding)
}

/// Waits for a stop request; indefinitely if the sender of such requests no longer exists.
async fn asked_to_stop(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Checks whether this standby could follow, and from where, without starting: for `holdfast standby check`.
pub async fn check<C: Connect>(follower: &Follower<C>) -> Result<Decision, LinkError> {
    let (mut link, _, decision) = pair(follower).await?;
    link.writer.send(&Message::Stop(Stop { orderly: true, why: "the check is done".to_owned() })).await?;
    link.end(&Ok(())).await;
    Ok(decision)
}

/// Connects, greets and finds the position to continue from.
async fn pair<C: Connect>(follower: &Follower<C>) -> Result<(Link<C::Stream>, Welcome, Decision), LinkError> {
    let Follower { standby, connect, options, instance, .. } = follower;
    standby.changed(&LinkPhase::Connecting);
    let connected = tokio::time::timeout(options.greeting_max, connect.connect()).await;
    let stream = connected.map_err(|_| LinkError::TooSlow { what: "connect" })?.map_err(LinkError::Io)?;
    let identity = standby.identity();
    let (mut link, welcome) = greet(stream, standby.name(), *instance, Wants::Follow(identity), options).await?;
    standby.changed(&LinkPhase::Pairing { master: welcome.name.clone() });
    let fits = pairing::check(&identity, &welcome.identity);
    let newest = standby.newest_epoch();
    if let Some(refusal) = fits.err().or_else(|| pairing::superseded(&welcome.identity, newest)) {
        return Ok((link, welcome, Decision::Refused(refusal)));
    }
    let tip = find_start::tip_of(standby.trail());
    let finding = find_start::find(&mut link, standby.trail(), standby.anchor()).await?;
    let decision = pairing::decide(tip, standby.settled(), finding, standby.lineage(&welcome));
    Ok((link, welcome, decision))
}

async fn one_link<C: Connect>(follower: &mut Follower<C>, was_following: &mut bool) -> Result<Over, LinkError> {
    let mut stop = follower.stop.clone();
    let (mut link, welcome, decision) = tokio::select! {
        biased;
        paired = pair(follower) => paired?,
        () = asked_to_stop(&mut stop) => return Ok(Over::StoppedHere),
    };
    let outcome = match decision {
        Decision::Start(start) => {
            *was_following = true;
            follower.standby.learned(&welcome);
            follower.standby.changed(&LinkPhase::Following {
                master: welcome.name,
                from: start.lsn,
                to: welcome.tip.lsn,
            });
            link.allow_boxcars(welcome.identity.segment_bytes);
            session::run(follower, &mut link, start, welcome.identity).await
        }
        Decision::CutBack(tip) => Ok(Over::CutBack(tip)),
        Decision::Refused(refusal) => Err(LinkError::Refused(refusal)),
    };
    match outcome {
        Ok(over) => {
            link.end(&Ok(())).await;
            Ok(over)
        }
        Err(error) => {
            let failed = Err(error);
            link.end(&failed).await;
            failed.map(|()| Over::StoppedHere)
        }
    }
}
