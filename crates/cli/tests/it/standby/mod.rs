//! A master and its standby as their clients and their operator meet them: real processes over loopback.

mod archive;
mod certificates;
mod door;
mod ends;
mod failover;
mod follow;
mod levels;
mod operate;
mod reads;
mod rolled_back;
mod upgrade;
