//! The VFS through which SQLite sees a volume's page versions.
//!
//! One VFS is registered per opened volume. It serves these kinds of file:
//!
//! | SQLite opens | gets |
//! |---|---|
//! | the database as `writer` | the writer: reads its own staged pages, then the newest version; COMMIT publishes |
//! | the database as `reader` | the newest visible snapshot, taken at the SHARED lock; writes are refused |
//! | the database as `branch` | the snapshot chosen for it and its own writes on top, which vanish with the lock, unless its COMMIT keeps them |
//! | a journal or temporary file | [`super::scratch_file`]: memory, then an unlinked file (RULE 18) |
//! | a database as `temp` | a session's temporary tables, by their number: [`super::temp_file`] |
//!
//! Page 1 as SQLite sees it differs from page 1 as stored. Bytes 18 and 19 read as 1 (a rollback-journal database; the
//! file itself has 2, because a `-wal` belongs to it). For readers and branches, bytes 24 and 92 (change counter and
//! version-valid-for) carry the snapshot number, so that a page cache is dropped exactly when the snapshot changes.
//!
//! Failure: a method that fails returns an I/O error code to SQLite and leaves the cause in [`take_cause`], because
//! SQLite's message would only say "disk I/O error".

use super::conn::Conn;
use super::scratch_file::{self, ScratchFile};
use crate::pages::{CopiedPages, PAGE_BYTES, PageStore, ReadError, Staged};
use rusqlite::ffi;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Asks the database file which snapshot its connection reads (argument: pointer to u64).
const FCNTL_SNAPSHOT: c_int = 0x4846_0001;

/// Sets which snapshot the file of a branch takes at its next SHARED lock (argument: pointer to u64).
const FCNTL_CHOOSE: c_int = 0x4846_0002;

/// From now on a branch's COMMIT keeps its pages (no argument).
const FCNTL_KEEP: c_int = 0x4846_0003;

/// Hands the kept pages over (argument: pointer to Option<CopiedPages>).
const FCNTL_TAKE: c_int = 0x4846_0004;

/// Asks how many pages are written and not published, as a `u64`.
const FCNTL_STAGED: c_int = 0x4846_0005;

thread_local! {
    static CAUSE: RefCell<Option<ReadError>> = const { RefCell::new(None) };
}

/// Why the last failed read on this thread failed.
pub fn take_cause() -> Option<ReadError> {
    CAUSE.with(|c| c.borrow_mut().take())
}

/// A registered VFS. It is unregistered when dropped, which must happen after its last connection has closed.
pub struct Vfs {
    raw: *mut ffi::sqlite3_vfs,
    name: CString,
}

// SAFETY: the structure is written once before it is registered; SQLite reads it under its own mutex.
unsafe impl Send for Vfs {}
// SAFETY: as above.
unsafe impl Sync for Vfs {}

struct Context {
    store: Arc<PageStore>,
    scratch_dir: PathBuf,
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    Writer,
    Reader,
    /// The chosen snapshot; 0 means the newest visible one.
    Branch(u64),
}

/// The open database file of one connection.
struct DbFile {
    store: Arc<PageStore>,
    role: Role,
    lock: c_int,
    /// The snapshot held while `lock` is above NONE; unused for the writer.
    snapshot: u64,
    pages: u32,
    staged: Staged,
    /// A branch's COMMIT keeps its pages.
    keeps: bool,
    kept: Option<CopiedPages>,
}

#[repr(C)]
struct DbHandle {
    base: ffi::sqlite3_file,
    file: *mut DbFile,
}

impl Vfs {
    /// Registers a VFS for `store`; temporary files go to `scratch_dir`.
    pub fn register(store: Arc<PageStore>, scratch_dir: PathBuf) -> Vfs {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let name = CString::new(format!("holdfast-{}", NEXT.fetch_add(1, Ordering::Relaxed))).unwrap_or_default();
        let context = Box::into_raw(Box::new(Context { store, scratch_dir }));
        // The next call initializes SQLite.
        super::memory::is_counted();
        // SAFETY: find(null) returns the default VFS, which lives as long as the process. The new structure and its
        // name live until `drop` has unregistered it.
        unsafe {
            let base = ffi::sqlite3_vfs_find(std::ptr::null());
            let size = size_of::<DbHandle>().max(scratch_file::handle_size()) as c_int;
            let raw = Box::into_raw(Box::new(ffi::sqlite3_vfs {
                iVersion: 2,
                szOsFile: size,
                mxPathname: 512,
                pNext: std::ptr::null_mut(),
                zName: name.as_ptr(),
                pAppData: context.cast(),
                xOpen: Some(open),
                xDelete: Some(delete),
                xAccess: Some(access),
                xFullPathname: Some(full_pathname),
                xDlOpen: None,
                xDlError: None,
                xDlSym: None,
                xDlClose: None,
                xRandomness: (*base).xRandomness,
                xSleep: (*base).xSleep,
                xCurrentTime: (*base).xCurrentTime,
                xGetLastError: None,
                xCurrentTimeInt64: (*base).xCurrentTimeInt64,
                xSetSystemCall: None,
                xGetSystemCall: None,
                xNextSystemCall: None,
            }));
            ffi::sqlite3_vfs_register(raw, 0);
            Vfs { raw, name }
        }
    }

    pub fn name(&self) -> &CStr {
        &self.name
    }
}

impl Drop for Vfs {
    fn drop(&mut self) {
        // SAFETY: `raw` was registered by `register` and no connection uses it any more (the owner's promise); both
        // boxes were made there.
        unsafe {
            ffi::sqlite3_vfs_unregister(self.raw);
            drop(Box::from_raw((*self.raw).pAppData.cast::<Context>()));
            drop(Box::from_raw(self.raw));
        }
    }
}

impl Conn {
    /// The snapshot that this connection reads. It is meaningful inside a transaction that has read something.
    pub fn snapshot(&self) -> u64 {
        let mut number = 0u64;
        // SAFETY: our own file control writes one u64; on another VFS it is unknown and nothing is written.
        unsafe {
            let to = (&raw mut number).cast::<c_void>();
            ffi::sqlite3_file_control(self.db(), c"main".as_ptr(), FCNTL_SNAPSHOT, to);
        }
        number
    }

    /// How many pages this connection has written and not published.
    pub fn staged_pages(&self) -> u64 {
        let mut count = 0u64;
        // SAFETY: our own file control writes one u64; on another VFS it is unknown and nothing is written.
        unsafe {
            let to = (&raw mut count).cast::<c_void>();
            ffi::sqlite3_file_control(self.db(), c"main".as_ptr(), FCNTL_STAGED, to);
        }
        count
    }

    /// Chooses the snapshot that a branch reads from its next transaction on. A transaction must be holding that
    /// snapshot.
    pub fn choose_snapshot(&self, mut number: u64) {
        // SAFETY: our own file control reads one u64; on another VFS it is unknown and nothing is read.
        unsafe {
            let from = (&raw mut number).cast::<c_void>();
            ffi::sqlite3_file_control(self.db(), c"main".as_ptr(), FCNTL_CHOOSE, from);
        }
    }
}

impl Conn {
    /// From now on a COMMIT of this branch keeps its pages, for [`Conn::take_pages`].
    pub fn keep_pages(&self) {
        // SAFETY: our own file control uses no argument; on another VFS it is unknown.
        unsafe { ffi::sqlite3_file_control(self.db(), c"main".as_ptr(), FCNTL_KEEP, std::ptr::null_mut()) };
    }

    /// The pages that the last COMMIT has kept.
    pub fn take_pages(&self) -> Option<CopiedPages> {
        let mut kept: Option<CopiedPages> = None;
        // SAFETY: our own file control writes one Option<CopiedPages>; on another VFS it is unknown and nothing is written.
        unsafe {
            let to = (&raw mut kept).cast::<c_void>();
            ffi::sqlite3_file_control(self.db(), c"main".as_ptr(), FCNTL_TAKE, to);
        }
        kept
    }
}

/// # Safety
/// `f` must be a handle that `open` filled with a `DbFile`.
unsafe fn db<'a>(f: *mut ffi::sqlite3_file) -> &'a mut DbFile {
    // SAFETY: SQLite calls methods of one file from one thread at a time, so the exclusive borrow is unique.
    unsafe { &mut *(*f.cast::<DbHandle>()).file }
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    f: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes the registered VFS, a handle of szOsFile bytes and, for a main database, a name from
    // which URI parameters can be read. pAppData is the Context that `register` put there.
    unsafe {
        let context = &*(*vfs).pAppData.cast::<Context>();
        if !out.is_null() {
            *out = flags;
        }
        if flags & ffi::SQLITE_OPEN_MAIN_DB == 0 {
            return scratch_file::open(f, ScratchFile::new(context.scratch_dir.clone()));
        }
        let role = ffi::sqlite3_uri_parameter(name, c"role".as_ptr());
        let role = if role.is_null() { c"reader" } else { CStr::from_ptr(role) };
        if role == c"temp" {
            return match super::temp_file::find(ffi::sqlite3_uri_int64(name, c"id".as_ptr(), 0)) {
                Some(pages) => scratch_file::open(f, pages),
                None => ffi::SQLITE_CANTOPEN,
            };
        }
        let file = DbFile {
            store: context.store.clone(),
            role: match role.to_bytes() {
                b"writer" => Role::Writer,
                b"branch" => Role::Branch(0),
                _ => Role::Reader,
            },
            lock: 0,
            snapshot: 0,
            pages: context.store.newest_pages(),
            staged: Staged::default(),
            keeps: false,
            kept: None,
        };
        f.cast::<DbHandle>()
            .write(DbHandle { base: ffi::sqlite3_file { pMethods: &METHODS }, file: Box::into_raw(Box::new(file)) });
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn close(f: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: `f` is ours; after this SQLite does not touch it again.
    let mut file = unsafe { Box::from_raw((*f.cast::<DbHandle>()).file) };
    file.let_go();
    ffi::SQLITE_OK
}

impl DbFile {
    /// Size in pages as this connection sees it.
    fn size(&self) -> u32 {
        match self.role {
            Role::Reader | Role::Branch(_) if self.lock == 0 => self.store.visible_pages(),
            _ => self.pages,
        }
    }

    /// Ends the use of a snapshot, and discards what was written and not committed. The writer's ROLLBACK writes again what its pages were
    /// before, those that had left SQLite's cache: they must not be published over those that a side copy publishes meanwhile.
    fn let_go(&mut self) {
        self.store.truncate_staged(&mut self.staged, 0);
        if self.role != Role::Writer && self.lock > 0 {
            self.store.release(self.snapshot);
            // It must not be mistaken for a snapshot that is still held.
            self.snapshot = 0;
        }
    }

    fn read(&self, page: u32, at: usize, out: &mut [u8]) -> Result<(), ReadError> {
        let snapshot = match self.role {
            Role::Writer => {
                if self.store.read_staged(&self.staged, page, at, out)? {
                    return Ok(());
                }
                u64::MAX
            }
            // Without a lock SQLite reads only the header; the visible snapshot serves for that.
            Role::Reader | Role::Branch(_) if self.lock == 0 => self.store.visible(),
            Role::Reader => self.snapshot,
            Role::Branch(_) => {
                if self.store.read_staged(&self.staged, page, at, out)? {
                    return Ok(());
                }
                self.snapshot
            }
        };
        self.store.read(page, snapshot, at, out)
    }

    /// Changes page 1 to what SQLite is to see; see the module's header.
    fn disguise(&self, at: usize, out: &mut [u8]) {
        let mut put = |offset: usize, byte: u8| {
            if let Some(b) = offset.checked_sub(at).and_then(|i| out.get_mut(i)) {
                *b = byte;
            }
        };
        put(18, 1);
        put(19, 1);
        if self.role != Role::Writer {
            for (i, byte) in (self.snapshot as u32).to_be_bytes().into_iter().enumerate() {
                put(24 + i, byte);
                put(92 + i, byte);
            }
        }
    }
}

unsafe extern "C" fn read(f: *mut ffi::sqlite3_file, buf: *mut c_void, n: c_int, offset: i64) -> c_int {
    // SAFETY: `f` is ours; SQLite passes a buffer of `n` bytes.
    let (file, out) = unsafe { (db(f), std::slice::from_raw_parts_mut(buf.cast::<u8>(), n as usize)) };
    let page = (offset as u64 / PAGE_BYTES as u64) as u32 + 1;
    let at = offset as usize % PAGE_BYTES;
    if page > file.size() {
        out.fill(0);
        return ffi::SQLITE_IOERR_SHORT_READ;
    }
    if at + out.len() > PAGE_BYTES {
        return ffi::SQLITE_IOERR_READ;
    }
    match file.read(page, at, out) {
        Ok(()) => {
            if page == 1 {
                file.disguise(at, out);
            }
            ffi::SQLITE_OK
        }
        Err(e) => {
            tracing::error!(page, "{e}");
            CAUSE.with(|c| *c.borrow_mut() = Some(e));
            ffi::SQLITE_IOERR_READ
        }
    }
}

unsafe extern "C" fn write(f: *mut ffi::sqlite3_file, buf: *const c_void, n: c_int, offset: i64) -> c_int {
    // SAFETY: `f` is ours; SQLite passes a buffer of `n` bytes.
    let (file, bytes) = unsafe { (db(f), std::slice::from_raw_parts(buf.cast::<u8>(), n as usize)) };
    if file.role == Role::Reader {
        return ffi::SQLITE_READONLY;
    }
    if bytes.len() != PAGE_BYTES || !(offset as usize).is_multiple_of(PAGE_BYTES) {
        return ffi::SQLITE_IOERR_WRITE;
    }
    let page = (offset as u64 / PAGE_BYTES as u64) as u32 + 1;
    match file.store.stage(&mut file.staged, page, bytes) {
        Ok(()) => {
            file.pages = file.pages.max(page);
            ffi::SQLITE_OK
        }
        Err(e) => {
            tracing::error!(page, "cannot write a page to the scratch file: {e}");
            ffi::SQLITE_FULL
        }
    }
}

unsafe extern "C" fn truncate(f: *mut ffi::sqlite3_file, size: i64) -> c_int {
    // SAFETY: `f` is ours.
    let file = unsafe { db(f) };
    file.pages = (size as u64 / PAGE_BYTES as u64) as u32;
    file.store.truncate_staged(&mut file.staged, file.pages);
    ffi::SQLITE_OK
}

unsafe extern "C" fn sync(_f: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_size(f: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: `f` is ours, `out` valid.
    unsafe { *out = i64::from(db(f).size()) * PAGE_BYTES as i64 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn lock(f: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: `f` is ours.
    let file = unsafe { db(f) };
    if file.role == Role::Reader && level > ffi::SQLITE_LOCK_SHARED {
        return ffi::SQLITE_READONLY;
    }
    if file.lock == 0 {
        match file.role {
            // Another connection may have published while the writer held no lock.
            Role::Writer => file.pages = file.store.newest_pages(),
            Role::Reader | Role::Branch(0) => (file.snapshot, file.pages) = file.store.acquire(),
            Role::Branch(number) => (file.snapshot, file.pages) = file.store.acquire_at(number),
        }
    }
    file.lock = file.lock.max(level);
    ffi::SQLITE_OK
}

unsafe extern "C" fn unlock(f: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: `f` is ours.
    let file = unsafe { db(f) };
    if level == 0 {
        file.let_go();
    }
    file.lock = level;
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved(_f: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: `out` is valid. There is one writer, so no other connection ever holds RESERVED.
    unsafe { *out = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(f: *mut ffi::sqlite3_file, op: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: `f` is ours.
    let file = unsafe { db(f) };
    match op {
        ffi::SQLITE_FCNTL_COMMIT_PHASETWO if file.role == Role::Writer => {
            file.store.publish(&mut file.staged, file.pages);
            ffi::SQLITE_OK
        }
        ffi::SQLITE_FCNTL_COMMIT_PHASETWO if file.keeps => {
            let staged = std::mem::take(&mut file.staged);
            file.kept = Some(CopiedPages::new(&file.store, staged, file.pages, file.snapshot));
            ffi::SQLITE_OK
        }
        FCNTL_KEEP => {
            file.keeps = file.role != Role::Writer;
            ffi::SQLITE_OK
        }
        FCNTL_TAKE => {
            // SAFETY: only `Conn::take_pages` asks, with a pointer to an Option<CopiedPages>.
            unsafe { *arg.cast::<Option<CopiedPages>>() = file.kept.take() };
            ffi::SQLITE_OK
        }
        FCNTL_STAGED => {
            // SAFETY: only `Conn::staged_pages` asks, with a pointer to a u64.
            unsafe { *arg.cast::<u64>() = file.staged.count() as u64 };
            ffi::SQLITE_OK
        }
        FCNTL_SNAPSHOT => {
            // SAFETY: only `Conn::snapshot` asks, with a pointer to a u64.
            unsafe { *arg.cast::<u64>() = file.snapshot };
            ffi::SQLITE_OK
        }
        FCNTL_CHOOSE => {
            if let Role::Branch(chosen) = &mut file.role {
                // SAFETY: only `Conn::choose_snapshot` asks, with a pointer to a u64.
                *chosen = unsafe { *arg.cast::<u64>() };
            }
            ffi::SQLITE_OK
        }
        _ => ffi::SQLITE_NOTFOUND,
    }
}

unsafe extern "C" fn sector_size(_f: *mut ffi::sqlite3_file) -> c_int {
    PAGE_BYTES as c_int
}

unsafe extern "C" fn characteristics(_f: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_ATOMIC4K
        | ffi::SQLITE_IOCAP_SAFE_APPEND
        | ffi::SQLITE_IOCAP_SEQUENTIAL
        | ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
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

unsafe extern "C" fn delete(_vfs: *mut ffi::sqlite3_vfs, _name: *const c_char, _sync: c_int) -> c_int {
    // Journals have no name on disk, so there is nothing to delete.
    ffi::SQLITE_OK
}

unsafe extern "C" fn access(
    _vfs: *mut ffi::sqlite3_vfs,
    _name: *const c_char,
    _flags: c_int,
    out: *mut c_int,
) -> c_int {
    // No journal and no -wal is ever found: the trail does the recovery.
    // SAFETY: `out` is valid.
    unsafe { *out = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_pathname(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    n: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: SQLite passes a NUL-terminated name and a buffer of `n` bytes.
    unsafe {
        let bytes = CStr::from_ptr(name).to_bytes_with_nul();
        if bytes.len() > n as usize {
            return ffi::SQLITE_CANTOPEN;
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len());
    }
    ffi::SQLITE_OK
}
