//! The errors of the supervisor and of a server under it, and what to do about them.

use std::io;
use std::path::PathBuf;

use holdfast_control::ControlError;

/// Why a supervisor does not start, or a server does not under it.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("cannot {what} {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is not a valid page: {why}. Remove it while neither the supervisor nor the server runs", path.display())]
    Page { path: PathBuf, why: &'static str },
    #[error(
        "the runtime directory {} is on {found}, not on tmpfs: a page there would wait for a disk. Set XDG_RUNTIME_DIR to a \
         directory on tmpfs, or mount one at /run",
        path.display()
    )]
    NotInMemory { path: PathBuf, found: String },
    #[error("the path of the socket, {}, is longer than {limit} bytes; choose a shorter XDG_RUNTIME_DIR", path.display())]
    SocketPath { path: PathBuf, limit: usize },
    #[error("{}: {flaws} flaws; see: holdfast cluster check {}", path.display(), path.display())]
    Flawed { path: PathBuf, flaws: usize },
    #[error("{} has no node {node}; it has {known}", path.display())]
    NoNode { path: PathBuf, node: String, known: String },
    #[error(
        "another supervisor of this node runs: it has the lock of {}. Stop it first (systemctl stop, or SIGTERM)",
        .0.display()
    )]
    AnotherSupervisor(PathBuf),
    #[error("another server of this node runs under the supervisor: it has the lock {}", .0.display())]
    AnotherServer(PathBuf),
    #[error("no supervisor answers at {}: {source}. Start it with: holdfast cluster run", path.display())]
    NoSupervisor { path: PathBuf, source: io::Error },
    #[error("{} is another user's: user id {uid}. Only this server's user and root may run a supervisor", path.display())]
    ForeignSupervisor { path: PathBuf, uid: u32 },
    #[error("the supervisor refused: {0}")]
    Refused(String),
    #[error(transparent)]
    Control(#[from] ControlError),
}

impl ClusterError {
    /// For `map_err`: an I/O error of that path.
    pub fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> ClusterError {
        let path = path.into();
        move |source| ClusterError::Io { what, path, source }
    }
}
