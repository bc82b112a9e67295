//! From a data directory to a server, and back down again.
//!
//! A server is a master or a standby (`standby.toml` says which). To change that it is taken down to its listening socket
//! and put up again; clients that connect meanwhile wait, sessions that were open end with 57P01.
//!
//! | what happens | then |
//! |---|---|
//! | SIGTERM, SIGINT | the end: clients first, then standbys in order, then the engine |
//! | a standby is to be promoted | up again as a master with a higher epoch; `standby.toml` is removed before the first client is let in |
//! | a standby has the end of a trail that its master never made durable | that is cut off and saved aside, up again as a standby |

use crate::activity::{Activities, Watcher};
use crate::automatic_stats::AutomaticStats;
use crate::config::{Config, ConfigError};
use crate::connect;
use crate::database::Databases;
use crate::descriptors;
use crate::replication::{
    Archiving, Asked, Control, ControlSetupError, Door, Event, Following, FromArchive, InSync, Notify, Reply,
    StandbyFile, StandbyFileError, Standings, SyncWatch, follow_master, link_options, node_name,
};
use crate::session::{Factory, Scratch};
use holdfast_archive::{ArchiveError, History, Place as ArchivePlace, Store};
use holdfast_engine::{CloseError, Engine, OpenError, scratch_dir};
use holdfast_standby::governor::GovernorOptions;
use holdfast_standby::identity::Tip;
use holdfast_standby::{Ended, Governor, Hub, SyncSet, draw_instance};
use holdfast_trail::{Inspection, Trail, TrailError};
use holdfast_types::Epoch;
use holdfast_wire::{Server, ServerError};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Why a server does not start, or did not stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    StandbyFile(#[from] StandbyFileError),
    #[error(transparent)]
    Control(#[from] ControlSetupError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("the end of the trail that the master does not have cannot be cut off: {0}")]
    CutBack(#[source] TrailError),
    #[error("the clean stop did not complete: {0}; nothing acknowledged is lost, the next start recovers")]
    Close(#[from] CloseError),
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
}

/// Called with the address once clients can connect.
pub type Ready<'a> = &'a dyn Fn(SocketAddr);

/// Threads for links of other nodes: one may be busy with a promotion.
const LINK_THREADS: usize = 2;

/// How long standbys are given to take the rest before a master stops.
const STANDBYS_STOP_MAX: Duration = Duration::from_secs(10);

/// Why a role has ended.
enum Next {
    Stop,
    Promote(Promotion),
    CutBack(Tip),
}

/// A standby is to become the master.
struct Promotion {
    /// Given by the control plane.
    epoch: Option<Epoch>,
    reply: Reply,
}

/// Serves the directory until SIGTERM or SIGINT, then stops cleanly. Blocks.
pub fn serve(dir: &Path, mut config: Config, ready: Ready<'_>) -> Result<(), NodeError> {
    // The socket first: an address in use is found out before a recovery that may take a while.
    config.connections_max = descriptors::raise(config.connections_max);
    let server = Server::bind(config.listen, config.limits(), holdfast_sql::types::output)?;
    let address = server.address()?;
    let links = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(LINK_THREADS)
        .thread_name("links")
        .enable_all()
        .build()?;
    let clients = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = clients.block_on(async { Signals::new() })?;
    let (events, mut inbox) = mpsc::unbounded_channel();
    let name = StandbyFile::read(dir)?.map_or_else(|| node_name(&config), |file| file.name);
    let control = Control::start(dir, &config, &name)?;
    let door = Arc::new(Door::new(links.handle().clone()));
    let place = Place { dir: dir.to_owned(), config, name, control, door, events };
    let mut promoted: Option<Promotion> = None;
    let mut first = true;
    loop {
        let opened = Up::open(&place, links.handle(), promoted.as_ref());
        let up = match (opened, promoted.take()) {
            (Ok(up), Some(Promotion { reply, .. })) => {
                // Whoever asked may have gone.
                drop(reply.send(Ok(up.promoted())));
                up
            }
            (Ok(up), None) => up,
            (Err(error), Some(Promotion { reply, .. })) => {
                tracing::error!("the promotion has failed, this server stays a standby: {error}");
                drop(reply.send(Err(error.to_string())));
                continue;
            }
            (Err(error), None) => return Err(error),
        };
        let tell = || {
            if std::mem::take(&mut first) {
                ready(address)
            }
        };
        let next = up.run(server.again()?, &clients, &mut signals, &mut inbox, tell);
        let down = up.down(links.handle());
        match next? {
            Next::Stop => {
                down?;
                links.shutdown_timeout(Duration::from_secs(1));
                tracing::info!("stopped");
                return Ok(());
            }
            Next::Promote(promotion) => {
                down?;
                promoted = Some(promotion);
            }
            Next::CutBack(tip) => {
                down?;
                Trail::cut_back(&holdfast_seams::RealDisk::new(), &dir.join("trail"), tip.lsn)
                    .map_err(NodeError::CutBack)?;
            }
        }
    }
}

/// What stays when the role changes.
struct Place {
    dir: PathBuf,
    config: Config,
    name: String,
    control: Option<Arc<Control>>,
    door: Arc<Door>,
    events: mpsc::UnboundedSender<Event>,
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn come(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => tracing::info!("SIGTERM: stopping"),
            _ = self.interrupt.recv() => tracing::info!("SIGINT: stopping"),
        }
    }
}

/// A server in one role.
struct Up {
    engine: Engine,
    hub: Arc<Hub>,
    door: Arc<Door>,
    factory: Factory,
    slot: connect::EngineSlot,
    standings: Arc<Standings>,
    workers: usize,
    control: Option<Arc<Control>>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Up {
    fn open(place: &Place, links: &tokio::runtime::Handle, promotion: Option<&Promotion>) -> Result<Up, NodeError> {
        let Place { dir, config, name, control, door, events } = place;
        let file = StandbyFile::read(dir)?;
        let standby = file.as_ref().filter(|_| promotion.is_none());
        let epoch = match (control, standby, promotion) {
            (Some(_), None, Some(promotion)) => promotion.epoch,
            (Some(control), None, None) => Some(control.start_as_master(links, next_epoch(dir)?)?),
            _ => None,
        };
        let slot = connect::EngineSlot::default();
        let stats = Arc::new(AutomaticStats::default());
        let (activities, standings) = (Arc::new(Activities::default()), Arc::new(Standings::default()));
        let watcher = Watcher {
            activities: activities.clone(),
            engine: slot.clone(),
            automatic: stats.clone(),
            standings: standings.clone(),
        };
        let mut options = config.options();
        options.connect = Some(connect::hook(watcher));
        options.standby = standby.is_some();
        // The engine's epoch is one higher than this, or than the last one.
        let lowest = Epoch(u32::from(promotion.is_some()));
        options.epoch_min = epoch.map_or(lowest, |epoch| Epoch(epoch.0 - 1));
        let engine = Engine::open(dir, options)?;
        if let Some(control) = control.as_ref().filter(|_| epoch.is_some()) {
            control.bind(&engine);
        }
        if promotion.is_some() {
            StandbyFile::remove(dir)?;
        }
        *slot.write() = Some(engine.clone());
        let recovered = engine.recovered();
        tracing::info!(dir = %dir.display(), end = %recovered.end, cut = recovered.cut.is_some(), standby = standby.is_some(), "data directory opened");
        let notify = Notify::new(config.notify_command.clone());
        let following = standby.map(|file| Following::new(engine.clone(), file.clone(), notify.clone()));
        let in_sync = Arc::new(InSync::default());
        let store = open_archive(config, name, &engine)?;
        let history = |store: &Arc<dyn Store>| History::new(store.clone(), engine.trail().clone());
        let archive = store.as_ref().map(|store| Arc::new(FromArchive(history(store))));
        let asked = Asked {
            name: name.clone(),
            engine: engine.clone(),
            standings: standings.clone(),
            events: events.clone(),
            notify: notify.clone(),
            following: following.clone(),
            control: control.clone(),
            in_sync: in_sync.clone(),
            archive,
        };
        let governor = GovernorOptions { lag_bytes_max: config.standby_lag_bytes_max, ..GovernorOptions::default() };
        let hub = Hub::new(
            Arc::new(asked),
            link_options(config),
            sync_set(config, control.as_deref())?,
            Governor::new(governor),
        );
        following.iter().for_each(|following| following.set_hub(&hub));
        let keep_bytes_max = config.archive_keep_bytes_max;
        let archiving = store.map(|store| Archiving::new(engine.clone(), store, notify.clone(), keep_bytes_max));
        standings.set(name, &engine, &hub, following.clone(), archiving.clone());
        let (stop, stopping) = watch::channel(false);
        let mut tasks = Vec::new();
        tasks.extend(archiving.map(|archiving| links.spawn(archiving.run(stopping.clone()))));
        match following {
            Some(following) => {
                let task = follow_master(following, link_options(config), draw_instance(), stopping, events.clone());
                tasks.push(links.spawn(task));
            }
            None => {
                let governed = Arc::downgrade(&hub);
                let delay = move |bytes| governed.upgrade().map_or(Duration::ZERO, |hub| hub.charge(bytes));
                engine.set_delay(Arc::new(delay));
                if let Some(control) = control {
                    tasks.push(links.spawn(control.clone().watch(engine.clone(), notify.clone(), stopping.clone())));
                }
                let watch = SyncWatch {
                    hub: hub.clone(),
                    in_sync,
                    engine: engine.clone(),
                    control: control.clone(),
                    away: config.synchronous_standby_away,
                    after: Duration::from_millis(config.standby_timeout_ms),
                    notify,
                };
                tasks.push(links.spawn(watch.run(stopping)));
            }
        }
        door.set(Some(hub.clone()));
        let scratch = Scratch { dir: scratch_dir(dir), bytes_max: config.scratch_bytes_max };
        let factory = Factory {
            databases: Arc::new(Databases::new(engine.clone())),
            configured: config.parameters(),
            scratch: Arc::new(scratch),
            stats,
            activities,
            door: door.clone(),
            standby: standby.is_some(),
        };
        let control = control.clone().filter(|_| epoch.is_some());
        Ok(Up {
            engine,
            hub,
            door: door.clone(),
            factory,
            slot,
            standings,
            workers: workers(config),
            control,
            stop,
            tasks,
        })
    }

    /// What a promotion has led to.
    fn promoted(&self) -> String {
        let trail = self.engine.trail();
        format!("promoted: epoch {} from LSN {}", trail.epoch(), self.engine.recovered().end)
    }

    /// Serves clients until something ends that.
    fn run(
        &self,
        server: Server,
        clients: &tokio::runtime::Runtime,
        signals: &mut Signals,
        inbox: &mut mpsc::UnboundedReceiver<Event>,
        ready: impl FnOnce(),
    ) -> Result<Next, NodeError> {
        clients.block_on(async {
            let (stop, stopped) = watch::channel(false);
            let wait = async {
                let next = tokio::select! {
                    () = signals.come() => Next::Stop,
                    next = role_ends(inbox) => next,
                };
                stop.send_replace(true);
                next
            };
            ready();
            let (served, next) = tokio::join!(server.run(self.factory.clone(), self.workers, stopped), wait);
            served?;
            Ok(next)
        })
    }

    /// Takes everything down but the socket. Clients are gone already.
    fn down(self, links: &tokio::runtime::Handle) -> Result<(), NodeError> {
        self.door.set(None);
        // Standbys get what was written last, and commits that wait for them their answers.
        self.hub.stop(None);
        let until = Instant::now() + STANDBYS_STOP_MAX;
        while !self.hub.standbys().is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.stop.send_replace(true);
        for task in self.tasks {
            if let Err(error) = links.block_on(task) {
                tracing::error!("a task of links has failed: {error}");
            }
        }
        self.standings.clear();
        *self.slot.write() = None;
        let epoch = self.engine.trail().epoch();
        let closed = self.engine.close();
        self.control.iter().for_each(|control| control.give_up(links, epoch));
        Ok(closed?)
    }
}

/// Waits for what changes the role.
async fn role_ends(inbox: &mut mpsc::UnboundedReceiver<Event>) -> Next {
    loop {
        match inbox.recv().await {
            Some(Event::Promote { epoch, reply }) => return Next::Promote(Promotion { epoch, reply }),
            Some(Event::FollowingEnded(Ended::CutBack(tip))) => return Next::CutBack(tip),
            // It has been logged; readers are served on.
            Some(Event::FollowingEnded(_)) => {}
            None => std::future::pending().await,
        }
    }
}

/// One more than the trail has seen.
fn next_epoch(dir: &Path) -> Result<Epoch, NodeError> {
    let found = Inspection::of(&holdfast_seams::RealDisk::new(), &dir.join("trail")).map_err(OpenError::from)?;
    Ok(Epoch(found.map_or(0, |inspection| inspection.epoch.0) + 1))
}

/// Where segments are archived, if they are. If they are not any more, nothing is kept for that.
fn open_archive(config: &Config, name: &str, engine: &Engine) -> Result<Option<Arc<dyn Store>>, NodeError> {
    let Some(place) = ArchivePlace::parse(&config.archive)? else {
        if let Some(lsn) = engine.forget_archive()? {
            tracing::warn!(
                target: "holdfast::archive",
                "the setting archive was removed: from LSN {lsn} on the trail is recycled without being archived"
            );
        }
        return Ok(None);
    };
    Ok(Some(place.open(Arc::new(holdfast_seams::RealDisk::new()), name)?))
}

/// The standbys that commits wait for; without a list any one of them.
fn sync_set(config: &Config, control: Option<&Control>) -> Result<SyncSet, NodeError> {
    let names = match config.synchronous_standby_names.trim() {
        "" => control.map_or_else(|| "*".to_owned(), Control::default_sync_set),
        names => names.to_owned(),
    };
    SyncSet::parse(&names)
        .map_err(|error| NodeError::Start(io::Error::other(format!("synchronous_standby_names: {error}"))))
}

fn workers(config: &Config) -> usize {
    match config.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    }
}
