//! How much of the trail recovery would have to repeat for one volume after a crash right now.
//!
//! Every durable batch adds its execution time in the writer and its bytes; a checkpoint subtracts what the file then
//! has. The sum decides when to checkpoint and when to slow writers down (RULE 9: time, not only bytes).

use holdfast_types::Lsn;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Sums over all volumes, read at every batch.
#[derive(Default)]
pub struct Totals {
    pub time_us: AtomicU64,
    /// The part of it that belongs to transactions which were written in fragments.
    pub large_time_us: AtomicU64,
    pub bytes: AtomicU64,
    counted_to: AtomicU64,
}

impl Totals {
    /// The trail reported that the batch at `start` was appended; it reports in order.
    pub fn appended(&self, start: Lsn) {
        self.counted_to.fetch_max(start.0, Ordering::AcqRel);
    }

    /// Everything durable below this position has been counted as debt. Read it before the debt itself: the trail's own
    /// durable position advances before a batch is counted, and redo that started there would miss that batch.
    pub fn counted_to(&self) -> Lsn {
        Lsn(self.counted_to.load(Ordering::Acquire))
    }
}

pub struct RedoDebt {
    debt: Mutex<Debt>,
    totals: Arc<Totals>,
}

#[derive(Default)]
struct Debt {
    batches: VecDeque<Batch>,
    time_us: u64,
    bytes: u64,
    last: Option<Instant>,
    /// First fragments of transactions that have not ended, oldest first.
    fragments: Vec<(u64, Lsn)>,
}

struct Batch {
    number: u64,
    start: Lsn,
    time_us: u64,
    /// The part of it for a transaction that was written in fragments.
    large_time_us: u64,
    bytes: u64,
}

impl Debt {
    /// Ends a transaction's fragments; returns where they begin.
    fn take_fragments(&mut self, txn: u64) -> Option<Lsn> {
        let at = self.fragments.iter().position(|(t, _)| *t == txn)?;
        Some(self.fragments.remove(at).1)
    }
}

impl RedoDebt {
    pub fn new(totals: Arc<Totals>) -> RedoDebt {
        RedoDebt { debt: Mutex::default(), totals }
    }

    /// Counts batch `number`, which went to disk at `start`.
    pub fn add(&self, number: u64, start: Lsn, time_us: u64, bytes: u64) {
        self.add_after_fragments(number, None, start, time_us, bytes);
    }

    /// Counts batch `number`, which ends transaction `fragments_of`, from the first fragment of that transaction. One
    /// step: a checkpoint must see the fragments or the batch.
    pub fn add_after_fragments(&self, number: u64, fragments_of: Option<u64>, start: Lsn, time_us: u64, bytes: u64) {
        let large_time_us = if fragments_of.is_some() { time_us } else { 0 };
        let mut d = self.debt.lock();
        let start = fragments_of.and_then(|txn| d.take_fragments(txn)).unwrap_or(start);
        d.last = Some(Instant::now());
        d.time_us += time_us;
        d.bytes += bytes;
        self.totals.time_us.fetch_add(time_us, Ordering::Relaxed);
        self.totals.large_time_us.fetch_add(large_time_us, Ordering::Relaxed);
        self.totals.bytes.fetch_add(bytes, Ordering::Relaxed);
        d.batches.push_back(Batch { number, start, time_us, large_time_us, bytes });
    }

    /// The file holds everything up to batch `number`.
    pub fn settled(&self, number: u64) {
        let mut d = self.debt.lock();
        while d.batches.front().is_some_and(|b| b.number <= number) {
            if let Some(b) = d.batches.pop_front() {
                d.time_us -= b.time_us;
                d.bytes -= b.bytes;
                self.totals.time_us.fetch_sub(b.time_us, Ordering::Relaxed);
                self.totals.large_time_us.fetch_sub(b.large_time_us, Ordering::Relaxed);
                self.totals.bytes.fetch_sub(b.bytes, Ordering::Relaxed);
            }
        }
    }

    /// Records that a transaction wrote its first fragment at `start`.
    pub fn fragment(&self, txn: u64, start: Lsn) {
        let mut d = self.debt.lock();
        if !d.fragments.iter().any(|(t, _)| *t == txn) {
            d.fragments.push((txn, start));
        }
    }

    /// Records that its fragments were dropped.
    pub fn fragments_dropped(&self, txn: u64) {
        self.debt.lock().take_fragments(txn);
    }

    /// These transactions will never end: the master that sent their fragments is gone.
    pub fn fragments_dead(&self, is_dead: impl Fn(u64) -> bool) {
        self.debt.lock().fragments.retain(|(txn, _)| !is_dead(*txn));
    }

    /// Where redo would have to start; `None` if the file has everything.
    pub fn start(&self) -> Option<Lsn> {
        self.start_after(0)
    }

    /// Where redo would have to start if the file held everything up to batch `number`.
    pub fn start_after(&self, number: u64) -> Option<Lsn> {
        let d = self.debt.lock();
        // Not simply the first: a large transaction counts from its first fragment, which other batches may have
        // overtaken.
        let batches = d.batches.iter().filter(|b| b.number > number).map(|b| b.start).min();
        let fragments = d.fragments.iter().map(|(_, l)| *l).min();
        [batches, fragments].into_iter().flatten().min()
    }

    pub fn time_us(&self) -> u64 {
        self.debt.lock().time_us
    }

    /// Since the last batch.
    pub fn idle_for(&self) -> Duration {
        self.debt.lock().last.map_or(Duration::MAX, |at| at.elapsed())
    }

    pub fn is_empty(&self) -> bool {
        self.debt.lock().batches.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_pin_the_start() {
        let d = RedoDebt::new(Arc::default());
        assert_eq!(d.start(), None);
        d.fragment(7, Lsn(100));
        d.fragment(7, Lsn(200));
        d.add(1, Lsn(300), 10, 1000);
        assert_eq!(d.start(), Some(Lsn(100)));
        d.settled(1);
        assert_eq!((d.start(), d.time_us()), (Some(Lsn(100)), 0));
        d.add_after_fragments(2, Some(7), Lsn(400), 5, 10);
        assert_eq!(d.start(), Some(Lsn(100)));
        d.settled(2);
        assert_eq!(d.start(), None);
        d.fragment(8, Lsn(500));
        d.fragments_dropped(8);
        assert_eq!(d.start(), None);
    }

    #[test]
    fn what_came_in_fragments_is_counted_apart_too() {
        let totals = Arc::new(Totals::default());
        let d = RedoDebt::new(totals.clone());
        let now = || [&totals.time_us, &totals.large_time_us].map(|of| of.load(Ordering::Relaxed));
        d.fragment(7, Lsn(100));
        d.add(1, Lsn(200), 10, 1000);
        d.add_after_fragments(2, Some(7), Lsn(300), 500, 10);
        assert_eq!(now(), [510, 500]);
        d.settled(1);
        assert_eq!(now(), [500, 500]);
        d.settled(2);
        assert_eq!(now(), [0, 0]);
    }
}
