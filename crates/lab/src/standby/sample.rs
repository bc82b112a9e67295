//! A made-up run, for the tests of what is said, drawn and written.

use super::results::*;
use super::timeline::{Moment, Timeline};
use crate::results::Fact;
use crate::study_results::{Check, Head, ServerSettings};

pub fn rate(server: &str, level: &str, clients: usize, tps: f64) -> LevelRate {
    LevelRate {
        server: server.into(),
        level: level.into(),
        clients,
        offered_rate: None,
        tps,
        runs: vec![tps],
        mean_us: clients as f64 * 1e6 / tps,
        p50_us: clients as f64 * 9e5 / tps,
        p99_us: clients as f64 * 4e6 / tps,
        master_cpu_us: Some(100.0),
        standby_cpu_us: (level != "none").then_some(40.0),
        syncs_per_transaction: Some(0.1),
    }
}

/// A load of 1,000 a second, 100 bytes each, with a lag of 5,000 bytes.
fn timeline() -> Timeline {
    let moment = |i: u32| Moment {
        at_s: f64::from(i) * 0.2,
        answered: u64::from(i) * 200,
        master_lsn: 5000 + u64::from(i) * 20_000,
        received_lsn: Some(u64::from(i) * 20_000),
        applied_lsn: Some(u64::from(i) * 20_000),
        ..Moment::default()
    };
    Timeline((0..50).map(moment).collect())
}

fn catch_up(server: &str, load_goes_on: bool) -> CatchUp {
    CatchUp {
        server: server.into(),
        load_goes_on,
        away_s: 9.0,
        missing_bytes: 900_000,
        missing_transactions: 9000,
        link_bytes: (!load_goes_on).then_some(910_000),
        copy_bytes: 90_000_000,
        seconds: (!load_goes_on).then_some(2.5),
        catch_up_bytes_rate: 500_000.0,
        catch_up_tps: 5000.0,
        standby_cpu_us: (!load_goes_on).then_some(25.0),
        load_bytes_rate: 100_000.0,
        load_tps: 1000.0,
        timeline: if load_goes_on { timeline() } else { Timeline::default() },
    }
}

fn large(server: &str) -> LargeTransaction {
    LargeTransaction {
        server: server.into(),
        rows: 200_000,
        row_bytes: 174 << 20,
        began_s: 3.0,
        ended_s: 5.0,
        shown_s: 6.0,
        tps_before: Some(1000.0),
        tps_meanwhile: Some(600.0),
        tps_slowest: Some(300.0),
        lag_most_bytes: Some(180 << 20),
        master_memory_before_bytes: Some(200 << 20),
        master_memory_most_bytes: Some(300 << 20),
        standby_memory_before_bytes: Some(150 << 20),
        standby_memory_most_bytes: Some(190 << 20),
        timeline: timeline(),
    }
}

fn reporting(server: &str) -> Reporting {
    Reporting {
        server: server.into(),
        log_rows: 300_000,
        alone_ms: 200.0,
        queries: 20,
        mean_ms: 400.0,
        tps_without: 8000.0,
        tps_with: 6000.0,
        lag_most_without_bytes: Some(1 << 20),
        lag_most_with_bytes: Some(2 << 20),
    }
}

fn governed(server: &str, governor: &str) -> Governed {
    Governed {
        server: server.into(),
        governor: governor.into(),
        lag_bytes_max: if governor == "on" { 64 << 20 } else { 0 },
        load_bytes_rate: 13e6,
        capacity_bytes_rate: 6.5e6,
        settled_s: 15.0,
        mean_tps: Some(7000.0),
        variation: Some(0.083),
        variation_whole: Some(0.12),
        slowest_share: Some(0.8),
        applied_share: Some(0.99),
        lag_most_bytes: Some(if governor == "on" { 45 << 20 } else { 180 << 20 }),
        lag_last_bytes: Some(44 << 20),
        timeline: timeline(),
    }
}

fn law(name: &str, in_use: bool) -> Law {
    Law {
        law: name.into(),
        in_use,
        variation: if in_use { 0.088 } else { 0.486 },
        slowest_share: if in_use { 0.77 } else { 0.0 },
        applied_share: 1.0,
        lag_most_share: 0.75,
        bytes_rates: vec![20_000_000, 26_000_000, 20_000_000],
    }
}

/// One run with everything in it.
pub fn results() -> Results {
    let mut levels = Vec::new();
    for (server, factor) in [("holdfast", 1.0), ("postgres", 0.5)] {
        for (level, tps) in
            [("none", 10_000.0), ("cold", 8000.0), ("warm", 7500.0), ("hot", 7000.0), ("commit", 6000.0)]
        {
            levels.extend([40, 80].map(|clients| rate(server, level, clients, tps * factor)));
        }
        for (level, cpu_us) in [("none", 100.0), ("cold", 110.0)] {
            levels.push(LevelRate {
                offered_rate: Some(3000.0),
                master_cpu_us: Some(cpu_us),
                ..rate(server, level, 40, 3000.0)
            });
        }
    }
    let mut results = Results {
        head: Head {
            schema: SCHEMA.into(),
            product_version: "0.1.0".into(),
            started_at: "2026-01-02 03:04".into(),
            command: "holdfast lab standby --peer postgres".into(),
            options: vec![Fact::new("Seconds a point", "3")],
            machine: vec![Fact::new("Processor", "Example <fast>, 2 cores")],
        },
        servers: vec![ServerSettings { server: "holdfast".into(), settings: vec![Fact::new("Version", "0.1.0")] }],
        levels,
        catch_ups: ["holdfast", "postgres"].into_iter().flat_map(|s| [false, true].map(|on| catch_up(s, on))).collect(),
        large: vec![large("holdfast"), large("postgres")],
        reporting: vec![reporting("holdfast"), reporting("postgres")],
        governed: [("holdfast", "on"), ("holdfast", "off"), ("postgres", "none")].map(|(s, g)| governed(s, g)).to_vec(),
        laws: vec![law("linear", true), law("relay", false)],
        checks: vec![Check {
            server: "holdfast".into(),
            what: "master and standby agree on the log".into(),
            holds: true,
            found: "master 7, standby 7".into(),
        }],
        findings: vec![],
        failures: vec!["large at postgres: the disk is on fire".into()],
        notes: vec!["A note with <angle brackets>.".into()],
    };
    results.findings = super::findings::findings(&results);
    results
}
