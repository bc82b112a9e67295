//! The pulse: a thread that writes the end of the lease into its page every 25 ms.
//!
//! It has real-time priority, allocates nothing, takes no lock and touches no disk, so that a busy machine delays it least. What
//! changes (a mastership begins) reaches it through a channel.
//!
//! Failure: a pulse that is late writes a later end later; the lease is not longer for it.

use crate::moment::Moment;
use crate::page::GrantorPage;
use crate::scheduling::{Scheduling, prepare_pulse};
use holdfast_control::Lease;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const EVERY: Duration = Duration::from_millis(25);
const HOUR_NS: u64 = 3_600_000_000_000;
const HOURS: usize = 24;

/// A mastership whose lease is written down.
struct Held {
    lease: Lease,
    page: Arc<GrantorPage>,
}

impl Held {
    /// Writes the end of the lease into the page.
    fn write(&self, now: Moment) {
        if let Some(left) = self.lease.ends_at_ns().and_then(|end| end.checked_sub(now.boot_ns)) {
            self.page.extend(now.boot_ns + left, now.raw_ns + left);
        }
    }
}

struct Shared {
    beat_ns: AtomicU64,
    /// The least lease left before a renewal, in each of the last hours.
    least_ns: [AtomicU64; HOURS],
}

pub struct Pulse {
    masterships: Sender<Held>,
    shared: Arc<Shared>,
    scheduling: Scheduling,
}

impl Pulse {
    pub fn start() -> io::Result<Pulse> {
        let (masterships, inbox) = channel();
        let shared = Arc::new(Shared {
            beat_ns: AtomicU64::new(Moment::now().boot_ns),
            least_ns: std::array::from_fn(|_| AtomicU64::new(u64::MAX)),
        });
        let (prepared, scheduling) = channel();
        let of_thread = shared.clone();
        let run = move || {
            // The receiver waits.
            let _ = prepared.send(prepare_pulse());
            beat(&of_thread, &inbox);
        };
        std::thread::Builder::new().name("pulse".to_owned()).spawn(run)?;
        let scheduling = scheduling.recv().map_err(io::Error::other)?;
        Ok(Pulse { masterships, shared, scheduling })
    }

    pub fn scheduling(&self) -> Scheduling {
        self.scheduling.clone()
    }

    /// Writes this lease down from now on, in place of another one.
    pub fn hold(&self, lease: Lease, page: Arc<GrantorPage>) {
        let held = Held { lease, page };
        held.write(Moment::now());
        if self.masterships.send(held).is_err() {
            tracing::error!("the pulse has ended: no lease is renewed");
        }
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

fn beat(shared: &Shared, inbox: &Receiver<Held>) {
    let mut held: Option<Held> = None;
    let mut hour = usize::MAX;
    loop {
        while let Ok(new) = inbox.try_recv() {
            held = Some(new);
        }
        let now = Moment::now();
        let this_hour = (now.boot_ns / HOUR_NS) as usize % HOURS;
        if std::mem::replace(&mut hour, this_hour) != this_hour {
            shared.least_ns[this_hour].store(u64::MAX, Ordering::Relaxed);
        }
        if let Some(held) = &held {
            if held.page.is_granted() && !held.page.is_closed() {
                let left = held.page.remaining().as_nanos() as u64;
                shared.least_ns[this_hour].fetch_min(left, Ordering::Relaxed);
            }
            held.write(now);
        }
        shared.beat_ns.store(now.boot_ns, Ordering::Release);
        std::thread::sleep(EVERY);
    }
}
