//! The archive over a real trail on a simulated disk, and over stores in directories, in memory and at a server.

#[cfg(feature = "object-stores")]
mod cloud;
mod file;
mod history;
mod power_cut;
mod support;
mod timed;
mod verify;
