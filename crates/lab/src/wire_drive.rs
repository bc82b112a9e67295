//! Drives a server over TCP with many connections from one thread: nonblocking sockets, one epoll. A thread a
//! connection would take the processor time the server needs.
//!
//! Requests arrive by the same schedule as in process and are measured the same way. Failure: an ErrorResponse, a
//! closed connection or a server silent for [`SILENCE_MAX`] ends the run with an error.

use crate::drive::{Measured, Span};
use crate::histogram::Responses;
use crate::interrupt;
use crate::schedule::Load;
use crate::wire_connection::{Connection, SILENCE_MAX};
use crate::wire_transaction::Variant;
use crate::workload::Requests;
use anyhow::Context;
use rustix::event::epoll;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest wait before looking whether to stop.
const LOOK_UP: Duration = Duration::from_millis(100);

/// What other threads see of a run under way, and how they end it early.
#[derive(Default)]
pub struct Watch {
    /// Requests answered so far.
    pub answered: AtomicU64,
    /// Nothing more is to be sent.
    pub stop: AtomicBool,
}

/// Open connections to one server, prepared for one way of sending the authorization.
pub struct Connections {
    variant: Variant,
    list: Vec<Connection>,
    poll: OwnedFd,
}

impl Connections {
    /// Opens `count` connections.
    pub fn open(addr: SocketAddr, variant: Variant, count: usize) -> anyhow::Result<Connections> {
        Connections::open_as(addr, variant, variant.options(), count)
    }

    /// Connects with session options in place of the variant's.
    pub fn open_as(
        addr: SocketAddr,
        variant: Variant,
        options: Option<&str>,
        count: usize,
    ) -> anyhow::Result<Connections> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot create an epoll")?;
        let mut list = Vec::with_capacity(count);
        for i in 0..count {
            let connection = Connection::open(addr, options, &variant.statements())
                .with_context(|| format!("cannot open connection {i}"))?;
            epoll::add(&poll, connection.stream(), epoll::EventData::new_u64(i as u64), epoll::EventFlags::IN)?;
            list.push(connection);
        }
        Ok(Connections { variant, list, poll })
    }

    /// Offers `load`, whose clients are the connections, for `span`; then waits for the answers still due.
    pub fn drive(&mut self, load: Load, span: Span, epoch: u64) -> anyhow::Result<Measured> {
        self.drive_watched(load, span, epoch, &Watch::default())
    }

    /// Offers the load and reports its progress. A run that is ended early has no rate: what was answered is known.
    pub fn drive_watched(&mut self, load: Load, span: Span, epoch: u64, watch: &Watch) -> anyhow::Result<Measured> {
        anyhow::ensure!(load.clients() <= self.list.len(), "more clients than connections");
        // As in process: sleeps end when they are due.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut run = Run::new(load, span, epoch, watch);
        self.list.iter_mut().for_each(|c| c.next = 0);
        let mut events = Vec::with_capacity(self.list.len());
        let mut silent_since = Instant::now();
        loop {
            interrupt::check()?;
            let now = run.start.elapsed();
            if run.goes_on(now) {
                self.send_due(&mut run, now)?;
            } else if run.in_flight == 0 {
                break;
            }
            events.clear();
            let wait = run.wait(now);
            let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as i64 };
            match epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => (),
                Err(e) => return Err(e).context("cannot receive answers"),
            }
            for event in &events {
                self.receive(event.data.u64() as usize, &mut run)?;
            }
            if !events.is_empty() || run.in_flight == 0 {
                silent_since = Instant::now();
            }
            anyhow::ensure!(
                silent_since.elapsed() < SILENCE_MAX,
                "the server has not answered any of {} requests for {} s",
                run.in_flight,
                SILENCE_MAX.as_secs()
            );
        }
        Ok(run.measured(&self.list))
    }

    /// Sends every request that has arrived and whose connection is free.
    fn send_due(&mut self, run: &mut Run, now: Duration) -> anyhow::Result<()> {
        match run.load {
            Load::Closed { clients } => {
                for client in 0..clients {
                    if self.list[client].busy.is_none() {
                        self.send(client, now, run)?;
                    }
                }
            }
            // Requests arrive at the clients in turn, so one counter finds those that are due.
            Load::Open { clients, .. } => {
                while run.arrival(run.arrived).is_some_and(|at| at <= now) {
                    let client = (run.arrived % clients as u64) as usize;
                    run.arrived += 1;
                    self.send_next(client, now, run)?;
                }
            }
        }
        Ok(())
    }

    /// Sends the client's next request if it has arrived and the connection is free.
    fn send_next(&mut self, client: usize, now: Duration, run: &mut Run<'_>) -> anyhow::Result<()> {
        let connection = &self.list[client];
        match run.load.arrival(client, connection.next) {
            Some(arrival) if connection.busy.is_none() && arrival <= now => self.send(client, arrival, run),
            _ => Ok(()),
        }
    }

    fn send(&mut self, client: usize, arrival: Duration, run: &mut Run<'_>) -> anyhow::Result<()> {
        let connection = &mut self.list[client];
        self.variant.write(&run.requests[client].next_request(), connection.outbox());
        connection.busy = Some(arrival);
        connection.next += 1;
        run.in_flight += 1;
        connection.send(self.variant.answers())
    }

    fn receive(&mut self, client: usize, run: &mut Run<'_>) -> anyhow::Result<()> {
        if !self.list[client].read_answer()? {
            return Ok(());
        }
        let now = run.start.elapsed();
        let arrival = self.list[client].busy.take().context("the server sent an answer without a request")?;
        run.answered(arrival, now);
        if !run.goes_on(now) {
            return Ok(());
        }
        match run.load {
            Load::Closed { .. } => self.send(client, now, run),
            Load::Open { .. } => self.send_next(client, now, run),
        }
    }
}

/// The state of one run.
struct Run<'a> {
    watch: &'a Watch,
    load: Load,
    span: Span,
    start: Instant,
    requests: Vec<Requests>,
    responses: Responses,
    answered: u64,
    in_flight: usize,
    /// Requests of the open load that have arrived, over all clients.
    arrived: u64,
}

impl<'a> Run<'a> {
    fn new(load: Load, span: Span, epoch: u64, watch: &'a Watch) -> Run<'a> {
        let clients = load.clients();
        Run {
            watch,
            load,
            span,
            requests: (0..clients).map(|c| Requests::new(c, clients, epoch)).collect(),
            responses: Responses::default(),
            answered: 0,
            in_flight: 0,
            arrived: 0,
            start: Instant::now(),
        }
    }

    /// Requests are still sent.
    fn goes_on(&self, now: Duration) -> bool {
        now < self.span.end() && !self.watch.stop.load(Ordering::Relaxed)
    }

    /// Arrival of request number `k` over all clients, if before the end.
    fn arrival(&self, k: u64) -> Option<Duration> {
        let clients = self.load.clients() as u64;
        self.load.arrival((k % clients) as usize, k / clients).filter(|at| *at < self.span.end())
    }

    /// How long to wait for answers: until the next arrival, or for a look around.
    fn wait(&self, now: Duration) -> Duration {
        let due = self.arrival(self.arrived).filter(|_| now < self.span.end());
        due.map_or(LOOK_UP, |at| at.saturating_sub(self.start.elapsed())).min(LOOK_UP)
    }

    fn answered(&mut self, arrival: Duration, now: Duration) {
        self.in_flight -= 1;
        self.answered += 1;
        self.watch.answered.fetch_add(1, Ordering::Relaxed);
        if now >= self.span.warm_up && now < self.span.end() {
            self.responses.record(now - arrival);
        }
    }

    fn measured(&self, connections: &[Connection]) -> Measured {
        let response = self.responses.summary();
        let sent: u64 = connections.iter().map(|c| c.next).sum();
        Measured {
            completed_rate: response.count as f64 / self.span.measured.as_secs_f64(),
            response,
            waiting: self.arrived.saturating_sub(sent),
            answered: self.answered,
            syncs_per_request: None,
        }
    }
}
