//! The server: wires protocol, SQL and engine together. Everything that knows more than one of them is here.
//!
//! A session ([`session`]) takes texts and parameters from the protocol, has them translated, and chooses the way to
//! run them: reads on the worker's own thread, scans on a thread beside it, one-message transactions through MAIN,
//! those of several messages on a branch.

mod activity;
mod archive_report;
mod automatic_stats;
mod cancel;
pub mod config;
mod connect;
mod database;
mod descriptors;
pub mod mirror;
mod plan;
pub mod replication;
mod server;
mod session;
mod settings;

pub use archive_report::{ArchiveReport, ArchiveReportError, Part, TrailReport, archive_report};
pub use config::{Config, ConfigError};
pub use server::{NodeError, Ready, serve};
