//! The other end of a connection: where the client is, and what TLS has established.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// What is known of a client before it has said who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// `None`: the socket was closed before it could be asked.
    pub address: Option<PeerAddress>,
    /// `None`: the connection is not encrypted.
    pub tls: Option<Arc<TlsSession>>,
}

/// Where the client's socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// A Unix socket, with the credentials that the kernel gives of the process that connected.
    Unix { uid: u32, gid: u32, pid: Option<i32> },
    Tcp {
        client: SocketAddr,
        /// The server's end of the connection.
        server: SocketAddr,
    },
}

/// An established TLS session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSession {
    /// `TLSv1.2` or `TLSv1.3`, as PostgreSQL writes it.
    pub version: &'static str,
    /// OpenSSL's name of the cipher suite, as PostgreSQL shows it.
    pub cipher: &'static str,
    /// Key length of the cipher.
    pub bits: u16,
    /// The server certificate's hash for channel binding `tls-server-end-point` (RFC 5929, section 4).
    pub server_end_point: Vec<u8>,
    /// The client's certificate, verified against the CA.
    pub client_certificate: Option<ClientCertificate>,
}

/// What a verified client certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The subject's common name.
    pub common_name: Option<String>,
    /// The subject, in the form in which PostgreSQL shows it: `/CN=ann/O=shop`.
    pub subject: String,
    /// The subject as RFC 2253 writes it, which PostgreSQL compares for `clientname=DN`: `O=shop,CN=ann`.
    pub distinguished_name: String,
    pub issuer: String,
    /// In decimal.
    pub serial: String,
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddress::Unix { uid, .. } => write!(f, "the Unix socket (uid {uid})"),
            PeerAddress::Tcp { client, .. } => client.fmt(f),
        }
    }
}

impl Peer {
    /// Whether the connection cannot have left this machine.
    pub fn is_local(&self) -> bool {
        match self.address {
            Some(PeerAddress::Tcp { client, server }) => client.ip().is_loopback() && server.ip().is_loopback(),
            Some(PeerAddress::Unix { .. }) => true,
            None => false,
        }
    }

    /// The client's address and port; `None` for a Unix socket.
    pub fn client(&self) -> Option<SocketAddr> {
        match self.address {
            Some(PeerAddress::Tcp { client, .. }) => Some(client),
            _ => None,
        }
    }
}
