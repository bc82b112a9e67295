//! What statements have done to each table: the counters behind `pg_stat_user_tables`.
//!
//! As for statements, threads with the same place in a short table share a lock, and the tables are added up when the view is read.
//! Counts are of statements that ended without an error, whether their transaction committed or not. Nothing survives a restart.

use super::statements::{SHARDS, shard};
use super::tally::Done;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Tables counted by each shard; of more, dropped ones included, those that come later are not counted.
const TABLES_MAX: usize = 100_000;

/// A table by the OIDs of its database and its own.
type Key = (u32, u32);

#[derive(Debug)]
pub struct Tables([Mutex<HashMap<Key, Done>>; SHARDS]);

impl Default for Tables {
    fn default() -> Tables {
        Tables(std::array::from_fn(|_| Mutex::default()))
    }
}

impl Tables {
    /// A statement has done this to a table.
    pub fn count(&self, database: u32, table: u32, done: &Done) {
        let mut counts = self.0[shard()].lock();
        if counts.len() < TABLES_MAX || counts.contains_key(&(database, table)) {
            add(counts.entry((database, table)).or_default(), done);
        }
    }

    /// What was done to each table of a database.
    pub fn of(&self, database: u32) -> HashMap<u32, Done> {
        let mut all = HashMap::new();
        for shard in &self.0 {
            for ((_, table), done) in shard.lock().iter().filter(|((of, _), _)| *of == database) {
                add(all.entry(*table).or_default(), done);
            }
        }
        all
    }
}

fn add(sum: &mut Done, done: &Done) {
    sum.rows_inserted += done.rows_inserted;
    sum.rows_updated += done.rows_updated;
    sum.rows_deleted += done.rows_deleted;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_by_table() {
        let tables = Tables::default();
        let done = |inserted, deleted| Done { rows_inserted: inserted, rows_deleted: deleted, ..Done::default() };
        tables.count(1, 7, &done(3, 0));
        tables.count(1, 7, &done(1, 2));
        tables.count(2, 7, &done(100, 0));
        assert_eq!(tables.of(1), HashMap::from([(7, done(4, 2))]));
    }
}
