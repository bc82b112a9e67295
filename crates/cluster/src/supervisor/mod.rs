//! The supervisor: one for each node, by the lock of the control directory.
//!
//! | thread | does | waits for |
//! |---|---|---|
//! | control (of the crate control) | this node's part in the group; its journal | its disk |
//! | pulse ([`pulse`]) | exchanges pulses with the other nodes, every 25 ms, and writes the lease into its page | nothing |
//! | main | the socket ([`requests`]), the server's process ([`watch`]), signals, systemd | no disk |
//!
//! | start | then |
//! |---|---|
//! | the server in `progress` lives, by pidfd and start time | it is adopted, stopped or not, and the lease of its open page is renewed |
//! | there is no such page, and a server of this supervisor has the trail ([`orphan`]) | it is adopted; without its lease page a master is ended and started again |
//! | it does not | its pages are closed for good, its lease is released; when the trail's lock is free a server is started |
//!
//! Failure: a failed disk of the control directory ends the process, as it ends a server's in-process member: the server
//! continues until its lease has run out, and the next supervisor adopts it.

mod events;
mod failover;
mod hung;
mod keys;
mod lost;
mod orphan;
mod pages;
mod pulse;
mod remote_trail;
mod requests;
mod status;
mod switchover;
mod systemd;
mod watch;

use crate::error::ClusterError;
use crate::file::Cluster;
use crate::mark::marked;
use crate::moment::unix_ms;
use crate::process::Identity;
use crate::pulse_sockets::PulseSockets;
use crate::runtime_dir::RuntimeDir;
use crate::socket::Socket;
use events::{Events, Kind};
use holdfast_control::{
    Config, ControlError, ControlHandle, ControlNode, ControlPlane, LeaseTerms, Machinery, NodeId, Role, Secure,
    TcpTransport,
};
use holdfast_seams::RealDisk;
use pages::Pages;
use parking_lot::Mutex;
use pulse::Pulse;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch::Sender;

/// How long a stop waits until another member leads.
const LEAD_MAX: Duration = Duration::from_secs(4);
/// A new leader names no successor in its first second; meanwhile the master serves on.
const LEAD_SETTLES: Duration = Duration::from_millis(1_300);

/// How a supervisor is started.
pub struct Setup {
    pub cluster: Cluster,
    pub node: NodeId,
    pub dir: RuntimeDir,
    /// The program that is started as `serve`.
    pub program: PathBuf,
    /// Further arguments of the server.
    pub arguments: Vec<String>,
    /// TLS between the nodes; without it their addresses must be on loopback.
    pub secure: Option<Arc<dyn Secure>>,
}

/// The server, as long as it has a process.
#[derive(Clone)]
struct Server {
    identity: Identity,
    since_unix_ms: u64,
    is_adopted: bool,
}

#[derive(Default)]
struct State {
    server: Option<Server>,
    /// The number of the server's connection.
    connection: Option<u64>,
    /// Starts of the server by this supervisor.
    starts: u64,
    /// Why no server runs.
    waits: Option<String>,
    /// Why the server that runs answers nothing.
    lacks: Option<String>,
}

/// A running supervisor.
pub struct Supervisor {
    cluster: Cluster,
    node: NodeId,
    role: Role,
    dir: RuntimeDir,
    data: PathBuf,
    program: PathBuf,
    arguments: Vec<String>,
    control: ControlHandle,
    pulse: Pulse,
    pages: Pages,
    events: Events,
    /// The other nodes with data that count as lost.
    lost: Sender<BTreeSet<NodeId>>,
    state: Mutex<State>,
    started_unix_ms: u64,
}

impl Supervisor {
    /// Runs until SIGTERM or SIGINT, which stop the server in order as well. Blocks. `ready`: the socket answers.
    pub fn run(setup: Setup, ready: impl FnOnce()) -> Result<(), ClusterError> {
        let io = |what| ClusterError::io(what, setup.dir.path().to_owned());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(io("start in"))?;
        runtime.block_on(async { Supervisor::start(setup)?.supervise(ready).await })
    }

    fn start(setup: Setup) -> Result<Arc<Supervisor>, ClusterError> {
        let Setup { cluster, node, dir, program, arguments, secure } = setup;
        dir.create()?;
        let Some(own) = cluster.nodes.get(&node) else {
            return Err(ControlError::Members(format!("{node} is not a node of {}", cluster.name)).into());
        };
        let (control_dir, data, role) = (own.control_dir(), own.data.clone(), own.role);
        let transport = TcpTransport::bind(own.address(), cluster.addresses(), secure);
        let members = cluster.nodes.iter().map(|(node, found)| (*node, found.role)).collect();
        // The lock before the socket of an earlier supervisor is taken away.
        let transport = transport.map_err(|error| in_use(error, &control_dir))?;
        let lease = LeaseTerms::by_grants(cluster.lease_ms);
        let config = Config { node, dir: control_dir.clone(), members, lease, by_pulses: true, link: None };
        let machinery = Machinery {
            planner: Some(failover::planner(cluster.database.nodes.clone())),
            ..Machinery::real(Arc::new(RealDisk::new()), Arc::new(transport))
        };
        let control = ControlNode::start(config, machinery).map_err(|error| in_use(error, &control_dir))?;
        if role == Role::Data {
            marked(&control_dir, &cluster.name, node.as_str()).map_err(ClusterError::io("mark", &control_dir))?;
        }
        let (events, pages) = (Events::default(), Pages::new(dir.path().to_owned()));
        let pulse = start_pulse(&cluster, node, &control)?;
        events.add(
            Kind::Started,
            format!("the supervisor of {node} in cluster {} starts, pid {}", cluster.name, std::process::id()),
        );
        for missing in pulse.scheduling().missing {
            events.warn(Kind::Scheduling, format!("the pulse may be late: {missing}"));
        }
        let (state, started_unix_ms) = (Mutex::default(), unix_ms());
        let supervisor = Supervisor {
            cluster,
            node,
            role,
            dir,
            data,
            program,
            arguments,
            control,
            pulse,
            pages,
            events,
            lost: Sender::default(),
            state,
            started_unix_ms,
        };
        Ok(Arc::new(supervisor))
    }

    async fn supervise(self: Arc<Self>, ready: impl FnOnce()) -> Result<(), ClusterError> {
        let io = |what| ClusterError::io(what, self.dir.path().to_owned());
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let mut signals = [SignalKind::terminate(), SignalKind::interrupt()].map(signal).into_iter();
        let (Some(terminate), Some(interrupt)) = (signals.next(), signals.next()) else { return Ok(()) };
        let (mut terminate, mut interrupt) =
            (terminate.map_err(io("wait for signals in"))?, interrupt.map_err(io("wait for signals in"))?);
        let socket = Socket::listen(&self.dir)?;
        let adopted = self.adopt();
        let accepting = tokio::spawn(requests::accept(self.clone(), socket));
        let notifying = tokio::spawn(systemd::notify(self.clone()));
        let telling = tokio::spawn(failover::tell_successors(self.clone()));
        drop(tokio::spawn(keys::keep(self.clone())));
        if self.role == Role::Data {
            drop(tokio::spawn(lost::keep(self.clone())));
        }
        ready();
        let serving = match self.role {
            Role::Data => tokio::spawn(watch::keep_server(self.clone(), adopted, stopped)),
            // A witness has none.
            Role::Witness => tokio::spawn(async move {
                let mut stopped = stopped;
                // An error: the sender is gone, which ends the process as well.
                let _ = stopped.wait_for(|stop| *stop).await;
            }),
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        self.events.add(Kind::Stopping, "the supervisor stops its server and itself".to_owned());
        let stopping = async {
            self.hand_on_lead().await;
            stop.send_replace(true);
            serving.await
        };
        tokio::select! {
            ended = stopping => ended.map_err(|error| io("watch the server of")(error.into()))?,
            // A second signal: the server continues until its lease has run out, and is adopted by the next supervisor.
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        accepting.abort();
        notifying.abort();
        telling.abort();
        systemd::stopping();
        Ok(())
    }
}

impl Supervisor {
    /// Before a stop: lets another member lead Raft, so that no election is needed to name the successor of the master.
    async fn hand_on_lead(&self) {
        if self.role == Role::Witness || self.control.leader() != Some(self.node) {
            return;
        }
        let handing_on = async {
            self.control.hand_on_lead().await?;
            if self.control.record().is_some_and(|record| record.master == Some(self.node)) {
                tokio::time::sleep(LEAD_SETTLES).await;
            }
            Ok::<(), ControlError>(())
        };
        match tokio::time::timeout(LEAD_MAX, handing_on).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::info!("the lead of the control plane was not handed on: {error}"),
            Err(_) => tracing::info!("no other member has taken the lead of the control plane"),
        }
    }
}

/// Starts the pulse thread over the first link of this node.
fn start_pulse(cluster: &Cluster, node: NodeId, control: &ControlHandle) -> Result<Pulse, ClusterError> {
    let grants = control.grants();
    // The first link only, as the control plane and the standbys' links: a master that is heard over another network while these
    // are cut off would keep a lease without being able to commit.
    let links = |of: &NodeId| -> Vec<String> {
        cluster.nodes.get(of).map(|found| vec![found.address().to_owned()]).unwrap_or_default()
    };
    let others = grants.roster.names().iter().map(|of| if *of == node { Vec::new() } else { links(of) }).collect();
    let own = links(&node);
    let sockets = PulseSockets::bind(&own, others).map_err(ClusterError::io("take pulses on", own.join(", ")))?;
    let not_there = || ControlError::Members(format!("{node} is not a node of {}", cluster.name));
    let me = grants.roster.slot(node).ok_or_else(not_there)?;
    Pulse::start(me, grants, sockets, control.incarnation())
        .map_err(ClusterError::io("start the pulse on", own.join(", ")))
}

/// A member that runs already is another supervisor's, or a server's with the group in its own process.
fn in_use(error: ControlError, control_dir: &std::path::Path) -> ClusterError {
    let is_taken = match &error {
        ControlError::InUse(_) => true,
        ControlError::Io { source, .. } => source.kind() == std::io::ErrorKind::AddrInUse,
        _ => false,
    };
    // The address may be another program's: then the lock is free.
    match is_taken && !is_free(&control_dir.join("lock")) {
        true => ClusterError::AnotherSupervisor(control_dir.to_owned()),
        false => error.into(),
    }
}

/// Whether a lock file can be locked, or is not there.
fn is_free(path: &std::path::Path) -> bool {
    use holdfast_seams::Disk;
    // The lock is released at once.
    !path.exists() || matches!(RealDisk::new().lock(path), Ok(Some(_)))
}
