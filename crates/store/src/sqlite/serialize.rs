//! Reads a database's bytes, and sets how many bytes SQLite leaves free in each page.

use super::conn::Conn;
use super::error::SqliteError;
use rusqlite::ffi;
use std::ffi::c_int;

impl Conn {
    /// Sets the reserved bytes of each page. Works only before anything was written, or before VACUUM.
    pub fn reserve_bytes(&mut self, bytes: u8) -> Result<(), SqliteError> {
        let mut n = c_int::from(bytes);
        // SAFETY: the file control takes a pointer to int and writes the old value there.
        let rc = unsafe {
            let to = (&raw mut n).cast();
            ffi::sqlite3_file_control(self.db(), c"main".as_ptr(), ffi::SQLITE_FCNTL_RESERVE_BYTES, to)
        };
        if rc == ffi::SQLITE_OK { Ok(()) } else { Err(self.last_error(rc)) }
    }

    /// The database file's bytes, for databases that fit in memory.
    pub fn serialize(&mut self) -> Result<Vec<u8>, SqliteError> {
        let mut size = 0i64;
        // SAFETY: sqlite3_serialize returns null or memory of `size` bytes that we must free.
        unsafe {
            let p = ffi::sqlite3_serialize(self.db(), c"main".as_ptr(), &mut size, 0);
            if p.is_null() {
                return Err(self.last_error(ffi::SQLITE_NOMEM));
            }
            let bytes = std::slice::from_raw_parts(p, size as usize).to_vec();
            ffi::sqlite3_free(p.cast());
            Ok(bytes)
        }
    }
}
