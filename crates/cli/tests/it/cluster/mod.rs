//! Nodes under supervisors: three on the ports of this machine, each with its own processes.

mod attacked;
mod bed;
mod crashes;
mod demo;
mod dsn;
mod explain;
mod failover;
mod file;
mod freeze;
mod hung_disk;
mod lost;
mod removed;
mod returning;
mod rolled_back;
mod stopping;
mod supervisor;
mod switchover;
mod takeover;
