//! The supervisor of a node: it runs the node's part in the control plane in a process of its own, starts the server, watches
//! it, and outlives it as the server outlives the supervisor.
//!
//! ```text
//! holdfast cluster run                       holdfast serve, its child
//!   control   member of the group  ◄─ socket ─►  client      ControlPlane for the server
//!   pulse     lease-EPOCH          ── page ───►  Lease       read at each answer
//!     │       pulses to the other nodes, over UDP
//!   watch     pidfd, /proc/PID/stat ◄─ page ──   progress    tick, sync under way, LSNs
//! ```
//!
//! Two processes, because only another one can see the server die or stop, end its right to answer, and start it again. Pages
//! ([`page`]) are files in memory that outlive both. [`Supervisor`] is the one side, [`Client`] the other. [`mod@file`] is
//! cluster.toml, [`planner`] decides which node is to have the database.
//!
//! Failure: a supervisor that dies is started again by systemd, takes the control directory's lock, adopts the running server
//! and renews the lease of its epoch. A server that dies is started again. A supervisor that stays away lets the lease run out.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod client;
mod datagram;
mod error;
pub mod file;
mod machine;
mod mark;
mod message;
mod moment;
pub mod page;
pub mod planner;
pub mod process;
mod pulse_sockets;
pub mod runtime_dir;
mod scheduling;
mod socket;
mod supervisor;
mod unit;

pub use client::{Client, Start};
pub use error::ClusterError;
pub use machine::{Finding, Severity, findings};
pub use mark::{is_supervised, marked};
pub use message::{Event, Welcome, WelcomeNode};
pub use runtime_dir::RuntimeDir;
pub use socket::{Asked, ask};
pub use supervisor::{Setup, Supervisor};
pub use unit::{server_unit, unit};
