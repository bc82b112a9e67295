//! The supervisor's socket: a Unix socket in the runtime directory, for the server and for commands of this machine.
//!
//! The kernel says which user is at the other end: only the supervisor's own user and root are admitted, and both ends check
//! that. The directory alone (mode 0700) would keep other users out; the check holds if its mode is changed.
//!
//! A file that was removed is made again: the supervisor looks for it.
//!
//! Failure: another user's connection is closed before anything is read from it, with a warning.

use crate::error::ClusterError;
use crate::message::{self, Ask, Caller, Done, Event, Explained, Switched, ToServer, ToSupervisor, VERSION};
use crate::runtime_dir::RuntimeDir;
use holdfast_control::{ControlError, NodeId};
use holdfast_seams::socket_owner::is_operator;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};

/// How long a command waits for what the supervisor knows itself.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long it waits where the supervisor asks other nodes or waits for a promotion.
const GROUP_ANSWER_MAX: Duration = Duration::from_secs(45);

/// The supervisor's end of the socket.
pub struct Socket {
    listener: UnixListener,
    /// Device and number of its file.
    file: (u64, u64),
}

impl Socket {
    /// Opens the socket. What an earlier supervisor left there is replaced: this one has the control directory's lock.
    pub fn listen(dir: &RuntimeDir) -> Result<Socket, ClusterError> {
        let path = dir.socket();
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(ClusterError::io("remove", &path)(error));
            }
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(ClusterError::io("listen on", &path))?;
        let protected = std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600));
        protected.map_err(ClusterError::io("protect", &path))?;
        let file = file_of(dir).ok_or_else(|| ClusterError::io("examine", &path)(io::ErrorKind::NotFound.into()))?;
        Ok(Socket { listener, file })
    }

    pub async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }

    /// Whether its file is still there: without it no process can connect.
    pub fn is_there(&self, dir: &RuntimeDir) -> bool {
        file_of(dir) == Some(self.file)
    }
}

fn file_of(dir: &RuntimeDir) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(dir.socket()).ok().map(|found| (found.dev(), found.ino()))
}

/// The other end's process, if it belongs to this process's user or to root.
pub fn admitted(stream: &UnixStream) -> Result<Option<i32>, u32> {
    match stream.peer_cred() {
        Ok(peer) if is_operator(peer.uid()) => Ok(peer.pid()),
        Ok(peer) => Err(peer.uid()),
        // No user is known: none is admitted.
        Err(_) => Err(u32::MAX),
    }
}

/// Connects to the supervisor, which must belong to this process's user or to root.
pub async fn connect(dir: &RuntimeDir) -> Result<UnixStream, ClusterError> {
    let path = dir.socket();
    let stream = UnixStream::connect(&path).await;
    let stream = stream.map_err(|source| ClusterError::NoSupervisor { path: path.clone(), source })?;
    admitted(&stream).map_err(|uid| ClusterError::ForeignSupervisor { path, uid })?;
    Ok(stream)
}

/// What a command asks a running supervisor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    Status,
    Events,
    Explain,
    /// No failover by itself from now on, or again.
    Freeze(bool),
    /// A planned hand-over, to this node or any.
    Switchover(Option<String>),
}

impl Asked {
    fn answer_max(&self) -> Duration {
        match self {
            Asked::Status | Asked::Events => ANSWER_MAX,
            Asked::Explain | Asked::Freeze(_) | Asked::Switchover(_) => GROUP_ANSWER_MAX,
        }
    }

    fn ask(self) -> Ask {
        match self {
            Asked::Status => Ask::Status,
            Asked::Events => Ask::Events,
            Asked::Explain => Ask::Explain,
            Asked::Freeze(frozen) => Ask::Freeze { frozen },
            Asked::Switchover(to) => Ask::Switchover { to },
        }
    }
}

/// Asks a running supervisor; the answer is JSON: an object, the list of events, or null.
pub fn ask(dir: &RuntimeDir, asked: Asked) -> Result<serde_json::Value, ClusterError> {
    let answer_max = asked.answer_max();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(ClusterError::io("ask", dir.socket()))?;
    let answer = async {
        let mut stream = connect(dir).await?;
        let io = |source| ClusterError::NoSupervisor { path: dir.socket(), source };
        let hello = ToSupervisor::Hello { version: VERSION, from: Caller::Command };
        message::send(&mut stream, &hello).await.map_err(io)?;
        let ask = ToSupervisor::Ask { id: 1, ask: asked.ask() };
        message::send(&mut stream, &ask).await.map_err(io)?;
        loop {
            match message::receive(&mut stream).await.map_err(io)? {
                ToServer::Answered { done: Ok(Done::Status(status)), .. } => return Ok(status),
                ToServer::Answered { done: Ok(Done::Events(events)), .. } => return Ok(events_json(&events)),
                ToServer::Answered { done: Ok(Done::Explained(explained)), .. } => {
                    return Ok(explained_json(&explained));
                }
                ToServer::Answered { done: Ok(Done::Switched(Switched { node, epoch, ms })), .. } => {
                    return Ok(serde_json::json!({ "node": node, "epoch": epoch, "ms": ms }));
                }
                ToServer::Answered { done: Ok(Done::Nothing), .. } => return Ok(serde_json::Value::Null),
                ToServer::Answered { done: Err(failure), .. } => return Err(ControlError::from(failure).into()),
                ToServer::Refused(why) => return Err(ClusterError::Refused(why)),
                _ => {}
            }
        }
    };
    let late = || ClusterError::NoSupervisor { path: dir.socket(), source: io::ErrorKind::TimedOut.into() };
    runtime.block_on(async { tokio::time::timeout(answer_max, answer).await.map_err(|_| late())? })
}

fn explained_json(explained: &Explained) -> serde_json::Value {
    let node = |(node, lacks): &(NodeId, Vec<String>)| serde_json::json!({ "node": node, "lacks": lacks });
    let nodes: Vec<_> = explained.lacks.iter().map(node).collect();
    serde_json::json!({ "leader": explained.leader, "why": explained.why, "nodes": nodes })
}

fn events_json(events: &[Event]) -> serde_json::Value {
    let event = |event: &Event| serde_json::json!({ "unix_ms": event.unix_ms, "kind": event.kind, "text": event.text });
    events.iter().map(event).collect()
}
