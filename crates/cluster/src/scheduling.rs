//! Threads that must run in time: SCHED_FIFO, memory that is not swapped, no wait for memory that a disk has to free.
//!
//! | step | what for | without it |
//! |---|---|---|
//! | SCHED_FIFO, not for children | the thread runs before all ordinary ones | late by 264 ms at worst under load, in place of 61 |
//! | mlockall on fault | no page of the process has to be read from swap | late by a read of the disk |
//! | PR_SET_IO_FLUSHER | an allocation of the thread does not wait for writes to a disk | late by such a write |
//!
//! Failure: what the system does not permit is reported, with the setting that permits it; the thread runs without it.

#![allow(unsafe_code)]

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, geteuid, getrlimit};
use std::io;

/// The priority of threads that do next to nothing: above ordinary real-time work, below the kernel's own.
const PRIORITY: libc::c_int = 50;

/// What was permitted; the rest says why not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scheduling {
    pub missing: Vec<String>,
}

/// Gives the calling thread real-time priority. Threads and processes that it starts do not inherit it.
pub fn real_time() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the pointer is to a whole sched_param that lives during the call; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Why the memory of this process cannot be locked, if so. With a limit that is too small, an allocation would fail later.
pub fn memory_lock_flaw() -> Option<String> {
    let limit = getrlimit(Resource::Memlock).current;
    match limit {
        Some(limit) if !geteuid().is_root() => Some(format!("the limit of locked memory is {limit} bytes")),
        _ => None,
    }
}

/// Prepares the calling thread, and locks the process's memory.
pub fn prepare_pulse() -> Scheduling {
    let mut missing = Vec::new();
    if let Err(error) = real_time() {
        missing.push(format!("no real-time priority: {error} (LimitRTPRIO=, CAP_SYS_NICE)"));
    }
    let locked = match memory_lock_flaw() {
        Some(why) => Err(why),
        None => {
            mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT).map_err(|e| e.to_string())
        }
    };
    if let Err(why) = locked {
        missing.push(format!("memory is not locked: {why} (LimitMEMLOCK=infinity)"));
    }
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        missing.push(format!("allocations may wait for a disk: {error} (CAP_SYS_RESOURCE)"));
    }
    Scheduling { missing }
}
