//! Statements of a role without privileges that cost the server much: other sessions continue, and a cancel ends them.

mod bed;
mod memory;
mod network;
mod raw;
mod serializable;
mod stop;
mod threads;
mod writer;
