//! What operators see of a server over HTTP: metrics for Prometheus, health for load balancers, a console for people.
//!
//! The crate sees plain numbers only: the node implements [`figures::Source`]. The listener lives as long as the process, and answers in
//! every role, also while the server changes it.
//!
//! How it fails: a fault here never reaches the SQL port. See [`serve`] for clients that misbehave, [`guard`] for attacks.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod console;
pub mod figures;
pub mod guard;
pub mod health;
pub mod history;
pub mod limits;
pub mod metrics;
pub mod one_time;
mod routes;
pub mod serve;

pub use serve::{Settings, TlsSource, Web, WebError};
