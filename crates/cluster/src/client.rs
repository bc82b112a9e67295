//! The server's side: its part in the control plane, which runs in the supervisor's process, and the pages.
//!
//! | event | then |
//! |---|---|
//! | the server starts | it takes `server.lock`, makes its page `progress`, connects and learns its cluster |
//! | it is promoted | the supervisor has made `lease-EPOCH`; each answer reads that page |
//! | the supervisor ends | what waits for an answer is asked again when its successor answers; a promotion fails as without a quorum |
//! | no supervisor for some seconds | the lease runs out: nothing is answered |
//!
//! Two threads: `supervisor` speaks with the socket, `tick` writes the time into the page every 25 ms and does nothing else.
//!
//! Failure: a request without an answer in [`ANSWER_MAX`] fails as without a quorum: it may still be done.

mod connection;

use crate::error::ClusterError;
use crate::message::{Ask, Done, Welcome};
use crate::moment::boot_ns;
use crate::page::{HolderPage, ProgressPage, ServerState};
use crate::process::Identity;
use crate::runtime_dir::RuntimeDir;
use crate::scheduling;
use connection::Job;
use futures::future::BoxFuture;
use holdfast_control::{
    BootClock, Change, ComparedTrail, ControlError, ControlPlane, Lease, NodeId, Promotion, Quorum, Record,
};
use holdfast_seams::{Disk, DiskLock, RealDisk};
use holdfast_types::Epoch;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// The time after which a request counts as lost. A promotion waits for the end of a lease and compares trails.
const ANSWER_MAX: Duration = Duration::from_secs(40);
/// How often the server shows that it runs.
const TICK: Duration = Duration::from_millis(25);

/// What both threads and the server share.
struct Shared {
    dir: RuntimeDir,
    identity: Identity,
    page: Mutex<ProgressPage>,
    lease: Mutex<Lease>,
    held: watch::Sender<bool>,
    record: watch::Sender<Option<Arc<Record>>>,
    leader: Mutex<Option<NodeId>>,
    lost: watch::Sender<BTreeSet<NodeId>>,
    trail: Mutex<Option<Arc<dyn ComparedTrail>>>,
    link: Mutex<Option<String>>,
    changes: AtomicU64,
    /// Held as long as the process runs.
    _lock: Box<dyn DiskLock>,
}

impl Shared {
    /// Tells whether the lease is held, when that has changed.
    fn tell_held(&self) {
        let now = self.lease.lock().valid_now();
        self.held.send_if_modified(|held| std::mem::replace(held, now) != now);
    }

    /// Writes down where the trail is.
    fn tell_progress(&self) {
        let trail = self.trail.lock().clone();
        let Some(trail) = trail else {
            let page = self.page.lock();
            page.sync_began(None);
            return page.trail(0, 0);
        };
        let end = trail.end();
        let under_way = trail.sync_under_way().map(|lasts| lasts.as_nanos() as u64);
        let page = self.page.lock();
        page.sync_began(under_way.map(|lasts| boot_ns().saturating_sub(lasts)));
        page.trail(end.epoch.0, end.lsn);
    }

    /// Makes the page again if it was removed: the supervisor knows the server by it.
    fn restore_page(&self) {
        // Looked at without the lock: the tick waits for that.
        if !ProgressPage::is_missing(self.dir.path()) {
            return;
        }
        match self.page.lock().restore(self.dir.path(), self.identity) {
            Ok(false) => {}
            Ok(true) => tracing::warn!("the page progress in {} was removed; made again", self.dir.path().display()),
            Err(error) => tracing::debug!("{error}"),
        }
    }
}

/// A server's connection to its supervisor.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    jobs: mpsc::UnboundedSender<Job>,
}

/// What a server gets when it starts.
pub struct Start {
    pub client: Client,
    pub welcome: Welcome,
}

impl Client {
    /// Connects to the supervisor of this runtime directory, which has started this process.
    ///
    /// The process leaves the supervisor's session: in it a server that is stopped when the supervisor dies would be continued by
    /// the kernel, as an orphaned job, and a Ctrl-C in the supervisor's terminal would end the server.
    pub fn start(dir: RuntimeDir) -> Result<Start, ClusterError> {
        if let Err(errno) = rustix::process::setsid() {
            // It leads one already.
            tracing::debug!("the server stays in its session: {errno}");
        }
        let path = dir.server_lock();
        let lock = RealDisk::new().lock(&path).map_err(ClusterError::io("lock", &path))?;
        let lock = lock.ok_or(ClusterError::AnotherServer(path))?;
        let identity = Identity::own().map_err(ClusterError::io("read", "/proc/self/stat"))?;
        let page = ProgressPage::create(dir.path(), identity)?;
        page.tick(boot_ns());
        let shared = Arc::new(Shared {
            dir,
            identity,
            page: Mutex::new(page),
            lease: Mutex::new(Lease::new(Epoch(0), Arc::new(BootClock))),
            held: watch::Sender::new(false),
            record: watch::Sender::new(None),
            leader: Mutex::default(),
            lost: watch::Sender::default(),
            trail: Mutex::default(),
            link: Mutex::default(),
            changes: AtomicU64::default(),
            _lock: lock,
        });
        let io = |what| ClusterError::io(what, shared.dir.path());
        let ticking = shared.clone();
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        thread("tick").spawn(move || tick(&ticking)).map_err(io("start a thread for"))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(io("connect to"))?;
        let (jobs, inbox) = mpsc::unbounded_channel();
        let (stream, welcome) = runtime.block_on(connection::connect(&shared))?;
        let speaking = shared.clone();
        let speak = move || runtime.block_on(connection::keep(&speaking, stream, inbox));
        thread("supervisor").spawn(speak).map_err(io("start a thread for"))?;
        Ok(Start { client: Client { shared, jobs }, welcome })
    }

    /// Clients can connect from now on.
    pub fn is_ready(&self) {
        self.shared.page.lock().state(ServerState::Ready);
    }

    /// The server stops.
    pub fn stops(&self) {
        self.shared.page.lock().state(ServerState::Stopping);
    }

    fn ask<T: Send + 'static>(
        &self,
        ask: Ask,
        read: impl FnOnce(Done) -> Option<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, ControlError>> {
        let (reply, answered) = oneshot::channel();
        let sent = self.jobs.send(Job { ask, reply });
        Box::pin(async move {
            let stopped =
                || ControlError::Stopped("its connection to the supervisor has ended; see the log".to_owned());
            sent.map_err(|_| stopped())?;
            let done = answered.await.map_err(|_| stopped())??;
            read(done).ok_or_else(|| ControlError::Stopped("the supervisor answers something else".to_owned()))
        })
    }

    fn ask_for_nothing(&self, ask: Ask) -> BoxFuture<'_, Result<(), ControlError>> {
        self.ask(ask, |done| matches!(done, Done::Nothing).then_some(()))
    }
}

/// Shows that the process runs, with no other work that could delay it.
fn tick(shared: &Shared) {
    if let Err(error) = scheduling::real_time() {
        tracing::debug!("the tick has no real-time priority: {error}");
    }
    loop {
        shared.page.lock().tick(boot_ns());
        std::thread::sleep(TICK);
    }
}

impl ControlPlane for Client {
    fn record(&self) -> Option<Arc<Record>> {
        self.shared.record.borrow().clone()
    }

    fn watch(&self) -> watch::Receiver<Option<Arc<Record>>> {
        self.shared.record.subscribe()
    }

    fn look(&self) -> BoxFuture<'_, Result<Record, ControlError>> {
        self.ask(Ask::Look, |done| match done {
            Done::Record(record) => Some(*record),
            _ => None,
        })
    }

    fn lease(&self) -> Lease {
        self.shared.lease.lock().clone()
    }

    fn lease_held(&self) -> watch::Receiver<bool> {
        self.shared.held.subscribe()
    }

    fn promote(&self, promotion: Promotion) -> BoxFuture<'_, Result<Epoch, ControlError>> {
        let asked = self.ask(Ask::promote(promotion), |done| match done {
            Done::Epoch(epoch) => Some(Epoch(epoch)),
            _ => None,
        });
        Box::pin(async move {
            let epoch = asked.await?;
            let page = HolderPage::open(self.shared.dir.path(), epoch);
            let page = page.map_err(|error| ControlError::Stopped(error.to_string()))?;
            let lease = Lease::on_page(epoch, Arc::new(BootClock), Box::new(page));
            // An older epoch's lease never becomes valid again.
            std::mem::replace(&mut *self.shared.lease.lock(), lease).give_up();
            // Changes are counted for each epoch.
            self.shared.tell_held();
            Ok(epoch)
        })
    }

    fn shrink(&self, epoch: Epoch, node: NodeId) -> BoxFuture<'_, Result<(), ControlError>> {
        let change = self.next_change().number();
        self.ask_for_nothing(Ask::Shrink { epoch: epoch.0, node, change })
    }

    fn grow(&self, epoch: Epoch, node: NodeId) -> BoxFuture<'_, Result<(), ControlError>> {
        let change = self.next_change().number();
        self.ask_for_nothing(Ask::Grow { epoch: epoch.0, node, change })
    }

    fn next_change(&self) -> Change {
        // In one order with what is looked at after it.
        Change::numbered(self.shared.changes.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn name_quorum(&self, epoch: Epoch, quorum: Quorum, change: Change) -> BoxFuture<'_, Result<(), ControlError>> {
        let Quorum { standbys, needed } = quorum;
        self.ask_for_nothing(Ask::NameQuorum { epoch: epoch.0, standbys, needed, change: change.number() })
    }

    fn release(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), ControlError>> {
        let lease = self.lease();
        if lease.epoch() == epoch {
            lease.give_up();
            self.shared.tell_held();
        }
        self.ask_for_nothing(Ask::Release { epoch: epoch.0 })
    }

    fn link_of(&self, node: NodeId) -> BoxFuture<'_, Result<Option<String>, ControlError>> {
        self.ask(Ask::LinkOf { node }, |done| match done {
            Done::Link(link) => Some(link),
            _ => None,
        })
    }

    fn set_link(&self, link: Option<String>) {
        *self.shared.link.lock() = link.clone();
        let (reply, _) = oneshot::channel();
        // A later connection begins with it, too.
        drop(self.jobs.send(Job { ask: Ask::SetLink { link }, reply }));
    }

    fn leader(&self) -> Option<NodeId> {
        *self.shared.leader.lock()
    }

    fn lost(&self) -> watch::Receiver<BTreeSet<NodeId>> {
        self.shared.lost.subscribe()
    }

    fn tell_positions(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), ControlError>> {
        self.ask_for_nothing(Ask::TellPositions { epoch: epoch.0 })
    }

    fn returned(&self, is_done: bool, text: &str) {
        let (reply, _) = oneshot::channel();
        let ask = Ask::Returned { is_done, text: text.to_owned() };
        // An error means that the process ends; the log has it.
        drop(self.jobs.send(Job { ask, reply }));
    }

    fn set_trail(&self, trail: Option<Arc<dyn ComparedTrail>>) {
        *self.shared.trail.lock() = trail;
        self.shared.tell_progress();
    }
}
