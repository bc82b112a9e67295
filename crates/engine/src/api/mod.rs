//! What a program that uses the engine holds in its hands: [`Engine`] and [`Database`], and what hangs on them.
//!
//! Handles only: a request goes down to the floor of routes, everything else to the floors below it. This floor may
//! import every floor but the tools'.

pub mod activity;
pub mod archiving;
pub mod base_copy;
pub mod closing;
pub mod database;
pub mod databases;
pub mod engine;
pub mod feeds;
pub mod figures;
pub mod following;
pub mod levels;
pub mod new_history;
pub mod opening;
pub mod parameters;
pub mod prepared;
pub mod roles;
pub mod sizes;
pub mod vacuum;
pub mod vacuum_into;

#[expect(unused_imports, reason = "named in this page")]
use {database::Database, engine::Engine};
