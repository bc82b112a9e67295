//! How control nodes reach each other: a trait, and TCP.
//!
//! The caller decides about TLS: [`Secure`] turns a TCP connection into an encrypted one. Without it nothing is
//! encrypted, which is allowed on loopback only; [`TcpTransport::bind`] refuses anything else. Other users of this machine
//! reach loopback as well, so there both ends must belong to the user that runs this process, or to root
//! ([`holdfast_seams::socket_owner`]). The side that connects checks that when the first bytes arrive: before the other side
//! has accepted the connection, its end has no owner.
//!
//! Failure: a connection of another user is closed before anything is read from it, with a warning.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, ToSocketAddrs};
use std::sync::Arc;

use futures::future::BoxFuture;
use holdfast_seams::socket_owner::{OtherEnd, is_operator, other_end};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OnceCell;

use crate::error::ControlError;
use crate::id::NodeId;

/// A connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static> Stream for T {}
pub type BoxStream = Box<dyn Stream>;

/// A connection that came in and may still have its handshake before it; whose certificate was shown, if any was.
pub type Incoming = BoxFuture<'static, io::Result<(BoxStream, Option<NodeId>)>>;

pub trait Transport: Send + Sync + 'static {
    /// Connects to a member.
    fn connect(&self, to: NodeId) -> BoxFuture<'_, io::Result<BoxStream>>;

    /// The next connection that a peer made to this node.
    fn accept(&self) -> BoxFuture<'_, io::Result<Incoming>>;
}

/// Protects TCP connections, certificates of both sides checked.
pub trait Secure: Send + Sync + 'static {
    fn client(&self, to: NodeId, stream: TcpStream) -> BoxFuture<'static, io::Result<BoxStream>>;
    fn server(&self, stream: TcpStream) -> Incoming;
}

/// TCP, with or without TLS.
pub struct TcpTransport {
    waiting: parking_lot::Mutex<Option<StdListener>>,
    listener: OnceCell<TcpListener>,
    address: SocketAddr,
    members: BTreeMap<NodeId, String>,
    secure: Option<Arc<dyn Secure>>,
}

fn is_loopback(address: &str) -> bool {
    address.to_socket_addrs().is_ok_and(|mut found| found.all(|address| address.ip().is_loopback()))
}

impl TcpTransport {
    /// Listens on `listen`; `members` says where the others do (`HOST:PORT`). Without `secure` all must be loopback
    /// addresses.
    pub fn bind(
        listen: &str,
        members: BTreeMap<NodeId, String>,
        secure: Option<Arc<dyn Secure>>,
    ) -> Result<TcpTransport, ControlError> {
        let far: Vec<&str> =
            members.values().map(String::as_str).chain([listen]).filter(|address| !is_loopback(address)).collect();
        if secure.is_none() && !far.is_empty() {
            let far = far.join(", ");
            return Err(ControlError::Members(format!(
                "{far} is not a loopback address: the control plane needs TLS there"
            )));
        }
        let listener = StdListener::bind(listen).map_err(ControlError::io("listen on", listen))?;
        listener.set_nonblocking(true).map_err(ControlError::io("listen on", listen))?;
        let address = listener.local_addr().map_err(ControlError::io("listen on", listen))?;
        let waiting = parking_lot::Mutex::new(Some(listener));
        Ok(TcpTransport { waiting, listener: OnceCell::new(), address, members, secure })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The listener belongs to the runtime that first waits on it.
    async fn listener(&self) -> io::Result<&TcpListener> {
        let open = || async {
            let waiting = self.waiting.lock().take();
            TcpListener::from_std(waiting.ok_or(io::ErrorKind::NotConnected)?)
        };
        self.listener.get_or_try_init(open).await
    }
}

impl Transport for TcpTransport {
    fn connect(&self, to: NodeId) -> BoxFuture<'_, io::Result<BoxStream>> {
        Box::pin(async move {
            let address = self.members.get(&to).ok_or(io::ErrorKind::NotFound)?;
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            match &self.secure {
                Some(secure) => secure.client(to, stream).await,
                None => Ok(Box::new(Checked { stream, is_checked: false }) as BoxStream),
            }
        })
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<Incoming>> {
        Box::pin(async move {
            let (stream, _) = self.listener().await?.accept().await?;
            stream.set_nodelay(true)?;
            Ok(match &self.secure {
                Some(secure) => secure.server(stream),
                None => Box::pin(async move {
                    refuse_other_users(&stream)?;
                    Ok((Box::new(stream) as BoxStream, None))
                }),
            })
        })
    }
}

/// Refuses a connection whose other end does not belong to the user that runs this process, nor to root.
fn refuse_other_users(stream: &TcpStream) -> io::Result<()> {
    let uid = match other_end(stream.peer_addr()?, stream.local_addr()?) {
        OtherEnd::User(uid) if is_operator(uid) => return Ok(()),
        OtherEnd::Closed => return Err(io::ErrorKind::ConnectionReset.into()),
        OtherEnd::User(uid) => Some(uid),
        OtherEnd::Unknown => None,
    };
    let error = "the other end does not belong to the user that runs this process, nor to root";
    tracing::warn!(?uid, "control plane: connection refused: {error}");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, error))
}

/// A connection to another member without TLS.
struct Checked {
    stream: TcpStream,
    /// The other end belongs to the operator.
    is_checked: bool,
}

impl AsyncRead for Checked {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.is_checked {
            ready!(self.stream.poll_read_ready(context))?;
            refuse_other_users(&self.stream)?;
            self.is_checked = true;
        }
        Pin::new(&mut self.stream).poll_read(context, buf)
    }
}

impl AsyncWrite for Checked {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn bytes_go_through_and_beyond_loopback_needs_tls() {
        let node: NodeId = "a".parse().unwrap();
        let far = BTreeMap::from([(node, "192.0.2.1:7000".to_owned())]);
        let refused = TcpTransport::bind("127.0.0.1:0", far, None).err().unwrap().to_string();
        assert!(refused.contains("192.0.2.1:7000") && refused.contains("TLS"), "{refused}");
        let server = TcpTransport::bind("127.0.0.1:0", BTreeMap::new(), None).unwrap();
        let members = BTreeMap::from([(node, server.address().to_string())]);
        let client = TcpTransport::bind("127.0.0.1:0", members, None).unwrap();
        let mut out = client.connect(node).await.unwrap();
        let (mut inn, _) = server.accept().await.unwrap().await.unwrap();
        out.write_all(b"hello").await.unwrap();
        let mut bytes = [0; 5];
        inn.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"hello");
        assert!(client.connect("b".parse().unwrap()).await.is_err());
        inn.write_all(b"hello").await.unwrap();
        out.read_exact(&mut bytes).await.unwrap();
    }

    /// As after a stop of the process, in which the clients have given up.
    #[tokio::test]
    async fn a_connection_that_was_closed_is_no_connection_of_another_user() {
        let server = TcpTransport::bind("127.0.0.1:0", BTreeMap::new(), None).unwrap();
        let given_up = TcpStream::connect(server.address()).await.unwrap();
        let from = given_up.local_addr().unwrap();
        drop(given_up);
        // A busy kernel hands the end over a little later.
        while other_end(from, server.address()) != OtherEnd::Closed {
            tokio::task::yield_now().await;
        }
        let refused = server.accept().await.unwrap().await.err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionReset);
        // The other way round: the member that was asked ends.
        let node: NodeId = "a".parse().unwrap();
        let members = BTreeMap::from([(node, server.address().to_string())]);
        let client = TcpTransport::bind("127.0.0.1:0", members, None).unwrap();
        let mut out = client.connect(node).await.unwrap();
        drop(server.accept().await.unwrap().await.unwrap());
        let ended = out.read_u8().await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::ConnectionReset);
    }

    /// A program of another user of this machine; it ends with this value.
    struct Other(std::process::Child);

    impl Drop for Other {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    /// Runs a command as `nobody`, with its input open; `None` where this test cannot become another user.
    fn as_nobody(command: &[&str]) -> Option<Other> {
        if !std::path::Path::new("/usr/bin/setpriv").exists() || !rustix::process::geteuid().is_root() {
            holdfast_seams::testing::skipped("needs root and setpriv, to become another user");
            return None;
        }
        let mut setpriv = std::process::Command::new("setpriv");
        setpriv.args(["--reuid", "nobody", "--clear-groups"]).args(command).current_dir("/");
        setpriv.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        Some(Other(setpriv.spawn().unwrap()))
    }

    #[tokio::test]
    async fn another_user_of_this_machine_is_refused() {
        let server = TcpTransport::bind("127.0.0.1:0", BTreeMap::new(), None).unwrap();
        let port = server.address().port();
        // It keeps the connection open until its input ends.
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; echo hello >&3; cat");
        let Some(_other) = as_nobody(&["bash", "-c", &script]) else { return };
        let refused = server.accept().await.unwrap().await.err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        // The server's own user.
        let _own = TcpStream::connect(server.address()).await.unwrap();
        assert!(server.accept().await.unwrap().await.is_ok());
    }

    /// Another user listens where a member that does not run would.
    #[tokio::test]
    async fn another_user_does_not_answer_as_a_member() {
        let script = "$| = 1; my $s = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1:0') or die; \
                      print $s->sockport, qq(\n); my $c = $s->accept; $c->autoflush(1); print $c 'hello'; <STDIN>";
        let Some(mut other) = as_nobody(&["perl", "-MIO::Socket::INET", "-e", script]) else { return };
        let mut port = String::new();
        let said = other.0.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(said), &mut port).unwrap();
        let node: NodeId = "a".parse().unwrap();
        let members = BTreeMap::from([(node, format!("127.0.0.1:{}", port.trim()))]);
        let client = TcpTransport::bind("127.0.0.1:0", members, None).unwrap();
        let mut stream = client.connect(node).await.unwrap();
        let refused = stream.read_exact(&mut [0; 5]).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }
}
