//! The standby's side of a link: connects, pairs, takes boxcars, and does so again when the link ends.
//!
//! | phase | what happens |
//! |---|---|
//! | connecting | to the master, with pauses that double |
//! | pairing | module [`crate::pairing`] judges, [`place`] asks |
//! | following | [`session`] |
//! | waiting | the link has ended; why, and for how long |
//!
//! [`follow`] ends in one of four ways ([`Ended`]); what may pass by itself ends it in none of them. A standby whose own
//! disk fails or is full ends it: its master goes on without it.
//!
//! Whatever waits for several things looks at them in a fixed order, so that a simulation can be repeated.
//!
//! It is stopped through the channel given, never by dropping the future: what was acknowledged as received is then
//! written first.

mod place;
mod queue;
mod session;

use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast_trail::Trail;
use holdfast_types::{Epoch, Lsn};
use tokio::sync::watch;

use crate::error::LinkError;
use crate::identity::{Identity, Tip};
use crate::limits::LinkOptions;
use crate::link::{Link, Stream, greet};
use crate::message::{Message, Stop, Wants, Welcome};
use crate::pairing::{self, Finding, Place};
use crate::refusal::Refusal;
use crate::standby::Standby;

/// How the master is reached. Tried again after each end of a link; the address may have changed meanwhile.
pub trait Connect: Send + Sync {
    type Stream: Stream;

    fn connect(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

/// What the link is doing, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Phase {
    Connecting,
    Pairing {
        master: String,
    },
    /// Boxcars come, from this position on; the master's trail ended at `to` when that began.
    Following {
        master: String,
        from: Lsn,
        to: Lsn,
    },
    /// Until the next attempt.
    Waiting {
        why: String,
        pause: Duration,
    },
}

/// Why following has ended for good.
#[derive(Debug)]
pub enum Ended {
    /// It was asked to.
    Stopped,
    /// Cut the trail at this end (offline, `Trail::cut_back`), then follow again: see [`crate::pairing`].
    CutBack(Tip),
    /// Master and standby do not fit; the operator has to do something.
    Refused(Refusal),
    /// This node's own trail failed, or the other side breaks the protocol.
    Failed(LinkError),
}

/// Where the standby's own blocking work is done.
#[derive(Clone, Copy, Debug)]
pub enum Blocking {
    /// On threads that may block.
    Threads,
    /// On the spot, after a time that the work shall seem to take: for simulations, which must not depend on threads.
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

/// A number for [`Follower::instance`], drawn once when the process starts.
pub fn draw_instance() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// What a standby follows with.
pub struct Follower<C> {
    pub standby: Arc<dyn Standby>,
    pub connect: C,
    pub options: LinkOptions,
    pub blocking: Blocking,
    /// [`draw_instance`], once for this process.
    pub instance: u64,
    /// True: stop.
    pub stop: watch::Receiver<bool>,
}

/// How one link ended without an error.
enum Over {
    /// This side was asked to stop.
    StoppedHere,
    /// The master said goodbye.
    StoppedThere(String),
    CutBack(Tip),
}

/// Follows the master until it is stopped or cannot go on.
pub async fn follow<C: Connect>(mut follower: Follower<C>) -> Ended {
    let mut pause = follower.options.retry;
    loop {
        let mut was_following = false;
        let began = tokio::time::Instant::now();
        let over = one_link(&mut follower, &mut was_following).await;
        // One that ends at once will do so the next time, too.
        if was_following && began.elapsed() > pause {
            pause = follower.options.retry;
        }
        let why = match over {
            Ok(Over::StoppedHere) => return Ended::Stopped,
            Ok(Over::CutBack(tip)) => return Ended::CutBack(tip),
            Ok(Over::StoppedThere(why)) => why,
            Err(error) if error.may_pass() => error.to_string(),
            Err(LinkError::Refused(refusal)) => return Ended::Refused(refusal),
            Err(error) => return Ended::Failed(error),
        };
        tracing::info!(target: "holdfast::receive", %why, "the link to the master has ended; connecting again");
        follower.standby.changed(&Phase::Waiting { why, pause });
        tokio::select! {
            biased;
            () = asked_to_stop(&mut follower.stop) => return Ended::Stopped,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(follower.options.retry_max);
    }
}

/// Asks a master what it has of a trail that is open here, whatever epoch that has come to: for a node that was a master
/// itself and shall follow another one. What its databases hold is not looked at.
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
    let finding = place::find(&mut link, trail, None).await?;
    let stop = Stop { orderly: true, why: "it was a question only".to_owned() };
    link.writer.send(&Message::Stop(stop)).await?;
    link.end(&Ok(())).await;
    Ok(finding)
}

/// Waits until stopping is asked for; for ever, when whoever could ask is gone.
async fn asked_to_stop(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Whether this standby could follow, and from where, without starting: for `holdfast standby check`.
pub async fn check<C: Connect>(follower: &Follower<C>) -> Result<Place, LinkError> {
    let (mut link, _, place) = pair(follower).await?;
    link.writer.send(&Message::Stop(Stop { orderly: true, why: "it was a check only".to_owned() })).await?;
    link.end(&Ok(())).await;
    Ok(place)
}

/// Connects, greets and finds out where to go on.
async fn pair<C: Connect>(follower: &Follower<C>) -> Result<(Link<C::Stream>, Welcome, Place), LinkError> {
    let Follower { standby, connect, options, instance, .. } = follower;
    standby.changed(&Phase::Connecting);
    let connected = tokio::time::timeout(options.greeting_max, connect.connect()).await;
    let stream = connected.map_err(|_| LinkError::TooSlow { what: "connect" })?.map_err(LinkError::Io)?;
    let identity = standby.identity();
    let (mut link, welcome) = greet(stream, standby.name(), *instance, Wants::Follow(identity), options).await?;
    standby.changed(&Phase::Pairing { master: welcome.name.clone() });
    if let Err(refusal) = pairing::check(&identity, &welcome.identity) {
        return Ok((link, welcome, Place::Refused(refusal)));
    }
    let tip = place::tip_of(standby.trail());
    let finding = place::find(&mut link, standby.trail(), standby.anchor()).await?;
    Ok((link, welcome, pairing::place(tip, standby.settled(), finding)))
}

async fn one_link<C: Connect>(follower: &mut Follower<C>, was_following: &mut bool) -> Result<Over, LinkError> {
    let mut stop = follower.stop.clone();
    let (mut link, welcome, place) = tokio::select! {
        biased;
        paired = pair(follower) => paired?,
        () = asked_to_stop(&mut stop) => return Ok(Over::StoppedHere),
    };
    let outcome = match place {
        Place::Start(start) => {
            *was_following = true;
            follower.standby.learned(welcome.follows.as_deref(), welcome.grouped);
            follower.standby.changed(&Phase::Following { master: welcome.name, from: start.lsn, to: welcome.tip.lsn });
            link.allow_boxcars(welcome.identity.segment_bytes);
            session::run(follower, &mut link, start, welcome.identity).await
        }
        Place::CutBack(tip) => Ok(Over::CutBack(tip)),
        Place::Refused(refusal) => Err(LinkError::Refused(refusal)),
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
