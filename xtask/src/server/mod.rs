//! The servers under test: ours, and a private PostgreSQL as oracle.

mod holdfast;
mod postgres;
mod probe;
pub mod with_tls;

use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, bail};

pub use holdfast::{Holdfast, build, build_sabotaged};
pub use postgres::{Account, Postgres, account, as_account, initialise};
pub use probe::is_ready;

/// The user both servers know.
pub const USER: &str = "holdfast";

/// Ports below those that outgoing connections take theirs from.
const FIRST_PORT: u32 = 10_000;
const PORTS: u32 = 22_000;
/// Ports from where one process begins to look to where the next one does.
const PORTS_PER_PROCESS: u32 = 97;

/// Where a server listens on the loopback interface.
#[derive(Debug, Clone, Copy)]
pub struct Address {
    pub port: u16,
}

impl Address {
    /// An address nobody listens on at the moment, and which no outgoing connection takes while its server is stopped.
    pub fn free() -> anyhow::Result<Self> {
        static CHOSEN: AtomicU32 = AtomicU32::new(0);
        let begin = std::process::id().wrapping_mul(PORTS_PER_PROCESS);
        let mut candidates = (0..PORTS).map(|_| {
            let chosen = CHOSEN.fetch_add(1, Ordering::Relaxed);
            (FIRST_PORT + begin.wrapping_add(chosen) % PORTS) as u16
        });
        let port = candidates.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
        Ok(Self { port: port.context("no free port")? })
    }

    /// The server's part of a connection string.
    pub fn hosts(&self) -> String {
        format!("host=127.0.0.1 port={}", self.port)
    }

    /// libpq's environment variables; every client program here understands them.
    pub fn environment(&self, database: &str) -> Vec<(&'static str, String)> {
        vec![
            ("PGHOST", "127.0.0.1".into()),
            ("PGPORT", self.port.to_string()),
            ("PGUSER", USER.into()),
            ("PGDATABASE", database.into()),
            ("PGSSLMODE", "disable".into()),
            ("PGCONNECT_TIMEOUT", "30".into()),
            ("TZ", "UTC".into()),
            ("LC_ALL", "C.UTF-8".into()),
        ]
    }

    /// Runs one message of SQL through psql and returns the unaligned rows.
    pub fn sql(&self, database: &str, sql: &str) -> anyhow::Result<String> {
        let output = Command::new("psql")
            .args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql])
            .envs(self.environment(database))
            .output()
            .context("starting psql")?;
        if !output.status.success() {
            bail!("{sql}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
    }
}
