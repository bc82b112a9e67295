//! The open cursors of a session, and which of them end with a transaction or a savepoint.

use super::spool::Spool;
use holdfast_types::{SqlError, SqlResult, SqlState, StatementDesc};
use std::collections::HashMap;
use std::sync::Arc;

/// Open cursors of one session.
const CURSORS_MAX: usize = 1_000;

/// An open cursor.
pub struct Cursor {
    pub desc: Arc<StatementDesc>,
    pub spool: Arc<Spool>,
    pub place: u64,
    pub scroll: bool,
    pub hold: bool,
    /// Savepoints set before it in the transaction that declared it; `None` once that is committed.
    pub savepoints: Option<usize>,
}

/// A session's cursors by name.
#[derive(Default)]
pub struct Cursors(pub HashMap<String, Cursor>);

impl Cursors {
    /// The columns that FETCH from the cursor returns.
    pub fn desc(&self, name: &str) -> Option<&Arc<StatementDesc>> {
        self.0.get(name).map(|c| &c.desc)
    }

    pub fn get(&mut self, name: &str) -> SqlResult<&mut Cursor> {
        self.0.get_mut(name).ok_or_else(|| unknown(name))
    }

    pub fn may_add(&self, name: &str) -> SqlResult<()> {
        if self.0.contains_key(name) {
            return Err(SqlError::new(SqlState("42P03"), format!("cursor \"{name}\" already exists")));
        }
        if self.0.len() >= CURSORS_MAX {
            let message = format!("cursors_max ({CURSORS_MAX}) reached");
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).with_hint("Close some."));
        }
        Ok(())
    }

    /// CLOSE; `None` is all of them.
    pub fn close(&mut self, name: Option<&str>) -> SqlResult<()> {
        match name {
            None => self.0.clear(),
            Some(name) => _ = self.0.remove(name).ok_or_else(|| unknown(name))?,
        }
        Ok(())
    }

    /// Whether a cursor of the open transaction is to outlive it.
    pub fn will_be_held(&self) -> bool {
        self.0.values().any(|c| c.hold && c.savepoints.is_some())
    }

    /// The open transaction has ended.
    pub fn end_transaction(&mut self, committed: bool) {
        self.0.retain(|_, c| c.savepoints.is_none() || (c.hold && committed));
        self.0.values_mut().for_each(|c| c.savepoints = None);
    }

    /// The transaction was rolled back to its savepoint number `at`, from 0.
    pub fn roll_back_to(&mut self, at: usize) {
        self.0.retain(|_, c| c.savepoints.is_none_or(|before| before <= at));
    }

    /// The transaction's savepoint number `at` and those after it were released.
    pub fn release(&mut self, at: usize) {
        self.0.values_mut().for_each(|c| c.savepoints = c.savepoints.map(|before| before.min(at)));
    }
}

/// 34000.
fn unknown(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"))
}

#[cfg(test)]
mod tests {
    use super::super::spool::{Scratch, SpoolWriter};
    use super::*;

    fn cursors(declared: &[(&str, bool, Option<usize>)]) -> Cursors {
        let scratch = Arc::new(Scratch { dir: std::env::temp_dir(), bytes_max: 0 });
        let cursor = |(name, hold, savepoints): &(&str, bool, Option<usize>)| {
            let spool = SpoolWriter::new(scratch.clone()).finish().unwrap();
            let (hold, savepoints) = (*hold, *savepoints);
            let cursor =
                Cursor { desc: Arc::default(), spool: Arc::new(spool), place: 0, scroll: true, hold, savepoints };
            ((*name).to_owned(), cursor)
        };
        Cursors(declared.iter().map(cursor).collect())
    }

    fn names(cursors: &Cursors) -> Vec<&str> {
        let mut names: Vec<&str> = cursors.0.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    const ALL: &[(&str, bool, Option<usize>)] =
        &[("earlier", true, None), ("held", true, Some(0)), ("in_second", false, Some(2)), ("plain", false, Some(0))];

    #[test]
    fn a_transaction_takes_its_cursors_with_it() {
        let mut c = cursors(ALL);
        c.end_transaction(true);
        assert_eq!(names(&c), ["earlier", "held"]);
        c.end_transaction(false);
        assert_eq!(names(&c), ["earlier", "held"], "committed by then");
        let mut c = cursors(ALL);
        c.end_transaction(false);
        assert_eq!(names(&c), ["earlier"]);
    }

    #[test]
    fn a_savepoint_takes_the_cursors_declared_since() {
        let mut c = cursors(ALL);
        c.roll_back_to(2);
        assert_eq!(names(&c).len(), 4, "the third savepoint came after all of them");
        c.release(1);
        c.roll_back_to(1);
        assert_eq!(names(&c).len(), 4, "released into the first savepoint");
        c.roll_back_to(0);
        assert_eq!(names(&c), ["earlier", "held", "plain"]);
    }

    #[test]
    fn names_are_taken_once_and_closed_once() {
        let mut c = cursors(ALL);
        assert_eq!(c.may_add("held").unwrap_err().state().0, "42P03");
        assert_eq!(c.close(Some("held")), Ok(()));
        assert_eq!(c.close(Some("held")).unwrap_err().state().0, "34000");
        assert_eq!(c.may_add("held"), Ok(()));
        assert_eq!(c.close(None), Ok(()));
        assert!(names(&c).is_empty());
    }
}
