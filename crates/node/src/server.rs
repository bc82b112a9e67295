//! Opens a data directory as a server, changes its role, and stops it.
//!
//! A server is a master or a standby (`standby.toml` says which). To change its role it is closed, except for its listening
//! socket, and opened again; clients that connect meanwhile are refused with 57P03, open sessions end with 57P01.
//!
//! | event | then |
//! |---|---|
//! | SIGTERM, SIGINT | it stops: clients first, then standbys, then the engine |
//! | this master is deposed while it holds its lease | the sessions end; links and role stay until it is stopped |
//! | another node serves in place of this master, and a supervisor runs this server | it returns as a standby ([`returning`]) |
//! | a standby is to be promoted | it opens as a master with a higher epoch; `standby.toml` is removed before the first client is admitted |
//! | a standby's trail has an end that its master never made durable | that end is cut off and kept aside; it opens as a standby again |

mod begin;
mod context;
mod listening;
mod master_tasks;
mod open;
mod refusing;
mod returning;
mod signals;

use crate::activity::EngineSlot;
use crate::admission::{Admission, HBA_FILE, RulesError};
use crate::backup::Backups;
use crate::clock;
use crate::config::{Config, ConfigError};
use crate::data_dir::{self, DataDirError};
use crate::descriptors;
use crate::reload::Reload;
use crate::replication_settings::node_name;
use crate::session::Factory;
use crate::statement_memory;
use crate::web::{self, Standing, Why};
use begin::{refuse_to_follow_itself, warn_of_archive};
use context::{Begin, ServerContext, last_epoch};
use holdfast_archive::{ArchiveError, ArchiveLocation, Store};
use holdfast_engine::{CloseError, Engine, OpenError};
use holdfast_mirror::{Mirror, MirrorRefused};
use holdfast_replication::{
    AcceptedLoss, Certificates, Control, ControlPlane, ControlSetupError, Followed, KeptCopies, Listener, Promotion,
    RejoinError, ReplicationStatus, RoleEvent, StandbyFile, StandbyFileError,
};
use holdfast_seams::points;
use holdfast_standby::Hub;
use holdfast_standby::identity::Tip;
use holdfast_standby::tls::TlsError;
use holdfast_trail::{Closed, Trail, TrailError};
use holdfast_types::{Epoch, Level, Lsn};
use holdfast_web::WebError;
use holdfast_wire::{Lingering, Server, ServerError};
use listening::{Listening, listen, reload_tls};
use open::Opening;
use refusing::Refusing;
use signals::Signals;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// Why a server does not start, or did not stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("cannot listen on {listen}: the host name has no address: {source}")]
    Host { listen: String, source: io::Error },
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Directory(#[from] DataDirError),
    #[error(transparent)]
    Rules(#[from] RulesError),
    #[error(transparent)]
    StandbyFile(#[from] StandbyFileError),
    #[error(transparent)]
    Control(#[from] ControlSetupError),
    #[error(transparent)]
    Certificates(#[from] TlsError),
    #[error(transparent)]
    Tls(#[from] holdfast_wire::TlsError),
    #[error(
        "node_listen = {0}: links of other nodes need certificates; make them with holdfast cert, and put this node's into \
         the data directory's certificates/"
    )]
    NoCertificates(SocketAddr),
    #[error(
        "standby.toml names {from} as the master, which is this server's own address; name the master with: holdfast standby \
         configure --data {} --from HOST:PORT", dir.display()
    )]
    FollowsItself { from: String, dir: PathBuf },
    #[error(transparent)]
    Http(#[from] WebError),
    #[error(transparent)]
    Mirror(#[from] MirrorRefused),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error(transparent)]
    Return(#[from] RejoinError),
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

/// How long a stop waits for sessions whose commits wait for standbys.
const COMMITS_STOP_MAX: Duration = Duration::from_secs(5);

/// How long a master that stops waits for its standbys to receive the rest.
const STANDBYS_STOP_MAX: Duration = Duration::from_secs(10);

/// How long a master that stops waits until the group knows that its lease is over.
const RELEASE_MAX: Duration = Duration::from_secs(3);

/// Why a role has ended.
enum Next {
    Stop,
    /// It returns as a standby, by itself.
    Return,
    Promote(Promotion),
    CutBack(Tip),
}

/// Serves the directory until SIGTERM or SIGINT, then stops cleanly. Blocks. `supervised`: how a server reaches its part in the
/// control plane that runs in its supervisor; the configuration has the supervisor's members then.
pub fn serve(
    dir: &Path,
    mut config: Config,
    supervised: Option<Arc<dyn ControlPlane>>,
    ready: Ready<'_>,
) -> Result<(), NodeError> {
    clock::server_starts();
    tracing::info!("holdfast {} starts on {}", env!("CARGO_PKG_VERSION"), dir.display());
    if config.control_members.trim().is_empty() {
        // With a control plane its record decides whether an empty directory may become a master's.
        data_dir::refuse_lost(dir)?;
    }
    data_dir::protect(dir)?;
    if config.has_mirror() {
        data_dir::protect(&config.mirror)?;
    }
    statement_memory::bound(config.statements_memory_bytes_max);
    // The socket first: an address in use is noticed before a recovery that may take minutes.
    (config.connections_max, config.half_open_max) = descriptors::raise(config.connections_max, config.half_open_max);
    let Listening { server, tls, parameters } = listen(dir, &config)?;
    let addresses = server.addresses();
    let address = *addresses.first().ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
    refuse_to_follow_itself(dir, &config, &addresses)?;
    let admission = Arc::new(Admission::open(dir, config.admission_limits())?);
    let beyond = addresses.iter().find(|address| !address.ip().to_canonical().is_loopback());
    admission.files().refuse_trusting(beyond.map(ToString::to_string))?;
    let links = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(LINK_THREADS)
        .thread_name("links")
        .enable_all()
        .build()?;
    let clients = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = clients.block_on(async { Signals::new() })?;
    let reload = Reload::default();
    reload_tls(&reload, dir, &tls, &addresses);
    let rules = admission.clone();
    reload.add(HBA_FILE, move || rules.files().reload().map_err(|error| error.to_string()));
    links.block_on(async { signals::reload_at_hangup(reload) })?;
    let name = StandbyFile::read(dir)?.map_or_else(|| node_name(&config), |file| file.name);
    let certificates = Certificates::of(dir)?;
    let (members, witness) = (&config.control_members, &config.control_witness);
    let link = link_address(&config, address, certificates.is_some())?;
    let control = Control::start(dir, members, witness, &name, certificates.as_ref(), link, supervised)?;
    let listener = Arc::new(Listener::new(links.handle().clone()));
    listen_for_nodes(&config, &listener, certificates.as_ref())?;
    let standing = Arc::<Standing>::default();
    // For the life of the process: load balancers ask it while the role changes.
    let mut http = web::start(dir, &config, &name, standing.clone(), &tls, admission.clone())?;
    let refusing = Refusing::new(server.again()?, links.handle().clone(), listener.clone(), standing.clone());
    let backups = Backups::new(dir, &name, own_address(&addresses).to_string(), &config);
    let context = ServerContext {
        dir: dir.to_owned(),
        backups,
        config,
        parameters,
        tls,
        name,
        certificates,
        control,
        listener,
        followed: Followed::default(),
        admission,
        standing,
    };
    let mut promoted: Option<(Promotion, Option<Closed>)> = None;
    let mut first = true;
    loop {
        // One channel for each role: late events of the role before are dropped.
        let (events, mut inbox) = mpsc::unbounded_channel();
        let epoch = match &promoted {
            Some((promotion, _)) => promotion.epoch,
            None => match context.epoch_to_serve(&refusing, links.handle(), &clients, &mut signals)? {
                Begin::Stopped => return Ok(()),
                Begin::At(epoch) => epoch,
            },
        };
        refusing.begin(Why::Opening)?;
        let Some(role) = open_role(&context, links.handle(), promoted.take(), epoch, events)? else { continue };
        let tell = || {
            if std::mem::take(&mut first) {
                ready(address)
            }
        };
        http.iter_mut().for_each(|http| http.announce(dir));
        refusing.end();
        let next = role.run(server.again()?, &refusing, &clients, &mut signals, &mut inbox, tell);
        context.standing.closed();
        let began = Instant::now();
        let down = role.down(links.handle());
        tracing::debug!(took_ms = began.elapsed().as_millis(), "the role was closed");
        let (next, lingering) = next?;
        match next {
            Next::Stop => {
                lingering.wait();
                down?;
                links.shutdown_timeout(Duration::from_secs(1));
                tracing::info!("stopped");
                return Ok(());
            }
            Next::Return => _ = closed_well_enough(down)?,
            Next::Promote(promotion) => promoted = Some((promotion, closed_well_enough(down)?)),
            Next::CutBack(tip) => {
                closed_well_enough(down)?;
                Trail::cut_back(&holdfast_seams::RealDisk::new(), &dir.join("trail"), tip.lsn)
                    .map_err(NodeError::CutBack)?;
            }
        }
    }
}

/// Opens the directory in its role, and answers the client that has requested a promotion. `None`: the promotion failed, and
/// the server stays a standby.
fn open_role(
    context: &ServerContext,
    links: &tokio::runtime::Handle,
    promoted: Option<(Promotion, Option<Closed>)>,
    epoch: Option<Epoch>,
    events: mpsc::UnboundedSender<RoleEvent>,
) -> Result<Option<ActiveRole>, NodeError> {
    let (promotion, closed) = promoted.map_or((None, None), |(promotion, closed)| (Some(promotion), closed));
    if promotion.is_some() {
        points::reached("a promoted server opens");
    }
    let before = promotion.is_some().then(|| last_epoch(&context.dir)).transpose()?.flatten();
    let opening = Opening { context, links, promotion: promotion.as_ref(), closed, epoch, events };
    match (opening.open(), promotion) {
        (Ok(role), Some(Promotion { reply, accepted_loss, .. })) => {
            // The client may have disconnected.
            drop(reply.send(Ok(role.promoted(accepted_loss.as_ref()))));
            Ok(Some(role))
        }
        (Ok(role), None) => Ok(Some(role)),
        (Err(error), Some(promotion)) => context.promotion_failed(links, promotion, before, error).map(|()| None),
        (Err(error), None) => {
            // Another node can then be promoted without waiting for this lease to expire.
            context.release_lease(links, epoch);
            Err(error)
        }
    }
}

/// Ignores a checkpoint that could not be written: the recovery that follows does its work.
fn closed_well_enough(down: Result<Option<Closed>, NodeError>) -> Result<Option<Closed>, NodeError> {
    match down {
        Err(NodeError::Close(error @ CloseError::Checkpoint { .. })) => {
            tracing::warn!("before the change of role: {error}");
            Ok(None)
        }
        other => other,
    }
}

/// Where this server's own links reach it: links over the clients' port come from this machine.
fn own_address(addresses: &[SocketAddr]) -> SocketAddr {
    let is_own = |address: &&SocketAddr| address.ip().is_loopback() || address.ip().is_unspecified();
    let found = addresses.iter().find(is_own).or(addresses.first()).copied();
    let mut found = found.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
    if found.ip().is_unspecified() {
        let loopback: std::net::IpAddr =
            if found.is_ipv4() { std::net::Ipv4Addr::LOCALHOST.into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
        found.set_ip(loopback);
    }
    found
}

/// Where other nodes reach this one, as the members of a control plane tell each other; `None`: nowhere.
fn link_address(config: &Config, clients: SocketAddr, has_certificates: bool) -> Result<Option<String>, NodeError> {
    let address = match config.node_listen()? {
        Some(nodes) => Some(nodes),
        // A node with certificates connects to ports for nodes only.
        None => (!has_certificates).then_some(clients),
    };
    Ok(address.map(|address| address.to_string()))
}

/// Opens the port for links of nodes on other machines, if one is configured.
fn listen_for_nodes(
    config: &Config,
    listener: &Arc<Listener>,
    certificates: Option<&Certificates>,
) -> Result<(), NodeError> {
    let Some(address) = config.node_listen()? else { return Ok(()) };
    let Some(certificates) = certificates else { return Err(NodeError::NoCertificates(address)) };
    let listen = || {
        let socket = std::net::TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        Ok((socket.local_addr()?, socket))
    };
    let (address, socket) = listen().map_err(|source| ServerError::Listen { address, source })?;
    listener.listen(socket, certificates.clone());
    tracing::info!(%address, "listening for nodes");
    Ok(())
}

/// A server in one role.
struct ActiveRole {
    engine: Engine,
    hub: Arc<Hub>,
    listener: Arc<Listener>,
    factory: Factory,
    slot: EngineSlot,
    status: Arc<ReplicationStatus>,
    workers: usize,
    control: Option<Arc<Control>>,
    mirror: Option<Mirror>,
    copies: Arc<KeptCopies>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    /// Ends the workers of subscriptions, which write as clients do.
    subscriptions: Option<(watch::Sender<bool>, JoinHandle<()>)>,
}

impl ActiveRole {
    /// The result of a promotion, in words.
    fn promoted(&self, accepted_loss: Option<&AcceptedLoss>) -> String {
        let (trail, end) = (self.engine.trail(), self.engine.recovered().end);
        let done = format!("promoted: epoch {} from LSN {end}", trail.epoch());
        let Some(loss) = accepted_loss.map(|loss| loss.describe(end)) else { return done };
        // Also in the log, for operators who did not see the answer.
        tracing::warn!("{done}; {loss}");
        format!("{done}; {loss}")
    }

    /// Serves clients until the role ends. A master that was deposed in order keeps its role without them, until it is stopped. The
    /// sessions have ended then; their clients may have yet to take the last message.
    fn run(
        &self,
        server: Server,
        refusing: &Refusing,
        clients: &tokio::runtime::Runtime,
        signals: &mut Signals,
        inbox: &mut mpsc::UnboundedReceiver<RoleEvent>,
        ready: impl FnOnce(),
    ) -> Result<(Next, Lingering), NodeError> {
        clients.block_on(async {
            let (stop, stopped) = watch::channel(false);
            let mut serving = std::pin::pin!(server.run(self.factory.clone(), self.workers, stopped, ready));
            let mut served_until = tokio::select! {
                served = &mut serving => return Ok((Next::Stop, served?)),
                end = end_of_serving(signals, inbox) => end,
            };
            stop.send_replace(true);
            refusing.begin(served_until.why())?;
            let mut first = self.engine.gate().first;
            let lingering = loop {
                match tokio::time::timeout(COMMITS_STOP_MAX, &mut serving).await {
                    Ok(served) => break served?,
                    Err(_) => first = self.end_waiting_commits(first),
                }
            };
            loop {
                match served_until {
                    ServedUntil::RoleEnds(next) => return Ok((next, lingering)),
                    // An error means that the deposed master has not waited for it.
                    ServedUntil::Deposed(ended) => drop(ended.send(())),
                }
                served_until = end_of_serving(signals, inbox).await;
            }
        })
    }

    /// Ends the wait of commits that no standby may ever confirm, so that their sessions can end: of commits that already waited
    /// the last time (`before`). Other work that delays the end, such as a long statement, continues.
    fn end_waiting_commits(&self, before: Option<(Level, Lsn)>) -> Option<(Level, Lsn)> {
        let gate = self.engine.gate();
        if gate.first.is_some() && gate.first == before {
            let batches = gate.batches;
            tracing::warn!(
                "commits in {batches} batches wait for standbys; the outcome is not reported to their clients"
            );
            self.engine.stop_waiting();
        }
        gate.first
    }

    /// Closes everything except the socket. The clients are disconnected already. Returns where the trail ends.
    fn down(self, links: &tokio::runtime::Handle) -> Result<Option<Closed>, NodeError> {
        self.listener.set_hub(None);
        self.control.iter().for_each(|control| control.clear_trail());
        if let Some((stop, task)) = self.subscriptions {
            stop.send_replace(true);
            if let Err(error) = links.block_on(task) {
                tracing::error!("the task for subscriptions panicked: {error}");
            }
        }
        links.block_on(self.factory.feeds.write_all());
        // Standbys receive what was written last, and commits that wait for them are answered.
        self.hub.stop(None);
        // They hold the engine.
        self.copies.stop();
        let until = Instant::now() + STANDBYS_STOP_MAX;
        while !self.hub.standbys().is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.stop.send_replace(true);
        for task in self.tasks {
            if let Err(error) = links.block_on(task) {
                tracing::error!("a task for links panicked: {error}");
            }
        }
        // The mirror ends last: commits that wait for standbys wait for it as well.
        drop(self.mirror);
        self.status.clear();
        *self.slot.write() = None;
        let epoch = self.engine.trail().epoch();
        if let Some(control) = self.control.filter(|_| !self.engine.is_standby()) {
            // The standbys have everything: a successor does not wait for the checkpoints, nor they long for a group without a majority.
            // Elapsed: the lease is over here, and ends by itself.
            let released = async { tokio::time::timeout(RELEASE_MAX, control.release(epoch)).await };
            drop(links.block_on(released));
        }
        points::reached("a role closes its databases");
        self.engine.close()?;
        Ok(self.engine.trail().closed())
    }
}

/// What ends the serving of clients.
enum ServedUntil {
    RoleEnds(Next),
    /// Told when the sessions have ended.
    Deposed(oneshot::Sender<()>),
}

impl ServedUntil {
    /// Why clients are refused from then on.
    fn why(&self) -> Why {
        match self {
            ServedUntil::RoleEnds(Next::Stop) => Why::Stopping,
            ServedUntil::RoleEnds(_) => Why::Opening,
            ServedUntil::Deposed(_) => Why::Deposed,
        }
    }
}

/// Waits for a signal, or an event that ends the role or its sessions.
async fn end_of_serving(signals: &mut Signals, inbox: &mut mpsc::UnboundedReceiver<RoleEvent>) -> ServedUntil {
    let event = async {
        match inbox.recv().await {
            Some(RoleEvent::Promote(promotion)) => ServedUntil::RoleEnds(Next::Promote(promotion)),
            Some(RoleEvent::CutBack(tip)) => ServedUntil::RoleEnds(Next::CutBack(tip)),
            Some(RoleEvent::EndSessions(ended)) => ServedUntil::Deposed(ended),
            Some(RoleEvent::Return) => ServedUntil::RoleEnds(Next::Return),
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = signals.come() => ServedUntil::RoleEnds(Next::Stop),
        end = event => end,
    }
}

/// Opens the archive, if one is configured. Without one the trail keeps nothing for it.
fn open_archive(
    config: &Config,
    name: &str,
    engine: &Engine,
    links: &Handle,
) -> Result<Option<Arc<dyn Store>>, NodeError> {
    let Some(place) = ArchiveLocation::parse(&config.archive)? else {
        if let Some(lsn) = engine.forget_archive()? {
            tracing::warn!(
                target: "holdfast::archive",
                "the setting archive was removed: from LSN {lsn} on the trail is recycled without being archived"
            );
        }
        return Ok(None);
    };
    #[allow(irrefutable_let_patterns, reason = "without the feature of object stores there are only directories")]
    if let ArchiveLocation::Directory(path) = &place {
        warn_of_archive(config, path);
    }
    let keys = config.archive_keys();
    keys.check()?;
    let store = place.open_with(Arc::new(holdfast_seams::RealDisk::new()), name, keys)?;
    links.block_on(store.check_keys())?;
    Ok(Some(store))
}
