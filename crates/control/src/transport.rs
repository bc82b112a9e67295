//! How control nodes reach each other: a trait, and TCP.
//!
//! The caller decides about TLS: [`Secure`] turns a TCP connection into an encrypted one. Without it nothing is
//! encrypted or authenticated, which is allowed on loopback only; [`TcpTransport::bind`] refuses anything else.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, ToSocketAddrs};
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
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
                None => Ok(Box::new(stream) as BoxStream),
            }
        })
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<Incoming>> {
        Box::pin(async move {
            let (stream, _) = self.listener().await?.accept().await?;
            stream.set_nodelay(true)?;
            Ok(match &self.secure {
                Some(secure) => secure.server(stream),
                None => Box::pin(async move { Ok((Box::new(stream) as BoxStream, None)) }),
            })
        })
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
    }
}
