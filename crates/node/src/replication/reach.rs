//! How another node is reached: TCP on this machine, TLS where there are certificates.
//!
//! Without certificates a connection that leaves the machine is refused before a byte is sent.

use super::Certificates;
use holdfast_standby::Connect;
use holdfast_standby::link::Stream;
use std::io;
use tokio::net::TcpStream;

/// A node at an address.
#[derive(Clone)]
pub struct Reach {
    /// Host and port.
    pub address: String,
    /// This node's own; the other side is asked for its.
    pub certificates: Option<Certificates>,
}

impl Connect for Reach {
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
                "{} is not on this machine, and links beyond it need certificates: make them with holdfast cert, and put \
                 this node's into its data directory or name them with --certificates",
                self.address
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(Box::new(stream))
    }
}
