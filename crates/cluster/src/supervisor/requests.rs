//! The socket: what the server asks the control plane for, and what commands ask the supervisor.
//!
//! | a connection | then |
//! |---|---|
//! | of another user than this one or root | refused |
//! | of a server that this supervisor neither started nor adopted | refused |
//! | of the server | its requests are passed on to the member; records, the leader and questions go to it |
//! | of a command | status, events, explanations; freeze, thaw and switchover |
//!
//! A promotion that succeeds makes the page of its epoch before it is answered. If the server has ended meanwhile, or its
//! connection, the page is closed and the lease released.
//!
//! Failure: a connection that ends takes its waiting requests with it; the server asks again.

use super::Supervisor;
use super::events::Kind;
use super::remote_trail::{Questions, RemoteTrail};
use crate::error::ClusterError;
use crate::message::{
    self, Ask, Caller, Done, Failure, ToServer, ToSupervisor, TrailState, VERSION, Welcome, WelcomeNode, promotion,
};
use crate::process::Identity;
use crate::socket::{Socket, admitted};
use holdfast_control::{
    Change, ComparedTrail, ControlError, ControlPlane, Lease, LeaseTerms, NodeId, Promotion, Quorum,
};
use holdfast_types::Epoch;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

/// How often Raft's leader is looked at.
const LEADER_EVERY: Duration = Duration::from_millis(250);
/// How often the socket's file is looked for.
const SOCKET_EVERY: Duration = Duration::from_millis(250);
/// How long a connection may take to say what it is.
const HELLO_MAX: Duration = Duration::from_secs(5);
/// How many messages wait for a server that does not read, because it is stopped.
const OUTGOING_MAX: usize = 256;
const RETRY: Duration = Duration::from_millis(100);

/// Takes connections until the task is aborted.
pub async fn accept(supervisor: Arc<Supervisor>, mut socket: Socket) {
    let mut number = 0;
    let mut looks = tokio::time::interval(SOCKET_EVERY);
    loop {
        tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok(stream) => {
                    number += 1;
                    drop(tokio::spawn(serve(supervisor.clone(), stream, number)));
                }
                Err(error) => {
                    // No descriptor is free, for example.
                    tracing::warn!("a connection to the supervisor cannot be accepted: {error}");
                    tokio::time::sleep(RETRY).await;
                }
            },
            _ = looks.tick() => if !socket.is_there(&supervisor.dir) {
                match supervisor.listen_again() {
                    Ok(new) => socket = new,
                    Err(error) => tracing::warn!("the supervisor's socket is missing: {error}"),
                }
            },
        }
    }
}

async fn serve(supervisor: Arc<Supervisor>, stream: UnixStream, number: u64) {
    let pid = match admitted(&stream) {
        Ok(pid) => pid,
        Err(uid) => {
            let text =
                format!("a connection of user id {uid} was refused: it is neither this supervisor's user nor root");
            return supervisor.events.warn(Kind::Refused, text);
        }
    };
    if let Err(error) = speak(&supervisor, stream, pid, number).await {
        tracing::debug!("a connection to the supervisor has ended: {error}");
    }
    supervisor.disconnected(number);
}

async fn speak(supervisor: &Arc<Supervisor>, mut stream: UnixStream, pid: Option<i32>, number: u64) -> io::Result<()> {
    let hello = tokio::time::timeout(HELLO_MAX, message::receive(&mut stream)).await;
    let ToSupervisor::Hello { version, from } = hello.map_err(|_| io::ErrorKind::TimedOut)?? else {
        return message::send(&mut stream, &ToServer::Refused("it does not begin with hello".to_owned())).await;
    };
    if version != VERSION {
        let why = format!(
            "the messages have version {version}; this supervisor knows {VERSION}. Start both with one release"
        );
        return message::send(&mut stream, &ToServer::Refused(why)).await;
    }
    let server = match from {
        Caller::Command => None,
        Caller::Server { pid: own, start, link, takes_lost } => {
            let identity = Identity { pid: own, start };
            if pid.map(i64::from) != Some(own.into()) || !supervisor.is_its_server(identity) {
                let why = "this process is not the server that the supervisor has started; it starts one by itself";
                return message::send(&mut stream, &ToServer::Refused(why.to_owned())).await;
            }
            supervisor.control.set_link(link);
            Some((identity, takes_lost))
        }
    };
    let (reading, writing) = stream.into_split();
    let (outgoing, outbox) = mpsc::channel(OUTGOING_MAX);
    let _writer = Task(tokio::spawn(write(writing, outbox)));
    // Errors here and below: the writer has ended, and the reader sees that.
    drop(outgoing.send(ToServer::Welcome(supervisor.welcome())).await);
    let identity = server.map(|(identity, _)| identity);
    let caller = SessionOf { supervisor: supervisor.clone(), server: identity, outgoing, questions: Arc::default() };
    let _pushing = server.map(|(_, takes_lost)| {
        supervisor.connected(number);
        Task(tokio::spawn(push(supervisor.clone(), caller.outgoing.clone(), takes_lost)))
    });
    caller.read(reading).await
}

/// A task that ends with its connection.
struct Task(tokio::task::JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn write(mut stream: OwnedWriteHalf, mut outbox: mpsc::Receiver<ToServer>) {
    while let Some(message) = outbox.recv().await {
        if message::send(&mut stream, &message).await.is_err() {
            return;
        }
    }
}

/// Sends the newest record, the lost nodes and the leader when they have changed, as long as the server reads.
async fn push(supervisor: Arc<Supervisor>, outgoing: mpsc::Sender<ToServer>, takes_lost: bool) {
    let (mut records, mut lost) = (supervisor.control.watch(), supervisor.lost.subscribe());
    let mut leader = None;
    let mut looks = tokio::time::interval(LEADER_EVERY);
    loop {
        // Waits while a stopped server reads nothing: the newest record counts, those between do not.
        let Ok(room) = outgoing.reserve().await else { return };
        let record = records.borrow_and_update().clone();
        room.send(ToServer::Record(record.map(|record| Box::new((*record).clone()))));
        if takes_lost {
            let Ok(room) = outgoing.reserve().await else { return };
            room.send(ToServer::Lost(lost.borrow_and_update().clone()));
        }
        loop {
            tokio::select! {
                changed = records.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                // The supervisor, which has the sender, is held here.
                _ = lost.changed(), if takes_lost => break,
                _ = looks.tick() => {
                    let now = supervisor.control.leader();
                    if now != leader && outgoing.try_send(ToServer::Leader(now)).is_ok() {
                        leader = now;
                    }
                }
            }
        }
    }
}

/// One connection.
struct SessionOf {
    supervisor: Arc<Supervisor>,
    /// Set if it is the server's.
    server: Option<Identity>,
    outgoing: mpsc::Sender<ToServer>,
    questions: Arc<Questions>,
}

impl SessionOf {
    async fn read(&self, mut stream: OwnedReadHalf) -> io::Result<()> {
        let mut trail: Option<Arc<RemoteTrail>> = None;
        loop {
            match message::receive(&mut stream).await? {
                ToSupervisor::Ask { id, ask } => self.answer(id, ask),
                ToSupervisor::Trail(state) if self.server.is_some() => self.take_trail(&mut trail, state),
                ToSupervisor::Told { id, told } => self.questions.told(id, told),
                _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "an unexpected message")),
            }
        }
    }

    fn take_trail(&self, trail: &mut Option<Arc<RemoteTrail>>, state: Option<TrailState>) {
        match (state, &trail) {
            (Some(state), Some(trail)) => *trail.state.lock() = state,
            (Some(state), None) => {
                let (questions, outgoing) = (self.questions.clone(), self.outgoing.clone());
                let opened = Arc::new(RemoteTrail { state: state.into(), questions, outgoing });
                self.supervisor.control.set_trail(Some(opened.clone() as Arc<dyn ComparedTrail>));
                *trail = Some(opened);
            }
            (None, _) => {
                self.supervisor.control.set_trail(None);
                *trail = None;
            }
        }
    }

    /// Answers when the group has, without holding up later requests.
    fn answer(&self, id: u64, ask: Ask) {
        let (supervisor, server, outgoing) = (self.supervisor.clone(), self.server, self.outgoing.clone());
        drop(tokio::spawn(async move {
            let done = match (ask, server) {
                (Ask::Status, _) => Ok(Done::Status(supervisor.status())),
                (Ask::Events, _) => Ok(Done::Events(supervisor.events.all())),
                (Ask::Explain, _) => supervisor.explain().await.map(Done::Explained).map_err(Failure::from),
                (Ask::Freeze { frozen }, None) => {
                    supervisor.control.freeze(frozen).await.map(|()| Done::Nothing).map_err(Failure::from)
                }
                (Ask::Switchover { to }, None) => {
                    supervisor.switchover(to.as_deref()).await.map(Done::Switched).map_err(Failure::from)
                }
                (ask, Some(server)) => supervisor.carry_out(ask, server).await.map_err(Failure::from),
                (_, None) => {
                    let text = "only the server may ask for this".to_owned();
                    Err(Failure::Other { sqlstate: "42501".to_owned(), text })
                }
            };
            drop(outgoing.send(ToServer::Answered { id, done }).await);
        }));
    }
}

impl Supervisor {
    /// Makes the runtime directory, if it is missing, and the socket in it.
    fn listen_again(&self) -> Result<Socket, ClusterError> {
        self.dir.create()?;
        let socket = Socket::listen(&self.dir)?;
        let path = self.dir.socket();
        self.events.warn(Kind::Pages, format!("{} was removed, and has been made again", path.display()));
        Ok(socket)
    }

    pub(super) fn is_its_server(&self, identity: Identity) -> bool {
        self.state.lock().server.as_ref().is_some_and(|server| server.identity == identity)
    }

    fn connected(&self, number: u64) {
        self.state.lock().connection = Some(number);
    }

    fn disconnected(&self, number: u64) {
        let mut state = self.state.lock();
        if state.connection == Some(number) {
            state.connection = None;
            self.control.set_trail(None);
        }
    }

    fn welcome(&self) -> Welcome {
        let nodes = self.cluster.nodes.iter();
        let nodes =
            nodes.map(|(node, found)| (*node, WelcomeNode { address: found.address().to_owned(), role: found.role }));
        Welcome {
            version: VERSION,
            cluster: self.cluster.name.clone(),
            node: self.node,
            nodes: nodes.collect(),
            level: self.cluster.database.level.clone(),
            waits_alone: self.cluster.database.waits_alone,
        }
    }

    async fn carry_out(&self, ask: Ask, server: Identity) -> Result<Done, ControlError> {
        let control = &self.control;
        let nothing = |()| Done::Nothing;
        match ask {
            Ask::Look => control.look().await.map(|record| Done::Record(Box::new(record))),
            Ask::Promote { node, expected_epoch, epoch_at_least, accept_loss, trail_end, basis } => {
                let promotion = promotion(node, expected_epoch, epoch_at_least, accept_loss, trail_end, basis);
                self.promote(promotion, server).await.map(|epoch| Done::Epoch(epoch.0))
            }
            Ask::Shrink { epoch, node, change } => {
                control.shrink_as(Epoch(epoch), node, Change::numbered(change)).await.map(nothing)
            }
            Ask::Grow { epoch, node, change } => {
                control.grow_as(Epoch(epoch), node, Change::numbered(change)).await.map(nothing)
            }
            Ask::NameQuorum { epoch, standbys, needed, change } => {
                let quorum = Quorum { standbys, needed };
                control.name_quorum(Epoch(epoch), quorum, Change::numbered(change)).await.map(nothing)
            }
            Ask::Release { epoch } => {
                // The page first: what the group is told holds from then on.
                self.pages.close(Epoch(epoch));
                let released = control.release(Epoch(epoch)).await;
                if released.is_ok() {
                    self.pages.forget(Epoch(epoch));
                }
                released.map(nothing)
            }
            Ask::LinkOf { node } => control.link_of(node).await.map(Done::Link),
            Ask::SetLink { link } => {
                control.set_link(link);
                Ok(Done::Nothing)
            }
            Ask::TellPositions { epoch } => control.tell_positions(Epoch(epoch)).await.map(nothing),
            Ask::Returned { is_done, text } => {
                match is_done {
                    true => self.events.add(Kind::Returned, text),
                    false => self.events.warn(Kind::NotReturned, text),
                }
                Ok(Done::Nothing)
            }
            // Of commands, answered before.
            Ask::Status | Ask::Events | Ask::Explain | Ask::Freeze { .. } | Ask::Switchover { .. } => Ok(Done::Nothing),
        }
    }

    /// Makes the server's node master, and the page by which the server sees that.
    async fn promote(&self, promotion: Promotion, server: Identity) -> Result<Epoch, ControlError> {
        if promotion.node != self.node {
            let text = format!("a server of {} promotes its own node only", self.node);
            return Err(ControlError::Reported { sqlstate: "42501".to_owned(), text });
        }
        let epoch = self.control.promote(promotion).await?;
        let lease = self.control.lease();
        let page = self.pages.make(epoch, server);
        if let Ok(page) = &page
            && lease.epoch() == epoch
            && self.is_its_server(server)
        {
            self.pulse.hold(page.clone(), self.renewed());
            self.events.add(Kind::Master, format!("{} is the master of epoch {epoch}", self.node));
            return Ok(epoch);
        }
        // No server can answer in this epoch.
        self.pages.close(epoch);
        self.release(epoch).await;
        let why = page
            .err()
            .map_or_else(|| "the server has ended, or was promoted again".to_owned(), |error| error.to_string());
        Err(ControlError::Stopped(why))
    }

    /// Tells the group that no server answers in this epoch any more, so that a successor need not wait. Its page is closed.
    pub(super) async fn release(&self, epoch: Epoch) {
        match self.control.release(epoch).await {
            Ok(()) => {
                self.pages.forget(epoch);
                let text = format!("the lease of epoch {epoch} was released: a successor need not wait for its end");
                self.events.add(Kind::Released, text);
            }
            // The group has moved on.
            Err(ControlError::Refused(refusal)) => tracing::debug!("the lease of epoch {epoch}: {refusal}"),
            Err(error) => {
                let text = format!("the lease of epoch {epoch} could not be released, it expires by itself: {error}");
                self.events.warn(Kind::NotReleased, text);
            }
        }
    }

    /// Renews the lease of a mastership that an adopted server has.
    pub(super) async fn resume(self: Arc<Self>) {
        let Some(page) = self.pages.current() else { return };
        let epoch = page.epoch();
        // Voters grant it only where it is right, so pulses ask at once: little of the lease is left.
        let mut records = self.control.watch();
        // Without a record by then the group is asked first.
        drop(tokio::time::timeout(RETRY, records.wait_for(Option::is_some)).await);
        let is_by_pulses = self.is_by_pulses();
        if is_by_pulses {
            self.pulse.hold(page.clone(), None);
        }
        loop {
            match self.control.resume(epoch).await {
                Ok(()) if page.is_closed() => return self.release(epoch).await,
                Ok(()) => {
                    if !is_by_pulses {
                        self.pulse.hold(page.clone(), self.renewed());
                    }
                    let left = page.remaining().as_millis();
                    return self.events.add(
                        Kind::Resumed,
                        format!("the lease of epoch {epoch} is renewed again; {left} ms were left"),
                    );
                }
                Err(ControlError::NoQuorum) => tokio::time::sleep(RETRY).await,
                Err(error) => {
                    page.close();
                    return self
                        .events
                        .warn(Kind::NotResumed, format!("the lease of epoch {epoch} is not renewed: {error}"));
                }
            }
        }
    }

    pub(super) fn leader(&self) -> Option<NodeId> {
        self.control.leader()
    }

    /// Whether voters grant the lease by their answers to pulses.
    fn is_by_pulses(&self) -> bool {
        self.control.record().is_some_and(|record| record.is_by_pulses())
    }

    /// The lease that is renewed in the log, where it is.
    fn renewed(&self) -> Option<Lease> {
        (!self.is_by_pulses()).then(|| self.control.lease())
    }

    /// How long a lease lasts here.
    pub(super) fn lease_time(&self) -> Duration {
        let record = self.control.record();
        record.map_or_else(|| LeaseTerms::default().lease(), |record| record.lease.lease())
    }
}
