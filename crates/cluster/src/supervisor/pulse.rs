//! The pulse: a thread that sends this node's pulses, answers those of the others, and writes the end of the lease into its page.
//!
//! It has real-time priority, and in its loop it takes no lock, touches no disk and waits for nothing but messages, so that a busy
//! machine delays it least. What changes (a mastership begins, the group has its key) reaches it through a channel, and what it has
//! seen is shown on a board ([`holdfast_control::grant::SeenBoard`]).
//!
//! | the record | the lease |
//! |---|---|
//! | 2 | granted by the answers to pulses ([`Beat`]) |
//! | 1, of a group that an earlier release has founded | renewed in the log, by the control plane's thread; here it is written down |
//!
//! Failure: a pulse that is late makes the lease shorter. Without sockets no supervisor starts.

use crate::datagram::{DATAGRAM_BYTES, Prover};
use crate::moment::Moment;
use crate::page::GrantorPage;
use crate::pulse_sockets::PulseSockets;
use crate::scheduling::{Scheduling, prepare_pulse};
use holdfast_control::grant::{Beat, NODES_MAX, Own, PULSE_EVERY_MS, Page, Pulse as Message, Reading, Seen, To};
use holdfast_control::{Grants, Lease, PulseKey};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const HOUR_NS: u64 = 3_600_000_000_000;
const HOURS: usize = 24;
/// Messages that are read in one turn. Others wait for the next one, as those of a program that floods this one.
const INBOX_MAX: usize = 256;

/// A mastership whose lease is written into a page.
struct Held {
    page: Arc<GrantorPage>,
    /// Under record 1: the lease that the control plane's thread renews.
    renewed: Option<Lease>,
}

impl Held {
    /// Under record 1: writes the end of the lease into the page.
    fn write(&self, now: Moment) {
        let end_ns = self.renewed.as_ref().and_then(Lease::ends_at_ns);
        if let Some(left) = end_ns.and_then(|end| end.checked_sub(now.boot_ns)) {
            self.page.extend(now.boot_ns + left, now.raw_ns + left);
        }
    }
}

/// What changes for the thread.
enum Job {
    Key(PulseKey),
    Hold(Held),
}

struct Shared {
    beat_ns: AtomicU64,
    /// The least lease left before a renewal, in each of the last hours.
    least_ns: [AtomicU64; HOURS],
    server_ready: AtomicBool,
    disk_moves: AtomicBool,
}

pub struct Pulse {
    jobs: Sender<Job>,
    shared: Arc<Shared>,
    scheduling: Scheduling,
}

impl Pulse {
    /// Starts the thread, when the control plane's log was read. `me`: the slot of this node.
    pub fn start(me: usize, grants: Arc<Grants>, sockets: PulseSockets, incarnation: u64) -> io::Result<Pulse> {
        let (jobs, inbox) = channel();
        let now = Moment::now();
        let shared = Arc::new(Shared {
            beat_ns: AtomicU64::new(now.boot_ns),
            least_ns: std::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            server_ready: AtomicBool::new(false),
            disk_moves: AtomicBool::new(true),
        });
        let beat = Beat::new(me, grants.roster, grants.log.clone(), grants.ended.clone(), reading(now), incarnation);
        let mut run = Run {
            me,
            nodes: grants.roster.names().len(),
            shared: shared.clone(),
            grants,
            sockets,
            jobs: inbox,
            beat,
            prover: None,
            held: None,
            seen: Seen::before(),
            inbox: [(0, Message::default()); INBOX_MAX],
            hour: usize::MAX,
        };
        let (prepared, scheduling) = channel();
        let run = move || {
            // The receiver waits.
            let _ = prepared.send(prepare_pulse());
            loop {
                run.turn();
            }
        };
        std::thread::Builder::new().name("pulse".to_owned()).spawn(run)?;
        let scheduling = scheduling.recv().map_err(io::Error::other)?;
        Ok(Pulse { jobs, shared, scheduling })
    }

    pub fn scheduling(&self) -> Scheduling {
        self.scheduling.clone()
    }

    /// The group has this key: from now on pulses are sent and taken.
    pub fn use_key(&self, key: PulseKey) {
        self.send(Job::Key(key));
    }

    /// Shows in this page, in place of another one, how long the lease of its epoch lasts. `renewed`: under record 1.
    pub fn hold(&self, page: Arc<GrantorPage>, renewed: Option<Lease>) {
        let held = Held { page, renewed };
        held.write(Moment::now());
        self.send(Job::Hold(held));
    }

    fn send(&self, job: Job) {
        if self.jobs.send(job).is_err() {
            tracing::error!("the pulse has ended: no lease is renewed");
        }
    }

    /// What the pulses say of this node's server.
    pub fn set_own(&self, own: Own) {
        self.shared.server_ready.store(own.server_ready, Ordering::Relaxed);
        self.shared.disk_moves.store(own.disk_moves, Ordering::Relaxed);
    }

    /// How long ago the last beat was.
    pub fn age(&self) -> Duration {
        let beat_ns = self.shared.beat_ns.load(Ordering::Acquire);
        Duration::from_nanos(Moment::now().boot_ns.saturating_sub(beat_ns))
    }

    /// The least lease left before a renewal in the last 24 hours; `None`: there was none.
    pub fn least_left(&self) -> Option<Duration> {
        let least = self.shared.least_ns.iter().map(|least| least.load(Ordering::Relaxed)).min();
        least.filter(|least| *least != u64::MAX).map(Duration::from_nanos)
    }
}

fn reading(now: Moment) -> Reading {
    Reading { boot_ns: now.boot_ns, raw_ns: now.raw_ns }
}

/// The thread's own.
struct Run {
    me: usize,
    nodes: usize,
    shared: Arc<Shared>,
    grants: Arc<Grants>,
    sockets: PulseSockets,
    jobs: Receiver<Job>,
    beat: Beat,
    prover: Option<Prover>,
    held: Option<Held>,
    seen: Seen,
    inbox: [(usize, Message); INBOX_MAX],
    hour: usize,
}

impl Run {
    fn turn(&mut self) {
        let due = Duration::from_nanos(self.beat.due_ns()).min(Duration::from_millis(PULSE_EVERY_MS));
        self.sockets.wait(due);
        while let Ok(job) = self.jobs.try_recv() {
            self.take(job);
        }
        let messages = self.receive();
        // After all messages were read: a pulse that is in this turn was sent before this moment.
        let now = Moment::now();
        self.note_left(now);
        self.beat.own = Own {
            server_ready: self.shared.server_ready.load(Ordering::Relaxed),
            disk_moves: self.shared.disk_moves.load(Ordering::Relaxed),
        };
        if let (Some(page), Some(held)) = (&mut self.beat.page, &self.held) {
            page.closed |= held.page.is_closed();
        }
        let Run { me, nodes, sockets, prover, beat, inbox, .. } = self;
        beat.turn(reading(now), &inbox[..messages], &mut |to, message| {
            let Some(prover) = prover else { return };
            let bytes = prover.seal(message);
            match to {
                To::Node(slot) => sockets.send(slot, &bytes),
                To::Others => (0..*nodes).filter(|slot| slot != me).for_each(|slot| sockets.send(slot, &bytes)),
            }
        });
        self.show(now);
    }

    fn take(&mut self, job: Job) {
        match job {
            Job::Key(key) => self.prover = Some(Prover::new(&key)),
            Job::Hold(held) => {
                let (boot_ns, raw_ns) = held.page.end();
                let is_granted = held.renewed.is_none();
                let end = Reading { boot_ns, raw_ns };
                let page = Page { epoch: held.page.epoch(), end, closed: held.page.is_closed() };
                self.beat.page = is_granted.then_some(page);
                self.held = Some(held);
            }
        }
    }

    /// Reads what has arrived, from members only; how many messages that are.
    fn receive(&mut self) -> usize {
        let mut bytes = [0; DATAGRAM_BYTES + 1];
        let mut messages = 0;
        for _ in 0..INBOX_MAX {
            let Some(length) = self.sockets.receive(&mut bytes) else { break };
            let message = self.prover.as_ref().and_then(|prover| prover.open(&bytes[..length]));
            let from = message.as_ref().and_then(|message| self.grants.roster.slot(message.node));
            if let (Some(message), Some(from)) = (message, from.filter(|from| *from < NODES_MAX)) {
                self.inbox[messages] = (from, message);
                messages += 1;
            }
        }
        messages
    }

    fn note_left(&mut self, now: Moment) {
        let hour = (now.boot_ns / HOUR_NS) as usize % HOURS;
        if std::mem::replace(&mut self.hour, hour) != hour {
            self.shared.least_ns[hour].store(u64::MAX, Ordering::Relaxed);
        }
        let open = self.held.as_ref().filter(|held| held.page.is_granted() && !held.page.is_closed());
        if let Some(held) = open {
            let left = held.page.remaining().as_nanos() as u64;
            self.shared.least_ns[hour].fetch_min(left, Ordering::Relaxed);
        }
    }

    fn show(&mut self, now: Moment) {
        if let Some(held) = &self.held {
            match &self.beat.page {
                Some(page) if !page.closed => held.page.show(page.end.boot_ns, page.end.raw_ns),
                Some(_) => {}
                None => held.write(now),
            }
        }
        let seen = self.beat.seen();
        self.grants.seen.show(&self.seen, &seen);
        self.seen = seen;
        self.shared.beat_ns.store(now.boot_ns, Ordering::Release);
    }
}
