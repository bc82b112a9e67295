//! A master, its standby and a witness as their clients and their operator meet them: three real processes that agree on
//! who is master, over loopback.

mod failover;
mod majority;
#[path = "../standby/node.rs"]
mod node;
mod quorum;
mod refused;
#[path = "../server/mod.rs"]
mod server;
mod trio;
