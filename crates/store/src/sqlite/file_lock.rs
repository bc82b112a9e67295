//! SQLite's lock bytes, held while a volume is served (RULE 13).
//!
//! The locks are OFD locks (fcntl(2), F_OFD_SETLK). They belong to the open file, so closing another descriptor of the
//! same file in this process does not release them, unlike SQLite's own POSIX locks. Every other program gets "database
//! is locked" for reading and writing.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// PENDING byte, RESERVED byte and the SHARED range (sqlite.org/fileformat2.html, "lock-byte page").
const FIRST_BYTE: i64 = 0x4000_0000;
const BYTES: i64 = 2 + 510;

/// Holds the lock until dropped. It is released explicitly, because the kernel itself releases it only when the last
/// descriptor closes, and a child process that is just being started has a copy of each until its exec.
pub struct FileLock {
    file: File,
}

/// Sets or releases the lock; `kind` is F_WRLCK or F_UNLCK.
fn set(file: &File, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: `flock` is plain data for which zero is valid.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = kind as i16;
    range.l_whence = libc::SEEK_SET as i16;
    range.l_start = FIRST_BYTE;
    range.l_len = BYTES;
    // SAFETY: the descriptor is open and the pointer valid for the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &range) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // An error leaves the release to the close that follows.
        set(&self.file, libc::F_UNLCK).unwrap_or_default();
    }
}

impl FileLock {
    /// Locks a database file; `None` when another program has it open in a transaction.
    pub fn take(path: &Path) -> io::Result<Option<FileLock>> {
        let file = File::options().read(true).write(true).open(path)?;
        match set(&file, libc::F_WRLCK) {
            Ok(()) => Ok(Some(FileLock { file })),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EACCES) => Ok(None),
                _ => Err(error),
            },
        }
    }
}
