//! What each statement has cost: the counters behind `pg_stat_statements`.
//!
//! A statement is known by role, database and the number of its text without constants ([`holdfast_sql::Entry::query_id`]).
//! Counting takes one lock that only threads with the same place in a short table share, and so is rarely waited for; the
//! tables are added up when the view is read. Figures: see docs/observing.md.
//!
//! At most `pg_stat_statements.max` statements are kept. When there are more, the 5 % with the least use are forgotten; use
//! counts calls, and older ones less. A text is kept up to [`TEXT_BYTES_MAX`]. Nothing survives a restart.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// The longest text that is kept, in bytes.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// Tables that threads share by turns: more than there are workers on most machines.
pub(super) const SHARDS: usize = 32;

/// Use is multiplied by this each time statements are forgotten, as in PostgreSQL.
const USE_KEPT: f64 = 0.99;

/// Forgotten at a time: one of so many, and at least so many.
const FORGOTTEN_ONE_OF: usize = 20;
const FORGOTTEN_MIN: usize = 10;

/// A statement of a role in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub role: u32,
    pub database: u32,
    pub query: i64,
}

/// The key's number is a good hash already.
#[derive(Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_i64(&mut self, value: i64) {
        self.write_u64(value as u64);
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

type Table<T> = HashMap<Key, T, BuildHasherDefault<KeyHasher>>;

/// What one call has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    pub rows: u64,
    /// Row images in the trail, and their bytes.
    pub wal_records: u64,
    pub wal_bytes: u64,
}

/// Calls and times, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    pub calls: u64,
    pub rows: u64,
    pub total_ms: f64,
    pub min_ms: f64,
    pub max_ms: f64,
    pub mean_ms: f64,
    pub wal_bytes: u64,
    pub wal_records: u64,
    /// Sum of squared differences from the mean (Welford).
    squares: f64,
}

impl Counts {
    fn add(&mut self, ms: f64, cost: &Cost) {
        self.calls += 1;
        self.rows += cost.rows;
        self.wal_bytes += cost.wal_bytes;
        self.wal_records += cost.wal_records;
        self.total_ms += ms;
        self.min_ms = if self.calls == 1 { ms } else { self.min_ms.min(ms) };
        self.max_ms = self.max_ms.max(ms);
        let before = ms - self.mean_ms;
        self.mean_ms += before / self.calls as f64;
        self.squares += before * (ms - self.mean_ms);
    }

    /// Adds what another table has counted.
    fn merge(&mut self, other: &Counts) {
        if self.calls == 0 || other.calls == 0 {
            *self = if self.calls == 0 { *other } else { *self };
            return;
        }
        let (n, m) = (self.calls as f64, other.calls as f64);
        let apart = other.mean_ms - self.mean_ms;
        self.squares += other.squares + apart * apart * n * m / (n + m);
        self.mean_ms += apart * m / (n + m);
        self.calls += other.calls;
        self.rows += other.rows;
        self.wal_bytes += other.wal_bytes;
        self.wal_records += other.wal_records;
        self.total_ms += other.total_ms;
        self.min_ms = self.min_ms.min(other.min_ms);
        self.max_ms = self.max_ms.max(other.max_ms);
    }

    /// The standard deviation of all calls.
    pub fn stddev_ms(&self) -> f64 {
        if self.calls > 1 { (self.squares / self.calls as f64).sqrt() } else { 0.0 }
    }
}

/// A statement that is kept.
#[derive(Debug)]
struct Known {
    text: Arc<str>,
    used: f64,
    /// Calls that `used` contains.
    calls: u64,
}

/// The statements of all sessions.
#[derive(Debug)]
pub struct Statements {
    max: AtomicUsize,
    shards: Vec<Mutex<Table<Counts>>>,
    known: Mutex<Table<Known>>,
    /// How often statements were forgotten.
    forgotten: AtomicU64,
    reset_us: AtomicI64,
}

impl Default for Statements {
    fn default() -> Statements {
        Statements {
            max: AtomicUsize::new(5000),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            known: Mutex::default(),
            forgotten: AtomicU64::new(0),
            reset_us: AtomicI64::new(crate::clock::now_us()),
        }
    }
}

/// This thread's table.
pub(super) fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    MINE.with(|mine| *mine)
}

impl Statements {
    /// Keeps at most so many statements; 0 counts none.
    pub fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    pub fn is_on(&self) -> bool {
        self.max.load(Ordering::Relaxed) > 0
    }

    /// Counts a call. `text` is asked for when the statement is new.
    pub fn count(&self, key: Key, time: Duration, cost: &Cost, text: impl FnOnce() -> String) {
        let (ms, shard) = (time.as_secs_f64() * 1e3, &self.shards[shard()]);
        if let Some(counts) = shard.lock().get_mut(&key) {
            return counts.add(ms, cost);
        }
        {
            let mut known = self.known.lock();
            if !known.contains_key(&key) {
                self.make_room(&mut known);
                let text = text();
                let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
                known.insert(key, Known { text: text.into(), used: 1.0, calls: 0 });
            }
        }
        shard.lock().entry(key).or_default().add(ms, cost);
    }

    /// Forgets the statements with the least use when there are too many.
    fn make_room(&self, known: &mut Table<Known>) {
        let max = self.max.load(Ordering::Relaxed);
        if known.len() < max {
            return;
        }
        let counts = self.counts();
        for (key, one) in known.iter_mut() {
            let calls = counts.get(key).map_or(0, |c| c.calls);
            one.used = one.used * USE_KEPT + calls.saturating_sub(one.calls) as f64;
            one.calls = calls;
        }
        let mut by_use: Vec<(f64, Key)> = known.iter().map(|(key, one)| (one.used, *key)).collect();
        by_use.sort_by(|a, b| a.0.total_cmp(&b.0));
        let least = (max / FORGOTTEN_ONE_OF).max(FORGOTTEN_MIN).max(known.len() + 1 - max.max(1));
        for (_, key) in by_use.into_iter().take(least) {
            known.remove(&key);
            self.shards.iter().for_each(|shard| _ = shard.lock().remove(&key));
        }
        self.forgotten.fetch_add(1, Ordering::Relaxed);
    }

    fn counts(&self) -> Table<Counts> {
        let mut all: Table<Counts> = Table::default();
        for shard in &self.shards {
            for (key, counts) in shard.lock().iter() {
                all.entry(*key).or_default().merge(counts);
            }
        }
        all
    }

    /// Every statement with its text.
    pub fn list(&self) -> Vec<(Key, Arc<str>, Counts)> {
        let counts = self.counts();
        let known = self.known.lock();
        let mut all: Vec<_> =
            counts.into_iter().filter_map(|(key, c)| known.get(&key).map(|one| (key, one.text.clone(), c))).collect();
        all.sort_by_key(|(key, ..)| *key);
        all
    }

    /// How often statements were forgotten, and the time of the last reset of all.
    pub fn info(&self) -> (u64, i64) {
        (self.forgotten.load(Ordering::Relaxed), self.reset_us.load(Ordering::Relaxed))
    }

    /// Forgets statements; 0 stands for every role, database or number.
    pub fn reset(&self, role: u32, database: u32, query: i64) {
        let is_meant = |key: &Key| {
            (role == 0 || key.role == role)
                && (database == 0 || key.database == database)
                && (query == 0 || key.query == query)
        };
        let mut known = self.known.lock();
        known.retain(|key, _| !is_meant(key));
        self.shards.iter().for_each(|shard| shard.lock().retain(|key, _| !is_meant(key)));
        if (role, database, query) == (0, 0, 0) {
            self.forgotten.store(0, Ordering::Relaxed);
            self.reset_us.store(crate::clock::now_us(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS_2: Cost = Cost { rows: 2, wal_records: 1, wal_bytes: 100 };

    fn key(query: i64) -> Key {
        Key { role: 10, database: 5, query }
    }

    #[test]
    fn tables_add_up_to_what_one_would_have_counted() {
        let times = [1.0, 5.0, 2.5, 9.0, 0.5, 7.25];
        let mut one = Counts::default();
        let mut parts = [Counts::default(), Counts::default(), Counts::default()];
        for (i, ms) in times.iter().enumerate() {
            one.add(*ms, &ROWS_2);
            parts[i % 2].add(*ms, &ROWS_2);
        }
        let mut sum = Counts::default();
        parts.iter().for_each(|part| sum.merge(part));
        assert_eq!((sum.calls, sum.rows, sum.min_ms, sum.max_ms), (6, 12, 0.5, 9.0));
        assert_eq!((sum.wal_bytes, sum.wal_records), (600, 6));
        assert!((sum.stddev_ms() - one.stddev_ms()).abs() < 1e-9 && (sum.mean_ms - one.mean_ms).abs() < 1e-9);
    }

    #[test]
    fn the_least_used_are_forgotten() {
        let statements = Statements::default();
        statements.set_max(100);
        let call =
            |query: i64| statements.count(key(query), Duration::from_millis(1), &ROWS_2, || format!("select {query}"));
        (0..10).for_each(|_| (1..=50).for_each(call));
        (51..=1000).for_each(call);
        let list = statements.list();
        assert!(list.len() <= 100 && statements.info().0 > 0, "{}", list.len());
        assert!((1..=50).all(|query| list.iter().any(|(k, ..)| k.query == query)), "those used often stay");
        assert!(list.iter().any(|(k, text, _)| k.query == 1000 && &**text == "select 1000"));
        statements.reset(0, 0, 7);
        assert!(!statements.list().iter().any(|(k, ..)| k.query == 7));
        statements.reset(0, 0, 0);
        assert!(statements.list().is_empty() && statements.info().0 == 0);
    }

    #[test]
    fn threads_lose_no_call() {
        let statements = Arc::new(Statements::default());
        let work = |_| {
            let statements = statements.clone();
            std::thread::spawn(move || {
                (0..1000).for_each(|i| statements.count(key(i % 7 + 1), Duration::ZERO, &ROWS_2, String::new));
            })
        };
        (0..8).map(work).collect::<Vec<_>>().into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(statements.list().iter().map(|(_, _, c)| c.calls).sum::<u64>(), 8000);
    }
}
