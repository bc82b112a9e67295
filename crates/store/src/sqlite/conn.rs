//! A connection and its statements.

use super::error::SqliteError;
use super::function_cost::Costs;
use super::guard::Guard;
use super::memory;
use super::row_hook::InstalledHook;
use holdfast_types::{Row, Value, ValueRef};
use rusqlite::ffi;
use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_int};

/// How to open a database file.
#[derive(Clone, Copy, Debug)]
pub struct OpenFlags {
    pub write: bool,
    pub create: bool,
}

/// A prepared statement of one [`Conn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StmtId(usize);

/// What SQLite reports about a result column: its name and, for a plain column, where it comes from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StmtInfo {
    pub name: String,
    pub decl_type: Option<String>,
    pub table: Option<String>,
    pub column: Option<String>,
}

/// A SQLite connection without SQLite's own mutex (opened NOMUTEX): `&mut self` is the mutex.
pub struct Conn {
    rusqlite: Option<rusqlite::Connection>,
    db: *mut ffi::sqlite3,
    stmts: Vec<*mut ffi::sqlite3_stmt>,
    free: Vec<usize>,
    /// Receives row changes; owned, freed after the connection is closed.
    pub(super) row_hook: Option<InstalledHook>,
    pub(super) guard: Option<Guard>,
    /// The flag the commit hook reads.
    pub(super) gate: Option<std::sync::Arc<std::sync::atomic::AtomicBool>>,
    pub(super) costs: Costs,
    /// Its statements get no large values beyond the process's bound.
    is_bounded: bool,
}

// SAFETY: a connection may be used by any thread as long as only one uses it at a time (sqlite.org/threadsafe.html,
// "multi-thread"). All access goes through `&Conn`/`&mut Conn`; Conn is not Sync, so that holds.
unsafe impl Send for Conn {}

impl Conn {
    /// Opens `name` (a path or `file:` URI) through the named VFS, or the default one.
    pub fn open(name: &str, flags: OpenFlags, vfs: Option<&CStr>) -> Result<Conn, SqliteError> {
        use rusqlite::OpenFlags as F;
        // In a process that used SQLite by other means before, large values are not counted.
        memory::is_counted();
        let mut f = F::SQLITE_OPEN_URI | F::SQLITE_OPEN_NO_MUTEX | F::SQLITE_OPEN_EXRESCODE;
        f |= if flags.write { F::SQLITE_OPEN_READ_WRITE } else { F::SQLITE_OPEN_READ_ONLY };
        if flags.create {
            f |= F::SQLITE_OPEN_CREATE;
        }
        let opened = match vfs {
            Some(vfs) => rusqlite::Connection::open_with_flags_and_vfs(name, f, vfs),
            None => rusqlite::Connection::open_with_flags(name, f),
        };
        let rusqlite = opened.map_err(|e| match e {
            rusqlite::Error::SqliteFailure(f, m) => SqliteError {
                code: f.extended_code,
                message: format!("cannot open {name}: {}", m.unwrap_or_else(|| f.to_string())),
                offset: None,
            },
            other => SqliteError {
                code: ffi::SQLITE_CANTOPEN,
                message: format!("cannot open {name}: {other}"),
                offset: None,
            },
        })?;
        // SAFETY: the handle stays valid as long as `rusqlite` lives, which this struct owns and closes last.
        let db = unsafe { rusqlite.handle() };
        Ok(Conn {
            rusqlite: Some(rusqlite),
            db,
            stmts: Vec::new(),
            free: Vec::new(),
            row_hook: None,
            guard: None,
            gate: None,
            costs: Costs::of(db),
            is_bounded: false,
        })
    }

    /// Gives access to the connection through rusqlite's safe interface, for registering functions and virtual tables.
    pub fn rusqlite(&mut self) -> &mut rusqlite::Connection {
        self.rusqlite.as_mut().expect("present until drop")
    }

    /// Interrupts whatever this connection runs, from any thread.
    pub fn interrupt_handle(&mut self) -> rusqlite::InterruptHandle {
        self.rusqlite().get_interrupt_handle()
    }

    /// From now on its statements fail where large values of all statements together would exceed the process's bound.
    pub fn bound_memory(&mut self) {
        self.is_bounded = true;
    }

    /// The raw handle, for the modules of this directory.
    pub(crate) fn db(&self) -> *mut ffi::sqlite3 {
        self.db
    }

    /// The error of the last failed call.
    pub(crate) fn last_error(&self, code: c_int) -> SqliteError {
        // SAFETY: `db` is open; errmsg returns a NUL-terminated string valid until the next call on this connection.
        let message = unsafe { CStr::from_ptr(ffi::sqlite3_errmsg(self.db)) }.to_string_lossy().into_owned();
        // SAFETY: `db` is open.
        let offset = unsafe { ffi::sqlite3_error_offset(self.db) };
        SqliteError { code, message, offset: u32::try_from(offset).ok() }
    }

    /// Runs one or more statements without parameters and discards their rows.
    pub fn exec(&mut self, sql: &str) -> Result<(), SqliteError> {
        let text = CString::new(sql).map_err(|_| SqliteError {
            code: ffi::SQLITE_ERROR,
            message: "a statement cannot contain a zero byte".into(),
            offset: None,
        })?;
        // SAFETY: `db` is open, the text NUL-terminated, no callback and no message pointer are passed.
        let rc = unsafe { ffi::sqlite3_exec(self.db, text.as_ptr(), None, std::ptr::null_mut(), std::ptr::null_mut()) };
        if rc == ffi::SQLITE_OK { Ok(()) } else { Err(self.last_error(rc)) }
    }

    /// Prepares exactly one statement. An empty text or a second statement is an error.
    pub fn prepare(&mut self, sql: &str) -> Result<StmtId, SqliteError> {
        let mut stmt = std::ptr::null_mut();
        let mut tail: *const c_char = std::ptr::null();
        let length = c_int::try_from(sql.len()).map_err(|_| SqliteError {
            code: ffi::SQLITE_TOOBIG,
            message: "the statement is longer than 2 GiB".into(),
            offset: None,
        })?;
        // SAFETY: pointer and length describe `sql`; `stmt` and `tail` are valid out-pointers.
        let rc = unsafe {
            ffi::sqlite3_prepare_v3(
                self.db,
                sql.as_ptr().cast(),
                length,
                ffi::SQLITE_PREPARE_PERSISTENT,
                &mut stmt,
                &mut tail,
            )
        };
        if rc != ffi::SQLITE_OK {
            return Err(self.last_error(rc));
        }
        let used = (tail as usize).saturating_sub(sql.as_ptr() as usize);
        let rest = sql.get(used..).unwrap_or("");
        if stmt.is_null() || !only_space(rest) {
            // SAFETY: finalize accepts null and statements of this connection.
            unsafe { ffi::sqlite3_finalize(stmt) };
            let message = if stmt.is_null() { "empty statement" } else { "more than one statement" };
            return Err(SqliteError { code: ffi::SQLITE_ERROR, message: message.into(), offset: None });
        }
        Ok(match self.free.pop() {
            Some(i) => {
                self.stmts[i] = stmt;
                StmtId(i)
            }
            None => {
                self.stmts.push(stmt);
                StmtId(self.stmts.len() - 1)
            }
        })
    }

    fn raw(&self, id: StmtId) -> *mut ffi::sqlite3_stmt {
        let stmt = self.stmts[id.0];
        assert!(!stmt.is_null(), "statement {} was finalized", id.0);
        stmt
    }

    /// Frees a statement; its id may be reused for another statement.
    pub fn finalize(&mut self, id: StmtId) {
        let stmt = self.raw(id);
        // SAFETY: the statement is this connection's; its pointer is removed below before any other use.
        unsafe { ffi::sqlite3_finalize(stmt) };
        self.stmts[id.0] = std::ptr::null_mut();
        self.free.push(id.0);
    }

    /// Sets parameter `index` (from 1). SQLite copies the value.
    pub fn bind(&mut self, id: StmtId, index: usize, value: ValueRef<'_>) -> Result<(), SqliteError> {
        let stmt = self.raw(id);
        let i = index as c_int;
        // SAFETY: the statement is live; text and blob pointers are valid for their length during the call, and
        // SQLITE_TRANSIENT makes SQLite copy them before it returns. An empty slice's pointer is dangling but not
        // null, which SQLite would take for NULL.
        let rc = unsafe {
            match value {
                ValueRef::Null => ffi::sqlite3_bind_null(stmt, i),
                ValueRef::Int(v) => ffi::sqlite3_bind_int64(stmt, i, v),
                ValueRef::Real(v) => ffi::sqlite3_bind_double(stmt, i, v),
                ValueRef::Text(t) => ffi::sqlite3_bind_text64(
                    stmt,
                    i,
                    t.as_ptr().cast(),
                    t.len() as u64,
                    ffi::SQLITE_TRANSIENT(),
                    ffi::SQLITE_UTF8 as u8,
                ),
                ValueRef::Blob(b) => {
                    ffi::sqlite3_bind_blob64(stmt, i, b.as_ptr().cast(), b.len() as u64, ffi::SQLITE_TRANSIENT())
                }
            }
        };
        if rc == ffi::SQLITE_OK { Ok(()) } else { Err(self.last_error(rc)) }
    }

    /// Binds all parameters in order.
    pub fn bind_all(&mut self, id: StmtId, values: &[Value]) -> Result<(), SqliteError> {
        values.iter().enumerate().try_for_each(|(i, v)| self.bind(id, i + 1, v.as_ref()))
    }

    /// Steps to the next row. Returns true when there is one, false when the statement has ended. After an error or the
    /// end, call [`Conn::reset`].
    pub fn step(&mut self, id: StmtId) -> Result<bool, SqliteError> {
        let _bounded = self.is_bounded.then(memory::Bounded::begin);
        // SAFETY: the statement is live, and only this thread uses the connection (`&mut self`).
        match unsafe { ffi::sqlite3_step(self.raw(id)) } {
            ffi::SQLITE_ROW => Ok(true),
            ffi::SQLITE_DONE => Ok(false),
            rc => Err(self.last_error(rc)),
        }
    }

    /// Makes the statement ready to run again; bindings stay. An error of the last step is not reported a second time.
    pub fn reset(&mut self, id: StmtId) {
        // SAFETY: the statement is live.
        unsafe { ffi::sqlite3_reset(self.raw(id)) };
    }

    /// Runs a statement to its end, discards its rows, and resets it.
    pub fn run(&mut self, id: StmtId) -> Result<(), SqliteError> {
        let result = loop {
            match self.step(id) {
                Ok(true) => continue,
                Ok(false) => break Ok(()),
                Err(e) => break Err(e),
            }
        };
        self.reset(id);
        result
    }

    /// Binds all parameters without copying them, runs the statement to its end, discards its rows, resets it and
    /// clears its parameters. For statements that run often.
    pub fn run_with(&mut self, id: StmtId, values: &[ValueRef<'_>]) -> Result<(), SqliteError> {
        let stmt = self.raw(id);
        let mut result = Ok(());
        for (i, value) in values.iter().enumerate() {
            let i = i as c_int + 1;
            // SAFETY: the statement is live. SQLITE_STATIC (no destructor) leaves the bytes where they are; they are
            // borrowed until this call ends, and the parameters are cleared below before it does.
            let rc = unsafe {
                match *value {
                    ValueRef::Null => ffi::sqlite3_bind_null(stmt, i),
                    ValueRef::Int(v) => ffi::sqlite3_bind_int64(stmt, i, v),
                    ValueRef::Real(v) => ffi::sqlite3_bind_double(stmt, i, v),
                    ValueRef::Text(t) => {
                        let utf8 = ffi::SQLITE_UTF8 as u8;
                        ffi::sqlite3_bind_text64(stmt, i, t.as_ptr().cast(), t.len() as u64, None, utf8)
                    }
                    ValueRef::Blob(b) => ffi::sqlite3_bind_blob64(stmt, i, b.as_ptr().cast(), b.len() as u64, None),
                }
            };
            if rc != ffi::SQLITE_OK {
                result = Err(self.last_error(rc));
                break;
            }
        }
        let result = result.and_then(|()| self.run(id));
        // SAFETY: the statement is live.
        unsafe { ffi::sqlite3_clear_bindings(stmt) };
        result
    }

    /// Whether `column` of `table` in that schema is declared AUTOINCREMENT.
    pub fn is_autoincrement(&mut self, schema: &str, table: &str, column: &str) -> Result<bool, SqliteError> {
        let zero_byte = |_| SqliteError {
            code: ffi::SQLITE_ERROR,
            message: "a name cannot contain a zero byte".into(),
            offset: None,
        };
        let (table, column) = (CString::new(table).map_err(zero_byte)?, CString::new(column).map_err(zero_byte)?);
        let schema = CString::new(schema).map_err(zero_byte)?;
        let mut autoincrement = 0;
        // SAFETY: `db` is open, the names are NUL-terminated; null out-pointers are allowed.
        let rc = unsafe {
            ffi::sqlite3_table_column_metadata(
                self.db,
                schema.as_ptr(),
                table.as_ptr(),
                column.as_ptr(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                &mut autoincrement,
            )
        };
        if rc == ffi::SQLITE_OK { Ok(autoincrement != 0) } else { Err(self.last_error(rc)) }
    }

    /// Number of parameters.
    pub fn param_count(&self, id: StmtId) -> usize {
        // SAFETY: the statement is live.
        unsafe { ffi::sqlite3_bind_parameter_count(self.raw(id)) as usize }
    }

    /// Number of result columns.
    pub fn column_count(&self, id: StmtId) -> usize {
        // SAFETY: the statement is live.
        unsafe { ffi::sqlite3_column_count(self.raw(id)) as usize }
    }

    /// Whether SQLite reports that the statement does not write to the database file.
    pub fn readonly(&self, id: StmtId) -> bool {
        // SAFETY: the statement is live.
        unsafe { ffi::sqlite3_stmt_readonly(self.raw(id)) != 0 }
    }

    /// Names and origins of the result columns.
    pub fn columns(&self, id: StmtId) -> Vec<StmtInfo> {
        let stmt = self.raw(id);
        let text = |p: *const c_char| {
            // SAFETY: SQLite returns null or a NUL-terminated string that lives until the statement is finalized
            // or the call is repeated; it is copied at once.
            (!p.is_null()).then(|| unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned())
        };
        (0..self.column_count(id) as c_int)
            // SAFETY: the statement is live and `i` below its column count.
            .map(|i| unsafe {
                StmtInfo {
                    name: text(ffi::sqlite3_column_name(stmt, i)).unwrap_or_default(),
                    decl_type: text(ffi::sqlite3_column_decltype(stmt, i)),
                    table: text(ffi::sqlite3_column_table_name(stmt, i)),
                    column: text(ffi::sqlite3_column_origin_name(stmt, i)),
                }
            })
            .collect()
    }

    /// Column `i` of the current row.
    pub fn column(&self, id: StmtId, i: usize) -> ValueRef<'_> {
        let stmt = self.raw(id);
        let i = i as c_int;
        // SAFETY: the statement is live. The pointers SQLite returns stay valid until the next step, reset or
        // finalize, all of which need `&mut self`, so the returned borrow of `self` outlives none of them. No type
        // conversion is asked for: each accessor is called for the type the value has.
        unsafe {
            match ffi::sqlite3_column_type(stmt, i) {
                ffi::SQLITE_INTEGER => ValueRef::Int(ffi::sqlite3_column_int64(stmt, i)),
                ffi::SQLITE_FLOAT => ValueRef::Real(ffi::sqlite3_column_double(stmt, i)),
                ffi::SQLITE_TEXT => {
                    let p = ffi::sqlite3_column_text(stmt, i);
                    ValueRef::Text(slice(p, ffi::sqlite3_column_bytes(stmt, i)))
                }
                ffi::SQLITE_BLOB => {
                    let p = ffi::sqlite3_column_blob(stmt, i);
                    ValueRef::Blob(slice(p.cast(), ffi::sqlite3_column_bytes(stmt, i)))
                }
                _ => ValueRef::Null,
            }
        }
    }

    /// The current row, for a [`holdfast_types::Sink`].
    pub fn row(&self, id: StmtId) -> CurrentRow<'_> {
        CurrentRow { conn: self, id, len: self.column_count(id) }
    }

    /// The first column of the first row of a query; null when there is no row.
    pub fn query_value(&mut self, sql: &str) -> Result<Value, SqliteError> {
        let id = self.prepare(sql)?;
        let result = self.step(id).map(|row| if row { self.column(id, 0).to_value() } else { Value::Null });
        self.finalize(id);
        result
    }

    /// All rows of a query without parameters. For schema reading and tests: everything is held in memory.
    pub fn query_rows(&mut self, sql: &str) -> Result<Vec<Vec<Value>>, SqliteError> {
        self.first_rows(sql, usize::MAX)
    }

    /// At most `max` rows of a query without parameters.
    pub fn first_rows(&mut self, sql: &str, max: usize) -> Result<Vec<Vec<Value>>, SqliteError> {
        let id = self.prepare(sql)?;
        let columns = self.column_count(id);
        let mut rows = Vec::new();
        let result = loop {
            if rows.len() >= max {
                break Ok(rows);
            }
            match self.step(id) {
                Ok(true) => rows.push((0..columns).map(|i| self.column(id, i).to_value()).collect()),
                Ok(false) => break Ok(rows),
                Err(e) => break Err(e),
            }
        };
        self.finalize(id);
        result
    }

    /// Rows changed by the last INSERT, UPDATE or DELETE, not counting those changed by triggers.
    pub fn changes(&self) -> u64 {
        // SAFETY: `db` is open.
        unsafe { ffi::sqlite3_changes64(self.db) as u64 }
    }

    /// The rowid of the last insert on this connection.
    pub fn last_insert_rowid(&self) -> i64 {
        // SAFETY: `db` is open.
        unsafe { ffi::sqlite3_last_insert_rowid(self.db) }
    }

    /// Whether no transaction is open.
    pub fn autocommit(&self) -> bool {
        // SAFETY: `db` is open.
        unsafe { ffi::sqlite3_get_autocommit(self.db) != 0 }
    }

    /// Violations of deferred foreign keys in the open transaction (RULE 11).
    pub fn deferred_foreign_keys(&self) -> i32 {
        let (mut current, mut high) = (0, 0);
        // SAFETY: `db` is open, both out-pointers valid.
        unsafe { ffi::sqlite3_db_status(self.db, ffi::SQLITE_DBSTATUS_DEFERRED_FKS, &mut current, &mut high, 0) };
        current
    }

    /// Sets a SQLITE_DBCONFIG switch, for example ENABLE_TRIGGER, and returns its new state.
    pub fn set_config(&mut self, option: c_int, on: bool) -> Result<bool, SqliteError> {
        let mut now: c_int = 0;
        // SAFETY: `db` is open; the boolean options take an int and a pointer to int.
        let rc = unsafe { ffi::sqlite3_db_config(self.db, option, c_int::from(on), &mut now as *mut c_int) };
        if rc == ffi::SQLITE_OK { Ok(now != 0) } else { Err(self.last_error(rc)) }
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        for &stmt in &self.stmts {
            // SAFETY: finalize accepts null and live statements of this still open connection.
            unsafe { ffi::sqlite3_finalize(stmt) };
        }
        self.rusqlite.take();
        if let Some(hook) = self.row_hook.take() {
            // SAFETY: the connection was closed above, so SQLite no longer calls the hook.
            unsafe { hook.free() };
        }
    }
}

/// One row on its way to a sink.
pub struct CurrentRow<'a> {
    conn: &'a Conn,
    id: StmtId,
    len: usize,
}

impl Row for CurrentRow<'_> {
    fn len(&self) -> usize {
        self.len
    }
    fn get(&self, i: usize) -> ValueRef<'_> {
        self.conn.column(self.id, i)
    }
}

/// # Safety
/// `p` is null or points to `n` readable bytes that outlive `'a`.
unsafe fn slice<'a>(p: *const u8, n: c_int) -> &'a [u8] {
    if p.is_null() || n <= 0 {
        &[]
    } else {
        // SAFETY: as the caller promises.
        unsafe { std::slice::from_raw_parts(p, n as usize) }
    }
}

/// Whether the text after a statement contains no further statement: only white space, semicolons and comments.
fn only_space(rest: &str) -> bool {
    let mut s = rest;
    loop {
        s = s.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ';');
        if let Some(line) = s.strip_prefix("--") {
            s = line.split_once('\n').map_or("", |(_, after)| after);
        } else if let Some(block) = s.strip_prefix("/*") {
            s = block.split_once("*/").map_or("", |(_, after)| after);
        } else {
            return s.is_empty();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Conn {
        Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap()
    }

    #[test]
    fn values_go_in_and_come_out() {
        let mut c = memory();
        c.exec("create table t(a, b)").unwrap();
        let insert = c.prepare("insert into t values(?, ?)").unwrap();
        let values = [
            (Value::Int(-3), Value::Text("ü".into())),
            (Value::Real(1.5), Value::Blob(vec![])),
            (Value::Null, Value::Text(String::new())),
        ];
        for (a, b) in &values {
            c.bind_all(insert, &[a.clone(), b.clone()]).unwrap();
            c.run(insert).unwrap();
        }
        let rows = c.query_rows("select a, b from t").unwrap();
        assert_eq!(rows, values.iter().map(|(a, b)| vec![a.clone(), b.clone()]).collect::<Vec<_>>());
    }

    #[test]
    fn one_statement_at_a_time() {
        let mut c = memory();
        assert!(c.prepare("select 1; -- note\n /* x */ ;").is_ok());
        assert!(c.prepare("select 1; select 2").is_err());
        assert!(c.prepare("  -- nothing").is_err());
        assert_eq!(c.prepare("select").unwrap_err().primary(), ffi::SQLITE_ERROR);
    }
}
