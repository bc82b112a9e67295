//! The answering side: serves connections from the other members.
//!
//! Raft's messages are taken only on a connection that was opened for this very disk: a node that came back with an
//! empty directory must not vote, or count as having written, in the name of the disk it lost.
//!
//! A proposal of a member that does not reach the leader is handed to the leader, once.
//!
//! Failure: a peer that sends something unexpected, or nothing, is disconnected; nothing is done then. A proposal without a
//! majority is answered with the leader, if it is known.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use openraft::AsyncRuntime;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::id::{DiskId, NodeId};
use crate::leads;
use crate::machine::Published;
use crate::peers::Peers;
use crate::raft::{Raft, Runtime, Snapshot};
use crate::record::{Command, Record, Role};
use crate::sight::{EXPLAIN_TIMEOUT, Explanation};
use crate::starts::{NotMet, Starts};
use crate::trail_tip::{LinkSlot, TrailSlot};
use crate::transport::{BoxStream, Incoming, Transport};
use crate::wire::{Frame, Hello, Reply, Request, Welcome, receive, send};

/// Connections at a time; beyond it newcomers wait.
const CONNECTIONS_MAX: usize = 64;
/// The time that a handshake and the hello may take.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);
/// A connection without a request for this time is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a proposal may take before the caller is asked to check again.
pub const PROPOSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// What this member explains as the leader; `None`: it does not lead.
pub type Explain = Arc<dyn Fn() -> BoxFuture<'static, Option<Explanation>> + Send + Sync>;

/// Answers requests of the other members.
pub struct Server {
    pub me: NodeId,
    pub disk: DiskId,
    pub members: BTreeMap<NodeId, Role>,
    /// See [`crate::Config::link`].
    pub link: LinkSlot,
    pub raft: Raft,
    /// For proposals that are handed on.
    pub peers: Peers,
    pub published: Published,
    pub trail: TrailSlot,
    /// Why each member was refused last: it comes again five times a second.
    pub refused: Mutex<BTreeMap<NodeId, String>>,
    pub starts: Arc<Starts>,
    pub explain: Explain,
    #[cfg(test)]
    pub sabotage: crate::simulation::Sabotage,
}

impl Server {
    /// Accepts and serves connections; never returns.
    pub async fn run(self: Arc<Self>, transport: Arc<dyn Transport>) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            // The semaphore is never closed, so there is no error; without a permit no peer is served.
            let Ok(place) = places.clone().acquire_owned().await else { return };
            match transport.accept().await {
                Ok(incoming) => drop(Runtime::spawn(self.clone().serve(incoming, place))),
                Err(error) => {
                    tracing::warn!("control plane: accepting a connection: {error}");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn serve(self: Arc<Self>, incoming: Incoming, _place: OwnedSemaphorePermit) {
        let greeting = async {
            let (mut stream, holder) = incoming.await?;
            let hello = self.greet(&mut stream, holder).await?;
            Ok::<_, io::Error>((stream, hello))
        };
        let greeted = timeout(HELLO_TIMEOUT, greeting).await.map_err(io::Error::from).and_then(|greeted| greeted);
        let served = match greeted {
            Ok((stream, hello)) => self.requests(stream, &hello).await,
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            tracing::debug!("control connection: {error}");
        }
    }

    /// `holder`: whose certificate was shown.
    async fn greet(&self, stream: &mut BoxStream, holder: Option<NodeId>) -> io::Result<Hello> {
        let Frame::Hello(hello) = receive(stream).await? else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the first frame is not a hello"));
        };
        let founded = self.raft.is_initialized().await.map_err(io::Error::other)?;
        if let Some(why) = self.objection(&hello, holder) {
            self.tell_refusal(hello.from, &why);
            send(stream, &Frame::Refusal(why.clone())).await?;
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        self.meet(stream, &hello).await?;
        let (start, link) = (Some(self.starts.own()), self.link.get());
        let log = Some(self.peers.log_end());
        let welcome = Welcome { node: self.me, disk: self.disk, founded, start, log, link };
        send(stream, &Frame::Welcome(welcome)).await?;
        Ok(hello)
    }

    /// Meets the start of the other member's directory ([`crate::starts`]).
    async fn meet(&self, stream: &mut BoxStream, hello: &Hello) -> io::Result<()> {
        let why = match self.peers.meets(hello.from, hello.shown()) {
            Ok(()) => return Ok(()),
            Err(NotMet::File(error)) => {
                tracing::error!("control plane: {error}");
                return Err(io::Error::other(error));
            }
            Err(why @ NotMet::Unsure { .. }) => {
                self.tell_refusal(hello.from, &why.to_string());
                send(stream, &Frame::Refusal(why.to_string())).await?;
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why.to_string()));
            }
            Err(NotMet::Older { known, shown }) => format!(
                "{} has met start {} of the control directory of {}, and this is start {} of it",
                self.me, known.number, hello.from, shown.number
            ),
            Err(why @ NotMet::Shorter { .. }) => format!("{} knows more of {}: {why}", self.me, hello.from),
        };
        let record = self.published.get();
        let told = |record: &Record| record.told_positions() + &record.told_others(hello.from);
        let had = record.as_deref().map(told).unwrap_or_default();
        let why = why + &had;
        self.tell_refusal(hello.from, &why);
        send(stream, &Frame::RolledBack(why.clone())).await?;
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }

    /// Once for each reason, where a member may repeat it.
    fn tell_refusal(&self, from: NodeId, why: &str) {
        let is_member = self.members.contains_key(&from);
        let told = is_member && self.refused.lock().insert(from, why.to_owned()).is_some_and(|told| told == why);
        if !told {
            tracing::warn!(%from, "control plane: connection refused: {why}");
        }
    }

    fn objection(&self, hello: &Hello, holder: Option<NodeId>) -> Option<String> {
        if let Some(holder) = holder.filter(|holder| *holder != hello.from) {
            return Some(format!("the certificate belongs to {holder}, not to {}", hello.from));
        }
        if hello.to != self.me {
            return Some(format!("this is node {}, not {}", self.me, hello.to));
        }
        if !self.members.contains_key(&hello.from) {
            return Some(format!("{} is not among the members of node {}", hello.from, self.me));
        }
        if hello.members != self.members {
            let (mine, theirs) = (shown(&self.members), shown(&hello.members));
            return Some(format!(
                "the members are {theirs} in the configuration of {}, {mine} in that of {}; make them the same",
                hello.from, self.me
            ));
        }
        let mine = self.published.get().map(|record| record.group);
        let other = matches!((mine, hello.group), (Some(mine), Some(theirs)) if mine != theirs);
        other.then(|| format!("{} and {} belong to different groups", hello.from, self.me))
    }

    async fn requests(&self, mut stream: BoxStream, hello: &Hello) -> io::Result<()> {
        loop {
            let frame = timeout(IDLE_TIMEOUT, receive(&mut stream)).await.map_err(io::Error::from)??;
            let Frame::Request(request) = frame else {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "received a frame that is not a request"));
            };
            if !self.starts.is_newest(hello.from, hello.start.as_ref()) {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "a later start of that node was met"));
            }
            if let Err(why) = self.allowed(&request, hello) {
                send(&mut stream, &Frame::Refusal(why.clone())).await?;
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            let reply = self.answer(request).await;
            send(&mut stream, &Frame::Reply(reply)).await?;
        }
    }

    fn allowed(&self, request: &Request, hello: &Hello) -> Result<(), String> {
        #[cfg(test)]
        if self.sabotage == crate::simulation::Sabotage::AnyDisk {
            return Ok(());
        }
        match request {
            // Its leader does, in its own log.
            Request::Propose(Command::Found { .. }) => Err("a node founds a group only in its own log".to_owned()),
            Request::Propose(command) => match speaker(command) {
                Some(by) if by != hello.from => Err(format!("{} speaks for {by}", hello.from)),
                _ => Ok(()),
            },
            Request::Pass { command: Command::Found { .. }, .. } => {
                Err("a node founds a group only in its own log".to_owned())
            }
            Request::Pass { origin, command, further } => match speaker(command) {
                // Members trust each other with what they hand on, as they trust a leader with its log.
                Some(by) if by != *origin => Err(format!("{origin} speaks for {by}")),
                _ if *further && *origin != hello.from => Err(format!("{} hands on for {origin}", hello.from)),
                _ => Ok(()),
            },
            Request::Tip | Request::Explain { .. } | Request::Lead { .. } => Ok(()),
            _ if hello.to_disk == Some(self.disk) => Ok(()),
            _ => Err(format!("node {} has another disk than the log says", self.me)),
        }
    }

    fn leader(&self) -> Option<NodeId> {
        self.raft.metrics().borrow().current_leader
    }

    async fn propose(&self, command: Command) -> Reply {
        match timeout(PROPOSAL_TIMEOUT, self.raft.client_write(command)).await {
            Ok(Ok(written)) => Reply::Proposed(written.data),
            Ok(Err(_)) | Err(_) => Reply::NotLeading { leader: self.leader() },
        }
    }

    async fn answer(&self, request: Request) -> Reply {
        match request {
            Request::Append(request) => Reply::Append(self.raft.append_entries(request).await),
            Request::Vote(request) => Reply::Vote(self.raft.vote(request).await),
            Request::Snapshot { vote, meta, record } => {
                let snapshot = Snapshot { meta, snapshot: record };
                Reply::Snapshot(self.raft.install_full_snapshot(vote, snapshot).await)
            }
            Request::Propose(command) => self.propose(command).await,
            Request::Pass { origin, command, further } => match self.leader() {
                Some(leader) if further && leader != self.me => {
                    let pass = Request::Pass { origin, command, further: false };
                    let handed_on = self.peers.ask(leader, pass, PROPOSAL_TIMEOUT).await;
                    handed_on.unwrap_or(Reply::NotLeading { leader: Some(leader) })
                }
                _ => self.propose(command).await,
            },
            Request::Tip => Reply::Tip(self.trail.tip().await),
            Request::Lead { log } => {
                leads::stand(&self.raft, log).await;
                Reply::NotLeading { leader: self.leader() }
            }
            Request::Explain { further } => match ((self.explain)().await, self.leader()) {
                (Some(explanation), _) => Reply::Explained(explanation),
                (None, Some(leader)) if further && leader != self.me => {
                    let handed_on = self.peers.ask(leader, Request::Explain { further: false }, EXPLAIN_TIMEOUT).await;
                    handed_on.unwrap_or(Reply::NotLeading { leader: Some(leader) })
                }
                (None, leader) => Reply::NotLeading { leader },
            },
        }
    }
}

/// Members and their roles, for people.
fn shown(members: &BTreeMap<NodeId, Role>) -> String {
    let one = |(node, role): (&NodeId, &Role)| match role {
        Role::Data => node.to_string(),
        Role::Witness => format!("{node} (witness)"),
    };
    members.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// In whose name a command is given, where only that node may give it.
fn speaker(command: &Command) -> Option<NodeId> {
    match command {
        Command::RenewLease { by, .. }
        | Command::TellPositions { by, .. }
        | Command::Release { by, .. }
        | Command::HandOver { by, .. }
        | Command::ShrinkSyncSet { by, .. }
        | Command::GrowSyncSet { by, .. }
        | Command::NameQuorum { by, .. } => Some(*by),
        Command::Found { .. }
        | Command::Depose { .. }
        | Command::Promote { .. }
        | Command::Freeze { .. }
        | Command::Look => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::LeaseTerms;
    use crate::node::{Config, ControlNode, Machinery};
    use crate::record::RECORD_VERSION;
    use crate::transport::TcpTransport;
    use holdfast_seams::testing::FaultDisk;
    use tokio::net::TcpStream;

    /// Says hello to a member that is a group of one; what it answers, and then to a request.
    async fn said(members: BTreeMap<NodeId, Role>, request: Request) -> Result<String, String> {
        let a: NodeId = "a".parse().unwrap();
        let transport = TcpTransport::bind("127.0.0.1:0", BTreeMap::new(), None).unwrap();
        let address = transport.address();
        let machinery = Machinery::real(Arc::new(FaultDisk::new(1)), Arc::new(transport));
        let own = BTreeMap::from([(a, Role::Data)]);
        let config = Config {
            node: a,
            dir: "/control".into(),
            members: own,
            lease: LeaseTerms::default(),
            by_pulses: false,
            link: None,
        };
        let _running = ControlNode::start(config, machinery).unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let hello = Hello { from: a, to: a, to_disk: None, group: None, members, start: None, log: None };
        send(&mut stream, &Frame::Hello(hello)).await.unwrap();
        match receive(&mut stream).await.unwrap() {
            Frame::Refusal(why) => return Err(why),
            Frame::Welcome(welcome) => assert_eq!(welcome.node, a),
            other => panic!("{other:?}"),
        }
        send(&mut stream, &Frame::Request(request)).await.unwrap();
        match receive(&mut stream).await.unwrap() {
            Frame::Refusal(why) => Ok(why),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn who_is_configured_otherwise_is_refused_and_nobody_founds_from_outside() {
        let members = |role| BTreeMap::from([("a".parse().unwrap(), role)]);
        let found = || {
            let (members, lease) = (members(Role::Data), LeaseTerms::default());
            Request::Propose(Command::Found { version: RECORD_VERSION, group: 7, members, lease, pulse_key: None })
        };
        let why = said(members(Role::Witness), found()).await.unwrap_err();
        assert!(why.contains("a (witness) in the configuration of a") && why.contains("make them the same"), "{why}");
        let why = said(members(Role::Data), found()).await.unwrap();
        assert!(why.contains("founds a group only in its own log"), "{why}");
    }
}
