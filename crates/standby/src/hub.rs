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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_types::Lsn;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::ages::Ages;
use crate::base_copy;
use crate::error::LinkError;
use crate::governor::{self, Governor};
use crate::identity::{Ack, Identity, Tip};
use crate::limits::LinkOptions;
use crate::link::{Link, Stream, check_name};
use crate::master::{Master, Peer};
use crate::message::{Hello, Message, Wants, Welcome};
use crate::pairing;
use crate::refusal::{Reason, Refusal};
use crate::ship;
use crate::source;
use crate::sync_set::{Reached, SyncSet};
use crate::versions::agree;

/// The time that an operator's stop waits for the standbys to receive the rest, and how often it checks.
const STOP_MAX: Duration = Duration::from_secs(10);
const STOP_LOOK: Duration = Duration::from_millis(20);

/// The largest number of names whose last ack is remembered.
const CONFIRMED_MAX: usize = 1000;

pub struct Hub {
    pub(crate) master: Arc<dyn Master>,
    pub(crate) options: LinkOptions,
    governor: Governor,
    /// Changes whenever the trail has news for the links.
    progress: watch::Sender<u64>,
    state: Mutex<State>,
}

struct State {
    sync_set: SyncSet,
    reached: Reached,
    /// Whether enough standbys of the sync set acknowledge.
    in_sync: bool,
    /// How long the standby whose link ended last had been silent, if there have been too few since.
    silent_before: Duration,
    ages: Ages,
    standbys: BTreeMap<String, Connected>,
    /// What each standby, connected or not, has confirmed to be on its disk; for at most [`CONFIRMED_MAX`] standbys.
    confirmed: BTreeMap<String, Lsn>,
    /// Where each standby's trail ended when it last reported that, for the status; for at most [`CONFIRMED_MAX`] standbys. It may
    /// be ahead of this trail.
    ends: BTreeMap<String, Lsn>,
    /// Numbers links in the order in which they connected.
    links: u64,
    /// Standbys that the operator stopped: refused until started again.
    stopped: BTreeSet<String>,
    all_stopped: bool,
}

struct Connected {
    link: u64,
    instance: u64,
    address: String,
    orders: Arc<Orders>,
    ack: Option<Ack>,
    /// The standby counts for the sync set once it has this much on its disk: what was durable here when it connected.
    /// Until then it catches up, and its base copy may be incomplete.
    counts_from: Lsn,
    counts: bool,
    sent: Lsn,
    rtt_us: Option<u64>,
    /// Its link ends because nothing was heard from it for this long.
    silent: Duration,
}

/// What the rest of the hub requests from a running link.
#[derive(Default)]
pub(crate) struct Orders {
    order: Mutex<Option<Order>>,
    pub(crate) given: Notify,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// Send everything, then stop in order.
    Stop,
    /// The standby has reconnected.
    Replaced,
}

impl Orders {
    fn give(&self, order: Order) {
        *self.order.lock() = Some(order);
        self.given.notify_one();
    }

    pub(crate) fn get(&self) -> Option<Order> {
        *self.order.lock()
    }
}

/// One connected standby, as the status shows it.
#[derive(Clone, Debug, Serialize)]
pub struct StandbyReport {
    pub name: String,
    pub address: String,
    pub sent_lsn: u64,
    /// `None` before its first ack.
    pub received_lsn: Option<u64>,
    pub durable_lsn: Option<u64>,
    pub applied_lsn: Option<u64>,
    /// Bytes that are written here and not yet applied there.
    pub lag_bytes: Option<u64>,
    /// The age of the oldest of them, in microseconds.
    pub lag_us: Option<u64>,
    pub round_trip_us: Option<u64>,
    /// Its place in the sync set, from 0.
    pub priority: Option<usize>,
    /// It has caught up with the state when it connected, and counts for the sync set if it is listed.
    pub counts: bool,
}

impl Hub {
    pub fn new(master: Arc<dyn Master>, options: LinkOptions, sync_set: SyncSet, governor: Governor) -> Arc<Hub> {
        let (progress, _) = watch::channel(0u64);
        let told = progress.clone();
        master.trail().on_progress(Arc::new(move || told.send_modify(|count| *count = count.wrapping_add(1))));
        let state = State {
            sync_set,
            reached: Reached::default(),
            in_sync: false,
            silent_before: Duration::ZERO,
            ages: Ages::default(),
            standbys: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            ends: BTreeMap::new(),
            links: 0,
            stopped: BTreeSet::new(),
            all_stopped: false,
        };
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
                    let answer = link.busy(self.options.heartbeat, source::answer(&*self.master, tip)).await?;
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
        };
        state.standbys.insert(hello.name.clone(), connected);
        Ok(Registered { hub: self.clone(), name: hello.name.clone(), link, orders, fell_back })
    }

    fn check_stopped(&self, name: &str) -> Result<(), Refusal> {
        let state = self.state.lock();
        if !state.all_stopped && !state.stopped.contains(name) {
            return Ok(());
        }
        let message = format!("shipping to {name} is stopped on {}", self.master.name());
        Err(Refusal::new(Reason::Stopped, message, "Start it there with: holdfast standby start"))
    }

    fn tip(&self) -> Tip {
        let (lsn, checksum) = self.master.trail().tip();
        Tip { lsn, checksum }
    }

    /// Ends shipping in order: everything written so far is sent first. `None` means to all standbys, as before the
    /// server stops.
    pub fn stop(&self, standby: Option<&str>) {
        let mut state = self.state.lock();
        match standby {
            Some(name) => _ = state.stopped.insert(name.to_owned()),
            None => state.all_stopped = true,
        }
        let concerned = state.standbys.iter().filter(|(name, _)| standby.is_none_or(|standby| standby == *name));
        concerned.for_each(|(_, connected)| connected.orders.give(Order::Stop));
    }

    /// Lets a stopped standby, or all stopped standbys, follow again.
    pub fn start(&self, standby: Option<&str>) {
        let mut state = self.state.lock();
        match standby {
            Some(name) => _ = state.stopped.remove(name),
            None => {
                state.all_stopped = false;
                state.stopped.clear();
            }
        }
    }

    /// `holdfast standby stop`: waits until the standbys have received everything and have disconnected.
    async fn stop_for_operator(&self, standby: Option<&str>) -> Result<String, Refusal> {
        if standby.is_none()
            && let Some(done) = self.master.follow_on(false)
        {
            return done;
        }
        if let Some(name) = standby {
            self.known(name)?;
        }
        self.stop(standby);
        let here = |state: &State| state.standbys.keys().any(|name| standby.is_none_or(|standby| standby == name));
        let until = Instant::now() + STOP_MAX;
        while here(&self.state.lock()) && Instant::now() < until {
            tokio::time::sleep(STOP_LOOK).await;
        }
        let who = standby.unwrap_or("all standbys");
        let still = if here(&self.state.lock()) { "; the link has not ended yet" } else { "" };
        let waits = if self.is_in_sync() { "" } else { "; commits above level local wait for standbys" };
        Ok(format!("shipping to {who} is stopped at LSN {}{still}{waits}", self.master.trail().durable()))
    }

    /// `holdfast standby start`: lets standbys follow again.
    fn start_for_operator(&self, standby: Option<&str>) -> Result<String, Refusal> {
        if standby.is_none()
            && let Some(done) = self.master.follow_on(true)
        {
            return done;
        }
        if let Some(name) = standby
            && !self.state.lock().stopped.contains(name)
        {
            self.known(name)?;
        }
        self.start(standby);
        Ok(format!("{} may follow", standby.unwrap_or("all standbys")))
    }

    /// `holdfast standby forget`: keeps no more trail for a standby.
    fn forget_for_operator(&self, standby: &str) -> Result<String, Refusal> {
        if self.state.lock().standbys.contains_key(standby) {
            let message = format!("{standby} follows this server");
            return Err(Refusal::new(Reason::NotAdmitted, message, "Stop its server first"));
        }
        if self.master.forget(standby)? {
            return Ok(format!("no trail is kept for {standby} any longer"));
        }
        let message = format!("no trail is kept for a standby named {standby}");
        Err(Refusal::new(Reason::NotAdmitted, message, "List the standbys with: holdfast standby status"))
    }

    /// Refuses the name of a standby that does not follow now.
    fn known(&self, name: &str) -> Result<(), Refusal> {
        let state = self.state.lock();
        if state.standbys.contains_key(name) || state.stopped.contains(name) {
            return Ok(());
        }
        let names: Vec<&str> = state.standbys.keys().map(String::as_str).collect();
        let message = format!("no standby named {name} follows {}", self.master.name());
        let advice =
            format!("Standbys that follow: {}", if names.is_empty() { "none".to_owned() } else { names.join(", ") });
        Err(Refusal::new(Reason::Failed, message, advice))
    }

    /// Sets a new sync set after a change of the setting. What was reached stays reached.
    pub fn set_sync_set(&self, sync_set: SyncSet) {
        let mut state = self.state.lock();
        state.sync_set = sync_set;
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

    /// Wakes every link: for changes of [`Master::durable`] that the trail itself does not report.
    pub fn look(&self) {
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
            counts: connected.counts,
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

fn remember(positions: &mut BTreeMap<String, Lsn>, standby: &str, lsn: Lsn) {
    if positions.len() < CONFIRMED_MAX || positions.contains_key(standby) {
        positions.insert(standby.to_owned(), lsn);
    }
}

/// What an ack, a connection or a setting changed.
struct News {
    reached: Option<Reached>,
    in_sync: Option<bool>,
}

impl State {
    fn confirm(&mut self, standby: &str, durable: Lsn) {
        remember(&mut self.confirmed, standby, durable);
        remember(&mut self.ends, standby, durable);
    }

    /// Combines the acks again. Positions only grow: a standby that disconnects takes nothing back.
    fn recount(&mut self) -> News {
        let counts = self.standbys.iter().filter(|(_, connected)| connected.counts);
        let acks = counts.filter_map(|(name, connected)| Some((name.as_str(), connected.ack?)));
        let now = self.sync_set.reached(acks);
        let in_sync = now.is_some();
        let reached = self.reached.max(now.unwrap_or_default());
        if in_sync != self.in_sync {
            self.silent_before = Duration::ZERO;
        }
        News {
            in_sync: (in_sync != std::mem::replace(&mut self.in_sync, in_sync)).then_some(in_sync),
            reached: (reached != std::mem::replace(&mut self.reached, reached)).then_some(reached),
        }
    }
}

/// A shipping link in the list of connected ones; dropping it removes it.
pub(crate) struct Registered {
    pub(crate) hub: Arc<Hub>,
    pub(crate) name: String,
    link: u64,
    pub(crate) orders: Arc<Orders>,
    /// The standby starts before a position that it has confirmed.
    fell_back: bool,
}

impl Registered {
    /// Records a checked ack. It does not count if the standby has reconnected since.
    pub(crate) fn acked(&self, ack: Ack) {
        let hub = &self.hub;
        let sent = hub.master.trail().durable();
        let mut state = hub.state.lock();
        let Some(connected) = state.standbys.get_mut(&self.name).filter(|c| c.link == self.link) else { return };
        match connected.ack.replace(ack) {
            None => hub.governor.connected(&self.name, sent, ack.applied),
            Some(_) => hub.governor.applied(&self.name, sent, ack.applied),
        }
        if !connected.counts && ack.durable >= connected.counts_from {
            connected.counts = true;
            tracing::info!(target: "holdfast::catchup", standby = %self.name, lsn = %ack.durable, "a standby has caught up");
        }
        state.confirm(&self.name, ack.durable);
        let news = state.recount();
        drop(state);
        hub.tell(news);
    }

    pub(crate) fn sent(&self, sent: Lsn) {
        self.hub.state.lock().ages.note(sent, Instant::now());
        self.update(|connected| connected.sent = sent);
    }

    pub(crate) fn round_trip(&self, us: u64) {
        self.update(|connected| connected.rtt_us = Some(us));
    }

    pub(crate) fn progress(&self) -> watch::Receiver<u64> {
        self.hub.progress.subscribe()
    }

    fn update(&self, change: impl FnOnce(&mut Connected)) {
        let mut state = self.hub.state.lock();
        state.standbys.get_mut(&self.name).filter(|connected| connected.link == self.link).map(change);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        if let Some(connected) = state.standbys.get(&self.name).filter(|connected| connected.link == self.link) {
            let silent = connected.silent;
            state.standbys.remove(&self.name);
            self.hub.governor.disconnected(&self.name);
            let news = state.recount();
            if news.in_sync == Some(false) {
                state.silent_before = silent;
            }
            drop(state);
            self.hub.tell(news);
        }
    }
}
