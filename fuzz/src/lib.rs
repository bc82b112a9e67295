//! Fuzz targets: whatever the bytes, no panic, no hang, no memory set aside for a length that is only claimed.
//!
//! Each target is a plain function over bytes, so that it runs without a fuzzer: a test drives it over its corpus and
//! over seeded mutations, `cargo xtask fuzz` does so for hours. A panic leaves the input in a file and ends with an error.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod checkpoint;
pub mod config;
pub mod hba;
pub mod link;
pub mod mutate;
pub mod record;
pub mod sasl;
pub mod sql;
pub mod startup;
pub mod trail;
pub mod wire;

/// One target.
#[derive(Debug)]
pub struct Target {
    /// Also the name of its corpus directory.
    pub name: &'static str,
    pub run: fn(&[u8]),
}

pub const TARGETS: [Target; 10] = [
    Target { name: "checkpoint", run: checkpoint::run },
    Target { name: "config", run: config::run },
    Target { name: "hba", run: hba::run },
    Target { name: "link", run: link::run },
    Target { name: "record", run: record::run },
    Target { name: "sasl", run: sasl::run },
    Target { name: "sql", run: sql::run },
    Target { name: "startup", run: startup::run },
    Target { name: "trail", run: trail::run },
    Target { name: "wire", run: wire::run },
];
