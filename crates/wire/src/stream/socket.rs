//! The sockets that clients use.

use crate::limits::Keepalives;
use crate::peer::PeerAddress;
use bytes::BytesMut;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};

/// A connected socket on a worker's runtime.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connected socket on the way from one runtime to another.
pub(crate) enum AnySocket {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl AnySocket {
    /// Where the client is; `None` when the connection is closed already.
    pub fn peer(&self) -> Option<PeerAddress> {
        match self {
            AnySocket::Tcp(stream) => {
                Some(PeerAddress::Tcp { client: stream.peer_addr().ok()?, server: stream.local_addr().ok()? })
            }
            AnySocket::Unix(stream) => {
                let of = sockopt::socket_peercred(stream).ok()?;
                let pid = Some(of.pid.as_raw_nonzero().get());
                Some(PeerAddress::Unix { uid: of.uid.as_raw(), gid: of.gid.as_raw(), pid })
            }
        }
    }

    /// Lets TCP notice that a silent client has gone.
    pub fn keep_alive(&self, how: Keepalives) {
        if let AnySocket::Tcp(stream) = self {
            keep_alive(stream, Keepalives::default(), how);
        }
    }

    /// Registers the socket with the current runtime.
    pub fn register(self) -> io::Result<Socket> {
        Ok(match self {
            AnySocket::Tcp(stream) => Socket::Tcp(TcpStream::from_std(stream)?),
            AnySocket::Unix(stream) => Socket::Unix(UnixStream::from_std(stream)?),
        })
    }
}

/// Sets what differs; a value of 0 is the system's default.
fn keep_alive(stream: impl AsFd, before: Keepalives, now: Keepalives) {
    let set = || {
        sockopt::set_socket_keepalive(&stream, true)?;
        // A new socket has the system's defaults.
        let new = || rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
        let seconds = |s: u32| Duration::from_secs(s.into());
        if before.idle_s != now.idle_s {
            let idle = if now.idle_s == 0 { sockopt::tcp_keepidle(new()?)? } else { seconds(now.idle_s) };
            sockopt::set_tcp_keepidle(&stream, idle)?;
        }
        if before.interval_s != now.interval_s {
            let interval = if now.interval_s == 0 { sockopt::tcp_keepintvl(new()?)? } else { seconds(now.interval_s) };
            sockopt::set_tcp_keepintvl(&stream, interval)?;
        }
        if before.count != now.count {
            let count = if now.count == 0 { sockopt::tcp_keepcnt(new()?)? } else { now.count };
            sockopt::set_tcp_keepcnt(&stream, count)?;
        }
        if before.user_timeout_ms != now.user_timeout_ms {
            sockopt::set_tcp_user_timeout(&stream, now.user_timeout_ms)?;
        }
        io::Result::Ok(())
    };
    // The connection works without them.
    if let Err(error) = set() {
        tracing::debug!(%error, "cannot set keepalives");
    }
}

impl Socket {
    /// Changes when TCP notices that a silent client has gone.
    pub fn keep_alive(&self, before: Keepalives, now: Keepalives) {
        if let Socket::Tcp(stream) = self {
            keep_alive(stream, before, now);
        }
    }

    pub fn try_read_buf(&self, input: &mut BytesMut) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.try_read_buf(input),
            Socket::Unix(stream) => stream.try_read_buf(input),
        }
    }

    pub fn try_read(&self, input: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.try_read(input),
            Socket::Unix(stream) => stream.try_read(input),
        }
    }

    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.try_write(bytes),
            Socket::Unix(stream) => stream.try_write(bytes),
        }
    }

    pub fn try_write_vectored(&self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.try_write_vectored(pieces),
            Socket::Unix(stream) => stream.try_write_vectored(pieces),
        }
    }

    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.readable().await,
            Socket::Unix(stream) => stream.readable().await,
        }
    }

    pub async fn writable(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.writable().await,
            Socket::Unix(stream) => stream.writable().await,
        }
    }

    /// Where the client is; `None` when the connection is closed already.
    pub fn peer(&self) -> Option<PeerAddress> {
        match self {
            Socket::Tcp(stream) => {
                let (client, server) = (stream.peer_addr().ok()?, stream.local_addr().ok()?);
                Some(PeerAddress::Tcp { client, server })
            }
            Socket::Unix(stream) => {
                let of = stream.peer_cred().ok()?;
                Some(PeerAddress::Unix { uid: of.uid(), gid: of.gid(), pid: of.pid() })
            }
        }
    }

    /// Whether the client has closed its end, even where bytes that it sent before were not read yet.
    pub fn is_closed(&self) -> bool {
        let mut polled = [PollFd::from_borrowed_fd(self.as_fd(), PollFlags::RDHUP)];
        let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        // An error of poll says nothing about the connection.
        rustix::event::poll(&mut polled, Some(&Timespec::default())).is_ok()
            && polled.iter().any(|fd| fd.revents().intersects(closed))
    }

    pub fn end_of_output(&self) {
        // An error means that the client has already gone.
        let _ = rustix::net::shutdown(self, rustix::net::Shutdown::Write);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }
}
