//! Registers the preupdate hook (sqlite.org/c3ref/preupdate_blobwrite.html) and shows each row change to the
//! connection's [`Capture`].
//!
//! The hook must see every change, so it is registered before anything is prepared and stays until the connection
//! is closed: a DELETE prepared without the hook empties the table without a word.
//!
//! Failure: nothing can be returned from inside the hook. The [`Capture`] keeps the first error, and the transaction
//! must ask for it before it commits.

use super::conn::Conn;
use super::error::SqliteError;
use crate::capture::{Capture, Change, ChangeKind};
use holdfast_types::ValueRef;
use rusqlite::ffi;
use std::ffi::CStr;
use std::os::raw::{c_char, c_int, c_void};

impl Conn {
    /// From now on every row change of this connection goes to `capture`. Fails when a statement is already
    /// prepared, as that one could change rows unseen, or when a capture is installed already.
    pub fn install_capture(&mut self, capture: Capture) -> Result<(), SqliteError> {
        // SAFETY: `db` is open; a null statement asks for the first one.
        let prepared = unsafe { ffi::sqlite3_next_stmt(self.db(), std::ptr::null_mut()) };
        if !prepared.is_null() || self.capture.is_some() {
            return Err(SqliteError {
                code: ffi::SQLITE_MISUSE,
                message: "row capture must be installed once, before any statement is prepared".into(),
                offset: None,
            });
        }
        let context = Box::into_raw(Box::new(capture));
        self.capture = Some(context);
        // SAFETY: `db` is open. The context lives until `Conn` has closed the connection, see its Drop.
        unsafe { ffi::sqlite3_preupdate_hook(self.db(), Some(on_preupdate), context.cast()) };
        Ok(())
    }

    /// Whether [`Conn::install_capture`] was called.
    pub fn captures(&self) -> bool {
        self.capture.is_some()
    }

    /// What this connection has captured. Panics when no capture is installed, which is a programming error.
    pub fn capture(&mut self) -> &mut Capture {
        let context = self.capture.expect("install_capture is called when a writing connection is opened");
        // SAFETY: made by Box::into_raw and freed only in Drop. The hook, the other user, runs only inside calls that
        // take `&mut Conn` or through a statement stepped by such a call, so never while this borrow lives.
        unsafe { &mut *context }
    }
}

/// Called by SQLite before each row change.
///
/// # Safety
/// `context` is the `Capture` given at registration, `db` the connection, both names are NUL-terminated.
unsafe extern "C" fn on_preupdate(
    context: *mut c_void,
    db: *mut ffi::sqlite3,
    op: c_int,
    schema: *const c_char,
    table: *const c_char,
    old_rowid: i64,
    new_rowid: i64,
) {
    // SAFETY: SQLite passes what was registered; see Conn::capture for why there is no other borrow.
    let capture = unsafe { &mut *context.cast::<Capture>() };
    // SAFETY: both names are NUL-terminated and live at least as long as this call.
    let (schema, table) = unsafe { (CStr::from_ptr(schema), CStr::from_ptr(table)) };
    // SAFETY: called from within the hook, as the function asks.
    let blob_write = unsafe { ffi::sqlite3_preupdate_blobwrite(db) } >= 0;
    let kind = match op {
        ffi::SQLITE_INSERT => ChangeKind::Insert,
        ffi::SQLITE_UPDATE => ChangeKind::Update,
        _ => ChangeKind::Delete,
    };
    // SAFETY: as above, two more of the functions made for the hook.
    let (columns, depth) = unsafe { (ffi::sqlite3_preupdate_count(db), ffi::sqlite3_preupdate_depth(db)) };
    let stop = capture.on_change(&HookChange {
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

/// One change, as long as the hook runs.
struct HookChange<'a> {
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

impl Change for HookChange<'_> {
    fn kind(&self) -> ChangeKind {
        self.kind
    }
    fn schema(&self) -> &[u8] {
        self.schema
    }
    fn table(&self) -> &[u8] {
        self.table
    }
    fn old_rowid(&self) -> i64 {
        self.old_rowid
    }
    fn new_rowid(&self) -> i64 {
        self.new_rowid
    }
    fn blob_write(&self) -> bool {
        self.blob_write
    }
    fn columns(&self) -> usize {
        self.columns
    }
    fn depth(&self) -> usize {
        self.depth
    }

    fn before(&self, column: u16) -> Result<ValueRef<'_>, c_int> {
        let mut value = std::ptr::null_mut();
        // SAFETY: only constructed inside the hook; `value` is a valid out-pointer.
        let rc = unsafe { ffi::sqlite3_preupdate_old(self.db, c_int::from(column), &mut value) };
        // SAFETY: SQLite's value lives until the hook returns, and `self` no longer than that.
        unsafe { read_value(rc, value) }
    }

    fn after(&self, column: u16) -> Result<ValueRef<'_>, c_int> {
        let mut value = std::ptr::null_mut();
        // SAFETY: only constructed inside the hook; `value` is a valid out-pointer.
        let rc = unsafe { ffi::sqlite3_preupdate_new(self.db, c_int::from(column), &mut value) };
        // SAFETY: SQLite's value lives until the hook returns, and `self` no longer than that.
        unsafe { read_value(rc, value) }
    }
}

/// The value behind a pointer, or the error code. SQLite can run out of memory here and still return OK with no
/// value.
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
    // it is (value_text would copy it to end it with a zero byte); the blob is asked for before its length, because
    // that expands a zeroblob. Value and length are of the same value with no conversion in between.
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
mod tests {
    use super::super::OpenFlags;
    use super::*;
    use crate::capture::CaptureError;
    use crate::schema_map::create_internal_tables;
    use holdfast_types::VolumeId;
    use std::sync::Arc;

    fn memory(schema: &str) -> Conn {
        let mut conn = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        conn.exec(schema).unwrap();
        let map = create_internal_tables(&mut conn, VolumeId(1)).unwrap();
        conn.install_capture(Capture::new(Arc::new(map))).unwrap();
        conn
    }

    #[test]
    fn capture_comes_before_the_first_statement() {
        let mut conn = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        let map = Arc::new(create_internal_tables(&mut conn, VolumeId(1)).unwrap());
        let early = conn.prepare("DELETE FROM holdfast_tables").unwrap();
        assert!(conn.install_capture(Capture::new(Arc::clone(&map))).is_err());
        conn.finalize(early);
        conn.install_capture(Capture::new(Arc::clone(&map))).unwrap();
        assert!(conn.install_capture(Capture::new(map)).is_err(), "it is never replaced");
    }

    #[test]
    fn a_blob_handle_cannot_change_a_row_unseen() {
        let mut conn = memory("CREATE TABLE t(b); INSERT INTO t VALUES(zeroblob(4))");
        let mut blob = std::ptr::null_mut();
        // SAFETY: `db` is open, the names are NUL-terminated, `blob` is a valid out-pointer and closed below.
        unsafe {
            let (main, table, column) = (c"main".as_ptr(), c"t".as_ptr(), c"b".as_ptr());
            let rc = ffi::sqlite3_blob_open(conn.db(), main, table, column, 1, 1, &mut blob);
            assert_eq!(rc, ffi::SQLITE_OK);
            ffi::sqlite3_blob_write(blob, c"ab".as_ptr().cast(), 2, 0);
            ffi::sqlite3_blob_close(blob);
        }
        assert_eq!(conn.capture().check(), Err(CaptureError::BlobHandle { table: "t".into() }));
        assert!(conn.capture().is_empty(), "it is not recorded as the DELETE that SQLite reports");
    }
}
