//! The SQL function that chooses row ids. The caller supplies the choice and can look up the highest id in the table.

use super::conn::Conn;
use super::error::SqliteError;
use super::sqlstate::encode_error;
use holdfast_types::{Cost, SqlError, SqlResult};
use rusqlite::functions::FunctionFlags;

impl Conn {
    /// Adds a function of one argument, a table's name. `choose` gets the name and a function that returns the highest
    /// rowid that the table has or ever had, as far as this connection can see.
    pub fn register_next_id(
        &mut self,
        name: &'static str,
        cost: Cost,
        choose: impl Fn(&str, &dyn Fn() -> SqlResult<i64>) -> SqlResult<i64> + Send + 'static,
    ) -> Result<(), SqliteError> {
        self.costs.register(name, cost);
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

/// The highest rowid in the table or in its AUTOINCREMENT counter, whichever is higher.
fn highest_rowid(conn: &rusqlite::Connection, table: &str) -> rusqlite::Result<i64> {
    let quoted = holdfast_types::quoting::quote(table);
    let number = |sql: &str| {
        conn.query_row(sql, [], |row| match row.get_ref(0)? {
            rusqlite::types::ValueRef::Integer(n) => Ok(Some(n)),
            _ => Ok(None),
        })
    };
    // The rowid has this name unless a column uses it. Then the column's maximum is read, which does no harm: a higher
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
