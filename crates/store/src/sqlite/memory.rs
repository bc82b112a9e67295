//! The memory that large values take in SQLite's hands, bounded for the whole process.
//!
//! A statement keeps what each call in it has returned until it ends, or until its next row: a thousand calls of `repeat` in one
//! SELECT hold a thousand values of up to 1 GB. So a role without privileges could have the system end the server. SQLite allocates
//! through the functions here, which count what is 1 MiB or larger; a statement that may fail gets nothing beyond the bound, and
//! SQLite reports SQLITE_NOMEM (53200) and stays usable.
//!
//! | who allocates | beyond the bound |
//! |---|---|
//! | a statement of a reader or a branch ([`super::Conn::bound_memory`]) | fails |
//! | the writer, checkpoints, recovery, a standby's apply | gets it: a failure there would end the server, and large values never come to the writer's statements |
//!
//! Failure: none of its own. In a process that opened a database by other means first, nothing is counted ([`is_counted`]).

use rusqlite::ffi;
use std::cell::Cell;
use std::os::raw::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Smaller allocations are not counted: page caches and plain rows.
const LARGE_BYTES: u64 = 1 << 20;

static IN_USE: AtomicU64 = AtomicU64::new(0);
static MAX: AtomicU64 = AtomicU64::new(u64::MAX);
/// SQLite's own functions; `None`: SQLite was in use already.
static SYSTEM: OnceLock<Option<System>> = OnceLock::new();

thread_local! {
    /// A statement runs here that may fail.
    static MAY_FAIL: Cell<bool> = const { Cell::new(false) };
}

type Malloc = unsafe extern "C" fn(c_int) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);
type Realloc = unsafe extern "C" fn(*mut c_void, c_int) -> *mut c_void;
type Size = unsafe extern "C" fn(*mut c_void) -> c_int;

#[derive(Clone, Copy)]
struct System {
    malloc: Malloc,
    free: Free,
    realloc: Realloc,
    size: Size,
}

/// Bounds the large values of all statements together.
pub fn bound_large_values(bytes_max: u64) {
    MAX.store(bytes_max, Ordering::Relaxed);
}

/// Bytes of large values at the moment.
pub fn large_values() -> u64 {
    IN_USE.load(Ordering::Relaxed)
}

/// Makes SQLite count; must come before its first use. Whether it does count.
pub(super) fn is_counted() -> bool {
    SYSTEM.get_or_init(install).is_some()
}

fn install() -> Option<System> {
    // SAFETY: a struct of function pointers, all of which may be null, and a data pointer.
    let mut methods: ffi::sqlite3_mem_methods = unsafe { std::mem::zeroed() };
    // SAFETY: GETMALLOC writes one sqlite3_mem_methods.
    let got = unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_GETMALLOC, &raw mut methods) };
    let system =
        System { malloc: methods.xMalloc?, free: methods.xFree?, realloc: methods.xRealloc?, size: methods.xSize? };
    methods.xMalloc = Some(malloc);
    methods.xFree = Some(free);
    methods.xRealloc = Some(realloc);
    // The functions below are not called before SYSTEM is set: SQLite is initialized by the first VFS or open, which comes later.
    // SAFETY: MALLOC copies the struct; its functions keep the contract of SQLite's own, to which they pass everything on.
    let set = unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MALLOC, &raw const methods) };
    (got == ffi::SQLITE_OK && set == ffi::SQLITE_OK).then_some(system)
}

/// SQLite calls the functions below only after they were installed.
fn system() -> System {
    match SYSTEM.get() {
        Some(Some(system)) => *system,
        _ => std::process::abort(),
    }
}

/// Counts bytes, unless they are too many for a statement that may fail.
fn take(bytes: u64) -> bool {
    let before = IN_USE.fetch_add(bytes, Ordering::Relaxed);
    if before + bytes > MAX.load(Ordering::Relaxed) && MAY_FAIL.get() {
        give_back(bytes);
        return false;
    }
    true
}

fn give_back(bytes: u64) {
    IN_USE.fetch_sub(bytes, Ordering::Relaxed);
}

/// What is counted of an allocation of this size.
fn counted(bytes: c_int) -> u64 {
    let bytes = bytes.max(0) as u64;
    if bytes >= LARGE_BYTES { bytes } else { 0 }
}

unsafe extern "C" fn malloc(bytes: c_int) -> *mut c_void {
    let system = system();
    // SAFETY: passed on as it came.
    let found = unsafe { (system.malloc)(bytes) };
    if found.is_null() {
        return found;
    }
    // SAFETY: an allocation of the same functions.
    let size = counted(unsafe { (system.size)(found) });
    if size > 0 && !take(size) {
        // SAFETY: the allocation was made above, and no other code has its address.
        unsafe { (system.free)(found) };
        return std::ptr::null_mut();
    }
    found
}

unsafe extern "C" fn free(found: *mut c_void) {
    let system = system();
    if !found.is_null() {
        // SAFETY: an allocation of the same functions, not freed yet.
        let size = counted(unsafe { (system.size)(found) });
        if size > 0 {
            give_back(size);
        }
    }
    // SAFETY: passed on as it came.
    unsafe { (system.free)(found) }
}

unsafe extern "C" fn realloc(found: *mut c_void, bytes: c_int) -> *mut c_void {
    let system = system();
    // SAFETY: an allocation of the same functions; SQLite passes no null pointer here.
    let before = counted(unsafe { (system.size)(found) });
    let wanted = counted(bytes);
    // The old allocation is gone when the new one is there, so the bound comes first.
    let grows = wanted.saturating_sub(before);
    if grows > 0 && !take(grows) {
        return std::ptr::null_mut();
    }
    // SAFETY: passed on as it came.
    let moved = unsafe { (system.realloc)(found, bytes) };
    if moved.is_null() {
        give_back(grows);
        return moved;
    }
    // SAFETY: an allocation of the same functions.
    let after = counted(unsafe { (system.size)(moved) });
    let noted = before + grows;
    match after > noted {
        true => _ = IN_USE.fetch_add(after - noted, Ordering::Relaxed),
        false => give_back(noted - after),
    }
    moved
}

/// While it lives, allocations of this thread may fail. Holds what was so before: a function may run a statement of its own.
pub(super) struct Bounded(bool);

impl Bounded {
    pub fn begin() -> Bounded {
        Bounded(MAY_FAIL.replace(true))
    }
}

impl Drop for Bounded {
    fn drop(&mut self) {
        MAY_FAIL.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Conn, OpenFlags};
    use super::*;

    /// One test: the bound and the count are the process's.
    #[test]
    fn a_statement_that_may_fail_gets_no_more_than_the_bound_and_everybody_else_does() {
        let mut conn = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        assert!(is_counted());
        let many = |count: usize| {
            let calls: Vec<String> =
                (0..count).map(|n| format!("length(zeroblob({}) || 'x')", (4 << 20) + n)).collect();
            format!("SELECT {}", calls.join(", "))
        };
        let run = |conn: &mut Conn, sql: &str| {
            let statement = conn.prepare(sql).unwrap();
            let ran = conn.run(statement);
            conn.finalize(statement);
            ran
        };
        bound_large_values(large_values() + (64 << 20));
        run(&mut conn, &many(100)).expect("it is not bound");
        conn.bound_memory();
        run(&mut conn, &many(3)).unwrap();
        let refused = run(&mut conn, &many(100)).unwrap_err();
        assert_eq!(refused.code & 0xff, ffi::SQLITE_NOMEM, "{refused:?}");
        run(&mut conn, &many(3)).expect("the connection stays usable");
        let huge = run(
            &mut conn,
            "SELECT length(group_concat(hex(zeroblob(1000000)))) FROM (VALUES (1),(2),(3),(4)), (VALUES \
             (1),(2),(3),(4)), (VALUES (1),(2),(3),(4))",
        );
        assert_eq!(huge.unwrap_err().code & 0xff, ffi::SQLITE_NOMEM, "a value that grows");
        let left = large_values();
        drop(conn);
        assert!(left < 8 << 20, "{left} bytes are still counted");
        bound_large_values(u64::MAX);
    }
}
