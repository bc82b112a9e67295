//! The signals that stop the server, and the one at which it reads its files again.

use crate::reload::Reload;
use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub fn new() -> io::Result<Signals> {
        Ok(Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for either of them.
    pub async fn come(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => tracing::info!("SIGTERM: stopping"),
            _ = self.interrupt.recv() => tracing::info!("SIGINT: stopping"),
        }
    }
}

/// Reads files again at each SIGHUP, for as long as the process lives. Must be called in the context of a runtime.
pub(super) fn reload_at_hangup(reload: Reload) -> io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            tracing::info!("SIGHUP: reading configuration files");
            let reload = reload.clone();
            // A panic is a bug, and has been logged.
            drop(tokio::task::spawn_blocking(move || reload.now()).await);
        }
    });
    Ok(())
}
