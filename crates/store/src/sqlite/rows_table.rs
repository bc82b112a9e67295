//! Read-only virtual tables whose rows are made by a closure, and scalar functions written in Rust.
//!
//! The rows are made once for each use of the table in a running statement. A comparison `column = value` is answered
//! from an index that is built on first use, so that the catalogue's joins do not multiply. SQLite checks every row
//! again, so the index may return too many rows but must not miss any.
//!
//! Failure: a function's [`SqlError`] passes through SQLite as a message that [`super::sqlstate`] decodes, with its
//! SQLSTATE and all fields. A panic in a closure becomes an error of the statement (rusqlite catches it).

use super::conn::Conn;
use super::error::SqliteError;
use super::sqlstate::encode_error;
use holdfast_types::cancel::{Asked, watch};
use holdfast_types::{Cost, SqlResult, Value, ValueRef};
use rusqlite::ffi;
use rusqlite::functions::FunctionFlags;
use rusqlite::types::ToSqlOutput;
use rusqlite::vtab::{
    Context, CreateVTab, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConfig, VTabConnection, VTabCursor,
    VTabKind,
};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Number of arguments passed to a function without allocating.
const ARGUMENTS_INLINE: usize = 8;

/// A module that serves rows.
#[derive(Clone)]
pub struct RowsTable {
    /// Name and declared type (may be empty) of each column.
    pub columns: Vec<(String, String)>,
    /// Makes all rows, each with a value for every column; missing values read as null.
    pub rows: Arc<dyn Fn() -> Vec<Vec<Value>> + Send + Sync>,
}

impl Conn {
    /// Makes `table` available as the virtual table module `module` on this connection.
    pub fn register_rows_table(&mut self, module: &str, table: RowsTable) -> Result<(), SqliteError> {
        const MODULE: Module<'static, RowsVtab> = Module::read_only_module();
        self.rusqlite().create_module(module, &MODULE, Some(Arc::new(table))).map_err(SqliteError::from_rusqlite)
    }

    /// Makes `schema.name` a table of that module; `schema` is `temp` or an attached in-memory database.
    pub fn create_rows_table(&mut self, schema: &str, name: &str, module: &str) -> Result<(), SqliteError> {
        let [schema, name, module] = [schema, name, module].map(holdfast_types::quoting::quote);
        self.exec(&format!("CREATE VIRTUAL TABLE IF NOT EXISTS {schema}.{name} USING {module}"))
    }

    /// Adds a scalar function. `arguments` is their number, -1 for any number. A deterministic function always returns
    /// the same result for the same arguments and may be used in an index. `cost` decides where statements that call it may run.
    pub fn register_function(
        &mut self,
        name: &'static str,
        arguments: i32,
        deterministic: bool,
        cost: Cost,
        call: impl Fn(&[ValueRef<'_>]) -> SqlResult<Value> + Send + 'static,
    ) -> Result<(), SqliteError> {
        self.costs.register(name, cost);
        let mut flags = FunctionFlags::SQLITE_UTF8;
        if deterministic {
            flags |= FunctionFlags::SQLITE_DETERMINISTIC;
        }
        // SAFETY: the handle is used by functions of this connection only, which run while it is open.
        let cancel = Cancel(unsafe { self.rusqlite().handle() });
        let cancelled: Asked = Arc::new(move || cancel.is_set());
        let argument_bytes_max = self.costs.argument_bytes_max.clone();
        let call = move |context: &rusqlite::functions::Context<'_>| {
            let length = |i| match context.get_raw(i) {
                rusqlite::types::ValueRef::Text(bytes) | rusqlite::types::ValueRef::Blob(bytes) => bytes.len(),
                _ => 0,
            };
            if (0..context.len()).map(length).sum::<usize>() > argument_bytes_max.load(Ordering::Relaxed) {
                return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_TOOBIG), None));
            }
            // SQLite looks for a cancel between rows, so a row whose expression calls many functions could not be cancelled.
            if cancelled() {
                return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_INTERRUPT), None));
            }
            let _watched = watch(&cancelled);
            let mut inline = [ValueRef::Null; ARGUMENTS_INLINE];
            let result = if context.len() <= ARGUMENTS_INLINE {
                (0..context.len()).for_each(|i| inline[i] = from_rusqlite(context.get_raw(i)));
                call(&inline[..context.len()])
            } else {
                call(&(0..context.len()).map(|i| from_rusqlite(context.get_raw(i))).collect::<Vec<_>>())
            };
            result.map(into_rusqlite).map_err(|e| rusqlite::Error::UserFunctionError(encode_error(&e).into()))
        };
        self.rusqlite().create_scalar_function(name, arguments, flags, call).map_err(SqliteError::from_rusqlite)
    }
}

/// Whether the statement that runs on a connection is to end.
struct Cancel(*mut ffi::sqlite3);

// SAFETY: SQLite allows a look at this flag from any thread, as long as the connection is open.
unsafe impl Send for Cancel {}
// SAFETY: likewise.
unsafe impl Sync for Cancel {}

impl Cancel {
    fn is_set(&self) -> bool {
        // SAFETY: called by a function of the connection, so the connection is open.
        unsafe { ffi::sqlite3_is_interrupted(self.0) != 0 }
    }
}

fn from_rusqlite(value: rusqlite::types::ValueRef<'_>) -> ValueRef<'_> {
    use rusqlite::types::ValueRef as R;
    match value {
        R::Null => ValueRef::Null,
        R::Integer(i) => ValueRef::Int(i),
        R::Real(r) => ValueRef::Real(r),
        R::Text(t) => ValueRef::Text(t),
        R::Blob(b) => ValueRef::Blob(b),
    }
}

fn into_rusqlite(value: Value) -> rusqlite::types::Value {
    use rusqlite::types::Value as R;
    match value {
        Value::Null => R::Null,
        Value::Int(i) => R::Integer(i),
        Value::Real(r) => R::Real(r),
        Value::Text(t) => R::Text(t),
        Value::Blob(b) => R::Blob(b),
    }
}

fn borrow_rusqlite(value: &Value) -> ToSqlOutput<'_> {
    use rusqlite::types::ValueRef as R;
    ToSqlOutput::Borrowed(match value {
        Value::Null => R::Null,
        Value::Int(i) => R::Integer(*i),
        Value::Real(r) => R::Real(*r),
        Value::Text(t) => R::Text(t.as_bytes()),
        Value::Blob(b) => R::Blob(b),
    })
}

#[repr(C)]
struct RowsVtab {
    base: rusqlite::vtab::sqlite3_vtab,
    table: Arc<RowsTable>,
}

// SAFETY: the struct is repr(C) and begins with sqlite3_vtab, as the trait requires.
unsafe impl VTab<'_> for RowsVtab {
    type Aux = Arc<RowsTable>;
    type Cursor = RowsCursor;

    fn connect(
        db: &mut VTabConnection,
        aux: Option<&Arc<RowsTable>>,
        _module: &[u8],
        _schema: &[u8],
        _table: &[u8],
        _args: &[&[u8]],
    ) -> rusqlite::Result<(Cow<'static, CStr>, RowsVtab)> {
        let Some(table) = aux else {
            return Err(rusqlite::Error::ModuleError("the module was registered without rows".into()));
        };
        db.config(VTabConfig::Innocuous)?;
        let column = |(name, decl): &(String, String)| format!("{} {decl}", holdfast_types::quoting::quote(name));
        let columns: Vec<String> = table.columns.iter().map(column).collect();
        let text = format!("CREATE TABLE x({})", columns.join(", "));
        let text =
            CString::new(text).map_err(|_| rusqlite::Error::ModuleError("zero byte in a column's name".into()))?;
        Ok((Cow::Owned(text), RowsVtab { base: Default::default(), table: Arc::clone(table) }))
    }

    /// Chooses the index number. 0: all rows; c + 1: the rows where column c equals the argument.
    fn best_index(&self, info: &mut IndexInfo) -> rusqlite::Result<bool> {
        let equals = info.constraints().enumerate().find_map(|(i, c)| {
            let usable = c.is_usable() && c.operator() == IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ;
            (usable && c.column() >= 0 && info.collation(i).is_ok_and(|name| name == "BINARY"))
                .then_some((i, c.column()))
        });
        match equals {
            Some((i, column)) => {
                info.constraint_usage(i).set_argv_index(1);
                info.set_idx_num(column + 1);
                info.set_estimated_cost(10.0);
                info.set_estimated_rows(5);
            }
            None => {
                info.set_estimated_cost(1000.0);
                info.set_estimated_rows(500);
            }
        }
        Ok(true)
    }

    fn open(&mut self) -> rusqlite::Result<RowsCursor> {
        let table = Arc::clone(&self.table);
        Ok(RowsCursor {
            base: Default::default(),
            table,
            rows: None,
            indexes: HashMap::new(),
            found: Vec::new(),
            at: 0,
        })
    }
}

impl CreateVTab<'_> for RowsVtab {
    const KIND: VTabKind = VTabKind::Default;
}

/// A cell that an index is built over. Values of other classes are not indexed.
#[derive(PartialEq, Eq, Hash)]
enum Cell {
    Int(i64),
    Text(String),
}

#[repr(C)]
struct RowsCursor {
    base: rusqlite::vtab::sqlite3_vtab_cursor,
    table: Arc<RowsTable>,
    rows: Option<Vec<Vec<Value>>>,
    /// For each column looked up: positions by cell, or `None` where the column mixes classes.
    indexes: HashMap<usize, Option<HashMap<Cell, Vec<usize>>>>,
    found: Vec<usize>,
    at: usize,
}

impl RowsCursor {
    /// Rows that may have `value` in `column`.
    fn find(&mut self, column: usize, value: Value) -> Vec<usize> {
        let rows = self.rows.get_or_insert_with(|| (self.table.rows)());
        let cell = match value {
            Value::Int(i) => Cell::Int(i),
            Value::Text(t) => Cell::Text(t),
            _ => return (0..rows.len()).collect(),
        };
        let index = self.indexes.entry(column).or_insert_with(|| build_index(rows, column));
        match index {
            Some(index) if same_class(index, &cell) => index.get(&cell).cloned().unwrap_or_default(),
            _ => (0..rows.len()).collect(),
        }
    }
}

fn build_index(rows: &[Vec<Value>], column: usize) -> Option<HashMap<Cell, Vec<usize>>> {
    let mut index: HashMap<Cell, Vec<usize>> = HashMap::new();
    for (i, row) in rows.iter().enumerate() {
        let cell = match row.get(column) {
            Some(Value::Int(n)) => Cell::Int(*n),
            Some(Value::Text(t)) => Cell::Text(t.clone()),
            // Null equals no value.
            Some(Value::Null) | None => continue,
            Some(_) => return None,
        };
        if !same_class(&index, &cell) {
            return None;
        }
        index.entry(cell).or_default().push(i);
    }
    Some(index)
}

/// Whether the index holds cells of this class. All its cells have one class, so one of them decides.
fn same_class(index: &HashMap<Cell, Vec<usize>>, cell: &Cell) -> bool {
    index.keys().next().is_none_or(|any| std::mem::discriminant(any) == std::mem::discriminant(cell))
}

// SAFETY: the struct is repr(C) and begins with sqlite3_vtab_cursor, as the trait requires.
unsafe impl VTabCursor for RowsCursor {
    fn filter(&mut self, index: c_int, _: Option<&str>, args: &Filters<'_>) -> rusqlite::Result<()> {
        self.at = 0;
        self.found = match (usize::try_from(index - 1), args.iter().next()) {
            (Ok(column), Some(value)) => self.find(column, from_rusqlite(value).to_value()),
            _ => (0..self.rows.get_or_insert_with(|| (self.table.rows)()).len()).collect(),
        };
        Ok(())
    }

    fn next(&mut self) -> rusqlite::Result<()> {
        self.at += 1;
        Ok(())
    }

    fn eof(&self) -> bool {
        self.at >= self.found.len()
    }

    fn column(&self, context: &mut Context, column: c_int) -> rusqlite::Result<()> {
        let row = self.rows.as_ref().and_then(|rows| rows.get(*self.found.get(self.at)?));
        let value = row.and_then(|row| row.get(column as usize)).unwrap_or(&Value::Null);
        context.set_result(borrow_rusqlite(value))
    }

    fn rowid(&self) -> rusqlite::Result<i64> {
        Ok(self.found.get(self.at).map_or(0, |&i| i as i64 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{OpenFlags, sqlstate::sql_error};
    use super::*;
    use holdfast_types::{SqlError, SqlState};
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn memory() -> Conn {
        Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap()
    }

    #[test]
    fn rows_are_made_once_for_each_use_and_joined() {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&made);
        let rows = move || {
            counter.fetch_add(1, Ordering::Relaxed);
            (0..100).map(|i| vec![Value::Int(i), Value::Text(format!("n{i}")), Value::Null]).collect()
        };
        let columns = ["oid", "relname", "none"].map(|name| (name.to_string(), String::new()));
        let mut c = memory();
        c.exec("ATTACH ':memory:' AS pg_catalog").unwrap();
        c.register_rows_table("class_rows", RowsTable { columns: columns.into(), rows: Arc::new(rows) }).unwrap();
        c.create_rows_table("pg_catalog", "pg_class", "class_rows").unwrap();
        let sql = "SELECT count(*), max(b.relname) FROM pg_catalog.pg_class a JOIN pg_class b ON a.oid + 1 = b.oid
                   WHERE a.relname <> 'n5'";
        assert_eq!(c.query_rows(sql).unwrap(), [[Value::Int(98), Value::Text("n99".into())]]);
        assert_eq!(made.load(Ordering::Relaxed), 2);
        let one = |sql: &str, c: &mut Conn| c.query_value(sql).unwrap();
        assert_eq!(one("SELECT oid FROM pg_class WHERE relname = 'n7'", &mut c), Value::Int(7));
        assert_eq!(one("SELECT oid FROM pg_class WHERE relname = 'N7' COLLATE NOCASE", &mut c), Value::Int(7));
        assert_eq!(one("SELECT relname FROM pg_class WHERE oid = 7.0", &mut c), Value::Text("n7".into()));
        assert_eq!(one("SELECT count(*) FROM pg_class WHERE none IS NULL", &mut c), Value::Int(100));
    }

    #[test]
    fn a_functions_error_keeps_its_sqlstate_and_fields() {
        let mut c = memory();
        let error = SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, "no\0number").with_hint("write digits");
        let raised = error.clone();
        c.register_function("fails", -1, true, Cost::Unbounded, move |_| Err(raised.clone())).unwrap();
        c.register_function("sum9", 9, true, Cost::Unbounded, |args| {
            Ok(Value::Int(args.iter().map(|v| if let ValueRef::Int(i) = v { *i } else { 0 }).sum()))
        })
        .unwrap();
        assert_eq!(c.query_value("SELECT sum9(1,2,3,4,5,6,7,8,9)").unwrap(), Value::Int(45));
        let sql = "SELECT fails(1)";
        let seen = sql_error(&c.query_value(sql).unwrap_err(), sql, None);
        assert_eq!(seen.state(), SqlState::INVALID_TEXT_REPRESENTATION);
        assert_eq!(seen.message(), "no\u{fffd}number");
        assert_eq!(seen.parts().hint.as_deref(), Some("write digits"));
    }

    #[test]
    fn a_functions_panic_is_an_error() {
        let mut c = memory();
        c.register_function("boom", 0, false, Cost::Unbounded, |_| panic!("boom")).unwrap();
        assert!(c.query_value("SELECT boom()").is_err());
        assert_eq!(c.query_value("SELECT 1").unwrap(), Value::Int(1));
    }
}
