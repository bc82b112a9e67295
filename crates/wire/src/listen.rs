//! The sockets that a server listens on: TCP addresses and a Unix socket.
//!
//! | the Unix socket's path | then |
//! |---|---|
//! | nothing is there | it is made |
//! | a socket of a server that has ended | it is replaced |
//! | a server holds the lock file next to it | refused |
//!
//! The lock file, as in PostgreSQL `.s.PGSQL.PORT.lock`, is locked (flock) for as long as the server runs, so that a socket is
//! removed only when no server uses it. Both are removed at a clean stop. What mode the socket has is the caller's choice
//! ([`SocketUsers`]).
//!
//! How it fails: an address that cannot be listened on ends the start, and the error says what to do.

use crate::server::ServerError;
use crate::stream::AnySocket;
use rustix::fs::{FlockOperation, flock};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::fs::{File, OpenOptions, Permissions};
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;

/// Connections that may wait to be accepted; the system may have a lower limit (net.core.somaxconn).
const BACKLOG: i32 = 4096;

/// The longest path of a Unix socket: `sun_path` without its zero byte.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The sockets of a server, bound and listening.
#[derive(Default)]
pub struct Sockets {
    pub(crate) all: Vec<Listening>,
}

pub(crate) enum Listening {
    Tcp(TcpListener),
    Unix(UnixListener, Arc<SocketFile>),
}

/// A Unix socket's file and its lock, removed when dropped.
pub(crate) struct SocketFile {
    /// Once it is made.
    path: Option<PathBuf>,
    lock_path: PathBuf,
    _lock: File,
}

/// The users whose clients may connect to a Unix socket, as far as its directory lets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketUsers {
    /// Mode 0700: the server's user and root.
    Own,
    /// Mode 0777, PostgreSQL's default: the rules for connecting decide.
    All,
}

impl Sockets {
    /// Listens on a TCP address. Returns it with the actual port where 0 was requested.
    pub fn tcp(&mut self, address: SocketAddr) -> Result<SocketAddr, ServerError> {
        let bound = || {
            let listener = listen_tcp(address)?;
            Ok((listener.local_addr()?, listener))
        };
        let (bound, listener) = bound().map_err(|source| ServerError::Listen { address, source })?;
        self.all.push(Listening::Tcp(listener));
        Ok(bound)
    }

    /// Listens on a Unix socket for this port in a directory. Returns its path.
    pub fn unix(&mut self, directory: &Path, port: u16, who: SocketUsers) -> Result<PathBuf, ServerError> {
        let path = directory.join(format!(".s.PGSQL.{port}"));
        let bytes = path.as_os_str().len();
        if bytes > SOCKET_PATH_BYTES_MAX {
            return Err(ServerError::SocketPath { path, bytes });
        }
        let (listener, file) = listen_unix(&path, who)?;
        self.all.push(Listening::Unix(listener, Arc::new(file)));
        Ok(path)
    }

    /// The TCP addresses.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let address = |socket: &Listening| match socket {
            Listening::Tcp(listener) => listener.local_addr().ok(),
            Listening::Unix(..) => None,
        };
        self.all.iter().filter_map(address).collect()
    }

    pub(crate) fn try_clone(&self) -> io::Result<Sockets> {
        let again = |socket: &Listening| {
            Ok(match socket {
                Listening::Tcp(listener) => Listening::Tcp(listener.try_clone()?),
                Listening::Unix(listener, file) => Listening::Unix(listener.try_clone()?, file.clone()),
            })
        };
        Ok(Sockets { all: self.all.iter().map(again).collect::<io::Result<_>>()? })
    }
}

fn listen_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        // The IPv4 addresses have a socket of their own.
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    // With a short queue, clients that connect all at once would wait a second for TCP to try again.
    rustix::net::listen(&socket, BACKLOG)?;
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn listen_unix(path: &Path, who: SocketUsers) -> Result<(UnixListener, SocketFile), ServerError> {
    let failed = |source| ServerError::ListenUnix { path: path.to_owned(), source };
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    let lock_path = PathBuf::from(lock_path);
    let lock = lock(&lock_path).map_err(failed)?.ok_or_else(|| ServerError::SocketInUse { path: path.to_owned() })?;
    // The lock shows that no server uses the socket.
    let mut file = SocketFile { path: None, lock_path, _lock: lock };
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path).map_err(failed)?,
        Ok(_) => return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, "the file there is not a socket"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let bound = || {
        let listener = UnixListener::bind(path)?;
        file.path = Some(path.to_owned());
        let mode = if who == SocketUsers::All { 0o777 } else { 0o700 };
        std::fs::set_permissions(path, Permissions::from_mode(mode))?;
        rustix::net::listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        Ok((listener, file))
    };
    bound().map_err(failed)
}

/// Makes the lock file and locks it; `None` when another process has the lock.
fn lock(path: &Path) -> io::Result<Option<File>> {
    loop {
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // A server that stopped between the two calls has removed the file: a lock on it protects nothing.
        let is_there = std::fs::metadata(path).is_ok_and(|now| file.metadata().is_ok_and(|own| own.ino() == now.ino()));
        if is_there {
            return Ok(Some(file));
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The socket first: while the lock is there, no other server makes one. What cannot be removed is replaced by the next
        // start.
        let _ = self.path.as_ref().map(std::fs::remove_file);
        let _ = std::fs::remove_file(&self.lock_path);
    }
}

enum Registered {
    Tcp(tokio::net::TcpListener),
    Unix {
        listener: tokio::net::UnixListener,
        /// Removed with the last of those that listen.
        _file: Arc<SocketFile>,
    },
}

/// Accepts connections on all sockets, on one runtime.
pub(crate) struct Acceptor {
    all: Vec<Registered>,
    /// The socket that is asked first: each in turn.
    first: usize,
}

impl Acceptor {
    pub fn new(sockets: Sockets) -> io::Result<Acceptor> {
        let register = |socket| {
            Ok(match socket {
                Listening::Tcp(listener) => Registered::Tcp(tokio::net::TcpListener::from_std(listener)?),
                Listening::Unix(listener, _file) => {
                    Registered::Unix { listener: tokio::net::UnixListener::from_std(listener)?, _file }
                }
            })
        };
        Ok(Acceptor { all: sockets.all.into_iter().map(register).collect::<io::Result<_>>()?, first: 0 })
    }

    /// The next connection.
    pub async fn accept(&mut self) -> io::Result<AnySocket> {
        self.first = self.first.wrapping_add(1);
        let (first, count) = (self.first, self.all.len());
        poll_fn(|context| {
            let (before, from) = self.all.split_at(first.checked_rem(count).unwrap_or(0));
            for socket in from.iter().chain(before) {
                let accepted = match socket {
                    Registered::Tcp(listener) => listener.poll_accept(context).map_ok(|(stream, _)| {
                        // An error means that the client has already gone.
                        let _ = stream.set_nodelay(true);
                        stream.into_std().map(AnySocket::Tcp)
                    }),
                    Registered::Unix { listener, .. } => {
                        listener.poll_accept(context).map_ok(|(stream, _)| stream.into_std().map(AnySocket::Unix))
                    }
                };
                if let Poll::Ready(accepted) = accepted {
                    return Poll::Ready(accepted.and_then(|stream| stream));
                }
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_stale_unix_socket_is_replaced_and_one_in_use_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".s.PGSQL.5433");
        // As a killed server leaves them.
        drop(UnixListener::bind(&path).unwrap());
        std::fs::write(dir.path().join(".s.PGSQL.5433.lock"), "").unwrap();
        let mut first = Sockets::default();
        assert_eq!(first.unix(dir.path(), 5433, SocketUsers::Own).unwrap(), path);
        UnixStream::connect(&path).unwrap();
        let refused = Sockets::default().unix(dir.path(), 5433, SocketUsers::Own).unwrap_err().to_string();
        assert!(refused.contains("another server uses") && refused.contains(".s.PGSQL.5433"), "{refused}");
        UnixStream::connect(&path).unwrap();
        // Nothing else is ever removed.
        std::fs::write(dir.path().join(".s.PGSQL.7"), "text").unwrap();
        let refused = Sockets::default().unix(dir.path(), 7, SocketUsers::Own).unwrap_err().to_string();
        assert!(refused.contains("is not a socket"), "{refused}");
        std::fs::remove_file(dir.path().join(".s.PGSQL.7")).unwrap();
        // Another port is another socket.
        Sockets::default().unix(dir.path(), 5434, SocketUsers::Own).unwrap();
        let again = first.try_clone().unwrap();
        drop(first);
        assert!(path.exists(), "it is still listened on");
        drop(again);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_path_has_a_limit() {
        let long = std::env::temp_dir().join("x".repeat(100));
        let refused = Sockets::default().unix(&long, 5433, SocketUsers::All).unwrap_err().to_string();
        assert!(refused.contains("the limit is 107 bytes"), "{refused}");
        let missing = Sockets::default().unix("/nowhere".as_ref(), 5433, SocketUsers::All).unwrap_err().to_string();
        assert!(missing.contains("/nowhere/.s.PGSQL.5433") && missing.contains("unix_socket_directory"), "{missing}");
    }

    #[test]
    fn ipv4_and_ipv6_have_one_port_each() {
        let mut sockets = Sockets::default();
        let four = sockets.tcp("0.0.0.0:0".parse().unwrap()).unwrap();
        let six = SocketAddr::new("::".parse().unwrap(), four.port());
        // A machine without IPv6 has no such address.
        if let Ok(bound) = sockets.tcp(six) {
            assert_eq!((bound, sockets.addresses().len()), (six, 2));
        }
    }
}
