//! The store: SQLite over a page-version VFS, row images, checkpoint.

pub mod apply;
pub mod capture;
pub mod checkpoint;
pub mod ddl;
pub mod fragments;
pub mod locking;
pub mod pages;
mod pending_wal;
pub mod schema_map;
pub mod schema_read;
pub mod sequences;
pub mod sqlite;
pub mod temp_schema;
pub mod volume;
mod wal_damage;
pub mod wal_file;
