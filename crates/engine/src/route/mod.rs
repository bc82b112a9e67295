//! Which way a request goes: to the writer, to a branch, or to both, one after the other.
//!
//! A route sends commands to the queue of a database's writer; it imports the floor of branches and the floors below
//! it. It never names the writer: what the writer cannot run comes back through the function that it was started with.

pub mod exclusive;
pub mod large;
mod merge;
pub mod multi_database_commit;
pub mod one_message;
pub mod prepared;
mod prewrite;
pub mod reader;
pub mod submit;
pub mod transaction;
