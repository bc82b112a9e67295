//! The function that chooses row ids, with a look at the table for whoever chooses.

use super::sqlstate::encode_error;
use super::{Conn, SqliteError};
use holdfast_types::{SqlError, SqlResult};
use rusqlite::functions::FunctionFlags;

impl Conn {
    /// Adds a function of one argument, a table's name. `choose` gets the name and a way to ask for the highest rowid
    /// that the table has or ever had, as far as this connection can see.
    pub fn register_next_id(
        &mut self,
        name: &str,
        choose: impl Fn(&str, &dyn Fn() -> SqlResult<i64>) -> SqlResult<i64> + Send + 'static,
    ) -> Result<(), SqliteError> {
        let call = move |context: &rusqlite::functions::Context<'_>| {
            let table = context.get_raw(0).as_str().unwrap_or_default();
            let highest = || {
                // SAFETY: the connection is only used to prepare, run and finalize a query of its own while the
                // function runs, which SQLite allows; the reference does not leave this closure.
                let conn = unsafe { context.get_connection() };
                let conn = conn.map_err(|e| SqlError::internal(e.to_string()))?;
                highest_rowid(&conn, table).map_err(|e| SqlError::internal(e.to_string()))
            };
            choose(table, &highest).map_err(|e| rusqlite::Error::UserFunctionError(encode_error(&e).into()))
        };
        self.rusqlite()
            .create_scalar_function(name, 1, FunctionFlags::SQLITE_UTF8, call)
            .map_err(SqliteError::from_rusqlite)
    }
}

/// The highest rowid in the table, or the one its AUTOINCREMENT counter remembers.
fn highest_rowid(conn: &rusqlite::Connection, table: &str) -> rusqlite::Result<i64> {
    let quoted = crate::schema_map::quote(table);
    let number = |sql: &str| {
        conn.query_row(sql, [], |row| match row.get_ref(0)? {
            rusqlite::types::ValueRef::Integer(n) => Ok(Some(n)),
            _ => Ok(None),
        })
    };
    // The rowid goes by this name unless a column took it; then the column is asked, which is no harm: a higher
    // number is as good.
    let there = number(&format!("SELECT max(_rowid_) FROM main.{quoted}"))?.unwrap_or(0);
    let counts = number("SELECT count(*) FROM main.sqlite_schema WHERE name = 'sqlite_sequence'")?;
    if counts == Some(0) {
        return Ok(there);
    }
    let sql = "SELECT max(seq) FROM main.sqlite_sequence WHERE name = ?1 COLLATE NOCASE";
    let remembered = conn.query_row(sql, [table], |row| row.get::<_, Option<i64>>(0))?;
    Ok(there.max(remembered.unwrap_or(0)))
}
