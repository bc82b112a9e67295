//! Ctrl-C and SIGTERM: the study stops at the next request, cleans up after itself and says that it was stopped.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static STOPPED: AtomicBool = AtomicBool::new(false);
static HANDLER: Once = Once::new();

/// The person asked the study to stop.
#[derive(Debug, thiserror::Error)]
#[error("stopped on request; nothing was left running and temporary files are removed")]
pub struct Interrupted;

/// From now on Ctrl-C and SIGTERM stop the study instead of ending the process.
pub fn catch() {
    HANDLER.call_once(|| {
        if let Err(e) = ctrlc::set_handler(|| STOPPED.store(true, Ordering::Relaxed)) {
            eprintln!("warning: Ctrl-C cannot be caught ({e}); interrupting may leave temporary files behind");
        }
    });
}

/// The study was asked to stop.
pub fn requested() -> bool {
    STOPPED.load(Ordering::Relaxed)
}

/// Fails when the study has been interrupted: for waits, which end by it.
pub fn unless_interrupted() -> anyhow::Result<()> {
    Ok(check()?)
}

/// An error once the study was asked to stop.
pub fn check() -> Result<(), Interrupted> {
    if requested() { Err(Interrupted) } else { Ok(()) }
}

/// The error, unless the study was asked to stop: then that is the reason, whatever else failed on the way.
pub fn unless(error: anyhow::Error) -> Result<anyhow::Error, Interrupted> {
    check().map(|()| error)
}
