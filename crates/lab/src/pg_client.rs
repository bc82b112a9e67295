//! A plain blocking client for what happens around a measurement: making tables, loading rows, reading counters.
//!
//! Failure: an ErrorResponse, a closed connection, or no answer within [`ANSWER_TIMEOUT`].

use crate::pg_message::{self, Answer};
use anyhow::Context;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Role and database of both servers.
pub const USER: &str = "holdfast";
/// See [`USER`].
pub const DATABASE: &str = "holdfast";
/// Making the indexes of a long log takes a while.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes of COPY data gathered before they are sent.
const COPY_CHUNK_BYTES: usize = 256 << 10;

/// A connection that has been let in.
pub struct Client {
    stream: TcpStream,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
}

impl Client {
    /// Connects and waits until the server is ready for a query.
    pub fn connect(addr: SocketAddr) -> anyhow::Result<Client> {
        let stream = TcpStream::connect(addr).with_context(|| format!("cannot connect to {addr}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let mut client = Client { stream, inbox: Vec::new(), outbox: Vec::new() };
        pg_message::startup(&mut client.outbox, USER, DATABASE, None);
        client.flush()?;
        client.until_ready(|answer| match answer.kind {
            b'R' if answer.body != [0; 4] => anyhow::bail!("{addr} asks for a password; the lab has none"),
            _ => Ok(()),
        })?;
        Ok(client)
    }

    /// Runs one simple-protocol message and drops its rows.
    pub fn run(&mut self, sql: &str) -> anyhow::Result<()> {
        self.rows(sql).map(|_| ())
    }

    /// Runs one simple-protocol message and returns its rows.
    pub fn rows(&mut self, sql: &str) -> anyhow::Result<Vec<Vec<Option<String>>>> {
        pg_message::query(&mut self.outbox, sql);
        self.flush()?;
        let mut rows = Vec::new();
        self.until_ready(|answer| {
            if answer.kind == b'D' {
                rows.push(pg_message::data_row(answer.body)?);
            }
            Ok(())
        })
        .with_context(|| format!("cannot run {sql}"))?;
        Ok(rows)
    }

    /// Prepares a statement.
    pub fn prepare(&mut self, name: &str, sql: &str) -> anyhow::Result<()> {
        pg_message::parse(&mut self.outbox, name, sql);
        pg_message::sync(&mut self.outbox);
        self.flush()?;
        self.until_ready(|_| Ok(())).with_context(|| format!("cannot prepare {sql}"))
    }

    /// Runs a prepared statement and drops its rows.
    pub fn execute(&mut self, name: &str, parameters: &[&str]) -> anyhow::Result<()> {
        pg_message::bind_execute(&mut self.outbox, name, parameters);
        pg_message::sync(&mut self.outbox);
        self.flush()?;
        self.until_ready(|_| Ok(())).with_context(|| format!("cannot run the prepared statement {name}"))
    }

    /// The first column of the first row as a number.
    pub fn number(&mut self, sql: &str) -> anyhow::Result<f64> {
        let rows = self.rows(sql)?;
        let value = rows.first().and_then(|r| r.first()).and_then(Option::as_ref);
        let value = value.with_context(|| format!("{sql} returned nothing"))?;
        value.parse().with_context(|| format!("{sql} returned {value:?}, not a number"))
    }

    /// Sends lines of COPY text format to `table`.
    pub fn copy_in(&mut self, sql: &str, lines: impl Iterator<Item = String>) -> anyhow::Result<()> {
        pg_message::query(&mut self.outbox, sql);
        self.flush()?;
        self.until(b'G', |_| Ok(())).with_context(|| format!("cannot run {sql}"))?;
        let mut chunk = Vec::with_capacity(COPY_CHUNK_BYTES + 8192);
        for line in lines {
            chunk.extend(line.as_bytes());
            chunk.push(b'\n');
            if chunk.len() >= COPY_CHUNK_BYTES {
                pg_message::copy_data(&mut self.outbox, &chunk);
                self.flush()?;
                chunk.clear();
                crate::interrupt::check()?;
            }
        }
        pg_message::copy_data(&mut self.outbox, &chunk);
        pg_message::copy_done(&mut self.outbox);
        self.flush()?;
        self.until_ready(|_| Ok(())).with_context(|| format!("cannot run {sql}"))
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.stream.write_all(&self.outbox).context("cannot send to the server")?;
        self.outbox.clear();
        Ok(())
    }

    fn until_ready(&mut self, see: impl FnMut(Answer<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        self.until(b'Z', see)
    }

    /// Reads answers up to one of `kind`. After an error the rest is read up to ReadyForQuery, so that the
    /// connection can be used again.
    fn until(&mut self, kind: u8, mut see: impl FnMut(Answer<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut failed = None;
        let mut buffer = [0; 65_536];
        loop {
            let mut used = 0;
            while let Some((answer, length)) = pg_message::first_answer(&self.inbox[used..])? {
                used += length;
                match answer.kind {
                    b'E' => failed = Some(pg_message::server_error(answer.body)),
                    k if (failed.is_none() && k == kind) || k == b'Z' => {
                        self.inbox.drain(..used);
                        return failed.map_or(Ok(()), |e| Err(e.into()));
                    }
                    _ => see(answer)?,
                }
            }
            self.inbox.drain(..used);
            let n = self.stream.read(&mut buffer).context("cannot receive the server's answer")?;
            if n == 0 {
                return Err(failed.map_or_else(|| anyhow::anyhow!("the server closed the connection"), Into::into));
            }
            self.inbox.extend(&buffer[..n]);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        pg_message::terminate(&mut self.outbox);
        // The server may be gone already; nothing depends on the farewell.
        let _ = self.stream.write_all(&self.outbox);
    }
}
