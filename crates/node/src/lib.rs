//! The server: connects protocol, SQL and engine. Only this crate knows more than one of them.
//!
//! A session ([`session`]) takes texts and parameters from the protocol, has them translated, and decides how they run: short
//! reads on the worker's own thread, scans on another thread, one-message transactions through the writer, transactions of several
//! messages on a branch. [`server`] opens a data directory in its role and changes the role.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod access;
mod acl_functions;
mod activity;
pub mod admission;
mod archive_report;
mod automatic_stats;
mod backup;
mod cancel;
mod clock;
pub mod config;
mod connect;
pub mod data_dir;
mod database;
mod descriptors;
mod feeds;
mod plan;
mod privilege_change;
mod privilege_functions;
mod reload;
mod replication_settings;
mod roles;
mod server;
mod server_functions;
mod session;
mod settings;
mod statement_memory;
mod subscriptions;
mod web;

pub use activity::Totals;
pub use archive_report::{ArchiveReport, ArchiveReportError, Part, TrailReport, archive_report};
pub use backup::{SCHEDULED_BY, dump_soon};
pub use clock::settings_were_read;
pub use config::{Config, ConfigError};
pub use replication_settings::{HoldfastToml, node_name};
pub use server::{NodeError, Ready, serve};
pub use web::{ConsoleError, console_url, events};
