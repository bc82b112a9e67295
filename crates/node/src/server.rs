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

mod lead;

use crate::activity::{Activities, Watcher};
use crate::automatic_stats::AutomaticStats;
use crate::config::{Config, ConfigError};
use crate::connect;
use crate::database::Databases;
use crate::descriptors;
use crate::mirror::{self, Mirror, MirrorRefused};
use crate::replication::{
    Archiving, Asked, Certificates, Comparing, Control, ControlSetupError, Door, Event, Following, FromArchive,
    GivenUp, InSync, Notify, Reply, StandbyFile, StandbyFileError, Standings, follow_master, link_options, node_name,
    tell_given_up,
};
use crate::session::{Factory, Scratch};
use holdfast_archive::{ArchiveError, History, Place as ArchivePlace, Store};
use holdfast_engine::{CloseError, Engine, OpenError, scratch_dir};
use holdfast_standby::governor::GovernorOptions;
use holdfast_standby::identity::Tip;
use holdfast_standby::tls::TlsError;
use holdfast_standby::{Governor, Hub, SyncSet, draw_instance};
use holdfast_trail::{Inspection, Trail, TrailError};
use holdfast_types::{Epoch, Level, Lsn};
use holdfast_wire::{Server, ServerError};
use lead::{heed_governors, lead};
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
    Certificates(#[from] TlsError),
    #[error(
        "node_listen = {0}: links of other nodes need certificates; make them with holdfast cert, and put this node's into \
         the data directory's certificates/"
    )]
    NoCertificates(SocketAddr),
    #[error(transparent)]
    Mirror(#[from] MirrorRefused),
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

/// How long sessions are given to end whose commits wait for standbys.
const COMMITS_STOP_MAX: Duration = Duration::from_secs(5);

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
    /// What the operator accepts to lose by it.
    given_up: Option<GivenUp>,
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
    let name = StandbyFile::read(dir)?.map_or_else(|| node_name(&config), |file| file.name);
    let certificates = Certificates::of(dir)?;
    let control = Control::start(dir, &config, &name, certificates.as_ref())?;
    let door = Arc::new(Door::new(links.handle().clone()));
    listen_for_nodes(&config, &door, certificates.as_ref())?;
    let place = Place { dir: dir.to_owned(), config, name, certificates, control, door };
    let mut promoted: Option<Promotion> = None;
    let mut first = true;
    loop {
        // One for each role: what the last role had still to say is nothing to this one.
        let (events, mut inbox) = mpsc::unbounded_channel();
        let epoch = match &promoted {
            Some(promotion) => promotion.epoch,
            None => match place.epoch_to_serve(links.handle(), &clients, &mut signals)? {
                Begin::Stopped => return Ok(()),
                Begin::At(epoch) => epoch,
            },
        };
        let before = promoted.is_some().then(|| last_epoch(dir)).transpose()?.flatten();
        let opened = Up::open(&place, links.handle(), promoted.as_ref(), epoch, events);
        let up = match (opened, promoted.take()) {
            (Ok(up), Some(Promotion { reply, given_up, .. })) => {
                // Whoever asked may have gone.
                drop(reply.send(Ok(up.promoted(given_up.as_ref()))));
                up
            }
            (Ok(up), None) => up,
            (Err(error), Some(promotion)) => {
                place.promotion_failed(links.handle(), promotion, before, error)?;
                continue;
            }
            (Err(error), None) => {
                // Another one may be promoted without waiting for this one's lease to run out.
                place.give_up_lease(links.handle(), epoch);
                return Err(error);
            }
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
                closed_well_enough(down)?;
                promoted = Some(promotion);
            }
            Next::CutBack(tip) => {
                closed_well_enough(down)?;
                Trail::cut_back(&holdfast_seams::RealDisk::new(), &dir.join("trail"), tip.lsn)
                    .map_err(NodeError::CutBack)?;
            }
        }
    }
}

/// A checkpoint that could not be written is made up for by the recovery that comes next.
fn closed_well_enough(down: Result<(), NodeError>) -> Result<(), NodeError> {
    match down {
        Err(NodeError::Close(error @ CloseError::Checkpoint { .. })) => {
            tracing::warn!("before the change of role: {error}");
            Ok(())
        }
        other => other,
    }
}

/// Opens the port for links of nodes on other machines, where one is configured.
fn listen_for_nodes(config: &Config, door: &Arc<Door>, certificates: Option<&Certificates>) -> Result<(), NodeError> {
    let Some(address) = config.node_listen()? else { return Ok(()) };
    let Some(certificates) = certificates else { return Err(NodeError::NoCertificates(address)) };
    let listen = || {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok((listener.local_addr()?, listener))
    };
    let (address, listener) = listen().map_err(|source| ServerError::Listen { address, source })?;
    door.listen(listener, certificates.clone());
    tracing::info!(%address, "listening for nodes");
    Ok(())
}

/// What stays when the role changes.
struct Place {
    dir: PathBuf,
    config: Config,
    name: String,
    certificates: Option<Certificates>,
    control: Option<Arc<Control>>,
    door: Arc<Door>,
}

/// What a server that is no standby begins with.
enum Begin {
    /// The epoch that the control plane has agreed on, if there is one.
    At(Option<Epoch>),
    /// It was told to stop meanwhile.
    Stopped,
}

impl Place {
    /// Of a server that is to be the master: asks the control plane, for as long as it takes.
    fn epoch_to_serve(
        &self,
        links: &tokio::runtime::Handle,
        clients: &tokio::runtime::Runtime,
        signals: &mut Signals,
    ) -> Result<Begin, NodeError> {
        let Some(control) = &self.control else { return Ok(Begin::At(None)) };
        if StandbyFile::read(&self.dir)?.is_some() {
            return Ok(Begin::At(None));
        }
        let asking = links.spawn(control.clone().start_as_master(last_epoch(&self.dir)?));
        clients.block_on(async {
            tokio::select! {
                () = signals.come() => Ok(Begin::Stopped),
                agreed = asking => Ok(Begin::At(Some(agreed.map_err(io::Error::other)??))),
            }
        })
    }

    fn give_up_lease(&self, links: &tokio::runtime::Handle, epoch: Option<Epoch>) {
        if let (Some(control), Some(epoch)) = (&self.control, epoch) {
            control.give_up(links, epoch);
        }
    }

    /// The directory stays a standby's, or, where it is one no more, the server ends: the next start recovers.
    fn promotion_failed(
        &self,
        links: &tokio::runtime::Handle,
        Promotion { epoch, reply, .. }: Promotion,
        before: Option<Epoch>,
        error: NodeError,
    ) -> Result<(), NodeError> {
        self.give_up_lease(links, epoch);
        // Nothing was written in the new epoch: with it the living master would take itself for deposed.
        let withdrawn = before
            .map(|before| Trail::withdraw_epoch(&holdfast_seams::RealDisk::new(), &self.dir.join("trail"), before));
        if let Some(Err(why)) = withdrawn {
            tracing::error!("the epoch of the promotion that has failed stays: {why}");
        }
        drop(reply.send(Err(error.to_string())));
        if StandbyFile::read(&self.dir)?.is_none() {
            return Err(error);
        }
        tracing::error!("the promotion has failed, this server stays a standby: {error}");
        Ok(())
    }
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
    mirror: Option<Mirror>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Up {
    /// `epoch`: what the control plane has agreed on, where this server is to be the master.
    fn open(
        place: &Place,
        links: &tokio::runtime::Handle,
        promotion: Option<&Promotion>,
        epoch: Option<Epoch>,
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<Up, NodeError> {
        let Place { dir, config, name, control, door, .. } = place;
        let file = StandbyFile::read(dir)?;
        let standby = file.as_ref().filter(|_| promotion.is_none());
        mirror::check(dir, config, standby.is_none())?;
        let stats = Arc::new(AutomaticStats::default());
        let (activities, standings) = (Arc::new(Activities::default()), Arc::new(Standings::default()));
        let slot = connect::EngineSlot::default();
        let watcher = Watcher {
            activities: activities.clone(),
            engine: slot.clone(),
            automatic: stats.clone(),
            standings: standings.clone(),
        };
        let engine = open_engine(place, promotion, standby.is_some(), epoch, watcher)?;
        if let (Some(control), Some(epoch)) = (control, epoch) {
            // Its readers see all of its trail from now on. Who has all of it comes back into the set at once.
            links.block_on(control.shrink_to_this(epoch)).map_err(ControlSetupError::from)?;
        }
        *slot.write() = Some(engine.clone());
        let notify = Notify::new(config.notify_command.clone());
        let mirror = mirror::keep(name, dir, &engine, config, standby.is_none(), &notify)?;
        let following = standby.map(|file| {
            let certificates = place.certificates.clone();
            Following::new(engine.clone(), dir.clone(), file.clone(), notify.clone(), certificates)
        });
        let in_sync = Arc::new(InSync::default());
        let store = open_archive(config, name, &engine)?;
        let archive = store.as_ref().map(|store| {
            let history = History::new(store.clone(), engine.trail().clone());
            Arc::new(FromArchive { history, store: store.clone(), engine: engine.clone() })
        });
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
        let sync_set = sync_set(config, control.as_deref())?;
        let hub = Hub::new(Arc::new(asked), link_options(config), sync_set, Governor::new(governor));
        following.iter().for_each(|following| following.set_hub(&hub));
        let keep_bytes_max = config.archive_keep_bytes_max;
        let archiving = store.map(|store| Archiving::new(engine.clone(), store, notify.clone(), keep_bytes_max));
        standings.set(name, &engine, &hub, following.clone(), control.clone(), archiving.clone());
        mirror.iter().for_each(|mirror| standings.set_mirror(mirror.status()));
        let (stop, stopping) = watch::channel(false);
        let put_away = archiving.map(|archiving| links.spawn(archiving.run(stopping.clone())));
        let compared = Comparing { engine: engine.clone(), following: following.clone() };
        control.iter().for_each(|control| control.set_trail(&compared));
        let mut tasks = match following {
            Some(following) => {
                let task = follow_master(following, link_options(config), draw_instance(), stopping, events);
                vec![links.spawn(task)]
            }
            None => {
                heed_governors(&engine, &hub, mirror.as_ref());
                lead(place, links, &engine, &hub, in_sync, notify, &stopping)
            }
        };
        tasks.extend(put_away);
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
        let (control, door, workers) = (control.clone(), door.clone(), workers(config));
        Ok(Up { engine, hub, door, factory, slot, standings, workers, control, mirror, stop, tasks })
    }

    /// What a promotion has led to.
    fn promoted(&self, given_up: Option<&GivenUp>) -> String {
        let (trail, end) = (self.engine.trail(), self.engine.recovered().end);
        let done = format!("promoted: epoch {} from LSN {end}", trail.epoch());
        let Some(told) = given_up.map(|given_up| given_up.told(end)) else { return done };
        // Whoever looks for it later did not see the answer.
        tracing::warn!("{done}. {told}");
        format!("{done}. {told}")
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
            let mut serving = std::pin::pin!(server.run(self.factory.clone(), self.workers, stopped));
            let next = tokio::select! {
                served = &mut serving => return served.map(|()| Next::Stop).map_err(NodeError::from),
                next = wait => next,
            };
            let mut first = self.engine.gate().first;
            loop {
                match tokio::time::timeout(COMMITS_STOP_MAX, &mut serving).await {
                    Ok(served) => return served.map(|()| next).map_err(NodeError::from),
                    Err(_) => first = self.end_waiting_commits(first),
                }
            }
        })
    }

    /// Commits that nobody may ever confirm do not hold up the end of their sessions: those that wait and waited the last
    /// time (`before`) already. What else holds it up, a long statement, goes on.
    fn end_waiting_commits(&self, before: Option<(Level, Lsn)>) -> Option<(Level, Lsn)> {
        let gate = self.engine.gate();
        if gate.first.is_some() && gate.first == before {
            let boxcars = gate.boxcars;
            tracing::warn!("commits in {boxcars} boxcars wait for standbys; their clients are not told how they end");
            self.engine.stop_waiting();
        }
        gate.first
    }

    /// Takes everything down but the socket. Clients are gone already.
    fn down(self, links: &tokio::runtime::Handle) -> Result<(), NodeError> {
        self.door.set(None);
        self.control.iter().for_each(|control| control.no_trail());
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
        // The mirror comes last: commits that wait for standbys wait for it as well.
        drop(self.mirror);
        self.standings.clear();
        *self.slot.write() = None;
        let epoch = self.engine.trail().epoch();
        let control = self.control.filter(|_| !self.engine.is_standby());
        let closed = self.engine.close();
        control.iter().for_each(|control| control.give_up(links, epoch));
        Ok(closed?)
    }
}

/// Waits for what changes the role.
async fn role_ends(inbox: &mut mpsc::UnboundedReceiver<Event>) -> Next {
    loop {
        match inbox.recv().await {
            Some(Event::Promote { epoch, given_up, reply }) => {
                return Next::Promote(Promotion { epoch, given_up, reply });
            }
            Some(Event::CutBack(tip)) => return Next::CutBack(tip),
            None => std::future::pending().await,
        }
    }
}

/// Opens the data directory in its role. A promotion has removed `standby.toml` when this has returned.
fn open_engine(
    place: &Place,
    promotion: Option<&Promotion>,
    standby: bool,
    epoch: Option<Epoch>,
    watcher: Watcher,
) -> Result<Engine, NodeError> {
    let Place { dir, config, control, .. } = place;
    let mut options = config.options();
    options.connect = Some(connect::hook(watcher));
    options.standby = standby;
    let notify = Notify::new(config.notify_command.clone());
    options.on_given_up = tell_given_up(notify, config.standby_keep_bytes_max);
    // The engine's epoch is one higher than this, or than the last one.
    let lowest = Epoch(u32::from(promotion.is_some()));
    options.epoch_min = epoch.map_or(lowest, |epoch| Epoch(epoch.0 - 1));
    let engine = Engine::open(dir, options)?;
    if let Some(told) = config.segment_bytes_ignored(dir, engine.trail().segment_bytes()) {
        tracing::warn!("{told}");
    }
    if let Some(control) = control.as_ref().filter(|_| epoch.is_some()) {
        control.bind(&engine);
    }
    if promotion.is_some() {
        StandbyFile::remove(dir)?;
    }
    let recovered = engine.recovered();
    tracing::info!(dir = %dir.display(), end = %recovered.end, cut = recovered.cut.is_some(), standby, "data directory opened");
    Ok(engine)
}

/// What the trail has come to; `None`: there is no trail.
fn last_epoch(dir: &Path) -> Result<Option<Epoch>, NodeError> {
    if !dir.join("trail").is_dir() {
        return Ok(None);
    }
    let found = Inspection::of(&holdfast_seams::RealDisk::new(), &dir.join("trail")).map_err(OpenError::from)?;
    Ok(found.map(|inspection| inspection.epoch))
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

/// The standbys that commits wait for; without a list any one of them, with a control plane all that may be promoted.
fn sync_set(config: &Config, control: Option<&Control>) -> Result<SyncSet, NodeError> {
    let names = match config.synchronous_standby_names.trim() {
        "" => control.map_or_else(|| "ANY 1 (*)".to_owned(), Control::default_sync_set),
        names => names.to_owned(),
    };
    let set = SyncSet::parse(&names)
        .map_err(|error| NodeError::Start(io::Error::other(format!("synchronous_standby_names: {error}"))))?;
    control.map_or(Ok(()), |control| control.check_sync_set(&names, &set))?;
    Ok(set)
}

fn workers(config: &Config) -> usize {
    match config.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    }
}
