//! A standby follows its master: the link receives boxcars, the engine applies them.
//!
//! Failure: a broken link is opened again. What only the operator can fix is reported, and following waits for
//! `holdfast standby start`; a full disk is checked again until it has room.

use crate::certificates::Certificates;
use crate::dialer::Dialer;
use crate::identity::identity;
use crate::notify::Notify;
use crate::role::RoleEvent;
use crate::standby_file::StandbyFile;
use holdfast_engine::Engine;
use holdfast_seams::{Disk, RealDisk};
use holdfast_standby::identity::Tip;
use holdfast_standby::message::Welcome;
use holdfast_standby::receive::{Blocking, Follower};
use holdfast_standby::{Ended, Hub, Identity, LinkOptions, Phase, Standby, follow};
use holdfast_trail::{ReceiveError, Shipped, Trail};
use holdfast_types::{Epoch, Lsn};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender as Sender;
use tokio::sync::watch;

/// The newest epoch that the control plane has agreed on, as this node knows it: it may be newer than any link shows. 0 without
/// a control plane.
pub type AgreedEpoch = Arc<dyn Fn() -> Epoch + Send + Sync>;

/// The engine of a standby as the link sees it.
pub struct Following {
    engine: Engine,
    dir: PathBuf,
    file: StandbyFile,
    /// See [`StandbyFile::grouped`].
    grouped: AtomicBool,
    /// See [`StandbyFile::root`].
    root: Mutex<Option<String>>,
    /// See [`StandbyFile::master`].
    wrote: Mutex<Option<String>>,
    applied: watch::Sender<Lsn>,
    phase: Mutex<Phase>,
    /// When the last link ended on which it followed, in this role.
    unlinked: Mutex<Option<Instant>>,
    /// Everything below is durable at the master, as far as it has reported.
    master_durable: Mutex<Lsn>,
    /// Everything below has been received in this role, and will be written whatever happens to the link.
    received: AtomicU64,
    /// Received and not applied: where each boxcar ends, and when the master wrote it, in milliseconds since 1970.
    unapplied: Mutex<VecDeque<(Lsn, u64)>>,
    notify: Notify,
    certificates: Option<Certificates>,
    agreed_epoch: AgreedEpoch,
    /// Set by the operator.
    paused: watch::Sender<bool>,
    /// Ships to standbys of this standby, which may apply more when this one's master has more durable.
    hub: OnceLock<Weak<Hub>>,
}

/// Boxcars whose time is kept; beyond that the oldest are dropped, and the reported lag is too short.
const UNAPPLIED_MAX: usize = 100_000;

impl Following {
    pub fn new(
        engine: Engine,
        dir: PathBuf,
        file: StandbyFile,
        notify: Notify,
        certificates: Option<Certificates>,
        agreed_epoch: AgreedEpoch,
    ) -> Arc<Following> {
        let (applied, _) = watch::channel(Lsn(0));
        let sender = applied.clone();
        engine.on_applied(Arc::new(move |lsn| sender.send_modify(|applied| *applied = lsn.max(*applied))));
        // Read last, for what was applied before the callback was set.
        let so_far = engine.applied();
        applied.send_modify(|applied| *applied = so_far.max(*applied));
        Arc::new(Following {
            engine,
            grouped: AtomicBool::new(file.grouped),
            root: Mutex::new(file.root.clone()),
            wrote: Mutex::new(file.master.clone()),
            file,
            dir,
            applied,
            phase: Mutex::new(Phase::Connecting),
            unlinked: Mutex::default(),
            master_durable: Mutex::default(),
            received: AtomicU64::new(0),
            unapplied: Mutex::default(),
            notify,
            certificates,
            agreed_epoch,
            paused: watch::channel(false).0,
            hub: OnceLock::new(),
        })
    }

    /// Sets the hub that ships to standbys of this one.
    pub fn set_hub(&self, hub: &Arc<Hub>) {
        self.hub.get_or_init(|| Arc::downgrade(hub));
    }

    /// Stops following cleanly, or starts again.
    pub fn pause(&self, pause: bool) {
        self.paused.send_replace(pause);
    }

    /// The address of the server that it follows: a master, or another standby.
    pub fn master(&self) -> &str {
        &self.file.from
    }

    /// The address of the master at the end of the chain; empty: not known.
    pub fn root(&self) -> String {
        self.root.lock().clone().unwrap_or_else(|| self.file.from.clone())
    }

    /// A control plane decides which node is promoted.
    pub fn is_grouped(&self) -> bool {
        self.grouped.load(Ordering::Relaxed)
    }

    /// Whether the databases are consistent: the trail has reached the position at which the base copy was taken.
    pub fn is_whole(&self) -> bool {
        self.anchor().is_none()
    }

    /// Whether it has followed since this process took its role.
    pub fn has_followed(&self) -> bool {
        matches!(self.phase(), Phase::Following { .. }) || self.unlinked.lock().is_some()
    }

    /// Whether everything received is on the disk. Also true when following has ended: then the rest will never be.
    pub fn has_written(&self) -> bool {
        let is_over = matches!(self.phase(), Phase::Waiting { .. });
        is_over || self.engine.trail().durable().0 >= self.received.load(Ordering::Acquire)
    }

    pub fn phase(&self) -> Phase {
        self.phase.lock().clone()
    }

    /// When this server last heard from the one that it follows, in words.
    pub fn linked(&self) -> String {
        let from = &self.file.from;
        match (self.phase(), *self.unlinked.lock()) {
            (Phase::Following { .. }, _) => format!("{from} is connected to this server"),
            (_, Some(at)) => format!("the link to {from} ended {} s before the promotion", at.elapsed().as_secs()),
            (_, None) => format!("this server has not heard from {from} since it started"),
        }
    }

    /// Sets the phase. Returns the one before.
    fn enter(&self, phase: Phase) -> Phase {
        let is_following = matches!(phase, Phase::Following { .. });
        let before = std::mem::replace(&mut *self.phase.lock(), phase);
        if matches!(before, Phase::Following { .. }) && !is_following {
            *self.unlinked.lock() = Some(Instant::now());
        }
        before
    }

    /// Milliseconds between the newest boxcar received and the oldest one not applied, by the master's clock.
    pub fn behind_ms(&self) -> u64 {
        let applied = self.engine.applied();
        let mut unapplied = self.unapplied.lock();
        while unapplied.front().is_some_and(|(end, _)| *end <= applied) {
            unapplied.pop_front();
        }
        let written = |boxcar: Option<&(Lsn, u64)>| boxcar.map_or(0, |(_, written_ms)| *written_ms);
        written(unapplied.back()).saturating_sub(written(unapplied.front()))
    }

    /// Waits until the disk has room for what is received next.
    async fn until_there_is_room(&self, look_every: Duration) {
        let wanted_bytes = 2 * self.engine.trail().segment_bytes();
        loop {
            tokio::time::sleep(look_every).await;
            // If the free space is unknown, the next attempt shows it.
            if RealDisk::new().free_bytes(&self.dir).map_or(true, |free| free >= wanted_bytes) {
                return;
            }
        }
    }

    /// Everything below is durable at the master, as far as this node knows.
    pub fn master_durable(&self) -> Lsn {
        *self.master_durable.lock()
    }
}

impl Standby for Following {
    fn name(&self) -> &str {
        &self.file.name
    }

    fn identity(&self) -> Identity {
        identity(&self.engine)
    }

    fn trail(&self) -> &Trail {
        self.engine.trail()
    }

    fn newest_epoch(&self) -> Epoch {
        (self.agreed_epoch)().max(self.engine.trail().epoch())
    }

    fn anchor(&self) -> Option<Tip> {
        let (lsn, checksum) = (Lsn(self.file.anchor_lsn), self.file.anchor_checksum);
        (self.engine.trail().tip().0 < lsn).then_some(Tip { lsn, checksum })
    }

    fn settled(&self) -> Lsn {
        self.engine.settled()
    }

    fn is_written_by(&self, greeting: &Welcome) -> bool {
        // A member of a group compares before it becomes master, and its new epoch may follow from an accepted loss.
        let same_node = !greeting.grouped && self.wrote.lock().as_deref() == Some(&*greeting.name);
        greeting.follows.is_none() && (same_node || greeting.identity.epoch == self.identity().epoch)
    }

    fn learned(&self, node: &str, follows: Option<&str>, grouped: bool) {
        let root = follows.map(|root| seen_from_here(&self.file.from, root));
        let mut known = self.root.lock();
        // A standby in between may not know its master's group.
        let grouped = grouped || (follows.is_some() && self.grouped.load(Ordering::Relaxed));
        let same = self.grouped.swap(grouped, Ordering::Relaxed) == grouped;
        let wrote = follows.is_none().then(|| node.to_owned());
        let same_master = std::mem::replace(&mut *self.wrote.lock(), wrote.clone()) == wrote;
        if same && same_master && *known == root {
            return;
        }
        let file = StandbyFile { root: root.clone(), grouped, master: wrote, ..self.file.clone() };
        match file.write(&self.dir) {
            Ok(()) => *known = root,
            // The next link reports it again; an unknown master is no proof for a promotion.
            Err(error) => {
                tracing::warn!(target: "holdfast::receive", "cannot record which master {} follows: {error}", self.file.from);
                *known = Some(String::new());
            }
        }
    }

    fn received(&self, end: Lsn) {
        self.received.store(end.0, Ordering::Release);
    }

    fn receive(&self, boxcars: &[Shipped]) -> Result<(), ReceiveError> {
        self.engine.receive(boxcars)?;
        let mut unapplied = self.unapplied.lock();
        unapplied.extend(boxcars.iter().map(|b| (b.end, b.written_unix_ms())));
        let surplus = unapplied.len().saturating_sub(UNAPPLIED_MAX);
        unapplied.drain(..surplus);
        Ok(())
    }

    fn allow_apply(&self, lsn: Lsn) {
        {
            let mut durable = self.master_durable.lock();
            *durable = lsn.max(*durable);
        }
        self.engine.allow_apply(lsn);
        self.hub.get().and_then(Weak::upgrade).into_iter().for_each(|hub| hub.look());
    }

    fn applied(&self) -> watch::Receiver<Lsn> {
        self.applied.subscribe()
    }

    fn changed(&self, phase: &Phase) {
        let before = self.enter(phase.clone());
        let follows = |phase: &Phase| matches!(phase, Phase::Following { .. });
        match phase {
            Phase::Following { master, from, .. } if !follows(&before) => {
                self.notify.info(&format!("standby {} follows {master} from LSN {from}", self.file.name));
            }
            Phase::Waiting { why, .. } if follows(&before) => {
                self.notify.warn(&format!("standby {} no longer follows {}: {why}", self.file.name, self.file.from));
            }
            _ => {}
        }
    }
}

/// The address `root`, as the node at `from` knows its master, seen from this node: an address on that node's own machine is
/// useless on another.
fn seen_from_here(from: &str, root: &str) -> String {
    let is_local = |address: &str| {
        address.to_socket_addrs().is_ok_and(|mut found| found.all(|address| address.ip().is_loopback()))
    };
    if is_local(root) && !is_local(from) { String::new() } else { root.to_owned() }
}

/// Follows until `stop`, or until the end of the trail has to be cut off, which is sent as an event. After a failure that only
/// the operator can fix, it waits for the operator.
pub async fn follow_master(
    following: Arc<Following>,
    options: LinkOptions,
    instance: u64,
    stop: watch::Receiver<bool>,
    events: Sender<RoleEvent>,
) {
    let name = &following.file.name;
    loop {
        let mut full = false;
        let why = match follow_once(&following, &options, instance, &stop).await {
            Ended::Stopped if *stop.borrow() => return,
            // Stopped by the operator, who may start it again.
            Ended::Stopped => {
                let why = "stopped by the operator; start it again with: holdfast standby start".to_owned();
                following.changed(&Phase::Waiting { why, pause: Duration::MAX });
                continue;
            }
            Ended::CutBack(tip) => {
                tracing::info!(target: "holdfast::receive", %tip, "cutting off the end of this standby's trail, which the master never made durable");
                following.enter(Phase::Waiting { why: String::new(), pause: Duration::MAX });
                // An error means that the server is stopping.
                drop(events.send(RoleEvent::CutBack(tip)));
                return;
            }
            Ended::Refused(refusal) => {
                following.notify.warn(&format!("standby {name}: {refusal}"));
                refusal.to_string()
            }
            Ended::Failed(error) => {
                full = error.is_full();
                following.notify.warn(&format!("standby {name} has stopped following: {error}"));
                error.to_string()
            }
        };
        following.enter(Phase::Waiting { why, pause: Duration::MAX });
        let (mut server_stops, mut paused) = (stop.clone(), following.paused.subscribe());
        tokio::select! {
            biased;
            _ = server_stops.wait_for(|stop| *stop) => return,
            // `holdfast standby start`; the sender lives as long as the server.
            _ = paused.changed() => {}
            () = following.until_there_is_room(options.retry_max), if full => {}
        }
    }
}

/// Follows until the server stops or the operator stops it. While it is stopped by the operator, it waits first.
async fn follow_once(
    following: &Arc<Following>,
    options: &LinkOptions,
    instance: u64,
    stop: &watch::Receiver<bool>,
) -> Ended {
    let (mut server_stops, mut paused) = (stop.clone(), following.paused.subscribe());
    tokio::select! {
        biased;
        _ = server_stops.wait_for(|stop| *stop) => return Ended::Stopped,
        _ = paused.wait_for(|paused| !paused) => {}
    }
    let (halt, halted) = watch::channel(false);
    let connect = Dialer { address: following.file.from.clone(), certificates: following.certificates.clone() };
    let standby = following.clone();
    let follower =
        Follower { standby, connect, options: options.clone(), blocking: Blocking::Threads, instance, stop: halted };
    let mut followed = std::pin::pin!(follow(follower));
    tokio::select! {
        biased;
        ended = &mut followed => return ended,
        _ = server_stops.wait_for(|stop| *stop) => {}
        _ = paused.wait_for(|paused| *paused) => {}
    }
    // What was acknowledged as received has to be written first.
    halt.send_replace(true);
    followed.await
}
