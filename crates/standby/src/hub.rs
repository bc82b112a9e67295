//! The serving side of all links of a node: the connected standbys, their positions, and what commits have reached on
//! them.
//!
//! [`Hub::serve`] runs one link from the greeting to its end. It reads the trail on the thread that polls it: give the
//! hub a runtime of its own, so that a standby that catches up from disk delays no client.
//!
//! A standby that reconnects while its old link still seems alive replaces that link: it is recognized by the random
//! number of its process. Another node with the same name is refused. So a link whose end only one side noticed does
//! not keep its standby out, and two nodes with the same name do not disconnect each other in turn.
//!
//! How it fails: every error ends only the link on which it occurs, after the reason is sent to the other side.

mod operator;
mod orders;
mod registered;
mod report;
mod state;

pub(crate) use orders::Order;
pub(crate) use registered::Registered;
pub use report::StandbyReport;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_types::Lsn;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::base_copy;
use crate::error::LinkError;
use crate::governor::{self, Governor};
use crate::identity::{Identity, Tip};
use crate::limits::LinkOptions;
use crate::link::{Link, Stream, check_name};
use crate::link_server::{LinkServer, Peer};
use crate::message::{Answer, Hello, Message, Wants, Welcome};
use crate::pairing;
use crate::refusal::{Reason, Refusal};
use crate::ship;
use crate::source;
use crate::sync_set::{Reached, SyncSet};
use crate::versions::agree;
use orders::Orders;
use state::{Connected, Loss, News, State, remember};

pub struct Hub {
    pub(crate) master: Arc<dyn LinkServer>,
    pub(crate) options: LinkOptions,
    governor: Governor,
    /// Changes whenever the trail has news for the links.
    progress: watch::Sender<u64>,
    state: Mutex<State>,
}

impl Hub {
    pub fn new(master: Arc<dyn LinkServer>, options: LinkOptions, sync_set: SyncSet, governor: Governor) -> Arc<Hub> {
        let (progress, _) = watch::channel(0u64);
        let sender = progress.clone();
        master.trail().on_progress(Arc::new(move || sender.send_modify(|count| *count = count.wrapping_add(1))));
        let state = State::new(sync_set);
        Arc::new(Hub { master, options, governor, progress, state: Mutex::new(state) })
    }

    /// Runs one link whose start-up packet was already read. Returns when it ends, in order or not.
    pub async fn serve<S: Stream>(self: &Arc<Hub>, stream: S, peer: Peer) -> Result<(), LinkError> {
        let mut link = Link::over(stream, &self.options);
        let outcome = self.answer(&mut link, &peer).await;
        if let Err(error) = &outcome {
            tracing::warn!(target: "holdfast::ship", peer = %peer.address, %error, "a node's link has ended");
        }
        link.end(&outcome).await;
        outcome
    }

    async fn answer<S: Stream>(self: &Arc<Hub>, link: &mut Link<S>, peer: &Peer) -> Result<(), LinkError> {
        let greeting = tokio::time::timeout(self.options.greeting_max, link.reader.next()).await;
        let hello = match greeting.unwrap_or(Err(LinkError::TooSlow { what: "greet" }))? {
            Message::Hello(hello) => hello,
            other => return Err(LinkError::Unexpected { kind: other.kind(), expected: "a Hello" }),
        };
        let version = agree(hello.newest, hello.oldest)?;
        check_name(&hello.name)?;
        peer.check_role(&hello.name, &hello.wants)?;
        self.master.admit(peer, &hello.name, &hello.wants)?;
        if let Wants::Follow(standby) = &hello.wants {
            let fits = pairing::check(standby, &self.master.identity());
            if matches!(&fits, Err(refusal) if refusal.reason == Reason::Deposed) {
                self.master.deposed(standby.epoch);
            }
            fits?;
            if !hello.grouped && self.master.is_member(&hello.name) {
                let message = format!(
                    "{} is a member of the control plane, but this standby does not take part in it",
                    hello.name
                );
                let advice =
                    "Give its holdfast.toml the control_* lines of the other members, or give the standby another name";
                return Err(Refusal::new(Reason::NotAdmitted, message, advice).into());
            }
            self.check_stopped(&hello.name)?;
        }
        let (name, identity) = (self.master.name().to_owned(), self.master.identity());
        let welcome = Message::Welcome(Welcome {
            version,
            name,
            identity,
            tip: self.tip(),
            follows: self.master.follows(),
            grouped: self.options.grouped,
            masterships: self.master.masterships(),
        });
        link.writer.send(&welcome).await?;
        match hello.wants {
            Wants::Follow(_) => self.pair_and_ship(link, peer, &hello, &identity).await,
            Wants::BaseCopy => {
                let mut copy = self.master.base_copy(&hello.name)?;
                // From now on the copy's receiver needs the trail from where the copy begins.
                self.master.hold(&hello.name, copy.plan().start, true)?;
                base_copy::send(link, copy.as_mut()).await
            }
            Wants::Dump => {
                let mut copy = self.master.dump(&hello.name)?;
                base_copy::send(link, copy.as_mut()).await
            }
            Wants::Status => link.writer.send(&Message::Status(self.master.status())).await,
            Wants::Promote { accept_divergence } => {
                let done = self.master.promote(accept_divergence)?;
                link.writer.send(&Message::Done(done)).await
            }
            Wants::Stop { standby } => {
                let done = self.stop_for_operator(standby.as_deref()).await?;
                link.writer.send(&Message::Done(done)).await
            }
            Wants::Start { standby } => {
                let done = self.start_for_operator(standby.as_deref())?;
                link.writer.send(&Message::Done(done)).await
            }
            Wants::Forget { standby } => {
                let done = self.forget_for_operator(&standby)?;
                link.writer.send(&Message::Done(done)).await
            }
        }
    }

    /// Answers the standby's requests about the trail until it says where to start.
    async fn pair_and_ship<S: Stream>(
        self: &Arc<Hub>,
        link: &mut Link<S>,
        peer: &Peer,
        hello: &Hello,
        identity: &Identity,
    ) -> Result<(), LinkError> {
        let mut first = true;
        let mut held: Option<Lsn> = None;
        let start = loop {
            let asked = link.answer().await;
            if let Err(LinkError::Refused(refusal)) = &asked
                && refusal.reason == Reason::RolledBack
            {
                self.master.rolled_back(&hello.name, refusal);
            }
            match asked? {
                Message::Ask(tip) => {
                    // A standby asks about the end of its trail first.
                    if std::mem::take(&mut first) {
                        remember(&mut self.state.lock().ends, &hello.name, tip.lsn);
                    }
                    let mut answer = link.busy(self.options.heartbeat, source::answer(&*self.master, tip)).await?;
                    if answer == Answer::Yes && held.is_none_or(|held| tip.lsn < held) {
                        // A node that only compares, to rejoin, follows from here on later: what it needs is kept until then.
                        self.master.hold(&hello.name, tip.lsn, true)?;
                        held = Some(tip.lsn);
                        // It may have been recycled before it was held.
                        answer = link.busy(self.options.heartbeat, source::answer(&*self.master, tip)).await?;
                    }
                    link.writer.send(&Message::Answer(answer)).await?;
                }
                Message::Start(tip) => break tip,
                Message::Stop(_) => return Ok(()),
                other => return Err(LinkError::Unexpected { kind: other.kind(), expected: "an Ask or a Start" }),
            }
        };
        let registered = self.register(peer, hello, start)?;
        if registered.fell_back {
            self.master.fell_back(&hello.name)?;
        }
        link.allow_boxcars(identity.segment_bytes);
        tracing::info!(target: "holdfast::ship", standby = %hello.name, peer = %peer.address, from = %start.lsn, "a standby follows");
        let behind_bytes = self.master.trail().durable().0.saturating_sub(start.lsn.0);
        if behind_bytes > 0 {
            tracing::info!(target: "holdfast::catchup", standby = %hello.name, behind_bytes, "a standby has to catch up");
        }
        let packing = self.options.packing.with(&peer.address, hello.unpacks);
        let outcome = ship::ship(&registered, link, start, packing).await;
        if let Err(LinkError::Silent { after }) = &outcome {
            registered.update(|connected| connected.silent = *after);
        }
        tracing::info!(target: "holdfast::ship", standby = %hello.name, orderly = outcome.is_ok(), "a standby no longer follows");
        outcome
    }

    /// Registers the link as connected, until the returned value is dropped.
    fn register(self: &Arc<Hub>, peer: &Peer, hello: &Hello, start: Tip) -> Result<Registered, Refusal> {
        let mut state = self.state.lock();
        if let Some(old) = state.standbys.get(&hello.name) {
            if old.instance != hello.instance {
                let message = format!("another node named {} already follows, from {}", hello.name, old.address);
                let advice = "Give each standby a name of its own, or wait until the other one has disconnected";
                return Err(Refusal::new(Reason::NameTaken, message, advice));
            }
            old.orders.give(Order::Replaced);
            self.governor.disconnected(&hello.name);
        }
        let fell_back = state.confirmed.get(&hello.name).is_some_and(|confirmed| start.lsn < *confirmed);
        state.links += 1;
        let (link, orders) = (state.links, Arc::<Orders>::default());
        let connected = Connected {
            link,
            instance: hello.instance,
            address: peer.address.clone(),
            orders: orders.clone(),
            ack: None,
            counts_from: self.master.trail().durable(),
            counts: false,
            sent: start.lsn,
            rtt_us: None,
            silent: Duration::ZERO,
            loss: if state.lost.contains(&hello.name) { Loss::OnProbation } else { Loss::No },
        };
        state.standbys.insert(hello.name.clone(), connected);
        Ok(Registered { hub: self.clone(), name: hello.name.clone(), link, orders, fell_back })
    }

    fn tip(&self) -> Tip {
        let (lsn, checksum) = self.master.trail().tip();
        Tip { lsn, checksum }
    }

    /// Sets a new sync set after a change of the setting. What was reached stays reached.
    pub fn set_sync_set(&self, sync_set: SyncSet) {
        let mut state = self.state.lock();
        state.sync_set = sync_set;
        let news = state.recount();
        drop(state);
        self.tell(news);
    }

    /// The standbys of these nodes count as lost, and no others: their acks do not count, except over a link that proves to be alive.
    pub fn set_lost(&self, lost: BTreeSet<String>) {
        let mut state = self.state.lock();
        if state.lost == lost {
            return;
        }
        state.set_lost(lost);
        let news = state.recount();
        drop(state);
        self.tell(news);
    }

    /// The standbys that commits wait for.
    pub fn sync_set(&self) -> SyncSet {
        self.state.lock().sync_set.clone()
    }

    /// Reports the combined acks to the master, with no lock held.
    fn tell(&self, news: News) {
        news.reached.into_iter().for_each(|reached| self.master.reached(reached));
        news.in_sync.into_iter().for_each(|in_sync| self.master.in_sync(in_sync));
    }

    /// The time that the next boxcar has to wait; see [`Governor::charge`].
    pub fn charge(&self, bytes: u64) -> std::time::Duration {
        if !self.governor.is_active() {
            return std::time::Duration::ZERO;
        }
        self.governor.charge(self.master.trail().durable(), bytes)
    }

    /// Wakes every link: for changes of [`LinkServer::durable`] that the trail itself does not report.
    pub fn wake_links(&self) {
        self.progress.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// The positions that commits have reached on the standbys.
    pub fn reached(&self) -> Reached {
        self.state.lock().reached
    }

    /// What each standby, connected or not, has last confirmed to be on its disk.
    pub fn confirmed(&self) -> BTreeMap<String, Lsn> {
        self.state.lock().confirmed.clone()
    }

    /// Whether enough of the sync set is connected and acknowledges: commits above level local continue.
    pub fn is_in_sync(&self) -> bool {
        self.state.lock().in_sync
    }

    /// How long before commits began to wait the standby that they wait for was heard last: what ended its link was its
    /// silence. Zero where its link was closed.
    pub fn silent_before(&self) -> Duration {
        self.state.lock().silent_before
    }

    pub fn standbys(&self) -> Vec<StandbyReport> {
        let (end, now) = (self.master.trail().durable(), Instant::now());
        let state = self.state.lock();
        let report = |(name, connected): (&String, &Connected)| StandbyReport {
            name: name.clone(),
            address: connected.address.clone(),
            sent_lsn: connected.sent.0,
            received_lsn: connected.ack.map(|ack| ack.received.0),
            durable_lsn: connected.ack.map(|ack| ack.durable.0),
            applied_lsn: connected.ack.map(|ack| ack.applied.0),
            lag_bytes: connected.ack.map(|ack| end.0.saturating_sub(ack.applied.0)),
            lag_us: connected.ack.map(|ack| state.ages.lag(ack.applied, end, now).as_micros() as u64),
            round_trip_us: connected.rtt_us,
            priority: state.sync_set.priority(name),
            counts: connected.counts_now(),
        };
        state.standbys.iter().map(report).collect()
    }

    /// Where a standby's trail ended when it last reported that, connected or not; `None`: not since this server started.
    pub fn end_of(&self, standby: &str) -> Option<Lsn> {
        self.state.lock().ends.get(standby).copied()
    }

    /// The governor's report on each standby.
    pub fn governed(&self) -> Vec<governor::Report> {
        self.governor.report(self.master.trail().durable())
    }
}
