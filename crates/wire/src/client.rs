//! The client's end of a session: its socket, what it has sent and not been read yet, what is to be sent.

use crate::backend;
use crate::encode::Output;
use crate::frontend::{self, HEADER_BYTES, Malformed};
use crate::limits::{BUFFER_KEPT_BYTES_MAX, Limits};
use crate::reply::Reply;
use bytes::{Buf, BytesMut};
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// The client has gone away.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection to the client was lost")]
pub struct Lost;

/// Why waiting for input ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    Input,
    /// The server is stopping.
    Stop,
    /// The time given has passed.
    TimedOut,
}

/// What the client sent during COPY FROM STDIN.
#[derive(Debug, PartialEq, Eq)]
pub enum CopyChunk {
    /// Data was appended to the buffer.
    Data,
    Done,
    /// CopyFail, or something that has no place in a COPY; the text says which.
    Failed(String),
}

/// Bytes asked of the socket at once.
const READ_BYTES: usize = 16 * 1024;

pub struct Client {
    stream: TcpStream,
    input: BytesMut,
    reply: Option<Box<Reply>>,
    limits: Arc<Limits>,
    stop: watch::Receiver<bool>,
    output: Output,
    /// Names of the statements that the protocol prepared, and those that SQL deallocated since.
    named: HashSet<String>,
    deallocated: Vec<String>,
    lost: bool,
    malformed: Option<Malformed>,
}

impl Client {
    pub(crate) fn new(stream: TcpStream, output: Output, limits: Arc<Limits>, stop: watch::Receiver<bool>) -> Client {
        let reply = Some(Box::new(Reply::new(output, limits.buffered_rows_bytes_max)));
        Client {
            stream,
            input: BytesMut::with_capacity(READ_BYTES),
            reply,
            limits,
            stop,
            output,
            named: HashSet::new(),
            deallocated: Vec::new(),
            lost: false,
            malformed: None,
        }
    }

    /// The socket, and what has come from it and was not read.
    pub(crate) fn into_parts(self) -> (TcpStream, BytesMut) {
        (self.stream, self.input)
    }

    /// Where it connects from, while it is connected.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.stream.peer_addr().ok()
    }

    /// Where answers go. Panics while the reply is lent out by [`Client::lend_reply`], which is a mistake of the
    /// session's, not of the client's.
    pub fn reply(&mut self) -> &mut Reply {
        self.reply.as_mut().expect("the reply is with a running batch")
    }

    /// Lends the reply to a batch that runs on another thread; it must come back by [`Client::return_reply`].
    pub fn lend_reply(&mut self) -> Box<Reply> {
        self.reply.take().expect("the reply is already with a running batch")
    }

    pub fn return_reply(&mut self, reply: Box<Reply>) {
        self.reply = Some(reply);
    }

    /// Stands in for a reply that did not come back because the engine is closing; what it held is lost with it.
    pub fn replace_reply(&mut self) {
        self.reply = Some(Box::new(Reply::new(self.output, self.limits.buffered_rows_bytes_max)));
    }

    /// DEALLOCATE of a statement that the protocol prepared; `false` when there is none of that name.
    pub fn deallocate(&mut self, name: &str) -> bool {
        let known = self.named.remove(name);
        if known {
            self.deallocated.push(name.to_owned());
        }
        known
    }

    /// DEALLOCATE ALL.
    pub fn deallocate_all(&mut self) {
        self.deallocated.extend(self.named.drain());
    }

    /// The protocol prepared or closed a statement of that name.
    pub(crate) fn set_named(&mut self, name: &str, exists: bool) {
        if exists {
            self.named.insert(name.to_owned())
        } else {
            self.named.remove(name)
        };
    }

    pub(crate) fn take_deallocated(&mut self) -> Vec<String> {
        std::mem::take(&mut self.deallocated)
    }

    pub(crate) fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }

    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// The message that broke the protocol while a session was reading from the client.
    pub(crate) fn take_malformed(&mut self) -> Option<Malformed> {
        self.malformed.take()
    }

    /// Type and body length of the next message, if all of it has arrived.
    pub(crate) fn next_message(&self) -> Result<Option<(u8, usize)>, Malformed> {
        let header = frontend::header(&self.input, &self.limits)?;
        Ok(header.filter(|(_, bytes)| self.input.len() >= HEADER_BYTES + bytes))
    }

    /// Body of the message that [`Client::next_message`] announced.
    pub(crate) fn body(&self, bytes: usize) -> &[u8] {
        &self.input[HEADER_BYTES..HEADER_BYTES + bytes]
    }

    /// Drops the message with a body of `bytes`.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.input.advance(HEADER_BYTES + bytes);
        if self.input.is_empty() && self.input.capacity() > BUFFER_KEPT_BYTES_MAX {
            self.input = BytesMut::with_capacity(READ_BYTES);
        }
    }

    /// Everything that has arrived, for the start-up exchange, which has its own framing.
    pub(crate) fn raw_input(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// Waits for more input.
    pub(crate) async fn fill(&mut self, timeout: Option<Duration>) -> Result<Wake, Lost> {
        // Grows with what has arrived, never with what a header claims.
        self.input.reserve(READ_BYTES.max(self.input.len().min(1 << 20)));
        loop {
            match self.stream.try_read_buf(&mut self.input) {
                Ok(0) => return self.lose(),
                Ok(_) => return Ok(Wake::Input),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return self.lose(),
            }
            if *self.stop.borrow() {
                return Ok(Wake::Stop);
            }
            tokio::select! {
                biased;
                ready = self.stream.readable() => if ready.is_err() { return self.lose() },
                _ = self.stop.changed() => return Ok(Wake::Stop),
                () = sleep(timeout) => return Ok(Wake::TimedOut),
            }
        }
    }

    fn lose<T>(&mut self) -> Result<T, Lost> {
        self.lost = true;
        Err(Lost)
    }

    /// Writes bytes at once.
    pub async fn send(&mut self, mut bytes: &[u8]) -> Result<(), Lost> {
        while !bytes.is_empty() {
            match self.stream.try_write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    tokio::select! {
                        ready = self.stream.writable() => if ready.is_err() { return self.lose() },
                        () = stopped_for(&mut self.stop, STOP_GRACE) => return self.lose(),
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.lose(),
            }
        }
        Ok(())
    }

    /// Sends all answers gathered so far.
    pub async fn flush(&mut self) -> Result<(), Lost> {
        if self.lost {
            return Err(Lost);
        }
        let mut reply = self.lend_reply();
        let sent = if reply.out().is_empty() { Ok(()) } else { self.send(reply.out()).await };
        reply.sent();
        self.return_reply(reply);
        sent
    }

    /// Asks the client for COPY data of so many columns.
    pub async fn begin_copy_in(&mut self, columns: usize) -> Result<(), Lost> {
        backend::copy_response(self.reply().out(), b'G', columns);
        self.flush().await
    }

    /// The next piece of COPY data, appended to `into`.
    pub async fn copy_chunk(&mut self, into: &mut Vec<u8>) -> Result<CopyChunk, Lost> {
        loop {
            match self.next_message() {
                Ok(Some((kind, bytes))) => {
                    let chunk = match kind {
                        b'd' => {
                            into.extend_from_slice(self.body(bytes));
                            Some(CopyChunk::Data)
                        }
                        b'c' => Some(CopyChunk::Done),
                        b'f' => {
                            let reason = frontend::query(self.body(bytes)).unwrap_or("no reason given");
                            Some(CopyChunk::Failed(format!("COPY from stdin failed: {reason}")))
                        }
                        b'H' | b'S' => None,
                        other => {
                            let name = other as char;
                            // It stays in the input: it may begin the client's next request.
                            return Ok(CopyChunk::Failed(format!(
                                "unexpected message type \"{name}\" during COPY from stdin"
                            )));
                        }
                    };
                    self.consume(bytes);
                    if let Some(chunk) = chunk {
                        return Ok(chunk);
                    }
                }
                Ok(None) => match self.fill(None).await? {
                    Wake::Input => {}
                    Wake::Stop | Wake::TimedOut => return Ok(CopyChunk::Failed("the server is stopping".into())),
                },
                Err(malformed) => {
                    self.malformed = Some(malformed);
                    return self.lose();
                }
            }
        }
    }
}

/// How long a stopping server waits for a client that does not read.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// Ends when the server has been stopping for `grace`.
async fn stopped_for(stop: &mut watch::Receiver<bool>, grace: Duration) {
    // An error means that the server is gone altogether.
    let _ = stop.wait_for(|stopping| *stopping).await;
    tokio::time::sleep(grace).await;
}

async fn sleep(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}
