//! TLS over a socket, without waiting: rustls between the session's buffers and the socket.
//!
//! How it fails: a record that violates TLS ends the connection, after an alert to the client. Renegotiation is refused by
//! rustls. An end without `close_notify` is reported as the end of the stream, as for a plain connection: PostgreSQL's
//! messages have lengths, so a cut is noticed.

use super::socket::Socket;
use bytes::{Buf, BytesMut};
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;

pub(super) struct Tls {
    socket: Arc<Socket>,
    connection: ServerConnection,
    /// Bytes of the handshake that were read before TLS began.
    begun: BytesMut,
}

/// The socket as rustls reads and writes it.
struct Io<'a> {
    begun: &'a mut BytesMut,
    socket: &'a Socket,
}

impl Read for Io<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.begun.is_empty() {
            return self.socket.try_read(into);
        }
        let n = self.begun.len().min(into.len());
        self.begun.copy_to_slice(into.get_mut(..n).unwrap_or_default());
        Ok(n)
    }
}

impl Write for Io<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.try_write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.socket.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn would_block(error: &io::Error) -> bool {
    [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&error.kind())
}

impl Tls {
    /// The server's side of the handshake. The caller limits the time.
    pub async fn accept(config: Arc<ServerConfig>, begun: BytesMut, socket: Arc<Socket>) -> io::Result<Tls> {
        let connection = ServerConnection::new(config).map_err(io::Error::other)?;
        let mut tls = Tls { socket, connection, begun };
        loop {
            match tls.send_records() {
                Ok(()) => {}
                Err(error) if would_block(&error) => {
                    tls.socket.writable().await?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            if !tls.connection.is_handshaking() {
                return Ok(tls);
            }
            match tls.read_records() {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if would_block(&error) => tls.socket.readable().await?,
                Err(error) => return Err(error),
            }
        }
    }

    pub fn connection(&self) -> &ServerConnection {
        &self.connection
    }

    /// Reads from the socket and decrypts. Returns the number of bytes read, 0 at the end of the stream.
    fn read_records(&mut self) -> io::Result<usize> {
        let read = self.connection.read_tls(&mut Io { begun: &mut self.begun, socket: &self.socket })?;
        if let Err(error) = self.connection.process_new_packets() {
            // The alert tells the client why; it may be gone.
            let _ = self.send_records();
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        Ok(read)
    }

    /// Sends the records that are ready.
    fn send_records(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut Io { begun: &mut self.begun, socket: &self.socket })? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    pub fn try_read(&mut self, input: &mut BytesMut) -> io::Result<usize> {
        loop {
            let mut reader = self.connection.reader();
            match reader.fill_buf() {
                Ok(chunk) => {
                    let n = chunk.len();
                    input.extend_from_slice(chunk);
                    reader.consume(n);
                    return Ok(n);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) => return Err(error),
            }
            self.read_records()?;
            // An answer of TLS itself, such as a new key; what the socket does not take now leaves with the next answer.
            match self.send_records() {
                Err(error) if !would_block(&error) => return Err(error),
                _ => {}
            }
        }
    }

    pub fn try_send(&mut self, bytes: &mut &[u8]) -> io::Result<()> {
        loop {
            if !bytes.is_empty() {
                let taken = self.connection.writer().write(bytes)?;
                *bytes = bytes.get(taken..).unwrap_or_default();
            }
            self.send_records()?;
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }

    /// Sends `close_notify`, once, if the socket takes it at once.
    pub fn say_goodbye(&mut self) {
        self.connection.send_close_notify();
        // The client may be gone, or may not read.
        let _ = self.send_records();
    }
}

impl Drop for Tls {
    /// OpenSSL reports a connection that ends without a word as an error.
    fn drop(&mut self) {
        self.say_goodbye();
    }
}
