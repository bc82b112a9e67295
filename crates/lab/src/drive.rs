//! Drives a configuration in process: one thread a client, requests by schedule, response times by HDR histogram.
//!
//! Failure: the first client's error stops all of them and is returned.

use crate::histogram::{Responses, Summary};
use crate::interrupt;
use crate::schedule::Load;
use crate::workload::{Request, Requests};
use std::num::NonZeroU64;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Something that authorizes requests, from many threads at once.
pub trait Target: Sync {
    /// Runs steps 2, 4 and 5 of the authorization; returns when it may be answered. A request whose turn comes only
    /// after `give_up` is not begun, so that a long queue does not outlast the measurement.
    fn authorize(&self, request: &Request, give_up: Instant) -> anyhow::Result<Outcome>;

    /// Syncs so far, where they can be counted.
    fn syncs(&self) -> Option<u64>;

    /// Puts what is still held back into the database: after it, the log holds every authorization answered.
    fn settle(&self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Rows in the log now.
    fn log_rows(&self) -> anyhow::Result<u64>;
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Answered,
    /// Its turn came too late; nothing was done.
    GivenUp,
}

/// How long a point is driven: warm-up, which is not counted, then the measured time.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub warm_up: Duration,
    pub measured: Duration,
}

impl Span {
    /// Of `seconds` in all one fifth, at most a second, is warm-up.
    pub fn of(seconds: f64) -> Span {
        let warm_up = (seconds / 5.0).min(1.0);
        Span { warm_up: Duration::from_secs_f64(warm_up), measured: Duration::from_secs_f64(seconds - warm_up) }
    }

    /// Counted from the start.
    pub fn end(&self) -> Duration {
        self.warm_up + self.measured
    }
}

/// What was measured at one load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Requests answered within the measured time, a second.
    pub completed_rate: f64,
    pub response: Summary,
    /// Requests that had arrived and still waited for their turn at the end.
    pub waiting: u64,
    /// Requests answered in all, warm-up included.
    pub answered: u64,
    pub syncs_per_request: Option<f64>,
}

/// Offers `load` for `span`. `epoch` makes the requests differ from those of other runs on the same data.
pub fn drive(target: &dyn Target, load: Load, span: Span, epoch: u64) -> anyhow::Result<Measured> {
    let stop = AtomicBool::new(false);
    let ready = Barrier::new(load.clients() + 1);
    let syncs_before = target.syncs();
    let clients: Vec<anyhow::Result<ClientLog>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..load.clients())
            .map(|client| {
                let (stop, ready) = (&stop, &ready);
                scope.spawn(move || {
                    let result = Client { target, load, span, client, stop, ready }.run(epoch);
                    if result.is_err() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    result
                })
            })
            .collect();
        ready.wait();
        handles.into_iter().map(|h| h.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a client panicked")))).collect()
    });
    let syncs = target.syncs().zip(syncs_before).map(|(after, before)| after - before);
    interrupt::check()?;
    let mut all = ClientLog::default();
    for client in clients {
        let client = client?;
        all.responses.merge(&client.responses);
        all.answered += client.answered;
        all.waiting += client.waiting;
    }
    let response = all.responses.summary();
    Ok(Measured {
        completed_rate: response.count as f64 / span.measured.as_secs_f64(),
        response,
        waiting: all.waiting,
        answered: all.answered,
        syncs_per_request: syncs.map(|s| s as f64 / all.answered.max(1) as f64),
    })
}

/// What one client saw.
#[derive(Default)]
struct ClientLog {
    responses: Responses,
    answered: u64,
    waiting: u64,
}

struct Client<'a> {
    target: &'a dyn Target,
    load: Load,
    span: Span,
    client: usize,
    stop: &'a AtomicBool,
    ready: &'a Barrier,
}

impl Client<'_> {
    fn run(&self, epoch: u64) -> anyhow::Result<ClientLog> {
        // Sleeps end when they are due, not up to 50 us later. Without it response times are that much longer;
        // nothing else depends on it.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut requests = Requests::new(self.client, self.load.clients(), epoch);
        let mut log = ClientLog::default();
        self.ready.wait();
        let start = Instant::now();
        let end = self.span.end();
        for k in 0.. {
            let arrival = self.load.arrival(self.client, k).unwrap_or_else(|| start.elapsed());
            if arrival >= end || !self.wait_until(start, arrival) {
                break;
            }
            if start.elapsed() >= end {
                log.waiting = self.waiting_since(k, end);
                break;
            }
            let request = requests.next_request();
            if self.target.authorize(&request, start + end)? == Outcome::GivenUp {
                log.waiting = self.waiting_since(k, end);
                break;
            }
            log.answered += 1;
            let answered = start.elapsed();
            if answered >= self.span.warm_up && answered < end {
                log.responses.record(answered - arrival);
            }
        }
        Ok(log)
    }

    /// Sleeps until `due`, looking up now and then; false when the study is to stop.
    fn wait_until(&self, start: Instant, due: Duration) -> bool {
        const LOOK_UP: Duration = Duration::from_millis(100);
        loop {
            if self.stop.load(Ordering::Relaxed) || interrupt::requested() {
                return false;
            }
            match due.checked_sub(start.elapsed()) {
                Some(left) if !left.is_zero() => std::thread::sleep(left.min(LOOK_UP)),
                _ => return true,
            }
        }
    }

    /// Requests from number `k` on that had arrived before `end`.
    fn waiting_since(&self, k: u64, end: Duration) -> u64 {
        (k..).take_while(|&k| self.load.arrival(self.client, k).is_some_and(|at| at < end)).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    struct Fake {
        calls: AtomicU64,
        takes: Duration,
        fails_at: u64,
    }

    impl Target for Fake {
        fn authorize(&self, _: &Request, _: Instant) -> anyhow::Result<Outcome> {
            std::thread::sleep(self.takes);
            let call = self.calls.fetch_add(1, Ordering::Relaxed);
            anyhow::ensure!(call < self.fails_at, "disk on fire");
            Ok(Outcome::Answered)
        }
        fn syncs(&self) -> Option<u64> {
            Some(self.calls.load(Ordering::Relaxed) * 3)
        }
        fn log_rows(&self) -> anyhow::Result<u64> {
            Ok(self.calls.load(Ordering::Relaxed))
        }
    }

    fn fake(takes_ms: u64) -> Fake {
        Fake { calls: AtomicU64::new(0), takes: Duration::from_millis(takes_ms), fails_at: u64::MAX }
    }

    #[test]
    fn a_slow_target_is_charged_for_the_requests_that_waited() {
        // 100 requests a second of 50 ms each for one client: the k-th of those answered has waited about k * 40 ms.
        let span = Span { warm_up: Duration::ZERO, measured: Duration::from_secs(2) };
        let m = drive(&fake(50), Load::Open { rate: 100.0, clients: 1 }, span, 1).unwrap();
        assert!(m.waiting >= 159, "200 arrived, at most 41 were served: {m:?}");
        assert!(m.response.max_us > 300_000, "{m:?}");
        assert_eq!(m.syncs_per_request, Some(3.0));
    }

    #[test]
    fn an_error_stops_every_client() {
        let target = Fake { fails_at: 5, ..fake(1) };
        let span = Span::of(3600.0);
        let error = drive(&target, Load::Closed { clients: 4 }, span, 1).unwrap_err();
        assert!(error.to_string().contains("disk on fire"));
    }

    #[test]
    fn warm_up_is_a_fifth_and_at_most_a_second() {
        assert_eq!(Span::of(1.0).warm_up, Duration::from_millis(200));
        assert_eq!(Span::of(10.0).warm_up, Duration::from_secs(1));
        assert_eq!(Span::of(10.0).end(), Duration::from_secs(10));
    }
}
