//! The summary's tables of distances, of nodes on cores of their own, and of several masters to one node.
//!
//! Failure: none; the caller leaves out what has no figures.

use super::results::{Distance, Results};
use super::summary::{bytes, optional};
use crate::server::server_name;
use crate::summary::{align_numbers, table};
use crate::text;

/// One client's commits, and many clients'.
pub fn distances(results: &Results) -> comfy_table::Table {
    const HEAD: [&str; 10] = [
        "distance",
        "server",
        "level",
        "clients",
        "tps",
        "p50",
        "p99",
        "added to local",
        "round trips",
        "round trip measured, a sync",
    ];
    let mut table = table(&HEAD);
    for d in &results.distances {
        table.add_row([
            distance(d),
            server_name(&d.server).to_string(),
            d.level.clone(),
            d.clients.to_string(),
            text::number(d.tps),
            latency(d.p50_us),
            text::time(d.p99_us),
            optional(d.added_us, latency),
            optional(d.added_round_trips, text::times),
            format!("{}, {}", latency(d.link_us), latency(d.sync_us)),
        ]);
    }
    align_numbers(&mut table, 3);
    table
}

/// The delay that the link was set to.
pub fn distance(d: &Distance) -> String {
    format!("{} ms", d.round_trip_ms)
}

/// A time in microseconds that a difference of some tens of them is to be seen in.
pub fn latency(us: f64) -> String {
    if us.abs() < 1e3 { format!("{us:.0} µs") } else { format!("{:.2} ms", us / 1e3) }
}

/// A share in percent.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

pub fn own_cores(results: &Results) -> comfy_table::Table {
    const HEAD: [&str; 10] = [
        "own cores",
        "level",
        "clients",
        "tps",
        "p50",
        "p99",
        "master CPU each",
        "standby CPU each",
        "master's core busy, its own",
        "standby's core busy",
    ];
    let mut table = table(&HEAD);
    for c in &results.own_cores {
        table.add_row([
            server_name(&c.rate.server).to_string(),
            c.rate.level.clone(),
            c.rate.clients.to_string(),
            text::number(c.rate.tps),
            text::time(c.rate.p50_us),
            text::time(c.rate.p99_us),
            optional(c.rate.master_cpu_us, text::time),
            optional(c.rate.standby_cpu_us, text::time),
            format!("{}, {}", percent(c.master_core_busy), percent(c.master_core_own)),
            percent(c.standby_core_busy),
        ]);
    }
    align_numbers(&mut table, 2);
    table
}

pub fn shared_node(results: &Results) -> comfy_table::Table {
    const HEAD: [&str; 9] = [
        "server",
        "masters to one node",
        "load of each",
        "tps in all",
        "p99",
        "masters' CPU each",
        "standbys' CPU each",
        "mean lag",
        "most lag",
    ];
    let mut table = table(&HEAD);
    for s in &results.shared_node {
        table.add_row([
            server_name(&s.server).to_string(),
            s.masters.to_string(),
            text::number(s.offered_rate.round()),
            text::number(s.tps),
            text::time(s.p99_us),
            text::time(s.master_cpu_us),
            text::time(s.standby_cpu_us),
            bytes(s.lag_mean_bytes as f64),
            bytes(s.lag_most_bytes as f64),
        ]);
    }
    align_numbers(&mut table, 1);
    table
}
