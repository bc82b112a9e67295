//! What happened when: a load, how far master and standby were, what the link carried, looked at several times a second.
//!
//! Failure: a standby that cannot be asked is one that is not there; a master that cannot be asked ends the watching.

use super::pair::{self, Pair};
use crate::drive::{Measured, Span};
use crate::pg_client::Client;
use crate::process_memory;
use crate::schedule::Load;
use crate::wire_drive::{Connections, Watch};
use crate::wire_transaction::Variant;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between looks.
const EVERY: Duration = Duration::from_millis(200);

/// One look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    pub at_s: f64,
    /// Transactions answered so far.
    pub answered: u64,
    /// Everything below is in the master's trail.
    pub master_lsn: u64,
    /// Everything below is durable at the standby; nothing while it is stopped.
    pub received_lsn: Option<u64>,
    /// Everything below is shown to the standby's readers.
    pub applied_lsn: Option<u64>,
    /// Memory of the master, where it was looked at.
    pub master_memory_bytes: Option<u64>,
    pub standby_memory_bytes: Option<u64>,
}

/// Looks in the order of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline(pub Vec<Moment>);

impl Moment {
    /// Bytes that are not shown to the standby's readers yet.
    pub fn lag_bytes(&self) -> Option<u64> {
        Some(self.master_lsn.saturating_sub(self.applied_lsn?))
    }
}

impl Timeline {
    /// Each whole second's end and what `counter` grew by in it. The last look before a second's end stands for it, so
    /// that what is told comes from what was counted and nothing is interpolated but the time.
    pub fn each_second(&self, counter: impl Fn(&Moment) -> Option<u64>) -> Vec<(f64, f64)> {
        let mut seconds = Vec::new();
        let known = || self.0.iter().filter_map(|m| Some((m.at_s, counter(m)?)));
        let Some(mut from) = known().next() else { return seconds };
        for now in known() {
            let time = now.0 - from.0;
            if time >= 1.0 {
                seconds.push((now.0, now.1.saturating_sub(from.1) as f64 / time));
                from = now;
            }
        }
        seconds
    }

    /// The seconds of the transactions' rate at whose end the standby was at least so far behind.
    pub fn seconds_behind(&self, bytes: u64) -> Vec<(f64, f64)> {
        let behind = |at_s: f64| self.0.iter().any(|m| m.at_s == at_s && m.lag_bytes().is_some_and(|lag| lag >= bytes));
        self.each_second(|m| Some(m.answered)).into_iter().filter(|(at_s, _)| behind(*at_s)).collect()
    }

    /// The looks from one time to another.
    pub fn between(&self, from_s: f64, to_s: f64) -> Timeline {
        Timeline(self.0.iter().filter(|m| (from_s..=to_s).contains(&m.at_s)).copied().collect())
    }

    /// Growth of a counter a second, over all of it.
    pub fn rate(&self, counter: impl Fn(&Moment) -> Option<u64>) -> Option<f64> {
        let known = || self.0.iter().filter_map(|m| Some((m.at_s, counter(m)?)));
        let (first, last) = (known().next()?, known().next_back()?);
        (last.0 > first.0).then(|| last.1.saturating_sub(first.1) as f64 / (last.0 - first.0))
    }

    pub fn most_lag_bytes(&self) -> Option<u64> {
        self.0.iter().filter_map(Moment::lag_bytes).max()
    }
}

/// Standard deviation of rates divided by their mean.
pub fn variation(rates: &[(f64, f64)]) -> Option<f64> {
    let mean = mean(rates)?;
    let squares: f64 = rates.iter().map(|(_, rate)| (rate - mean).powi(2)).sum();
    (mean > 0.0).then(|| (squares / rates.len() as f64).sqrt() / mean)
}

/// The lowest of rates as a share of their mean.
pub fn slowest_share(rates: &[(f64, f64)]) -> Option<f64> {
    let lowest = rates.iter().map(|r| r.1).fold(f64::INFINITY, f64::min);
    mean(rates).filter(|mean| *mean > 0.0).map(|mean| lowest / mean)
}

pub fn mean(rates: &[(f64, f64)]) -> Option<f64> {
    (!rates.is_empty()).then(|| rates.iter().map(|r| r.1).sum::<f64>() / rates.len() as f64)
}

/// The clients of a load and whether memory is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    pub load: Load,
    pub seconds: f64,
    pub options: &'static str,
    /// No other run on the same rows has it.
    pub epoch: u64,
    pub memory: bool,
}

/// What a watched load gave.
pub struct Seen<T> {
    pub measured: Measured,
    pub timeline: Timeline,
    /// Of what was done meanwhile.
    pub done: T,
}

/// The clock of a load, for what is done meanwhile.
#[derive(Clone)]
pub struct Clock {
    start: Instant,
    watch: Arc<Watch>,
}

impl Clock {
    /// Seconds since the load began.
    pub fn now_s(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Waits for a time of the load.
    pub fn wait_until(&self, at_s: f64) -> anyhow::Result<()> {
        while self.now_s() < at_s {
            crate::interrupt::check()?;
            std::thread::sleep(Duration::from_secs_f64((at_s - self.now_s()).clamp(0.0, 0.05)));
        }
        Ok(())
    }

    /// Ends the load before its time.
    pub fn end_load(&self) {
        self.watch.stop.store(true, Ordering::Relaxed);
    }

    /// Transactions answered so far.
    pub fn answered(&self) -> u64 {
        self.watch.answered.load(Ordering::Relaxed)
    }
}

/// Runs a load on the pair's master, watches it, and runs `meanwhile` alongside.
pub fn watch<T>(
    pair: &mut Pair,
    watched: Watched,
    meanwhile: impl FnOnce(&mut Pair, &Clock) -> anyhow::Result<T>,
) -> anyhow::Result<Seen<T>> {
    let addr = pair.master()?.addr;
    let mut connections =
        Connections::open_as(addr, Variant::OneMessage, Some(watched.options), watched.load.clients())?;
    let clock = Clock { start: Instant::now(), watch: Arc::default() };
    let over = AtomicBool::new(false);
    let pids = match watched.memory {
        true => Some((pair.master()?.process.pid(), pair.standby()?.process.pid())),
        false => None,
    };
    let eyes = Eyes { master: addr, standby: pair.standby_addr.clone(), pids, clock: clock.clone() };
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| eyes.look(&over));
        let span = Span { warm_up: Duration::ZERO, measured: Duration::from_secs_f64(watched.seconds) };
        let (load, of_load) = (watched.load, clock.watch.clone());
        let driving = scope.spawn(move || connections.drive_watched(load, span, watched.epoch, &of_load));
        let done = meanwhile(pair, &clock);
        if done.is_err() {
            clock.end_load();
        }
        let measured = driving.join().map_err(|_| anyhow::anyhow!("the load panicked"))?;
        over.store(true, Ordering::Relaxed);
        let timeline = looking.join().map_err(|_| anyhow::anyhow!("the watching panicked"))?;
        let measured = measured.with_context(|| pair.master().map_or(String::new(), |m| m.process.log_end()))?;
        pair.answered += measured.answered;
        Ok(Seen { measured, timeline: timeline?, done: done? })
    })
}

/// Who looks.
struct Eyes {
    master: SocketAddr,
    standby: Arc<Mutex<Option<SocketAddr>>>,
    /// Of master and standby, where memory is looked at.
    pids: Option<(u32, u32)>,
    clock: Clock,
}

impl Eyes {
    fn look(&self, over: &AtomicBool) -> anyhow::Result<Timeline> {
        let mut master = Client::connect(self.master)?;
        let mut standby: Option<(SocketAddr, Client)> = None;
        let mut timeline = Timeline::default();
        let mut next = Instant::now();
        while !over.load(Ordering::Relaxed) {
            let at = *self.standby.lock().unwrap_or_else(PoisonError::into_inner);
            standby = match (at, standby) {
                (None, _) => None,
                (Some(at), Some(open)) if open.0 == at => Some(open),
                (Some(at), _) => Client::connect(at).ok().map(|client| (at, client)),
            };
            // Counted together as nearly as can be: first the standby, so that it is never ahead.
            let found = standby.as_mut().and_then(|(_, client)| pair::standby_position(client).ok());
            if found.is_none() {
                standby = None;
            }
            let memory = |pid: u32| process_memory::tree(pid).ok().map(|memory| memory.proportional_bytes);
            timeline.0.push(Moment {
                master_lsn: pair::master_position(&mut master)?,
                at_s: self.clock.now_s(),
                answered: self.clock.answered(),
                received_lsn: found.map(|f| f.0),
                applied_lsn: found.map(|f| f.1),
                master_memory_bytes: self.pids.and_then(|pids| memory(pids.0)),
                standby_memory_bytes: self.pids.and_then(|pids| memory(pids.1)),
            });
            next = (next + EVERY).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(timeline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(at_s: f64, answered: u64) -> Moment {
        Moment { at_s, answered, master_lsn: answered * 10, applied_lsn: Some(answered * 9), ..Moment::default() }
    }

    #[test]
    fn rates_are_of_whole_seconds_and_of_what_was_counted() {
        let timeline = Timeline((0..=30).map(|i| moment(f64::from(i) * 0.2, u64::from(i as u32) * 20)).collect());
        let seconds = timeline.each_second(|m| Some(m.answered));
        assert_eq!(seconds.len(), 6);
        assert!(seconds.iter().all(|(_, rate)| (rate - 100.0).abs() < 1e-6), "{seconds:?}");
        assert_eq!(timeline.most_lag_bytes(), Some(600));
        let rate = timeline.between(1.0, 3.0).rate(|m| m.applied_lsn).unwrap();
        assert!((rate - 900.0).abs() < 1e-6, "{rate}");
        assert!(timeline.each_second(|m| m.received_lsn).is_empty());
        // It is behind by as much as was answered.
        assert_eq!(timeline.seconds_behind(100), seconds);
        assert_eq!(timeline.seconds_behind(300).len(), 4);
        assert!(timeline.seconds_behind(601).is_empty());
    }

    #[test]
    fn variation_of_what_stands_still_and_of_what_swings() {
        let rates = |list: &[f64]| list.iter().map(|r| (0.0, *r)).collect::<Vec<_>>();
        assert_eq!(variation(&rates(&[5.0, 5.0])), Some(0.0));
        assert_eq!(variation(&rates(&[0.0, 10.0])), Some(1.0));
        assert_eq!(slowest_share(&rates(&[5.0, 15.0])), Some(0.5));
        assert_eq!((variation(&[]), variation(&rates(&[0.0]))), (None, None));
    }
}
