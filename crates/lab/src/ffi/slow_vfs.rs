//! A VFS over SQLite's own that counts syncs and makes each take longer, to show on a fast disk what stock SQLite
//! does on a slow one. Everything else is passed on as it is, so the locking, the shared memory and the bytes are
//! those of the `unix` VFS.
//!
//! A sync is an xSync of a file (after the real one has returned, the added delay) or an xDelete that syncs the
//! directory. The `unix` VFS may sync a new journal's directory inside the journal's first xSync: that counts as
//! one. A VFS stays registered until the process ends, so each is leaked on purpose; register few.
//!
//! Failure: registering fails when SQLite has no default VFS or the name holds a zero byte; a registered VFS returns
//! what the one below returns, and never panics.

use holdfast_store::sqlite::{SqliteError, ffi};
use std::ffi::CString;
use std::os::raw::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A registered VFS: open databases with its name.
#[derive(Clone, Copy)]
pub struct SlowVfs {
    shim: &'static Shim,
}

/// What the C callbacks need; reached through `pAppData`.
struct Shim {
    /// The VFS below. Registered VFSs are never freed.
    below: *mut ffi::sqlite3_vfs,
    name: CString,
    delay: Duration,
    syncs: AtomicU64,
}

// SAFETY: `below` points to SQLite's default VFS, a static of the library whose functions may be called from any
// thread (sqlite.org/c3ref/vfs.html); the other fields are Sync themselves.
unsafe impl Sync for Shim {}
// SAFETY: as above; nothing in it belongs to a thread.
unsafe impl Send for Shim {}

impl SlowVfs {
    /// Registers a VFS called `name` over the default one; each of its syncs takes `delay` longer.
    pub fn register(name: &str, delay: Duration) -> Result<SlowVfs, SqliteError> {
        let refuse = |message: String| SqliteError { code: ffi::SQLITE_MISUSE, message, offset: None };
        let name = CString::new(name).map_err(|_| refuse(format!("VFS name {name:?} holds a zero byte")))?;
        // SAFETY: a null name asks for the default VFS; the result is null or lives as long as the process.
        let below = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) };
        if below.is_null() {
            return Err(refuse("SQLite has no default VFS to build on".into()));
        }
        let shim: &'static Shim = Box::leak(Box::new(Shim { below, name, delay, syncs: AtomicU64::new(0) }));
        let vfs = Box::into_raw(Box::new(vfs_over(shim)));
        // SAFETY: `vfs` is valid and leaked, so it outlives its registration; 0 keeps the default VFS as it is.
        match unsafe { ffi::sqlite3_vfs_register(vfs, 0) } {
            ffi::SQLITE_OK => Ok(SlowVfs { shim }),
            code => Err(SqliteError { code, message: "cannot register the VFS".into(), offset: None }),
        }
    }

    /// The name to open databases with.
    pub fn name(&self) -> &'static std::ffi::CStr {
        &self.shim.name
    }

    /// Syncs since registration.
    pub fn syncs(&self) -> u64 {
        self.shim.syncs.load(Ordering::Relaxed)
    }
}

impl Shim {
    fn synced(&self) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
    }
}

/// Our part of an open file. The file of the VFS below follows it in the same allocation, which SQLite makes
/// `szOsFile` bytes large.
#[repr(C)]
struct SlowFile {
    base: ffi::sqlite3_file,
    shim: *const Shim,
}

const FILE_BYTES: usize = size_of::<SlowFile>();
// The file below starts right after ours and must be as aligned as SQLite's allocation (8 bytes).
const _: () = assert!(FILE_BYTES.is_multiple_of(8));

fn vfs_over(shim: &'static Shim) -> ffi::sqlite3_vfs {
    // SAFETY: `below` is a valid VFS (see `register`); only plain integers are read.
    let (below_bytes, path_max) = unsafe { ((*shim.below).szOsFile, (*shim.below).mxPathname) };
    ffi::sqlite3_vfs {
        iVersion: 2,
        szOsFile: FILE_BYTES as c_int + below_bytes,
        mxPathname: path_max,
        pNext: std::ptr::null_mut(),
        zName: shim.name.as_ptr(),
        pAppData: std::ptr::from_ref(shim).cast_mut().cast(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: None,
        xDlError: None,
        xDlSym: None,
        xDlClose: None,
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: Some(get_last_error),
        xCurrentTimeInt64: Some(current_time_int64),
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    }
}

/// The shim behind a VFS pointer SQLite hands to a callback.
///
/// SAFETY (caller): `vfs` is one that `vfs_over` built, as for every callback below.
unsafe fn shim_of<'a>(vfs: *mut ffi::sqlite3_vfs) -> &'a Shim {
    // SAFETY: `pAppData` was set to a leaked Shim.
    unsafe { &*(*vfs).pAppData.cast::<Shim>() }
}

/// The file of the VFS below.
///
/// SAFETY (caller): `file` was allocated by SQLite with our `szOsFile`.
unsafe fn below_of(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: the allocation holds the file below right after ours.
    unsafe { file.cast::<u8>().add(FILE_BYTES).cast() }
}

/// Calls a method of the VFS below. It is there: every VFS has the methods of version 1 and 2 used here.
macro_rules! vfs_below {
    ($vfs:expr, $method:ident, $missing:expr $(, $arg:expr)*) => {{
        // SAFETY: `$vfs` is ours, so its shim holds a valid VFS; the arguments are SQLite's, passed on unchanged.
        unsafe {
            let below = shim_of($vfs).below;
            match (*below).$method {
                Some(call) => call(below $(, $arg)*),
                None => $missing,
            }
        }
    }};
}

/// Calls a method of the file below; SQLite calls ours only when the file below is open.
macro_rules! file_below {
    ($file:expr, $method:ident, $missing:expr $(, $arg:expr)*) => {{
        // SAFETY: `$file` is ours and open, so the file below is too and has a method table; the arguments are
        // SQLite's, passed on unchanged.
        unsafe {
            let below = below_of($file);
            match (*(*below).pMethods).$method {
                Some(call) => call(below $(, $arg)*),
                None => $missing,
            }
        }
    }};
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: `file` has room for our part and the file below; until the file below is open ours has no methods, so
    // that SQLite will not close it.
    let below = unsafe {
        let ours = file.cast::<SlowFile>();
        (*ours).base.pMethods = std::ptr::null();
        (*ours).shim = shim_of(vfs);
        below_of(file)
    };
    let rc = vfs_below!(vfs, xOpen, ffi::SQLITE_CANTOPEN, name, below, flags, out_flags);
    // SAFETY: as above. The VFS below says by its own method table whether there is something to close, even when
    // opening failed.
    unsafe {
        if !(*below).pMethods.is_null() {
            (*file).pMethods = methods_for((*(*below).pMethods).iVersion);
        }
    }
    rc
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync_dir: c_int) -> c_int {
    let rc = vfs_below!(vfs, xDelete, ffi::SQLITE_IOERR_DELETE, name, sync_dir);
    if sync_dir != 0 && rc == ffi::SQLITE_OK {
        // SAFETY: the VFS is ours.
        unsafe { shim_of(vfs) }.synced();
    }
    rc
}

unsafe extern "C" fn access(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    result: *mut c_int,
) -> c_int {
    vfs_below!(vfs, xAccess, ffi::SQLITE_IOERR_ACCESS, name, flags, result)
}

unsafe extern "C" fn full_pathname(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    room: c_int,
    out: *mut c_char,
) -> c_int {
    vfs_below!(vfs, xFullPathname, ffi::SQLITE_CANTOPEN, name, room, out)
}

unsafe extern "C" fn randomness(vfs: *mut ffi::sqlite3_vfs, bytes: c_int, out: *mut c_char) -> c_int {
    vfs_below!(vfs, xRandomness, 0, bytes, out)
}

unsafe extern "C" fn sleep(vfs: *mut ffi::sqlite3_vfs, us: c_int) -> c_int {
    vfs_below!(vfs, xSleep, 0, us)
}

unsafe extern "C" fn current_time(vfs: *mut ffi::sqlite3_vfs, out: *mut f64) -> c_int {
    vfs_below!(vfs, xCurrentTime, ffi::SQLITE_ERROR, out)
}

unsafe extern "C" fn current_time_int64(vfs: *mut ffi::sqlite3_vfs, out: *mut i64) -> c_int {
    vfs_below!(vfs, xCurrentTimeInt64, ffi::SQLITE_ERROR, out)
}

unsafe extern "C" fn get_last_error(vfs: *mut ffi::sqlite3_vfs, room: c_int, out: *mut c_char) -> c_int {
    vfs_below!(vfs, xGetLastError, 0, room, out)
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    file_below!(file, xClose, ffi::SQLITE_OK)
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, out: *mut c_void, bytes: c_int, at: i64) -> c_int {
    file_below!(file, xRead, ffi::SQLITE_IOERR_READ, out, bytes, at)
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, from: *const c_void, bytes: c_int, at: i64) -> c_int {
    file_below!(file, xWrite, ffi::SQLITE_IOERR_WRITE, from, bytes, at)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, bytes: i64) -> c_int {
    file_below!(file, xTruncate, ffi::SQLITE_IOERR_TRUNCATE, bytes)
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    let rc = file_below!(file, xSync, ffi::SQLITE_IOERR_FSYNC, flags);
    // SAFETY: the file is ours and open, its shim a leaked one.
    unsafe { &*(*file.cast::<SlowFile>()).shim }.synced();
    rc
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    file_below!(file, xFileSize, ffi::SQLITE_IOERR_FSTAT, out)
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    file_below!(file, xLock, ffi::SQLITE_IOERR_LOCK, level)
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    file_below!(file, xUnlock, ffi::SQLITE_IOERR_UNLOCK, level)
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    file_below!(file, xCheckReservedLock, ffi::SQLITE_IOERR_CHECKRESERVEDLOCK, out)
}

unsafe extern "C" fn file_control(file: *mut ffi::sqlite3_file, op: c_int, arg: *mut c_void) -> c_int {
    file_below!(file, xFileControl, ffi::SQLITE_NOTFOUND, op, arg)
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    file_below!(file, xSectorSize, 0)
}

unsafe extern "C" fn device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    file_below!(file, xDeviceCharacteristics, 0)
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    file_below!(file, xShmMap, ffi::SQLITE_IOERR_SHMMAP, region, bytes, extend, out)
}

unsafe extern "C" fn shm_lock(file: *mut ffi::sqlite3_file, offset: c_int, n: c_int, flags: c_int) -> c_int {
    file_below!(file, xShmLock, ffi::SQLITE_IOERR_SHMLOCK, offset, n, flags)
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    file_below!(file, xShmBarrier, ())
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    file_below!(file, xShmUnmap, ffi::SQLITE_OK, delete)
}

/// The method table for a file whose file below has methods of `version`: ours never offers more than it can pass
/// on. Memory-mapped reads (version 3) are not offered; SQLite then reads, which is what it does by default.
fn methods_for(version: c_int) -> *const ffi::sqlite3_io_methods {
    if version >= 2 { &WITH_SHM } else { &WITHOUT_SHM }
}

const fn methods(version: c_int) -> ffi::sqlite3_io_methods {
    ffi::sqlite3_io_methods {
        iVersion: version,
        xClose: Some(close),
        xRead: Some(read),
        xWrite: Some(write),
        xTruncate: Some(truncate),
        xSync: Some(sync),
        xFileSize: Some(file_size),
        xLock: Some(lock),
        xUnlock: Some(unlock),
        xCheckReservedLock: Some(check_reserved_lock),
        xFileControl: Some(file_control),
        xSectorSize: Some(sector_size),
        xDeviceCharacteristics: Some(device_characteristics),
        xShmMap: Some(shm_map),
        xShmLock: Some(shm_lock),
        xShmBarrier: Some(shm_barrier),
        xShmUnmap: Some(shm_unmap),
        xFetch: None,
        xUnfetch: None,
    }
}

static WITH_SHM: ffi::sqlite3_io_methods = methods(2);
static WITHOUT_SHM: ffi::sqlite3_io_methods = methods(1);

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_store::sqlite::{Conn, OpenFlags};
    use std::time::Instant;

    fn open_at(dir: &std::path::Path, vfs: SlowVfs) -> Conn {
        let name = dir.join("a.db").to_string_lossy().into_owned();
        Conn::open(&name, OpenFlags { write: true, create: true }, Some(vfs.name())).unwrap()
    }

    #[test]
    fn a_durable_commit_syncs_and_an_undurable_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let vfs = SlowVfs::register("slow-test-count", Duration::ZERO).unwrap();
        let mut c = open_at(dir.path(), vfs);
        c.exec("pragma synchronous=full; create table t(a)").unwrap();
        let before = vfs.syncs();
        c.exec("insert into t values(1)").unwrap();
        let after = vfs.syncs();
        assert!(after > before, "a rollback-journal commit syncs the journal and the file");
        c.exec("pragma synchronous=off; insert into t values(2)").unwrap();
        assert_eq!(vfs.syncs(), after);
    }

    #[test]
    fn the_wal_works_through_it() {
        let dir = tempfile::tempdir().unwrap();
        let vfs = SlowVfs::register("slow-test-wal", Duration::ZERO).unwrap();
        let mut c = open_at(dir.path(), vfs);
        let mode = c.query_value("pragma journal_mode=wal").unwrap();
        assert_eq!(mode, holdfast_types::Value::Text("wal".into()));
        c.exec("pragma synchronous=full; create table t(a)").unwrap();
        let before = vfs.syncs();
        c.exec("insert into t values(1)").unwrap();
        assert_eq!(vfs.syncs(), before + 1, "a WAL commit at FULL is one sync");
        let mut second = open_at(dir.path(), vfs);
        assert_eq!(second.query_value("select count(*) from t").unwrap(), holdfast_types::Value::Int(1));
    }

    #[test]
    fn every_sync_takes_at_least_the_delay() {
        let dir = tempfile::tempdir().unwrap();
        let delay = Duration::from_millis(3);
        let vfs = SlowVfs::register("slow-test-delay", delay).unwrap();
        let mut c = open_at(dir.path(), vfs);
        c.exec("create table t(a)").unwrap();
        let (before, start) = (vfs.syncs(), Instant::now());
        c.exec("insert into t values(1)").unwrap();
        let syncs = vfs.syncs() - before;
        assert!(syncs > 0 && start.elapsed() >= delay * syncs as u32);
    }
}
