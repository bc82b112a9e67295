//! Planned switchovers between two servers.

mod cluster;

pub use cluster::Cluster;
