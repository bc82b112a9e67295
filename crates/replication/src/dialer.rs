//! Connects to another node: over TCP on this machine, over TLS where there are certificates.
//!
//! Without certificates a connection to another machine is refused before a byte is sent.

use crate::certificates::Certificates;
use holdfast_standby::Connect;
use holdfast_standby::link::Stream;
use std::io;
use tokio::net::TcpStream;

/// Connects to the node at an address.
#[derive(Clone)]
pub struct Dialer {
    /// Host and port.
    pub address: String,
    /// This node's own certificates; the peer has to show its certificate, too.
    pub certificates: Option<Certificates>,
}

impl Connect for Dialer {
    type Stream = Box<dyn Stream>;

    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        if let Some(certificates) = &self.certificates {
            let (stream, _) = certificates.connect(&self.address, stream).await?;
            return Ok(Box::new(stream));
        }
        if !stream.peer_addr()?.ip().is_loopback() {
            let why = format!(
                "{} is on another machine, and links to other machines need certificates: make them with holdfast cert, and put \
                 this node's into its data directory or name them with --certificates",
                self.address
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(Box::new(stream))
    }
}
