//! Histograms of times and sizes that many threads count in and a metrics page reads.
//!
//! Counting is one search in a short table and two relaxed additions, in one of a few copies that are picked by thread: threads
//! that count at the same time rarely share a cache line. Reading adds the copies up. A reader may see an observation in the
//! buckets and not yet in the sum; each is correct at the next reading.
//!
//! Failure: none. A value above the largest bound is counted as "more".

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Upper bounds of times in microseconds: six buckets for each power of ten, 20 us to 10 s.
pub const TIMES_US: &[u64] = &[
    20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1_000, 1_500, 2_000, 3_000, 5_000, 7_000, 10_000, 15_000, 20_000,
    30_000, 50_000, 70_000, 100_000, 150_000, 200_000, 300_000, 500_000, 700_000, 1_000_000, 2_000_000, 5_000_000,
    10_000_000,
];

/// Upper bounds of numbers of things, such as commits in a boxcar.
pub const COUNTS: &[u64] = &[1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 1_000];

/// Buckets of one copy, the one for "more" included.
const BUCKETS_MAX: usize = 33;
const COPIES: usize = 8;

const _: () = assert!(TIMES_US.len() < BUCKETS_MAX && COUNTS.len() < BUCKETS_MAX);

/// Counts values by size.
pub struct Histogram {
    bounds: &'static [u64],
    copies: [Copy; COPIES],
}

#[repr(align(128))]
struct Copy {
    buckets: [AtomicU64; BUCKETS_MAX],
    sum: AtomicU64,
}

/// What a [`Histogram`] has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramFigures {
    /// Upper bounds, each included in its bucket.
    pub bounds: &'static [u64],
    /// One more than bounds: the last is for larger values. Not cumulative.
    pub counts: Vec<u64>,
    pub sum: u64,
}

/// Which copy this thread counts in.
fn copy_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % COPIES;
    }
    MINE.try_with(|mine| *mine).unwrap_or_default()
}

impl Histogram {
    /// Times, observed in microseconds.
    pub fn of_times() -> Histogram {
        Histogram::new(TIMES_US)
    }

    /// Numbers of things.
    pub fn of_counts() -> Histogram {
        Histogram::new(COUNTS)
    }

    fn new(bounds: &'static [u64]) -> Histogram {
        let copy = || Copy { buckets: [const { AtomicU64::new(0) }; BUCKETS_MAX], sum: AtomicU64::new(0) };
        Histogram { bounds, copies: std::array::from_fn(|_| copy()) }
    }

    /// Counts one value.
    pub fn observe(&self, value: u64) {
        let copy = &self.copies[copy_of_thread()];
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        copy.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        copy.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// What was counted since the start.
    pub fn figures(&self) -> HistogramFigures {
        let of = |bucket: usize| self.copies.iter().map(|copy| copy.buckets[bucket].load(Ordering::Relaxed)).sum();
        HistogramFigures {
            bounds: self.bounds,
            counts: (0..=self.bounds.len()).map(of).collect(),
            sum: self.copies.iter().map(|copy| copy.sum.load(Ordering::Relaxed)).sum(),
        }
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.figures().fmt(f)
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::of_times()
    }
}

impl HistogramFigures {
    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// What was counted since `before`, an earlier reading; all of it where the counting has begun again since.
    pub fn since(&self, before: &HistogramFigures) -> HistogramFigures {
        let went_back = self.counts.iter().zip(&before.counts).any(|(now, before)| now < before);
        if went_back || self.bounds != before.bounds {
            return self.clone();
        }
        let counts = self.counts.iter().zip(&before.counts).map(|(now, before)| now - before).collect();
        HistogramFigures { bounds: self.bounds, counts, sum: self.sum.saturating_sub(before.sum) }
    }

    /// Adds another histogram's counts, with the same bounds, to these.
    pub fn add(&mut self, other: &HistogramFigures) {
        if self.counts.is_empty() {
            *self = other.clone();
        } else if self.bounds == other.bounds {
            self.counts.iter_mut().zip(&other.counts).for_each(|(all, one)| *all += one);
            self.sum += other.sum;
        }
    }

    /// The value below which the part `quantile` (0 to 1) of all values is, interpolated within its bucket as Prometheus does;
    /// `None`: nothing was counted.
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        let wanted = self.count() as f64 * quantile;
        if wanted <= 0.0 {
            return None;
        }
        let mut before = 0.0;
        for (bucket, count) in self.counts.iter().enumerate() {
            let count = *count as f64;
            let lower = if bucket == 0 { 0.0 } else { self.bounds[bucket - 1] as f64 };
            let Some(upper) = self.bounds.get(bucket).map(|bound| *bound as f64) else { return Some(lower) };
            if before + count >= wanted {
                return Some(lower + (upper - lower) * (wanted - before) / count);
            }
            before += count;
        }
        None
    }

    /// The mean; `None`: nothing was counted.
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum as f64 / count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_bound_is_in_its_bucket_and_more_is_in_the_last() {
        let histogram = Histogram::of_counts();
        [0, 1, 2, 1_000, 1_001, u64::MAX >> 8].into_iter().for_each(|value| histogram.observe(value));
        let figures = histogram.figures();
        assert_eq!((figures.counts[0], figures.counts[1]), (2, 1));
        assert_eq!((figures.counts[COUNTS.len() - 1], figures.counts[COUNTS.len()]), (1, 2));
        assert_eq!(figures.count(), 6);
    }

    #[test]
    fn all_threads_are_counted() {
        let histogram = Arc::new(Histogram::of_times());
        let threads: Vec<_> = (0..20)
            .map(|_| {
                let histogram = histogram.clone();
                std::thread::spawn(move || (0..1000).for_each(|value| histogram.observe(value)))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let figures = histogram.figures();
        assert_eq!((figures.count(), figures.sum), (20_000, 20 * 999 * 500));
    }

    #[test]
    fn quantiles_are_of_what_was_counted_since() {
        let histogram = Histogram::of_times();
        assert_eq!(histogram.figures().quantile(0.5), None);
        (0..100).for_each(|_| histogram.observe(9_000_000));
        let before = histogram.figures();
        (0..100).for_each(|_| histogram.observe(40));
        let figures = histogram.figures().since(&before);
        assert_eq!((figures.count(), figures.sum), (100, 4000));
        assert_eq!((figures.quantile(0.5), figures.mean()), (Some(40.0), Some(40.0)));
        assert_eq!(histogram.figures().quantile(1.0), Some(10_000_000.0));
        assert_eq!(before.since(&histogram.figures()), before, "it was counted from the start again");
        let mut both = HistogramFigures::default();
        both.add(&figures);
        both.add(&before);
        assert_eq!(both, histogram.figures());
    }
}
