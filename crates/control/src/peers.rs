//! The side that asks: connections to the other members, Raft's network over them, and proposals to the leader.
//!
//! Failure: a connection that breaks, is silent for too long or answers something else is dropped, and the next call
//! makes a new one; a member that came back with another disk is not addressed as the old one.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use openraft::error::{Fatal, RPCError, RaftError, RemoteError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{Backoff, RPCOption};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use openraft::{OptionalSend, RaftNetwork, RaftNetworkFactory};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::grants::Grants;
use crate::id::{DiskId, NodeId};
use crate::machine::Published;
use crate::presence::Presence;
use crate::raft::{Peer, Raft, Snapshot, Types, Vote};
use crate::record::Role;
use crate::starts::{Had, LogEnd, NotMet, Shown, Start, Starts};
use crate::storage::LogStore;
use crate::transport::{BoxStream, Transport};
use crate::wire::{Frame, Hello, Reply, Request, Welcome, receive, send};

/// How long a connection may take to be made and welcomed.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1_000);
/// The pause between two rounds in which a start is shown to the other members.
const ANNOUNCE_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How long after a failure the next attempt is made.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// The other members, as this node sees them. Shared by its clones.
#[derive(Clone)]
pub struct Peers {
    shared: Arc<Shared>,
}

/// What this member knows of the directories of others, and its own log.
pub struct Known {
    pub starts: Arc<Starts>,
    pub grants: Arc<Grants>,
    pub log: LogStore,
}

struct Shared {
    me: NodeId,
    members: BTreeMap<NodeId, Role>,
    transport: Arc<dyn Transport>,
    published: Published,
    /// The last welcome of each member.
    welcomes: Mutex<BTreeMap<NodeId, Welcome>>,
    /// One idle connection for such requests to each member.
    idle: Mutex<BTreeMap<NodeId, Idle>>,
    starts: Arc<Starts>,
    grants: Arc<Grants>,
    log: LogStore,
    raft: OnceLock<Raft>,
    /// Why another member refuses this node for good: its directory is older than it was.
    rolled_back: watch::Sender<Option<String>>,
    presence: Presence,
    #[cfg(test)]
    sabotage: crate::simulation::Sabotage,
}

fn unexpected(frame: &Frame) -> io::Error {
    match frame {
        Frame::Refusal(why) => io::Error::new(io::ErrorKind::ConnectionRefused, why.clone()),
        _ => io::Error::new(io::ErrorKind::InvalidData, "the other side sent an unexpected answer"),
    }
}

impl Peers {
    pub fn new(
        me: NodeId,
        members: BTreeMap<NodeId, Role>,
        transport: Arc<dyn Transport>,
        published: Published,
        Known { starts, grants, log }: Known,
        #[cfg(test)] sabotage: crate::simulation::Sabotage,
    ) -> Peers {
        let (welcomes, idle) = (Mutex::default(), Mutex::default());
        let shared = Shared {
            me,
            members,
            transport,
            published,
            welcomes,
            idle,
            starts,
            grants,
            log,
            raft: OnceLock::new(),
            rolled_back: watch::Sender::new(None),
            presence: Presence::default(),
            #[cfg(test)]
            sabotage,
        };
        Peers { shared: Arc::new(shared) }
    }

    /// What a member reported about itself when it was last reached.
    pub fn last_welcome(&self, node: NodeId) -> Option<Welcome> {
        self.shared.welcomes.lock().get(&node).cloned()
    }

    /// Asks a member who it is.
    pub async fn look(&self, node: NodeId) -> io::Result<Welcome> {
        self.connect(node, None).await.map(|(_, welcome)| welcome)
    }

    async fn connect(&self, to: NodeId, to_disk: Option<DiskId>) -> io::Result<(BoxStream, Welcome)> {
        let group = self.shared.published.get().map(|record| record.group);
        let (members, start) = (self.shared.members.clone(), Some(self.shared.starts.own()));
        let log = Some(self.shared.log.end());
        let hello = Hello { from: self.shared.me, to, to_disk, group, members, start, log };
        let greet = async {
            let mut stream = self.shared.transport.connect(to).await?;
            send(&mut stream, &Frame::Hello(hello)).await?;
            match receive(&mut stream).await? {
                Frame::Welcome(welcome) if welcome.node == to => Ok((stream, welcome)),
                Frame::RolledBack(why) => {
                    if let Err(error) = self.shared.starts.refused(&why) {
                        tracing::error!("control plane: {error}");
                    }
                    self.shared.rolled_back.send_replace(Some(why.clone()));
                    Err(io::Error::new(io::ErrorKind::ConnectionRefused, why))
                }
                other => Err(unexpected(&other)),
            }
        };
        let (stream, welcome) = timeout(CONNECT_TIMEOUT, greet).await.map_err(io::Error::from)??;
        #[cfg(test)]
        if self.shared.sabotage == crate::simulation::Sabotage::AnyDisk {
            return Ok((stream, welcome));
        }
        if let Err(error) = self.meets(to, welcome.shown()) {
            return Err(io::Error::other(format!("{to} is not used: {error}")));
        }
        self.shared.welcomes.lock().insert(to, welcome.clone());
        match to_disk.filter(|disk| *disk != welcome.disk) {
            Some(_) => Err(io::Error::new(io::ErrorKind::NotFound, format!("{to} has returned with another disk"))),
            None => Ok((stream, welcome)),
        }
    }

    /// See [`Starts::meet`].
    pub fn meets(&self, node: NodeId, shown: Shown) -> Result<(), NotMet> {
        let had = self.log_had_by(node);
        #[cfg(test)]
        if self.shared.sabotage == crate::simulation::Sabotage::AnyStart {
            return Ok(());
        }
        #[cfg(test)]
        let had = if self.shared.sabotage.takes_any_log() { Had::default() } else { had };
        let start = shown.start.clone();
        self.shared.starts.meet(node, shown, had)?;
        start.iter().for_each(|start| self.shared.grants.note_start(node, start));
        Ok(())
    }

    /// This member's log, for the greeting.
    pub fn log_end(&self) -> LogEnd {
        self.shared.log.end()
    }

    /// Set once Raft runs: as the leader it knows what the others have confirmed.
    pub fn set_raft(&self, raft: Raft) {
        self.shared.raft.get_or_init(|| raft);
    }

    fn log_had_by(&self, node: NodeId) -> Had {
        let Some(raft) = self.shared.raft.get() else { return Had::default() };
        let committed = self.shared.log.committed();
        let metrics = raft.metrics();
        let metrics = metrics.borrow();
        let disk = metrics.membership_config.membership().get_node(&node).map(|peer| peer.disk);
        let confirmed = metrics.replication.as_ref().and_then(|of| of.get(&node).copied().flatten());
        // A leader's log has its entries before any other member gets them.
        let led = committed.filter(|last| last.leader_id.voted_for() == Some(node));
        Had { disk, committed: led.max(confirmed.min(committed)), confirmed }
    }

    /// Shows this start to every other member once, so that each of them knows it or refuses it soon. Never returns.
    pub async fn announce(&self) {
        let mut others: Vec<NodeId> = self.shared.members.keys().copied().filter(|n| *n != self.shared.me).collect();
        while !others.is_empty() {
            let mut missing = Vec::new();
            for node in others {
                if self.look(node).await.is_err() {
                    missing.push(node);
                }
            }
            others = missing;
            sleep(ANNOUNCE_AGAIN_AFTER).await;
        }
        std::future::pending().await
    }

    /// Waits until another member says that this node's directory is older than it was; returns its words.
    pub async fn rolled_back(&self) -> String {
        let mut told = self.shared.rolled_back.subscribe();
        // The sender lives as long as this.
        let told = told.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        told.unwrap_or_default()
    }

    /// Sends a request that is none of Raft's. An error leaves open whether it was carried out.
    pub async fn ask(&self, to: NodeId, request: Request, within: Duration) -> io::Result<Reply> {
        let idle = self.shared.idle.lock().remove(&to).filter(|idle| self.is_of_newest(to, idle));
        let Idle { mut stream, start } = match still_open(idle).await {
            Some(idle) => idle,
            None => self.connect(to, None).await?.into(),
        };
        let reply = timeout(within, call(&mut stream, request)).await.map_err(io::Error::from)??;
        self.shared.idle.lock().insert(to, Idle { stream, start });
        Ok(reply)
    }

    /// Whether the other end is the newest start of that member.
    fn is_of_newest(&self, node: NodeId, idle: &Idle) -> bool {
        self.shared.starts.is_newest(node, idle.start.as_ref())
    }
}

/// A connection between two calls, and the start at its other end.
struct Idle {
    stream: BoxStream,
    start: Option<Start>,
}

impl From<(BoxStream, Welcome)> for Idle {
    fn from((stream, welcome): (BoxStream, Welcome)) -> Idle {
        Idle { stream, start: welcome.start }
    }
}

/// An idle connection, unless the other side has ended it: a member that was started again would seem not to answer.
async fn still_open(idle: Option<Idle>) -> Option<Idle> {
    let Idle { mut stream, start } = idle?;
    let mut byte = [0];
    // Nothing is expected between two calls: whatever can be read is its end, or was sent against the rules.
    let is_quiet = std::future::poll_fn(|context| {
        let mut buffer = ReadBuf::new(&mut byte);
        Poll::Ready(Pin::new(&mut stream).poll_read(context, &mut buffer).is_pending())
    });
    is_quiet.await.then_some(Idle { stream, start })
}

async fn call(stream: &mut BoxStream, request: Request) -> io::Result<Reply> {
    send(stream, &Frame::Request(request)).await?;
    match receive(stream).await? {
        Frame::Reply(reply) => Ok(reply),
        other => Err(unexpected(&other)),
    }
}

/// Raft's connection to one disk of one member.
pub struct Link {
    peers: Peers,
    to: NodeId,
    disk: DiskId,
    idle: Option<Idle>,
}

impl RaftNetworkFactory<Types> for Peers {
    type Network = Link;

    async fn new_client(&mut self, to: NodeId, peer: &Peer) -> Link {
        Link { peers: self.clone(), to, disk: peer.disk, idle: None }
    }
}

impl Link {
    /// A connection on which a call failed or was abandoned is not used again.
    async fn call(&mut self, request: Request, within: Duration) -> Result<Reply, Unreachable> {
        let call = async {
            let idle = self.idle.take().filter(|idle| self.peers.is_of_newest(self.to, idle));
            let mut idle = match idle {
                Some(idle) => idle,
                None => self.peers.connect(self.to, Some(self.disk)).await?.into(),
            };
            let reply = call(&mut idle.stream, request).await?;
            self.idle = Some(idle);
            Ok::<Reply, io::Error>(reply)
        };
        let called = timeout(within, call).await.map_err(io::Error::from).and_then(|called| called);
        let presence = &self.peers.shared.presence;
        match called {
            Ok(reply) => {
                presence.answered(self.to);
                Ok(reply)
            }
            Err(error) => {
                presence.failed(self.to, &error);
                tracing::debug!(to = %self.to, "control connection: {error}");
                Err(Unreachable::new(&error))
            }
        }
    }

    fn strange(&self) -> Unreachable {
        let what = format!("{} sent an unexpected answer", self.to);
        Unreachable::new(&io::Error::new(io::ErrorKind::InvalidData, what))
    }
}

impl RaftNetwork<Types> for Link {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<NodeId>, RPCError<NodeId, Peer, RaftError<NodeId>>> {
        match self.call(Request::Append(request), option.hard_ttl()).await? {
            Reply::Append(reply) => reply.map_err(|error| RemoteError::new(self.to, error).into()),
            _ => Err(self.strange().into()),
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<NodeId>,
        option: RPCOption,
    ) -> Result<VoteResponse<NodeId>, RPCError<NodeId, Peer, RaftError<NodeId>>> {
        match self.call(Request::Vote(request), option.hard_ttl()).await? {
            Reply::Vote(reply) => reply.map_err(|error| RemoteError::new(self.to, error).into()),
            _ => Err(self.strange().into()),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<NodeId>, StreamingError<Types, Fatal<NodeId>>> {
        let request = Request::Snapshot { vote, meta: snapshot.meta, record: snapshot.snapshot };
        let reply = tokio::select! {
            biased;
            closed = cancel => return Err(closed.into()),
            reply = self.call(request, option.hard_ttl()) => reply?,
        };
        match reply {
            Reply::Snapshot(reply) => reply.map_err(|error| RemoteError::new(self.to, error).into()),
            _ => Err(self.strange().into()),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(RETRY_AFTER))
    }
}
