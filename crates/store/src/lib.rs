//! The store: SQLite over a page-version VFS, row images, checkpoint.

pub mod checkpoint;
pub mod pages;
pub mod sqlite;
pub mod volume;
pub mod wal_file;
