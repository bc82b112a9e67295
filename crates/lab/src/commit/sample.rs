//! Made-up results for the tests of what comes out.

use super::results::{Rate, Results, SCHEMA, SyncMethodRate};
use crate::results::Fact;
use crate::study_results::Head;

/// A point of the paper's disk with cache and barrier.
pub fn rate(server: &str, delay: &str, clients: usize, tps: f64) -> Rate {
    Rate {
        server: server.into(),
        disk: "paper".into(),
        cache: true,
        barrier: true,
        delay: delay.into(),
        method: if server == "holdfast" { "open_direct_dsync" } else { "fdatasync" }.into(),
        clients,
        tps,
        runs: vec![tps],
        mean_us: clients as f64 * 1e6 / tps,
        p99_us: 20_000,
        syncs_per_commit: (server == "holdfast").then_some(1.0 / clients as f64),
    }
}

pub fn results() -> Results {
    let mut rates = vec![
        rate("holdfast", "0", 1, 75.0),
        rate("holdfast", "0", 80, 3000.0),
        rate("holdfast", "1000", 1, 75.0),
        rate("holdfast", "1000", 80, 5000.0),
        rate("holdfast", "auto", 1, 75.0),
        rate("holdfast", "auto", 80, 4500.0),
        rate("postgres", "0", 80, 2000.0),
        rate("postgres", "1000", 80, 3000.0),
    ];
    rates.push(Rate { barrier: false, ..rate("holdfast", "auto", 80, 9000.0) });
    rates.push(Rate { method: "fsync".into(), ..rate("holdfast", "auto", 1, 70.0) });
    Results {
        head: Head {
            schema: SCHEMA.into(),
            paper: crate::StudyName::Commit.paper().into(),
            product_version: "0.1.0".into(),
            started_at: "2026-11-22 03:00".into(),
            command: "holdfast lab commit --peer postgres".into(),
            options: vec![Fact::new("Clients", "1, 80")],
            machine: vec![Fact::new("Processor", "two <cores>")],
        },
        rates,
        sync_methods: vec![SyncMethodRate {
            disk: "paper".into(),
            method: "open_direct_dsync".into(),
            syncs_rate: 76.0,
        }],
        findings: Vec::new(),
        failures: vec!["fsync on the real disk: it is gone".into()],
        notes: vec!["Mind the <gap>.".into()],
    }
}
