//! Row ids from one counter a table, so that concurrent transactions do not choose the same one (RULE 32).
//!
//! A counter begins at the highest rowid that the first transaction to ask can see, or that the writer has inserted since the database
//! was opened, whichever is higher; every inserted rowid raises it. A schema change forgets the counters of tables that
//! come or go with it, whether it is made or undone: it has locked them exclusively, so no other transaction holds ids of theirs that are not
//! inserted yet. Ids of transactions that fail are lost, as PostgreSQL's are; those of an attempt that the server itself
//! repeats are taken again ([`crate::state::taken_ids`]), unless a row was inserted meanwhile under an id that was chosen
//! otherwise and may be one of them.

use crate::state::taken_ids;
use holdfast_store::schema_map::{RowKey, TableInfo, TableMap};
use holdfast_store::sqlite::{ChangeKind, RowChange};
use holdfast_types::{SqlError, SqlResult, SqlState};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// One table's counter.
struct Counter {
    /// The highest id given out or inserted.
    last: i64,
    /// The table's highest rowid was read.
    looked: bool,
    /// Of this counter among all that ever were. A counter gets another one when ids that it gave out before must not be
    /// taken again.
    number: u64,
}

impl Counter {
    fn new() -> Counter {
        Counter { last: 0, looked: false, number: new_number() }
    }

    fn inserted(&mut self, rowid: i64) {
        // Spare ids are not higher. One that the statement did not get from the counter may be among them.
        if rowid <= self.last && taken_ids::is_chosen_here(self.number, rowid) {
            self.number = new_number();
        }
        self.last = self.last.max(rowid);
    }
}

/// The counters of one database, by table name in lower case.
#[derive(Default)]
pub struct Ids(Mutex<HashMap<Vec<u8>, Counter>>);

/// A number that no counter had before.
fn new_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl Ids {
    /// The next id for a table. `highest` reads the highest rowid of the table.
    pub fn next(&self, table: &str, highest: &dyn Fn() -> SqlResult<i64>) -> SqlResult<i64> {
        let name = table.to_ascii_lowercase().into_bytes();
        let looked = self.0.lock().get(&name).is_some_and(|c| c.looked);
        let seen = if looked { 0 } else { highest()? };
        let mut counters = self.0.lock();
        let counter = counters.entry(name).or_insert_with(Counter::new);
        counter.looked = true;
        let last = counter.last.max(seen);
        taken_ids::choose(counter.number, || {
            counter.last = last.checked_add(1).ok_or_else(|| {
                let message = format!("table \"{table}\" has no ids left: its highest is {last}");
                SqlError::new(SqlState("2200H"), message)
            })?;
            Ok(counter.last)
        })
    }

    /// Records that a row was inserted under this id.
    pub fn inserted(&self, table: &[u8], rowid: i64) {
        let mut counters = self.0.lock();
        match counters.get_mut(table) {
            Some(counter) => counter.inserted(rowid),
            None => counters.entry(table.to_ascii_lowercase()).or_insert_with(Counter::new).inserted(rowid),
        }
    }

    /// Records that a row was changed: an id that the client chose raises the counter too.
    pub fn changed(&self, table: &TableInfo, change: &RowChange<'_>) {
        if !matches!(table.key, RowKey::Rowid { .. }) {
            return;
        }
        let moved = || change.old_rowid() != change.new_rowid();
        if change.kind() == ChangeKind::Insert || (change.kind() == ChangeKind::Update && moved()) {
            self.inserted(table.name.as_bytes(), change.new_rowid());
        }
    }

    /// Records that the schema has changed from one to the other, or back.
    pub fn schema_changed(&self, one: &TableMap, other: &TableMap) {
        let mut counters = self.0.lock();
        let mut forget = |of: &TableMap, in_the: &TableMap| {
            for table in of.tables() {
                if in_the.by_id(table.id).is_none_or(|t| t.name != table.name) {
                    counters.remove(table.name.to_ascii_lowercase().as_bytes());
                }
            }
        };
        forget(one, other);
        forget(other, one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::taken_ids::Taken;
    use holdfast_store::schema_map::create_internal_tables;
    use holdfast_store::sqlite::{Conn, OpenFlags};
    use holdfast_types::VolumeId;
    use std::sync::Arc;

    #[test]
    fn an_id_is_given_once() {
        let ids = Ids::default();
        ids.inserted(b"T", 5);
        assert_eq!(ids.next("t", &|| Ok(3)).unwrap(), 6, "the writer has inserted more than this snapshot shows");
        assert_eq!(ids.next("T", &|| panic!("looked already")).unwrap(), 7);
        ids.inserted(b"t", 100);
        assert_eq!(ids.next("t", &|| Ok(0)).unwrap(), 101);
        ids.inserted(b"t", i64::MAX);
        assert_eq!(ids.next("t", &|| Ok(0)).unwrap_err().state(), SqlState("2200H"));
    }

    #[test]
    fn an_id_that_another_statement_chose_meanwhile_is_not_taken_again() {
        let (ids, taken) = (Ids::default(), Arc::new(Taken::default()));
        let insert = |of: &Arc<Taken>, id: Option<i64>| {
            let _attempt = of.attempt();
            let id = id.unwrap_or_else(|| ids.next("t", &|| Ok(0)).unwrap());
            ids.inserted(b"t", id);
            id
        };
        assert_eq!([insert(&taken, None), insert(&taken, None)], [1, 1], "it is run again");
        let other = Arc::default();
        assert_eq!([insert(&other, None), insert(&taken, None)], [2, 1], "another statement took an id of its own");
        // Images of a branch are replayed.
        [1, 2].iter().for_each(|id| ids.inserted(b"t", *id));
        assert_eq!([insert(&Arc::default(), Some(9)), insert(&taken, None)], [9, 1], "above all that were taken");
        insert(&Arc::default(), Some(1));
        assert_eq!(insert(&taken, None), 10);
    }

    #[test]
    fn a_schema_change_forgets_what_comes_or_goes() {
        let map = |sql: &str| {
            let mut conn = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
            conn.exec(sql).unwrap();
            create_internal_tables(&mut conn, VolumeId(1)).unwrap()
        };
        // Ids are assigned in the order of names.
        let (one, other) = (map("create table A(x); create table b(x)"), map("create table A(x); create table c(x)"));
        let ids = Ids::default();
        [&b"a"[..], b"b", b"c"].iter().for_each(|t| ids.inserted(t, 9));
        ids.schema_changed(&one, &other);
        let taken = Arc::new(Taken::default());
        let take = || {
            let _attempt = taken.attempt();
            ["a", "b", "c"].map(|t| ids.next(t, &|| Ok(0)).unwrap())
        };
        assert_eq!(take(), [10, 1, 1]);
        // Run again after the table was dropped and another one of that name has got this id.
        ids.schema_changed(&other, &one);
        assert_eq!(ids.next("c", &|| Ok(0)).unwrap(), 1);
        assert_eq!(take(), [10, 1, 2]);
    }
}
