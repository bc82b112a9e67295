//! Journals and temporary files: kept in memory up to a bound, then in an unlinked file in the data directory (RULE
//! 18).
//!
//! A rollback journal of the writer is written, sometimes read back, and truncated at each commit; it never has to survive
//! the process. The buffer is kept across truncations, so an ordinary batch allocates nothing.
//!
//! SQLite's methods for such a file serve anything that is a [`ByteFile`], including a session's temporary tables
//! ([`super::temp_file`]).

use crate::pages::scratch::unlinked_file;
use rusqlite::ffi;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Bytes of one file kept in memory.
const MEMORY_BYTES_MAX: usize = 4 << 20;

/// A file whose content is not needed after the process ends.
pub trait ByteFile {
    fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Reads the bytes that exist; the rest of `out` is zeroed. Returns whether all bytes existed.
    fn read(&self, out: &mut [u8], offset: u64) -> io::Result<bool>;
    fn truncate(&mut self, size: u64) -> io::Result<()>;
    fn length(&self) -> u64;
}

/// One journal or temporary file.
pub struct ScratchFile {
    dir: PathBuf,
    memory: Vec<u8>,
    memory_bytes_max: usize,
    /// Bytes from `memory_bytes_max` on, at the same offsets; made when first needed.
    spill: Option<File>,
    length: u64,
}

#[repr(C)]
struct Handle {
    base: ffi::sqlite3_file,
    file: *mut Box<dyn ByteFile>,
}

/// Bytes that SQLite must allocate for a handle.
pub fn handle_size() -> usize {
    size_of::<Handle>()
}

/// Fills SQLite's handle `f`.
///
/// # Safety
/// `f` points to at least [`handle_size`] writable bytes.
pub unsafe fn open(f: *mut ffi::sqlite3_file, file: impl ByteFile + 'static) -> c_int {
    let file: Box<dyn ByteFile> = Box::new(file);
    // SAFETY: as the caller promises.
    unsafe {
        f.cast::<Handle>()
            .write(Handle { base: ffi::sqlite3_file { pMethods: &METHODS }, file: Box::into_raw(Box::new(file)) });
    }
    ffi::SQLITE_OK
}

impl ScratchFile {
    pub fn new(dir: PathBuf) -> ScratchFile {
        ScratchFile::with_memory(dir, MEMORY_BYTES_MAX)
    }

    /// Makes a file that keeps at most `memory_bytes_max` bytes in memory.
    pub fn with_memory(dir: PathBuf, memory_bytes_max: usize) -> ScratchFile {
        ScratchFile { dir, memory: Vec::new(), memory_bytes_max, spill: None, length: 0 }
    }
}

impl ByteFile for ScratchFile {
    fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        let in_memory = (self.memory_bytes_max as u64).saturating_sub(offset).min(bytes.len() as u64) as usize;
        let (head, tail) = bytes.split_at(in_memory);
        if !head.is_empty() {
            let at = offset as usize;
            if at == self.memory.len() {
                self.memory.extend_from_slice(head);
            } else {
                if self.memory.len() < at + head.len() {
                    self.memory.resize(at + head.len(), 0);
                }
                self.memory[at..at + head.len()].copy_from_slice(head);
            }
        }
        if !tail.is_empty() {
            if self.spill.is_none() {
                self.spill = Some(unlinked_file(&self.dir)?);
            }
            if let Some(spill) = &self.spill {
                spill.write_all_at(tail, offset + in_memory as u64)?;
            }
        }
        self.length = self.length.max(end);
        Ok(())
    }

    fn read(&self, out: &mut [u8], offset: u64) -> io::Result<bool> {
        let there = self.length.saturating_sub(offset).min(out.len() as u64) as usize;
        let (out, beyond) = out.split_at_mut(there);
        beyond.fill(0);
        let in_memory = (self.memory_bytes_max as u64).saturating_sub(offset).min(out.len() as u64) as usize;
        let (head, tail) = out.split_at_mut(in_memory);
        if !head.is_empty() {
            let at = offset as usize;
            let have = self.memory.len().saturating_sub(at).min(head.len());
            head[..have].copy_from_slice(&self.memory[at..at + have]);
            head[have..].fill(0);
        }
        if !tail.is_empty()
            && let Some(spill) = &self.spill
        {
            spill.read_exact_at(tail, offset + in_memory as u64)?;
        }
        Ok(beyond.is_empty())
    }

    fn truncate(&mut self, size: u64) -> io::Result<()> {
        self.memory.truncate(size.min(self.memory_bytes_max as u64) as usize);
        if size <= self.memory_bytes_max as u64 {
            self.spill = None;
        } else if let Some(spill) = &self.spill {
            spill.set_len(size)?;
        }
        self.length = size;
        Ok(())
    }

    fn length(&self) -> u64 {
        self.length
    }
}

/// # Safety
/// `f` must be a handle that [`open`] filled.
unsafe fn scratch<'a>(f: *mut ffi::sqlite3_file) -> &'a mut dyn ByteFile {
    // SAFETY: SQLite calls methods of one file from one thread at a time, so the exclusive borrow is unique.
    unsafe { &mut **(*f.cast::<Handle>()).file }
}

fn code(result: io::Result<()>, otherwise: c_int) -> c_int {
    match result {
        Ok(()) => ffi::SQLITE_OK,
        Err(e) if e.kind() == io::ErrorKind::StorageFull => ffi::SQLITE_FULL,
        Err(e) => {
            tracing::error!("scratch file I/O failed: {e}");
            otherwise
        }
    }
}

unsafe extern "C" fn close(f: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: `f` is ours and not used again.
    drop(unsafe { Box::from_raw((*f.cast::<Handle>()).file) });
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(f: *mut ffi::sqlite3_file, buf: *mut c_void, n: c_int, offset: i64) -> c_int {
    // SAFETY: `f` is ours; SQLite passes a buffer of `n` bytes.
    let (file, out) = unsafe { (scratch(f), std::slice::from_raw_parts_mut(buf.cast::<u8>(), n as usize)) };
    match file.read(out, offset as u64) {
        Ok(true) => ffi::SQLITE_OK,
        Ok(false) => ffi::SQLITE_IOERR_SHORT_READ,
        Err(e) => code(Err(e), ffi::SQLITE_IOERR_READ),
    }
}

unsafe extern "C" fn write(f: *mut ffi::sqlite3_file, buf: *const c_void, n: c_int, offset: i64) -> c_int {
    // SAFETY: `f` is ours; SQLite passes a buffer of `n` bytes.
    let (file, bytes) = unsafe { (scratch(f), std::slice::from_raw_parts(buf.cast::<u8>(), n as usize)) };
    code(file.write(bytes, offset as u64), ffi::SQLITE_IOERR_WRITE)
}

unsafe extern "C" fn truncate(f: *mut ffi::sqlite3_file, size: i64) -> c_int {
    // SAFETY: `f` is ours.
    code(unsafe { scratch(f) }.truncate(size as u64), ffi::SQLITE_IOERR_TRUNCATE)
}

unsafe extern "C" fn file_size(f: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: `f` is ours, `out` valid.
    unsafe { *out = scratch(f).length() as i64 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn nothing(_f: *mut ffi::sqlite3_file, _n: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved(_f: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: `out` is valid.
    unsafe { *out = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(_f: *mut ffi::sqlite3_file, _op: c_int, _arg: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_f: *mut ffi::sqlite3_file) -> c_int {
    512
}

unsafe extern "C" fn characteristics(_f: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_SAFE_APPEND | ffi::SQLITE_IOCAP_SEQUENTIAL | ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(nothing),
    xFileSize: Some(file_size),
    xLock: Some(nothing),
    xUnlock: Some(nothing),
    xCheckReservedLock: Some(check_reserved),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_spill_read_as_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut f = ScratchFile::new(dir.path().into());
        let edge = MEMORY_BYTES_MAX as u64 - 10;
        f.write(&[1; 30], edge).unwrap();
        f.write(b"head", 0).unwrap();
        let mut out = [9; 40];
        assert!(!f.read(&mut out, edge).unwrap(), "ten bytes are missing");
        assert_eq!(out[..30], [1; 30]);
        assert_eq!(out[30..], [0; 10]);
        f.truncate(2).unwrap();
        let mut out = [9; 4];
        assert!(!f.read(&mut out, 0).unwrap());
        assert_eq!(&out, b"he\0\0");
    }
}
