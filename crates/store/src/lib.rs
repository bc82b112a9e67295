//! The store: SQLite over a page-version VFS, row images, checkpoint.

pub mod sqlite;
