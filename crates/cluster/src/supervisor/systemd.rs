//! What systemd is told: that the supervisor is ready, and that it lives.
//!
//! Failure: without NOTIFY_SOCKET, or when it cannot be reached, nothing is told; systemd then starts another supervisor, which
//! adopts the server.

use super::Supervisor;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

const EVERY: Duration = Duration::from_millis(500);
/// A pulse that is older has stopped: then systemd is to start another supervisor.
const BEAT_AGE_MAX: Duration = Duration::from_secs(1);

/// Feeds the watchdog as long as the pulse beats.
pub async fn notify(supervisor: Arc<Supervisor>) {
    tell("READY=1");
    loop {
        tokio::time::sleep(EVERY).await;
        if supervisor.pulse.age() < BEAT_AGE_MAX {
            tell("WATCHDOG=1");
        }
    }
}

pub fn stopping() {
    tell("STOPPING=1");
}

fn tell(text: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let bytes = path.as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::debug!("systemd cannot be told {text}: {error}");
    }
}
