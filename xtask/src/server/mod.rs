//! The servers under test: ours, and a private PostgreSQL as oracle.

mod build;
pub mod with_tls;

use std::path::Path;

pub use build::{build, build_sabotaged};
pub use holdfast_testbed::{Address, Holdfast, Postgres, Process, Programs, USER, is_ready};

/// A private PostgreSQL with the database of the clients, and with more settings; `prepare` may change its data directory before
/// it starts.
pub fn oracle(
    settings: &[&str],
    prepare: impl FnOnce(&Path, &Programs) -> anyhow::Result<()>,
) -> anyhow::Result<Postgres> {
    let settings = [&["max_prepared_transactions=10"], settings].concat();
    let server = Postgres::start(Programs::find()?, Address::free(), &["--locale=C.UTF-8"], &settings, prepare)?;
    server.address.sql("postgres", &format!("CREATE DATABASE {USER}"))?;
    Ok(server)
}
