//! A client's stream: a TCP or Unix socket, plain or with TLS on it.
//!
//! Reads and writes do not wait: what cannot be done now is `WouldBlock`, and the caller waits for the socket. So a plain
//! connection costs one system call for each read and write and no copy, and TLS needs no task of its own.
//!
//! How it fails: every error is final for the connection, except `WouldBlock` and `Interrupted`.

mod socket;
mod tls;

pub(crate) use socket::{AnySocket, Socket};

use bytes::BytesMut;
use rustls::ServerConfig;
use std::io;
use std::sync::Arc;
use tls::Tls;

pub(crate) struct Stream {
    socket: Arc<Socket>,
    tls: Option<Box<Tls>>,
}

impl Stream {
    pub fn new(socket: Socket) -> Stream {
        Stream { socket: Arc::new(socket), tls: None }
    }

    /// The socket below, for waiting and for questions about the connection.
    pub fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// The TLS connection, once its handshake is complete.
    pub fn tls(&self) -> Option<&rustls::ServerConnection> {
        self.tls.as_ref().map(|tls| tls.connection())
    }

    /// Runs the handshake of TLS. `begun` are bytes of it that were read already.
    pub async fn start_tls(&mut self, config: Arc<ServerConfig>, begun: BytesMut) -> io::Result<()> {
        self.tls = Some(Box::new(Tls::accept(config, begun, self.socket.clone()).await?));
        Ok(())
    }

    /// The plain socket; `None` when TLS is on it.
    pub fn into_socket(self) -> Option<Socket> {
        if self.tls.is_some() { None } else { Arc::try_unwrap(self.socket).ok() }
    }

    /// Appends what has arrived; 0 at the end of the stream.
    pub fn try_read_buf(&mut self, input: &mut BytesMut) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.try_read_buf(input),
            Some(tls) => tls.try_read(input),
        }
    }

    /// Gives the bytes to the system, and takes from `bytes` what it took over. After `WouldBlock` it is called again with the
    /// rest.
    pub fn try_send(&mut self, bytes: &mut &[u8]) -> io::Result<()> {
        match &mut self.tls {
            None => {
                while !bytes.is_empty() {
                    let sent = self.socket.try_write(bytes)?;
                    *bytes = bytes.get(sent..).unwrap_or_default();
                }
                Ok(())
            }
            Some(tls) => tls.try_send(bytes),
        }
    }

    /// Says that no more bytes will come: the client reads the end of the stream.
    pub fn end_of_output(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.say_goodbye();
        }
        self.socket.end_of_output();
    }
}
