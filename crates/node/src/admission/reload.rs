//! `pg_reload_conf()`: sends SIGHUP to its own process, so that everything that heeds the signal reads its files again.

use std::io;

/// Has the server read its files again, soon after this has returned.
pub fn request_reload() -> io::Result<()> {
    let own = rustix::process::getpid();
    Ok(rustix::process::kill_process(own, rustix::process::Signal::HUP)?)
}
