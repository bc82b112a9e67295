//! Servers for tests, checks and studies: a private PostgreSQL and a Holdfast, each a process with a log that ends with
//! the one that started it.
//!
//! `xtask`, `lab` and tests use it; the server and its commands never do.
//!
//! | to have | use |
//! |---|---|
//! | any server as a process: wait, hang, kill, stop, log | [`Process`] |
//! | a `holdfast serve` | [`Holdfast`] |
//! | a PostgreSQL with a directory of its own | [`Postgres`] |
//! | a PostgreSQL on a certain directory or disk, or another program of PostgreSQL | [`Programs`] |
//! | a PostgreSQL 15 that tests ask what is right | [`oracle`] |
//! | a port, and SQL through psql | [`Address`] |
//!
//! Failure: a server that does not start, or ends too early, is reported with the end of its log.

mod account;
mod address;
mod holdfast;
pub mod oracle;
mod postgres;
mod probe;
mod process;
mod programs;

pub use account::Account;
pub use address::{Address, USER};
pub use holdfast::Holdfast;
pub use postgres::Postgres;
pub use probe::is_ready;
pub use process::Process;
pub use programs::{Programs, find, run};
