//! A connection of a load generator that drives many from one thread: a nonblocking socket whose statements are
//! prepared.
//!
//! Failure: an ErrorResponse or a closed connection is an error.

use crate::pg_client::{DATABASE, USER};
use crate::pg_message;
use anyhow::Context;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A server that sends nothing for this time, with requests in flight, hangs.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);

pub struct Connection {
    stream: TcpStream,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// ReadyForQuery messages still due.
    due: usize,
    /// Arrival of the request in flight.
    pub busy: Option<Duration>,
    /// Number of the next request by schedule.
    pub next: u64,
}

impl Connection {
    /// Connects with the session's options, prepares the statements, each a name and its text, and stops to block.
    pub fn open(addr: SocketAddr, options: Option<&str>, statements: &[(&str, String)]) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(addr).with_context(|| format!("cannot connect to {addr}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        let mut connection = Connection { stream, inbox: Vec::new(), outbox: Vec::new(), due: 1, busy: None, next: 0 };
        pg_message::startup(&mut connection.outbox, USER, DATABASE, options);
        connection.exchange()?;
        if !statements.is_empty() {
            statements.iter().for_each(|(name, sql)| pg_message::parse(&mut connection.outbox, name, sql));
            pg_message::sync(&mut connection.outbox);
            connection.exchange().context("cannot prepare the statements")?;
        }
        connection.stream.set_nonblocking(true)?;
        Ok(connection)
    }

    /// For epoll.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Empty, for the next request.
    pub fn outbox(&mut self) -> &mut Vec<u8> {
        self.outbox.clear();
        &mut self.outbox
    }

    /// Sends what is in the outbox; this many ReadyForQuery will answer it.
    pub fn send(&mut self, answers: usize) -> anyhow::Result<()> {
        self.due = answers;
        self.flush()
    }

    /// Sends the outbox and waits for ReadyForQuery, on a socket that still blocks.
    fn exchange(&mut self) -> anyhow::Result<()> {
        self.due = 1;
        self.stream.write_all(&self.outbox).context("cannot send to the server")?;
        self.outbox.clear();
        while !self.read_answer()? {}
        Ok(())
    }

    /// Sends the outbox. A request is far smaller than a socket's buffer, which is empty when nothing is in flight;
    /// should it not fit, waits for the server to read.
    fn flush(&mut self) -> anyhow::Result<()> {
        pg_message::send_all(&mut self.stream, &self.outbox).context("cannot send to the server")
    }

    /// Reads what is there; true when an answer is complete.
    pub fn read_answer(&mut self) -> anyhow::Result<bool> {
        let mut buffer = [0; 16_384];
        let n = match self.stream.read(&mut buffer) {
            Ok(0) => anyhow::bail!("the server closed a connection"),
            Ok(n) => n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(false),
            Err(e) => return Err(e).context("cannot receive an answer"),
        };
        self.inbox.extend_from_slice(&buffer[..n]);
        let mut used = 0;
        while let Some((answer, length)) = pg_message::first_answer(&self.inbox[used..])? {
            used += length;
            match answer.kind {
                b'Z' => self.due = self.due.saturating_sub(1),
                b'E' => return Err(pg_message::server_error(answer.body).into()),
                b'R' => anyhow::ensure!(answer.body == [0; 4], "the server asks for a password; the lab supports none"),
                _ => (),
            }
        }
        self.inbox.drain(..used);
        Ok(self.due == 0)
    }
}
