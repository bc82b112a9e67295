//! Reads the rules again at SIGHUP, which `pg_reload_conf()` sends to its own process, so that everything else that heeds the
//! signal reads its files as well.

use super::Admission;
use std::io;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};

/// Reads the rules again at each SIGHUP, for the life of the runtime.
pub fn watch_for_reload(admission: Arc<Admission>, runtime: &Handle) -> io::Result<()> {
    let _entered = runtime.enter();
    let mut hangup = signal(SignalKind::hangup())?;
    runtime.spawn(async move {
        while hangup.recv().await.is_some() {
            admission.files().reload();
        }
    });
    Ok(())
}

/// `pg_reload_conf()`.
pub fn request_reload() -> io::Result<()> {
    let own = rustix::process::getpid();
    Ok(rustix::process::kill_process(own, rustix::process::Signal::HUP)?)
}
