//! What the power-cut test needs of a database, whichever it is.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::recorder::Verdict;
use crate::server::{Address, Process, is_ready};

/// Longer than a recovery takes here; only a server that hangs meets it.
pub const READY_WAIT_MAX: Duration = Duration::from_secs(120);

/// How a start went.
pub enum Start {
    Ready,
    /// The server ended before it was ready; its last words.
    Ended(String),
    /// The power failed meanwhile.
    PowerFailed,
}

/// Waits until a started server takes connections, ends, or the power fails.
pub fn started(server: &mut Process, address: Address, power_off: &dyn Fn() -> bool) -> Start {
    let began = Instant::now();
    loop {
        if is_ready(address.port) {
            return Start::Ready;
        }
        if power_off() {
            return Start::PowerFailed;
        }
        if !server.is_running() {
            // It may have noticed the failing power before we did.
            return if power_off() { Start::PowerFailed } else { Start::Ended(server.log_end()) };
        }
        if began.elapsed() > READY_WAIT_MAX {
            return Start::Ended(format!("not ready after {READY_WAIT_MAX:?}: {}", server.log_end()));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A database that can be started, loaded, killed and looked at. Its files lie below the mount it was made for.
pub trait Peer {
    /// Names of files whose syncs may be made slow.
    fn file_patterns(&self) -> &'static [&'static str];

    /// Forgets everything acknowledged and prepares a new directory below `mount`, not yet started. `number` is how many
    /// there have been.
    fn fresh(&mut self, mount: &Path, number: u32) -> anyhow::Result<()>;

    /// Starts the server; gives up when `power_off` says so.
    fn start(&mut self, power_off: &dyn Fn() -> bool) -> anyhow::Result<Start>;

    /// Makes the tables; the power stays on.
    fn create_tables(&mut self) -> anyhow::Result<()>;

    /// Reads everything back.
    fn verify(&mut self) -> anyhow::Result<Verdict>;

    /// Sets the clients to work; they end by themselves when the server does.
    fn begin_load(&mut self, clients: u32) -> anyhow::Result<()>;

    fn acknowledged(&self) -> u64;

    /// A client's error, once one has ended.
    fn client_ended(&mut self) -> Option<String>;

    /// kill -9, and waits for server and clients to be gone.
    fn kill(&mut self) -> anyhow::Result<()>;

    /// Examines the files of the stopped server, where the database has a command for that; what is wrong with them.
    fn check(&mut self) -> anyhow::Result<Option<String>>;

    /// Asks for a clean stop.
    fn stop(&mut self) -> anyhow::Result<()>;
}
