//! The state of an engine and of its databases, and what waits in a writer's queue.
//!
//! It imports the floor of statements, because a queue carries statements, and no other floor: it names no worker.
//! Writers, branches and background work meet only through what they share here.

pub mod advisory;
pub mod branch_connection;
pub mod checkpoint_file;
pub mod clock_file;
pub mod database;
pub mod engine;
pub mod error;
pub mod follow;
pub mod fragments;
pub mod gate;
pub mod ids;
pub mod interruption;
pub mod lock_owner;
pub mod locks;
pub mod manifest;
pub mod options;
pub mod pin;
pub mod prepared;
pub mod prepared_format;
pub mod prewritten;
pub mod queue;
pub mod readable_schema;
pub mod reader_connection;
pub mod redo_debt;
pub mod registry;
pub mod retention;
pub mod role_changes;
pub mod running;
pub mod semaphore;
pub mod side_copy;
pub mod side_log;
pub mod signal;
pub mod sqlite_uri;
pub mod stats;
pub mod stored_role;
pub mod submission;
pub mod taken_ids;
pub mod tasks;
pub mod visible_list;
pub mod waiting;
pub mod wide_cache;
