//! A standby follows its master: the link receives boxcars, the engine applies them.
//!
//! Failure: a broken link is opened again. What only the operator can fix is reported, and following waits for
//! `holdfast standby start`; a full disk is checked again until it has room.

use crate::certificates::Certificates;
use crate::dialer::Dialer;
use crate::identity::identity;
use crate::link_address::seen_from_here;
use crate::masterships::Masterships;
use crate::notify::Notify;
use crate::rejoin_command::rejoin_command;
use crate::role::RoleEvent;
use crate::standby_file::StandbyFile;
use holdfast_engine::{Engine, RESTORING};
use holdfast_seams::{Disk, RealDisk};
use holdfast_standby::identity::Tip;
use holdfast_standby::mastership::lineage;
use holdfast_standby::message::Welcome;
use holdfast_standby::receive::{Blocking, Follower};
use holdfast_standby::{Ended, Hub, Identity, Lineage, LinkOptions, LinkPhase, Reason, Refusal, Standby, follow};
use holdfast_trail::{ReceiveError, Shipped, Trail};
use holdfast_types::{Epoch, Lsn};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender as Sender;
use tokio::sync::watch;

/// The newest epoch that the control plane has agreed on, as this node knows it: it may be newer than any link shows. 0 without
/// a control plane.
pub type AgreedEpoch = Arc<dyn Fn() -> Epoch + Send + Sync>;

/// The address of the server that this process has followed last; it outlives a role that is opened again.
pub type Followed = Arc<Mutex<Option<String>>>;

/// The engine of a standby as the link sees it.
pub struct Following {
    engine: Engine,
    dir: PathBuf,
    name: String,
    masterships: Arc<Masterships>,
    /// The end of the master's trail at which the base copy was taken.
    anchor: Tip,
    file: Mutex<StandbyFile>,
    /// The name of the node at the address in the file; `None`: no link has shown it since this server started.
    node_there: Mutex<Option<String>>,
    /// A link to that address has failed.
    has_failed: AtomicBool,
    /// Changes when another address is to be followed.
    changed_over: watch::Sender<()>,
    applied: watch::Sender<Lsn>,
    phase: Mutex<LinkPhase>,
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
    followed: Followed,
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
        masterships: Arc<Masterships>,
        file: StandbyFile,
        notify: Notify,
        certificates: Option<Certificates>,
        agreed_epoch: AgreedEpoch,
        followed: Followed,
    ) -> Arc<Following> {
        let (applied, _) = watch::channel(Lsn(0));
        let sender = applied.clone();
        engine.on_applied(Arc::new(move |lsn| sender.send_modify(|applied| *applied = lsn.max(*applied))));
        // Read last, for what was applied before the callback was set.
        let so_far = engine.applied();
        applied.send_modify(|applied| *applied = so_far.max(*applied));
        Arc::new(Following {
            engine,
            name: file.name.clone(),
            anchor: Tip { lsn: Lsn(file.anchor_lsn), checksum: file.anchor_checksum },
            file: Mutex::new(file),
            node_there: Mutex::default(),
            has_failed: AtomicBool::new(false),
            changed_over: watch::channel(()).0,
            dir: masterships.dir().to_owned(),
            masterships,
            applied,
            phase: Mutex::new(LinkPhase::Connecting),
            unlinked: Mutex::default(),
            master_durable: Mutex::default(),
            received: AtomicU64::new(0),
            unapplied: Mutex::default(),
            notify,
            certificates,
            agreed_epoch,
            followed,
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
    pub fn master(&self) -> String {
        self.file.lock().from.clone()
    }

    /// The address of the master at the end of the chain; empty: not known.
    pub fn root(&self) -> String {
        let file = self.file.lock();
        file.root.clone().unwrap_or_else(|| file.from.clone())
    }

    /// A control plane decides which node is promoted.
    pub fn is_grouped(&self) -> bool {
        self.file.lock().grouped
    }

    /// The newest epoch that this standby's trail has seen.
    pub fn epoch(&self) -> Epoch {
        self.engine.trail().epoch()
    }

    /// The name of the node at the address that it follows; `None`: no link has shown it since this server started.
    pub fn node_there(&self) -> Option<String> {
        self.node_there.lock().clone()
    }

    /// Whether the node of this name is at the address that it follows. `None`: not known yet, and a link may show it; if an
    /// attempt has failed, it counts as another one.
    pub fn is_at(&self, node: &str) -> Option<bool> {
        match &*self.node_there.lock() {
            Some(there) => Some(there == node),
            None => self.has_failed.load(Ordering::Acquire).then_some(false),
        }
    }

    /// Follows the master `node` at `from` from now on, and after a restart.
    pub fn change_over(&self, node: &str, from: &str) {
        let before = {
            let mut file = self.file.lock();
            let changed = StandbyFile { from: from.to_owned(), root: None, grouped: true, ..file.clone() };
            if let Err(error) = changed.write(&self.dir) {
                tracing::warn!(target: "holdfast::receive", "cannot record that this standby follows {from}: {error}");
            }
            std::mem::replace(&mut *file, changed).from
        };
        *self.node_there.lock() = None;
        self.has_failed.store(false, Ordering::Release);
        self.notify.info(&format!(
            "{node} is the master that the group agrees on: standby {} follows it at {from} instead of {before}",
            self.name
        ));
        self.changed_over.send_replace(());
    }

    /// Whether the databases are consistent: the trail has reached the position at which the base copy was taken.
    pub fn is_whole(&self) -> bool {
        self.anchor().is_none()
    }

    /// Why this standby cannot become the master by itself, though its base copy is complete; `None`: nothing prevents it.
    pub fn lacks(&self) -> Option<String> {
        if self.dir.join(RESTORING).exists() {
            return Some("it shows a moment of the past".to_owned());
        }
        if let Some(why) = self.engine.apply_failure() {
            return Some(format!("it cannot apply what it has received: {why}"));
        }
        self.paused.borrow().then(|| "an operator has stopped it (holdfast standby stop)".to_owned())
    }

    /// Whether it has followed the server at this address since this process started.
    pub fn has_followed(&self) -> bool {
        self.followed.lock().as_ref() == Some(&self.file.lock().from)
    }

    /// Whether everything received is on the disk. Also true when following has ended: then the rest will never be.
    pub fn has_written(&self) -> bool {
        let is_over = matches!(self.phase(), LinkPhase::Waiting { .. });
        is_over || self.engine.trail().durable().0 >= self.received.load(Ordering::Acquire)
    }

    /// What the master says, with the command for this directory where it advises to rejoin.
    fn with_command(&self, refusal: &Refusal) -> String {
        if refusal.reason != Reason::Diverged || !refusal.advice.contains("holdfast rejoin") {
            return refusal.to_string();
        }
        let file = self.file.lock().clone();
        let command = rejoin_command(Some(&file.from), &self.dir, &file.name);
        format!("{refusal}. The command is: {command}")
    }

    pub fn phase(&self) -> LinkPhase {
        self.phase.lock().clone()
    }

    /// When this server last heard from the one that it follows, in words.
    pub fn linked(&self) -> String {
        let from = self.master();
        match (self.phase(), *self.unlinked.lock()) {
            (LinkPhase::Following { .. }, _) => format!("{from} is connected to this server"),
            (_, Some(at)) => format!("the link to {from} ended {} s before the promotion", at.elapsed().as_secs()),
            (_, None) => format!("this server has not heard from {from} since it started"),
        }
    }

    /// Sets the phase. Returns the one before.
    fn enter(&self, phase: LinkPhase) -> LinkPhase {
        let is_following = matches!(phase, LinkPhase::Following { .. });
        match &phase {
            LinkPhase::Pairing { master } => *self.node_there.lock() = Some(master.clone()),
            LinkPhase::Waiting { .. } => self.has_failed.store(true, Ordering::Release),
            LinkPhase::Connecting | LinkPhase::Following { .. } => {}
        }
        if is_following {
            *self.followed.lock() = Some(self.master());
        }
        let before = std::mem::replace(&mut *self.phase.lock(), phase);
        if matches!(before, LinkPhase::Following { .. }) && !is_following {
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
                // Otherwise the next boxcar is refused for the room that there was, and the next look is as far away.
                self.engine.trail().check_room();
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
        &self.name
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
        (self.engine.trail().tip().0 < self.anchor.lsn).then_some(self.anchor)
    }

    fn settled(&self) -> Lsn {
        self.engine.settled()
    }

    fn lineage(&self, greeting: &Welcome) -> Lineage {
        let known = self.masterships.list();
        if !known.is_empty() && !greeting.masterships.is_empty() {
            // A standby in between has written nothing itself.
            let master = if greeting.follows.is_none() { &*greeting.name } else { "" };
            return lineage(&known, master, &greeting.masterships);
        }
        let (own, its) = (self.identity().epoch, greeting.identity.epoch);
        // A control plane gives each epoch to one master. Without one each start of a master begins the next epoch, and so does
        // a promotion elsewhere. An older copy of the master that is started begins at most the epoch after the one that the
        // standby knows; a node that became master again after another one is further.
        let is_same = match greeting.grouped {
            true => its == own,
            false => its.0 <= own.0.saturating_add(1) && self.file.lock().master.as_ref() == Some(&greeting.name),
        };
        if greeting.follows.is_none() && is_same { Lineage::WroteIt } else { Lineage::Continues }
    }

    fn learned(&self, greeting: &Welcome) {
        if let Err(error) = self.masterships.learn(&greeting.masterships) {
            tracing::warn!(target: "holdfast::receive", "{error}");
        }
        let Welcome { name: node, follows, grouped, .. } = greeting;
        let mut file = self.file.lock();
        // An address that is of no use here is as good as none.
        let root = follows.as_ref().map(|root| seen_from_here(&file.from, root).unwrap_or_default());
        // A standby in between may not know its master's group.
        let grouped = *grouped || (follows.is_some() && file.grouped);
        let master = follows.is_none().then(|| node.clone());
        let learned = StandbyFile { root, grouped, master, ..file.clone() };
        if *file == learned {
            return;
        }
        if let Err(error) = learned.write(&self.dir) {
            // The next link reports it again; an unknown master is no proof for a promotion.
            tracing::warn!(target: "holdfast::receive", "cannot record which master {} follows: {error}", file.from);
            *file = StandbyFile { root: Some(String::new()), ..learned };
            return;
        }
        *file = learned;
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
        self.hub.get().and_then(Weak::upgrade).into_iter().for_each(|hub| hub.wake_links());
    }

    fn applied(&self) -> watch::Receiver<Lsn> {
        self.applied.subscribe()
    }

    fn changed(&self, phase: &LinkPhase) {
        let before = self.enter(phase.clone());
        let follows = |phase: &LinkPhase| matches!(phase, LinkPhase::Following { .. });
        match phase {
            LinkPhase::Following { master, from, .. } if !follows(&before) => {
                self.notify.info(&format!("standby {} follows {master} from LSN {from}", self.name));
            }
            LinkPhase::Waiting { why, .. } if follows(&before) => {
                self.notify.warn(&format!("standby {} no longer follows {}: {why}", self.name, self.master()));
            }
            _ => {}
        }
    }
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
    let name = &following.name;
    let mut changed_over = following.changed_over.subscribe();
    loop {
        let mut full = false;
        changed_over.mark_unchanged();
        let why = match follow_once(&following, &options, instance, &stop, &mut changed_over).await {
            Ended::Stopped if *stop.borrow() => return,
            // Another master is to be followed.
            Ended::Stopped if !*following.paused.borrow() => continue,
            // Stopped by the operator, who may start it again.
            Ended::Stopped => {
                let why = "stopped by the operator; start it again with: holdfast standby start".to_owned();
                following.changed(&LinkPhase::Waiting { why, pause: Duration::MAX });
                continue;
            }
            Ended::CutBack(tip) => {
                tracing::info!(target: "holdfast::receive", %tip, "cutting off the end of this standby's trail, which the master never made durable");
                following.enter(LinkPhase::Waiting { why: String::new(), pause: Duration::MAX });
                // An error means that the server is stopping.
                drop(events.send(RoleEvent::CutBack(tip)));
                return;
            }
            Ended::Refused(refusal) => {
                let said = following.with_command(&refusal);
                following.notify.warn(&format!("standby {name}: {said}"));
                said
            }
            Ended::Failed(error) => {
                full = error.is_full();
                following.notify.warn(&format!("standby {name} has stopped following: {error}"));
                error.to_string()
            }
        };
        following.enter(LinkPhase::Waiting { why, pause: Duration::MAX });
        let (mut server_stops, mut paused) = (stop.clone(), following.paused.subscribe());
        tokio::select! {
            biased;
            _ = server_stops.wait_for(|stop| *stop) => return,
            // `holdfast standby start`; the sender lives as long as the server.
            _ = paused.changed() => {}
            _ = changed_over.changed() => {}
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
    changed_over: &mut watch::Receiver<()>,
) -> Ended {
    let (mut server_stops, mut paused) = (stop.clone(), following.paused.subscribe());
    tokio::select! {
        biased;
        _ = server_stops.wait_for(|stop| *stop) => return Ended::Stopped,
        _ = paused.wait_for(|paused| !paused) => {}
    }
    let (halt, halted) = watch::channel(false);
    let connect = Dialer { address: following.master(), certificates: following.certificates.clone() };
    let standby = following.clone();
    let follower =
        Follower { standby, connect, options: options.clone(), blocking: Blocking::Threads, instance, stop: halted };
    let mut followed = std::pin::pin!(follow(follower));
    tokio::select! {
        biased;
        ended = &mut followed => return ended,
        _ = server_stops.wait_for(|stop| *stop) => {}
        _ = paused.wait_for(|paused| *paused) => {}
        _ = changed_over.changed() => {}
    }
    // What was acknowledged as received has to be written first.
    halt.send_replace(true);
    followed.await
}
