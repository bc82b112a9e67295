//! A master and a standby: the real trail on a simulated disk, without databases. Everything that may be applied counts
//! as applied.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use holdfast_seams::testing::{FaultDisk, StepClock};
use holdfast_trail::{
    CommitDelay, Cut, FollowFrom, ReceiveError, Shipped, Span, Trail, TrailError, TrailId, TrailOptions,
};
use holdfast_types::{Epoch, Lsn};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::base_copy::BaseCopy;
use crate::hub::Hub;
use crate::identity::{Identity, Tip};
use crate::limits::LinkOptions;
use crate::link::take_preamble;
use crate::link_server::{LinkServer, Peer};
use crate::message::Wants;
use crate::packing::Packing;
use crate::receive::{Blocking, Ended, Follower, follow};
use crate::refusal::{Reason, Refusal};
use crate::simulation::net::Net;
use crate::standby::{LinkPhase, Standby};
use crate::sync_set::{Reached, SyncSet};
use crate::{Governor, governor::GovernorOptions};

pub const DIR: &str = "/trail";
pub const SEGMENT_BYTES: u64 = 64 << 10;
pub const FORMAT: u16 = 1;

pub fn options() -> TrailOptions {
    TrailOptions {
        segment_bytes: SEGMENT_BYTES,
        boxcar_bytes_max: 12 << 10,
        kept_back_bytes: 8192,
        commit_delay: CommitDelay::Off,
        // A thread writes proofs in real time: a simulation has none.
        proof_delay: Duration::from_secs(1 << 30),
        on_failure: Arc::new(|_| {}),
        new_trail_id: Some(TrailId(*b"simulated trail!")),
        ..TrailOptions::new(DIR)
    }
}

pub fn open(disk: &FaultDisk, options: TrailOptions) -> Result<Trail, TrailError> {
    let clock = Arc::new(StepClock::starting_at(1_700_000_000_000));
    Trail::open(Arc::new(disk.clone()), clock, options).map(|(trail, _)| trail)
}

pub fn identity(trail: &Trail) -> Identity {
    Identity { trail_id: trail.trail_id(), format: FORMAT, segment_bytes: trail.segment_bytes(), epoch: trail.epoch() }
}

/// Every durable boxcar of a trail, from its beginning.
pub fn shipped(trail: &Trail) -> Vec<Shipped> {
    let mut tap = trail.tap(trail.first()).unwrap();
    let mut all = Vec::new();
    while tap.position() < trail.durable() {
        all.extend(tap.next().unwrap());
    }
    all
}

/// Link options with short times, so that histories are short.
pub fn link_options() -> LinkOptions {
    // Appended records are long and compress well.
    LinkOptions { queue_bytes_max: 100_000, packing: Packing::On, ..LinkOptions::default() }
}

pub struct MasterNode {
    trail: Trail,
    pub reached: Mutex<Reached>,
    pub held: Mutex<Lsn>,
    pub deposed_by: Mutex<Option<Epoch>>,
    /// The standbys that reported that this master lacks what it had.
    pub rolled_back: Mutex<Vec<String>>,
    pub may_ship: AtomicBool,
    pub in_sync: Mutex<Vec<bool>>,
    /// Standbys that returned with less than they had confirmed.
    pub fell_back: Mutex<Vec<String>>,
}

impl MasterNode {
    pub fn open(disk: &FaultDisk) -> Arc<MasterNode> {
        let trail = open(disk, options()).unwrap();
        Arc::new(MasterNode {
            trail,
            reached: Mutex::default(),
            held: Mutex::default(),
            deposed_by: Mutex::default(),
            rolled_back: Mutex::default(),
            may_ship: AtomicBool::new(true),
            in_sync: Mutex::default(),
            fell_back: Mutex::default(),
        })
    }

    /// Appends a record of `bytes` bytes, and returns its position once it is durable. `None` if the disk has failed.
    pub fn append(&self, bytes: usize) -> Option<Span> {
        let result = Arc::new(Mutex::new(None));
        let place = result.clone();
        let reservation = self.trail.reserve(bytes as u64).ok()?;
        let body = (0..bytes).map(|i| i as u8).collect();
        self.trail.append_now(reservation, body, Box::new(move |span| *place.lock() = Some(span))).ok()?;
        // Otherwise the trail's own thread is writing; it drops what it cannot write.
        while result.lock().is_none() && Arc::strong_count(&result) > 1 {
            std::thread::sleep(Duration::from_micros(100));
        }
        result.lock().take()
    }

    /// Serves every connection, until the task is aborted.
    pub fn serve(self: &Arc<MasterNode>, net: &Net) -> (Arc<Hub>, tokio::task::JoinHandle<()>) {
        let sync_set = SyncSet::parse("*").unwrap();
        let hub = Hub::new(self.clone(), link_options(), sync_set, Governor::new(GovernorOptions::default()));
        let mut listener = net.listen();
        let serving = hub.clone();
        let task = tokio::spawn(async move {
            let mut links = tokio::task::JoinSet::new();
            while let Some(mut stream) = listener.recv().await {
                let hub = serving.clone();
                links.spawn(async move {
                    let peer = Peer { address: "simulated".to_owned(), certificate: None };
                    if take_preamble(&mut stream).await.is_ok() {
                        let _ = hub.serve(stream, peer).await;
                    }
                });
            }
        });
        (hub, task)
    }
}

impl LinkServer for MasterNode {
    fn name(&self) -> &str {
        "master"
    }

    fn identity(&self) -> Identity {
        identity(&self.trail)
    }

    fn trail(&self) -> &Trail {
        &self.trail
    }

    fn deposed(&self, by: Epoch) {
        *self.deposed_by.lock() = Some(by);
    }

    fn rolled_back(&self, standby: &str, _: &Refusal) {
        self.rolled_back.lock().push(standby.to_owned());
    }

    fn may_ship(&self) -> bool {
        self.may_ship.load(Ordering::Relaxed)
    }

    fn admit(&self, _: &Peer, name: &str, wants: &Wants) -> Result<(), Refusal> {
        let refused = name == "stranger" || matches!(wants, Wants::Promote { .. });
        if refused { Err(Refusal::new(Reason::NotAdmitted, "no", "no")) } else { Ok(()) }
    }

    fn hold(&self, _: &str, from: Lsn, _: bool) -> Result<(), Refusal> {
        *self.held.lock() = from;
        Ok(())
    }

    fn reached(&self, reached: Reached) {
        let mut so_far = self.reached.lock();
        *so_far = so_far.max(reached);
    }

    fn fell_back(&self, standby: &str) -> Result<(), Refusal> {
        self.fell_back.lock().push(standby.to_owned());
        Ok(())
    }

    fn in_sync(&self, yes: bool) {
        self.in_sync.lock().push(yes);
    }

    fn base_copy(&self, _: &str) -> Result<Box<dyn BaseCopy>, Refusal> {
        Err(Refusal::new(Reason::Failed, "there are no databases here", "none"))
    }

    fn status(&self) -> String {
        "{}".to_owned()
    }

    fn promote(&self, _: bool) -> Result<String, Refusal> {
        Ok("is master".to_owned())
    }
}

pub struct StandbyNode {
    name: String,
    trail: Trail,
    allowed: AtomicU64,
    applied: watch::Sender<Lsn>,
    pub phases: Mutex<Vec<LinkPhase>>,
    pub anchor: Option<Tip>,
    pub writes_take: Duration,
    /// The newest epoch that it has learned from elsewhere than its trail.
    pub newest_epoch: AtomicU32,
}

impl StandbyNode {
    /// A new standby of this master, from the first segment on.
    pub fn found(disk: &FaultDisk, master: &Trail) {
        let from = FollowFrom {
            trail_id: master.trail_id(),
            segment_bytes: master.segment_bytes(),
            first_segment: 1,
            epoch: master.epoch(),
        };
        Trail::found(disk, Path::new(DIR), &from).unwrap();
    }

    /// Opens a standby; `applied` is the position of its databases.
    pub fn open(disk: &FaultDisk, name: &str, applied: Lsn) -> Result<Arc<StandbyNode>, TrailError> {
        let trail = open(disk, TrailOptions { follow: true, ..options() })?;
        Ok(Arc::new(StandbyNode {
            name: name.to_owned(),
            trail,
            allowed: AtomicU64::new(applied.0),
            applied: watch::channel(applied).0,
            phases: Mutex::default(),
            anchor: None,
            writes_take: Duration::from_millis(1),
            newest_epoch: AtomicU32::new(0),
        }))
    }

    pub fn cut_back(disk: &FaultDisk, to: Tip) -> Option<Cut> {
        Trail::cut_back(disk, Path::new(DIR), to.lsn).unwrap()
    }

    /// Follows the listener of the network. Sending true to the returned channel stops it.
    pub fn follow(
        self: &Arc<StandbyNode>,
        net: &Net,
        instance: u64,
    ) -> (watch::Sender<bool>, tokio::task::JoinHandle<Ended>) {
        let (stop, stopped) = watch::channel(false);
        (stop, tokio::spawn(follow(self.follower(net, instance, stopped))))
    }

    pub fn follower(self: &Arc<StandbyNode>, net: &Net, instance: u64, stop: watch::Receiver<bool>) -> Follower<Net> {
        Follower {
            standby: self.clone(),
            connect: net.clone(),
            options: link_options(),
            blocking: Blocking::Here(self.writes_take),
            instance,
            stop,
        }
    }

    /// Applies what is allowed and durable here.
    fn apply(&self) {
        let lsn = Lsn(self.allowed.load(Ordering::Relaxed)).min(self.trail.durable());
        self.applied.send_if_modified(|applied| {
            let more = lsn > *applied;
            *applied = lsn.max(*applied);
            more
        });
    }

    pub fn applied_lsn(&self) -> Lsn {
        *self.applied.borrow()
    }
}

impl Standby for StandbyNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn identity(&self) -> Identity {
        identity(&self.trail)
    }

    fn trail(&self) -> &Trail {
        &self.trail
    }

    fn newest_epoch(&self) -> Epoch {
        Epoch(self.newest_epoch.load(Ordering::Relaxed)).max(self.trail.epoch())
    }

    fn anchor(&self) -> Option<Tip> {
        self.anchor
    }

    fn settled(&self) -> Lsn {
        self.applied_lsn()
    }

    fn receive(&self, boxcars: &[Shipped]) -> Result<(), ReceiveError> {
        self.trail.receive(boxcars)?;
        self.apply();
        Ok(())
    }

    fn allow_apply(&self, lsn: Lsn) {
        self.allowed.fetch_max(lsn.0, Ordering::Relaxed);
        self.apply();
    }

    fn applied(&self) -> watch::Receiver<Lsn> {
        self.applied.subscribe()
    }

    fn changed(&self, phase: &LinkPhase) {
        self.phases.lock().push(phase.clone());
    }
}
