//! One statement on one connection: what it is, where it may run, and how it is run.
//!
//! The lowest floor: it imports no other one. It knows SQLite's connections and the schema, no database, no lock and no
//! transaction.

pub mod cache;
pub mod classify;
pub mod collect;
pub mod describe;
pub mod images;
pub mod model;
pub mod row_locks;
pub mod run;
pub mod temp;
pub mod viewer;
