//! Registers the preupdate hook (sqlite.org/c3ref/preupdate_blobwrite.html) and shows each row change to the
//! connection's [`RowHook`]. What is done with a change is decided above this directory.
//!
//! The hook must see every change, so it is registered before anything is prepared and stays until the connection
//! is closed: a DELETE prepared without the hook empties the table and reports no row.
//!
//! Failure: the hook cannot return an error. The [`RowHook`] keeps the first error, and the transaction must check for
//! it before it commits.

use super::conn::Conn;
use super::error::SqliteError;
use holdfast_types::ValueRef;
use rusqlite::ffi;
use std::any::Any;
use std::ffi::CStr;
use std::os::raw::{c_char, c_int, c_void};

/// Receives each row change of one connection before SQLite makes it.
pub trait RowHook: Any + Send {
    /// Called inside SQLite: must neither panic nor use the connection. Returns true to interrupt the statement.
    fn on_change(&mut self, change: &RowChange<'_>) -> bool;
}

/// The kind of a row change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Insert,
    Update,
    Delete,
}

/// A row change that is about to happen. Columns are numbered as in the table's declaration, from 0.
pub struct RowChange<'a> {
    db: *mut ffi::sqlite3,
    kind: ChangeKind,
    schema: &'a [u8],
    table: &'a [u8],
    old_rowid: i64,
    new_rowid: i64,
    blob_write: bool,
    columns: usize,
    depth: usize,
}

/// The hook of one connection.
pub(super) struct InstalledHook(*mut dyn RowHook);

impl InstalledHook {
    /// Frees the hook.
    ///
    /// # Safety
    /// The connection is closed, so SQLite no longer calls the hook.
    pub(super) unsafe fn free(self) {
        // SAFETY: made by Box::into_raw in install_row_hook; `self` is consumed, so this happens once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl Conn {
    /// From now on every row change of this connection goes to `hook`. Fails when a statement is already prepared,
    /// as that one could change rows unseen, or when a hook is already installed.
    pub fn install_row_hook<H: RowHook>(&mut self, hook: H) -> Result<(), SqliteError> {
        // SAFETY: `db` is open; a null statement asks for the first one.
        let prepared = unsafe { ffi::sqlite3_next_stmt(self.db(), std::ptr::null_mut()) };
        if !prepared.is_null() || self.row_hook.is_some() {
            return Err(SqliteError {
                code: ffi::SQLITE_MISUSE,
                message: "row capture must be installed once, before any statement is prepared".into(),
                offset: None,
            });
        }
        let context: *mut H = Box::into_raw(Box::new(hook));
        self.row_hook = Some(InstalledHook(context));
        // SAFETY: `db` is open. The context is an `H` and lives until `Conn` has closed the connection, see its Drop.
        unsafe { ffi::sqlite3_preupdate_hook(self.db(), Some(on_preupdate::<H>), context.cast()) };
        Ok(())
    }

    /// Whether [`Conn::install_row_hook`] was called.
    pub fn has_row_hook(&self) -> bool {
        self.row_hook.is_some()
    }

    /// The installed hook; `None` when there is none or it has another type.
    pub fn row_hook<H: RowHook>(&mut self) -> Option<&mut H> {
        let context = self.row_hook.as_ref()?.0;
        // SAFETY: made by Box::into_raw and freed only in Drop. SQLite, the other user, calls the hook only inside
        // calls that take `&mut Conn` or through a statement stepped by such a call, so never while this borrow lives.
        let hook: &mut dyn Any = unsafe { &mut *context };
        hook.downcast_mut()
    }
}

/// Called by SQLite before each row change.
///
/// # Safety
/// `context` is the `H` given at registration, `db` the connection, both names are NUL-terminated.
unsafe extern "C" fn on_preupdate<H: RowHook>(
    context: *mut c_void,
    db: *mut ffi::sqlite3,
    op: c_int,
    schema: *const c_char,
    table: *const c_char,
    old_rowid: i64,
    new_rowid: i64,
) {
    // SAFETY: SQLite passes what was registered; see Conn::row_hook for why there is no other borrow.
    let hook = unsafe { &mut *context.cast::<H>() };
    // SAFETY: both names are NUL-terminated and live at least as long as this call.
    let (schema, table) = unsafe { (CStr::from_ptr(schema), CStr::from_ptr(table)) };
    // SAFETY: called from within the hook, as the function requires.
    let blob_write = unsafe { ffi::sqlite3_preupdate_blobwrite(db) } >= 0;
    let kind = match op {
        ffi::SQLITE_INSERT => ChangeKind::Insert,
        ffi::SQLITE_UPDATE => ChangeKind::Update,
        _ => ChangeKind::Delete,
    };
    // SAFETY: as above, two more of the functions made for the hook.
    let (columns, depth) = unsafe { (ffi::sqlite3_preupdate_count(db), ffi::sqlite3_preupdate_depth(db)) };
    let stop = hook.on_change(&RowChange {
        db,
        kind,
        schema: schema.to_bytes(),
        table: table.to_bytes(),
        old_rowid,
        new_rowid,
        blob_write,
        columns: columns.max(0) as usize,
        depth: depth.max(0) as usize,
    });
    if stop {
        // SAFETY: `db` is open; it may be interrupted at any time, also from within its own statement.
        unsafe { ffi::sqlite3_interrupt(db) };
    }
}

impl RowChange<'_> {
    pub fn kind(&self) -> ChangeKind {
        self.kind
    }

    /// `main`, `temp` or the name of an attached database.
    pub fn schema(&self) -> &[u8] {
        self.schema
    }

    pub fn table(&self) -> &[u8] {
        self.table
    }

    pub fn old_rowid(&self) -> i64 {
        self.old_rowid
    }

    pub fn new_rowid(&self) -> i64 {
        self.new_rowid
    }

    /// Whether the change comes from a blob handle.
    pub fn blob_write(&self) -> bool {
        self.blob_write
    }

    /// Number of columns of the table, generated ones included.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Number of triggers and foreign key actions between the statement and this change.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Value before the change, or SQLite's result code.
    pub fn before(&self, column: u16) -> Result<ValueRef<'_>, c_int> {
        let mut value = std::ptr::null_mut();
        // SAFETY: only constructed inside the hook; `value` is a valid out-pointer.
        let rc = unsafe { ffi::sqlite3_preupdate_old(self.db, c_int::from(column), &mut value) };
        // SAFETY: SQLite's value lives until the hook returns, and `self` no longer than that.
        unsafe { read_value(rc, value) }
    }

    /// Value after the change, or SQLite's result code.
    pub fn after(&self, column: u16) -> Result<ValueRef<'_>, c_int> {
        let mut value = std::ptr::null_mut();
        // SAFETY: only constructed inside the hook; `value` is a valid out-pointer.
        let rc = unsafe { ffi::sqlite3_preupdate_new(self.db, c_int::from(column), &mut value) };
        // SAFETY: SQLite's value lives until the hook returns, and `self` no longer than that.
        unsafe { read_value(rc, value) }
    }
}

/// Reads the value behind a pointer, or returns the error code. SQLite can run out of memory here and still return OK
/// with no value.
///
/// # Safety
/// When `rc` is OK, `value` is null or a value that stays unchanged during `'a`.
unsafe fn read_value<'a>(rc: c_int, value: *mut ffi::sqlite3_value) -> Result<ValueRef<'a>, c_int> {
    if rc != ffi::SQLITE_OK {
        return Err(rc);
    }
    if value.is_null() {
        return Err(ffi::SQLITE_NOMEM);
    }
    // SAFETY: the value is valid, as the caller promises. Text is read through value_blob, which returns UTF-8 text as
    // it is (value_text would copy it to add a zero byte). The blob is read before its length, because reading it
    // expands a zeroblob. Value and length are of the same value with no conversion in between.
    unsafe {
        Ok(match ffi::sqlite3_value_type(value) {
            ffi::SQLITE_INTEGER => ValueRef::Int(ffi::sqlite3_value_int64(value)),
            ffi::SQLITE_FLOAT => ValueRef::Real(ffi::sqlite3_value_double(value)),
            ffi::SQLITE_NULL => ValueRef::Null,
            class => {
                let start = ffi::sqlite3_value_blob(value).cast::<u8>();
                let length = ffi::sqlite3_value_bytes(value).max(0) as usize;
                let bytes = match (start.is_null(), length) {
                    (_, 0) => &[],
                    (true, _) => return Err(ffi::SQLITE_NOMEM),
                    (false, _) => std::slice::from_raw_parts(start, length),
                };
                if class == ffi::SQLITE_TEXT { ValueRef::Text(bytes) } else { ValueRef::Blob(bytes) }
            }
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::conn::OpenFlags;
    use super::*;

    /// Counts changes.
    #[derive(Default)]
    struct Seen(usize);

    impl RowHook for Seen {
        fn on_change(&mut self, _: &RowChange<'_>) -> bool {
            self.0 += 1;
            false
        }
    }

    struct Other;

    impl RowHook for Other {
        fn on_change(&mut self, _: &RowChange<'_>) -> bool {
            false
        }
    }

    /// Writes two bytes into row 1 of column b of table t through a blob handle.
    pub(crate) fn write_through_a_blob_handle(conn: &mut Conn) {
        let mut blob = std::ptr::null_mut();
        // SAFETY: `db` is open, the names are NUL-terminated, `blob` is a valid out-pointer and closed below.
        unsafe {
            let (main, table, column) = (c"main".as_ptr(), c"t".as_ptr(), c"b".as_ptr());
            let rc = ffi::sqlite3_blob_open(conn.db(), main, table, column, 1, 1, &mut blob);
            assert_eq!(rc, ffi::SQLITE_OK);
            ffi::sqlite3_blob_write(blob, c"ab".as_ptr().cast(), 2, 0);
            ffi::sqlite3_blob_close(blob);
        }
    }

    #[test]
    fn a_hook_comes_before_the_first_statement_and_stays() {
        let mut conn = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        conn.exec("CREATE TABLE t(b); INSERT INTO t VALUES(1), (2)").unwrap();
        let early = conn.prepare("DELETE FROM t").unwrap();
        assert!(conn.install_row_hook(Seen::default()).is_err());
        conn.finalize(early);
        conn.install_row_hook(Seen::default()).unwrap();
        assert!(conn.install_row_hook(Other).is_err(), "it is never replaced");
        assert!(conn.has_row_hook() && conn.row_hook::<Other>().is_none());
        conn.exec("DELETE FROM t").unwrap();
        assert_eq!(conn.row_hook::<Seen>().unwrap().0, 2);
    }
}
