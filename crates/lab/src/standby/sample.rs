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

fn governed(server: &str, governor: &str, load_factor: f64) -> Governed {
    Governed {
        server: server.into(),
        governor: governor.into(),
        load_factor,
        seconds: 60.0,
        lag_bytes_max: if governor == "on" { 64 << 20 } else { 0 },
        load_bytes_rate: 13e6,
        capacity_bytes_rate: 6.5e6,
        settled_s: 15.0,
        mean_tps: Some(7000.0),
        variation: Some(0.083),
        variation_whole: Some(0.12),
        behind_share: Some(0.97),
        variation_behind: Some(0.071),
        slowest_share: Some(0.8),
        applied_share: Some(0.99),
        lag_most_bytes: Some(if governor == "on" { 45 << 20 } else { 180 << 20 }),
        lag_last_bytes: Some(44 << 20),
        timeline: timeline(),
    }
}

/// What a level adds is a round trip, at commit more: too much at 10 ms.
fn distances(server: &str) -> Vec<Distance> {
    let levels = [("local", None), ("warm", Some(50.0)), ("hot", Some(400.0)), ("commit", Some(1400.0))];
    let point = |round_trip_ms: f64, clients: usize, level: &str, more_us: Option<f64>| {
        let link_us = round_trip_ms * 1e3 + 100.0;
        let much = if level == "commit" { 1.0 + round_trip_ms * 0.15 } else { 1.0 };
        let added_us = more_us.map(|us| link_us + us * much);
        let p50_us = 3000.0 * clients as f64 + added_us.unwrap_or_default();
        Distance {
            server: server.into(),
            round_trip_ms,
            link_us,
            sync_us: 900.0,
            level: level.into(),
            clients,
            tps: clients as f64 * 1e6 / p50_us,
            p50_us,
            p99_us: p50_us * 3.0,
            runs_p50_us: vec![p50_us],
            added_us,
            added_round_trips: added_us.filter(|_| round_trip_ms > 0.0).map(|us| us / link_us),
        }
    };
    let at = |ms: f64| [1, 40].map(|clients| levels.map(|(level, us)| point(ms, clients, level, us)).to_vec()).concat();
    [0.0, 2.0, 10.0].map(at).concat()
}

fn own_cores(server: &str, level: &str, tps: f64) -> OwnCores {
    OwnCores {
        places: "master on core 0, standby on core 1, load on 1".into(),
        rate: rate(server, level, 40, tps),
        master_core_busy: 0.95,
        master_core_own: 0.9,
        standby_core_busy: 0.6,
    }
}

fn shared_node(server: &str, masters: usize, offered_rate: f64) -> SharedNode {
    SharedNode {
        server: server.into(),
        masters,
        offered_rate,
        tps: offered_rate * masters as f64,
        p99_us: 9000.0,
        master_cpu_us: 120.0,
        standby_cpu_us: if masters == 1 { 50.0 } else { 60.0 },
        lag_mean_bytes: 30_000,
        lag_most_bytes: 300_000,
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
            [("none", 10_000.0), ("local", 8000.0), ("warm", 7500.0), ("hot", 7000.0), ("commit", 6000.0)]
        {
            levels.extend([40, 80].map(|clients| rate(server, level, clients, tps * factor)));
        }
        for (level, cpu_us) in [("none", 100.0), ("local", 110.0)] {
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
            paper: crate::StudyName::Standby.paper().into(),
            product_version: "0.1.0".into(),
            started_at: "2026-01-02 03:04".into(),
            command: "holdfast lab standby --peer postgres".into(),
            options: vec![Fact::new("Seconds a point", "3")],
            machine: vec![Fact::new("Processor", "Example <fast>, 2 cores")],
        },
        servers: vec![ServerSettings { server: "holdfast".into(), settings: vec![Fact::new("Version", "0.1.0")] }],
        levels,
        distances: ["holdfast", "postgres"].into_iter().flat_map(distances).collect(),
        own_cores: ["holdfast", "postgres"]
            .into_iter()
            .flat_map(|s| [("none", 7000.0), ("local", 6860.0)].map(|(level, tps)| own_cores(s, level, tps)))
            .collect(),
        catch_ups: ["holdfast", "postgres"].into_iter().flat_map(|s| [false, true].map(|on| catch_up(s, on))).collect(),
        large: vec![large("holdfast"), large("postgres")],
        reporting: vec![reporting("holdfast"), reporting("postgres")],
        shared_node: ["holdfast", "postgres"]
            .into_iter()
            .flat_map(|s| [(1, 1000.0), (1, 3000.0), (3, 1000.0)].map(|(masters, rate)| shared_node(s, masters, rate)))
            .collect(),
        governed: [
            ("holdfast", "on", 1.3),
            ("holdfast", "off", 1.3),
            ("holdfast", "on", 2.0),
            ("postgres", "none", 1.3),
        ]
        .map(|(s, g, over)| governed(s, g, over))
        .to_vec(),
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
