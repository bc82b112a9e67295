//! The client of a session: its socket, the input that was not read yet, and the output that was not sent yet.

use crate::backend;
use crate::encode::Output;
use crate::frontend::{self, HEADER_BYTES, Malformed};
use crate::limits::{BUFFER_KEPT_BYTES_MAX, FLUSH_BYTES, Limits};
use crate::memory::SessionMemory;
use crate::peer::{Peer, TlsSession};
use crate::reply::Reply;
use crate::stream::{Socket, Stream};
use crate::termination::Termination;
use crate::tls::{ALPN, TlsConfig, TlsSlot};
use bytes::{Buf, BytesMut};
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The connection to the client was lost.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection to the client was lost")]
pub struct Lost;

/// Why waiting for input ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    Input,
    /// The server is stopping.
    Stop,
    /// The time-out has passed.
    TimedOut,
    /// The session has been ordered to end.
    Terminate,
}

/// What the client sent during COPY FROM STDIN.
#[derive(Debug, PartialEq, Eq)]
pub enum CopyChunk {
    /// Data was appended to the buffer.
    Data,
    Done,
    /// CopyFail, or a message that is not allowed during COPY; the text says which.
    Failed(String),
}

/// How long the server waits for a client to disconnect after a last message.
const LINGER_MAX: Duration = Duration::from_millis(200);

/// The number of bytes to read from the socket at once.
const READ_BYTES: usize = 16 * 1024;

pub struct Client {
    stream: Stream,
    tls: TlsSlot,
    /// What TLS has established, once it has.
    tls_session: Option<Arc<TlsSession>>,
    input: BytesMut,
    reply: Option<Box<Reply>>,
    limits: Arc<Limits>,
    memory: Arc<SessionMemory>,
    stop: watch::Receiver<bool>,
    output: Output,
    /// Names of the statements that the protocol prepared, and of those that SQL has deallocated since.
    named: HashSet<String>,
    deallocated: Vec<String>,
    lost: bool,
    malformed: Option<Malformed>,
    termination: Arc<Termination>,
}

impl Client {
    pub(crate) fn new(
        socket: Socket,
        tls: TlsSlot,
        output: Output,
        limits: Arc<Limits>,
        memory: Arc<SessionMemory>,
        stop: watch::Receiver<bool>,
    ) -> Client {
        let reply = Some(Box::new(Reply::new(output, &memory)));
        Client {
            stream: Stream::new(socket),
            tls,
            tls_session: None,
            input: BytesMut::with_capacity(READ_BYTES),
            reply,
            limits,
            memory,
            stop,
            output,
            named: HashSet::new(),
            deallocated: Vec::new(),
            lost: false,
            malformed: None,
            termination: Arc::default(),
        }
    }

    /// The socket, and the input that was received and not read. `None` when TLS is on it.
    pub(crate) fn into_parts(self) -> Option<(Socket, BytesMut)> {
        Some((self.stream.into_socket()?, self.input))
    }

    /// The other end of the connection.
    pub(crate) fn peer(&self) -> Peer {
        Peer { address: self.stream.socket().peer(), tls: self.tls_session.clone() }
    }

    /// The socket below the connection.
    pub(crate) fn socket(&self) -> Arc<Socket> {
        self.stream.socket().clone()
    }

    /// The TLS configuration for this connection. There is none for a Unix socket, as in PostgreSQL, nor below TLS.
    pub(crate) fn tls_offer(&self) -> Option<Arc<TlsConfig>> {
        let is_possible = matches!(**self.stream.socket(), Socket::Tcp(_)) && self.tls_session.is_none();
        if is_possible { self.tls.get() } else { None }
    }

    /// Runs the handshake of TLS. `begun`: the client's bytes of it that are in the input. `direct`: the client began with TLS,
    /// and so must name the protocol.
    pub(crate) async fn start_tls(&mut self, config: &TlsConfig, direct: bool) -> Result<(), Lost> {
        let begun = self.input.split();
        // Known only as long as the client is connected.
        let client = self.stream.socket().peer().map(|peer| peer.to_string()).unwrap_or_default();
        let started = tokio::select! {
            biased;
            started = self.stream.start_tls(config.rustls.clone(), begun) => Some(started),
            _ = self.stop.wait_for(|stopping| *stopping) => None,
        };
        if let Some(Err(error)) = &started {
            tracing::info!(client, "could not accept SSL connection: {error}");
        }
        if !matches!(started, Some(Ok(()))) {
            return self.lose();
        }
        let Some(connection) = self.stream.tls() else { return self.lose() };
        if direct && connection.alpn_protocol() != Some(ALPN) {
            tracing::info!(
                client,
                "received direct SSL connection request without ALPN protocol negotiation extension"
            );
            return self.lose();
        }
        match config.session(connection) {
            Ok(session) => {
                self.tls_session = Some(Arc::new(session));
                Ok(())
            }
            Err(error) => {
                tracing::info!(client, "could not accept SSL connection: the client's certificate: {error}");
                self.lose()
            }
        }
    }

    /// The session's order to end, which wakes every wait for the client.
    pub(crate) fn set_termination(&mut self, termination: Arc<Termination>) {
        self.termination = termination;
    }

    /// Whether the session is to end: by an order for it, or because the server stops.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_terminated() || *self.stop.borrow()
    }

    pub(crate) fn is_terminated(&self) -> bool {
        self.termination.is_ordered()
    }

    /// The reply, to which answers are appended. Panics while it is lent out by [`Client::lend_reply`], which is a bug
    /// in the session, not the client's fault.
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

    /// Replaces a reply that was not returned because the engine is closing; its contents are lost.
    pub fn replace_reply(&mut self) {
        self.reply = Some(Box::new(Reply::new(self.output, &self.memory)));
    }

    /// Deallocates a statement that the protocol prepared; `false` if no statement has this name.
    pub fn deallocate(&mut self, name: &str) -> bool {
        let known = self.named.remove(name);
        if known {
            self.deallocated.push(name.to_owned());
        }
        known
    }

    /// Deallocates all statements that the protocol prepared.
    pub fn deallocate_all(&mut self) {
        self.deallocated.extend(self.named.drain());
    }

    /// Records that the protocol prepared or closed a statement with this name.
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

    /// The account of the session's memory.
    pub(crate) fn memory(&self) -> &Arc<SessionMemory> {
        &self.memory
    }

    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// Records a malformed message: the connection ends.
    pub(crate) fn set_malformed(&mut self, malformed: Malformed) {
        self.malformed = Some(malformed);
        self.lost = true;
    }

    /// Takes the malformed message that a session met while it read from the client.
    pub(crate) fn take_malformed(&mut self) -> Option<Malformed> {
        self.malformed.take()
    }

    /// Type and body length of the next message, if all of it has arrived.
    pub(crate) fn next_message(&self) -> Result<Option<(u8, usize)>, Malformed> {
        let header = frontend::header(&self.input, &self.limits)?;
        Ok(header.filter(|(_, bytes)| self.input.len() >= HEADER_BYTES + bytes))
    }

    /// The body of the message that [`Client::next_message`] returned.
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

    /// All input that has arrived, for the start-up exchange, which has its own framing.
    pub(crate) fn raw_input(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// Waits for more input.
    pub(crate) async fn fill(&mut self, timeout: Option<Duration>) -> Result<Wake, Lost> {
        // The buffer grows with the bytes that have arrived, never by a length in a header.
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
                ready = self.stream.socket().readable() => if ready.is_err() { return self.lose() },
                _ = self.stop.changed() => return Ok(Wake::Stop),
                () = self.termination.ordered() => return Ok(Wake::Terminate),
                () = sleep(timeout) => return Ok(Wake::TimedOut),
            }
        }
    }

    fn lose<T>(&mut self) -> Result<T, Lost> {
        self.lost = true;
        Err(Lost)
    }

    /// Writes bytes without buffering.
    pub async fn send(&mut self, mut bytes: &[u8]) -> Result<(), Lost> {
        loop {
            match self.stream.try_send(&mut bytes) {
                Ok(()) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    tokio::select! {
                        ready = self.stream.socket().writable() => if ready.is_err() { return self.lose() },
                        () = stopped_for(&mut self.stop, STOP_GRACE) => return self.lose(),
                        () = self.termination.ordered_for(STOP_GRACE) => return self.lose(),
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.lose(),
            }
        }
    }

    /// Sends all buffered answers.
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

    /// Whether the buffered answers are so large that they should be sent before more are added.
    pub fn is_full(&mut self) -> bool {
        self.reply().out().len() >= FLUSH_BYTES
    }

    /// Waits until the client has disconnected after the last message, for at most [`LINGER_MAX`], and drops what it still
    /// sends. If the socket were closed with a request unread, the client's system could report a reset connection in
    /// place of the message, and the client would not know whether its request was run.
    pub(crate) async fn linger(&mut self) {
        let drain = async {
            self.stream.end_of_output();
            let socket = self.stream.socket();
            while socket.readable().await.is_ok() {
                self.input.clear();
                self.input.reserve(READ_BYTES);
                match socket.try_read_buf(&mut self.input) {
                    Ok(0) => return,
                    Ok(_) => {}
                    Err(e) if [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&e.kind()) => {}
                    Err(_) => return,
                }
            }
        };
        // A client that keeps the connection reads the message later.
        let _ = tokio::time::timeout(LINGER_MAX, drain).await;
    }

    /// Asks the client for COPY data with this number of columns.
    pub async fn begin_copy_in(&mut self, columns: usize) -> Result<(), Lost> {
        backend::copy_response(self.reply().out(), b'G', columns);
        self.flush().await
    }

    /// Appends the next piece of COPY data to `into`.
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
                            // The message stays in the input: it may begin the client's next request.
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
                    Wake::Terminate => return Ok(CopyChunk::Failed("the session is terminated".into())),
                },
                Err(malformed) => {
                    self.malformed = Some(malformed);
                    return self.lose();
                }
            }
        }
    }
}

/// The time that a stopping server, or a session that was ordered to end, waits for a client that does not read.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// Ends when the server has been stopping for `grace`.
async fn stopped_for(stop: &mut watch::Receiver<bool>, grace: Duration) {
    // An error means that the server no longer exists.
    let _ = stop.wait_for(|stopping| *stopping).await;
    tokio::time::sleep(grace).await;
}

async fn sleep(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}
