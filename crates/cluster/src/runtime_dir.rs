//! Where a node's pages and its socket are: a directory on tmpfs, for one node of one cluster.
//!
//! | set | directory of node `a` of cluster `shop` |
//! |---|---|
//! | RUNTIME_DIRECTORY, by systemd | that directory, `/a` |
//! | XDG_RUNTIME_DIR | `$XDG_RUNTIME_DIR/holdfast/shop/a` |
//! | neither | `/run/holdfast/shop/a` |
//!
//! ```text
//! socket        the supervisor's
//! server.lock   held by the server as long as it runs
//! progress      written by the server
//! lease-EPOCH   written by the supervisor
//! ```
//! The directory has mode 0700. It is removed by the next start of the machine.
//!
//! Failure: a directory that is not on tmpfs is refused: a page on a disk would make answers wait for that disk.

use crate::error::ClusterError;
use rustix::fs::FsWord;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// `TMPFS_MAGIC` and `RAMFS_MAGIC` of `linux/magic.h`.
const IN_MEMORY: [FsWord; 2] = [0x0102_1994, 0x8584_58f6];
/// The longest path of a socket, `sun_path` without its end.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The runtime directory of one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuntimeDir(PathBuf);

impl RuntimeDir {
    /// Where it is for a supervisor with this environment.
    pub fn of(cluster: &str, node: &str) -> RuntimeDir {
        let given = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let base = match (given("RUNTIME_DIRECTORY"), given("XDG_RUNTIME_DIR")) {
            (Some(dir), _) => dir,
            (None, Some(dir)) => dir.join("holdfast").join(cluster),
            (None, None) => PathBuf::from("/run/holdfast").join(cluster),
        };
        RuntimeDir(base.join(node))
    }

    /// Where a supervisor of that node has its socket: as for this environment, else in systemd's directory.
    pub fn running(cluster: &str, node: &str) -> RuntimeDir {
        let own = RuntimeDir::of(cluster, node);
        let system = RuntimeDir(PathBuf::from("/run/holdfast").join(cluster).join(node));
        if !own.socket().exists() && system.socket().exists() { system } else { own }
    }

    /// A directory that the supervisor has made.
    pub fn at(path: impl Into<PathBuf>) -> RuntimeDir {
        RuntimeDir(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }

    pub fn server_lock(&self) -> PathBuf {
        self.0.join("server.lock")
    }

    /// Makes the directory, and checks that it is on tmpfs and this user's alone.
    pub fn create(&self) -> Result<(), ClusterError> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.0)
            .map_err(ClusterError::io("create", &self.0))?;
        let io = || ClusterError::io("protect", &self.0);
        let found = std::fs::metadata(&self.0).map_err(io())?;
        if found.mode() & 0o777 != 0o700 {
            std::fs::set_permissions(&self.0, PermissionsExt::from_mode(0o700)).map_err(io())?;
        }
        let socket = self.socket();
        if socket.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            return Err(ClusterError::SocketPath { path: socket, limit: SOCKET_PATH_BYTES_MAX });
        }
        match file_system(&self.0)? {
            None => Ok(()),
            Some(found) => Err(ClusterError::NotInMemory { path: self.0.clone(), found }),
        }
    }
}

/// What a directory, or the nearest one above it that exists, is on; `None`: in memory.
pub fn file_system(dir: &Path) -> Result<Option<String>, ClusterError> {
    let there = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
    let kind = rustix::fs::statfs(there).map_err(|errno| ClusterError::io("examine", there)(errno.into()))?.f_type;
    Ok((!IN_MEMORY.contains(&kind)).then(|| format!("a file system of type {kind:#x}")))
}
