//! Where a server listens, and what psql says there.

use std::process::Command;

use anyhow::{Context as _, bail};

/// The user that both servers know.
pub const USER: &str = "holdfast";

/// Where a server listens on the loopback interface.
#[derive(Debug, Clone, Copy)]
pub struct Address {
    pub port: u16,
}

impl Address {
    /// An address that no server listens on at the moment, and which no outgoing connection takes while its server is stopped.
    pub fn free() -> Address {
        Address { port: holdfast_seams::testing::port() }
    }

    /// HOST:PORT
    pub fn at(&self) -> String {
        format!("127.0.0.1:{}", self.port)
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
