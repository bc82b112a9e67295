//! The clients: each updates its own row, one prepared statement a transaction, and sends the next when it has the
//! answer. One thread and one epoll drive all of them: a thread each would take the processor from the server.
//!
//! Failure: an ErrorResponse, a closed connection or a server silent for [`SILENCE_MAX`] ends the run.

use crate::drive::{Measured, Span};
use crate::histogram::Responses;
use crate::wire_connection::{Connection, SILENCE_MAX};
use crate::{interrupt, pg_message};
use anyhow::Context;
use rustix::event::epoll;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const NAME: &str = "commit";
const SQL: &str = "update account set n = n + 1 where id = $1";
/// Longest wait before looking whether to stop.
const LOOK_UP: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Open connections, prepared.
pub struct Clients {
    list: Vec<Connection>,
    poll: OwnedFd,
}

impl Clients {
    pub fn open(addr: SocketAddr, count: usize) -> anyhow::Result<Clients> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot create an epoll")?;
        let mut list = Vec::with_capacity(count);
        for i in 0..count {
            let connection = Connection::open(addr, None, &[(NAME, SQL.to_string())])
                .with_context(|| format!("cannot open connection {i}"))?;
            epoll::add(&poll, connection.stream(), epoll::EventData::new_u64(i as u64), epoll::EventFlags::IN)?;
            list.push(connection);
        }
        Ok(Clients { list, poll })
    }

    /// The first `count` of them work for `span`; then the answers still due are waited for.
    pub fn drive(&mut self, count: usize, span: Span) -> anyhow::Result<Measured> {
        anyhow::ensure!(count <= self.list.len(), "more clients than connections");
        let start = Instant::now();
        let (mut responses, mut answered, mut in_flight) = (Responses::default(), 0, 0);
        for client in 0..count {
            self.send(client, start.elapsed())?;
            in_flight += 1;
        }
        let mut events = Vec::with_capacity(count);
        let mut heard = Instant::now();
        while in_flight > 0 {
            interrupt::check()?;
            events.clear();
            match epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), Some(&LOOK_UP)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => (),
                Err(e) => return Err(e).context("cannot receive answers"),
            }
            for event in &events {
                let client = event.data.u64() as usize;
                if !self.list[client].read_answer()? {
                    continue;
                }
                let now = start.elapsed();
                let sent = self.list[client].busy.take().context("the server sent an answer without a request")?;
                (answered, in_flight, heard) = (answered + 1, in_flight - 1, Instant::now());
                if now < span.end() {
                    if now >= span.warm_up {
                        responses.record(now - sent);
                    }
                    self.send(client, now)?;
                    in_flight += 1;
                }
            }
            anyhow::ensure!(heard.elapsed() < SILENCE_MAX, "no answer to {in_flight} commits for {SILENCE_MAX:?}");
        }
        let response = responses.summary();
        let completed_rate = response.count as f64 / span.measured.as_secs_f64();
        Ok(Measured { completed_rate, response, answered, ..Measured::default() })
    }

    fn send(&mut self, client: usize, now: Duration) -> anyhow::Result<()> {
        let connection = &mut self.list[client];
        let outbox = connection.outbox();
        pg_message::bind_execute(outbox, NAME, &[&client.to_string()]);
        pg_message::sync(outbox);
        connection.busy = Some(now);
        connection.send(1)
    }
}
