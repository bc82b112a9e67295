//! Evaluates conditions on single rows, in a private SQLite database in memory: those of publications, and those that distinguish
//! a subscription's rows from a database's own.
//!
//! The table there has the columns with their declared types and no constraint, so that a row of which only some columns are known can
//! be put there.
//!
//! Failure: an error of SQLite; what it means for the row is for the caller to decide.

use crate::sqlite::{Conn, OpenFlags, SqliteError, StmtId};
use holdfast_types::ValueRef;
use holdfast_types::quoting::quote;
use rusqlite::ffi;

/// See the module.
pub struct RowFilter {
    conn: Conn,
    /// Puts a row in place of the one before.
    put: StmtId,
    conditions: Vec<StmtId>,
}

impl RowFilter {
    /// `columns`: names and declared types; `conditions` in SQLite's SQL.
    pub fn new<'c>(
        columns: impl Iterator<Item = (&'c str, &'c str)> + Clone,
        conditions: impl Iterator<Item = &'c str>,
    ) -> Result<RowFilter, SqliteError> {
        let mut conn = Conn::open(":memory:", OpenFlags { write: true, create: true }, None)?;
        // A name in quotes of which there is no column would be a string.
        conn.set_config(ffi::SQLITE_DBCONFIG_DQS_DML, false)?;
        let declared: Vec<String> = columns.clone().map(|(name, of)| format!("{} {of}", quote(name))).collect();
        conn.exec(&format!("CREATE TABLE holdfast_row({})", declared.join(", ")))?;
        let names: Vec<String> = columns.map(|(name, _)| quote(name)).collect();
        let marks: Vec<String> = (1..=names.len()).map(|n| format!("?{n}")).collect();
        let (names, marks) = (names.join(", "), marks.join(", "));
        let put = conn.prepare(&format!("INSERT OR REPLACE INTO holdfast_row(rowid, {names}) VALUES(1, {marks})"))?;
        let prepared =
            |conn: &mut Conn, condition| conn.prepare(&format!("SELECT ({condition}) IS TRUE FROM holdfast_row"));
        let conditions = conditions.map(|condition| prepared(&mut conn, condition)).collect::<Result<_, _>>()?;
        Ok(RowFilter { conn, put, conditions })
    }

    /// Takes the row on which conditions are evaluated next; its values by the position of the column.
    pub fn put(&mut self, row: &[ValueRef<'_>]) -> Result<(), SqliteError> {
        self.conn.run_with(self.put, row)
    }

    /// Whether the row meets a condition, by its position.
    pub fn holds(&mut self, condition: usize) -> Result<bool, SqliteError> {
        let condition = self.conditions[condition];
        let stepped = self.conn.step(condition);
        let holds = matches!(stepped, Ok(true)) && self.conn.column(condition, 0) == ValueRef::Int(1);
        self.conn.reset(condition);
        stepped.map(|_| holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ValueRef::{Int, Null, Text};

    #[test]
    fn only_true_holds() {
        let columns = [("region", "INTEGER"), ("a \"b\"", "TEXT")];
        let conditions = ["(\"region\" = 2)", "(length(\"a \"\"b\"\"\") > 1)", "(abs(\"region\") > 0)"];
        let mut filter = RowFilter::new(columns.into_iter(), conditions.into_iter()).unwrap();
        for (row, holds) in [([Int(2), Text(b"xy")], [true, true]), ([Int(3), Null], [false, false])] {
            filter.put(&row).unwrap();
            assert_eq!([0, 1].map(|at| filter.holds(at).unwrap()), holds);
        }
        filter.put(&[Int(i64::MIN), Null]).unwrap();
        assert!(filter.holds(2).is_err(), "SQLite's integer overflow");
        assert!(RowFilter::new([("a", "")].into_iter(), ["(\"b\" = 1)"].into_iter()).is_err());
    }
}
