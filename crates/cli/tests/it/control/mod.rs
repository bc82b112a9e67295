//! A master, its standby and a witness as their clients and their operator meet them: three real processes that agree on
//! who is master, over loopback.

mod alone;
mod cut;
mod failover;
mod hosts;
mod majority;
mod quorum;
mod refused;
pub mod rolled_back;
mod switchover;
mod third;
pub mod trio;

pub use trio::connect;
