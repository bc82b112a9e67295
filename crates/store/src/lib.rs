//! The store: SQLite over a VFS of page versions, capture and application of row images, and the checkpoint.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod apply;
pub mod capture;
mod carried;
pub mod checkpoint;
pub mod ddl;
pub mod fragments;
pub mod locking;
mod names;
pub mod pages;
pub mod partition;
mod pending_wal;
pub mod position;
pub mod privileges;
pub mod publications;
pub mod row_filter;
pub mod schema_map;
pub mod schema_read;
pub mod sequences;
pub mod shapes;
pub mod sqlite;
pub mod subscribed_rows;
pub mod subscriptions;
pub mod temp_schema;
pub mod touch;
pub mod volume;
mod wal_damage;
pub mod wal_file;
