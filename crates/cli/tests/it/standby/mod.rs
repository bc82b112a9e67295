//! A master and its standby as their clients and their operator meet them: real processes over loopback.

mod access;
pub mod archive;
mod certificates;
mod door;
mod ends;
mod failover;
mod follow;
mod levels;
mod lost_directory;
mod operate;
mod reads;
mod resumed_copy;
mod rolled_back;
pub mod schema;
mod upgrade;
