//! Logs: to stderr, readable or as JSON, filtered by `HOLDFAST_LOG` (for example `info,holdfast_wire=debug`).

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Installs the subscriber for this process.
pub fn start(json: bool) {
    let filter = EnvFilter::try_from_env("HOLDFAST_LOG").unwrap_or_else(|_| EnvFilter::new("info,openraft=warn"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if json {
        logs.json().init();
    } else {
        logs.with_ansi(std::io::stderr().is_terminal()).init();
    }
}
