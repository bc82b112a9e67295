//! SQLite's lock bytes, held while a volume is served (RULE 13).
//!
//! The locks are OFD locks (fcntl(2), F_OFD_SETLK): they belong to our open file, so that closing another descriptor
//! of the same file in this process does not give them up, as it would with SQLite's own POSIX locks. Every other
//! program gets "database is locked" for reading and writing.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// PENDING byte, RESERVED byte and the SHARED range (sqlite.org/fileformat2.html, "lock-byte page").
const FIRST_BYTE: i64 = 0x4000_0000;
const BYTES: i64 = 2 + 510;

/// Holds the lock until dropped.
pub struct FileLock {
    _file: File,
}

impl FileLock {
    /// Locks a database file; `None` when another program has it open in a transaction.
    pub fn take(path: &Path) -> io::Result<Option<FileLock>> {
        let file = File::options().read(true).write(true).open(path)?;
        // SAFETY: `flock` is plain data for which zero is valid.
        let mut range: libc::flock = unsafe { std::mem::zeroed() };
        range.l_type = libc::F_WRLCK as i16;
        range.l_whence = libc::SEEK_SET as i16;
        range.l_start = FIRST_BYTE;
        range.l_len = BYTES;
        // SAFETY: the descriptor is open and the pointer valid for the call.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &range) } == 0 {
            return Ok(Some(FileLock { _file: file }));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => Ok(None),
            _ => Err(error),
        }
    }
}
