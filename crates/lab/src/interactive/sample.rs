//! A made-up run, for the tests of what is said, drawn and written.

use super::rates;
use super::results::*;
use crate::pgbench;
use crate::results::{Fact, PgbenchResult};
use crate::study_results::{Check, Head, ServerSettings};

fn rate(server: &str, case: &str, clients: usize, tps: f64, cpu_us: f64) -> PgbenchResult {
    PgbenchResult {
        tps,
        latency_mean_ms: clients as f64 * 1e3 / tps,
        server_cpu_us: Some(cpu_us),
        ..PgbenchResult::empty(server, case, clients)
    }
}

/// One run with everything in it.
pub fn results() -> Results {
    let (small, large) = (rates::tpcb_name(1), rates::tpcb_name(40));
    let mut results = Results {
        head: Head {
            schema: SCHEMA.into(),
            paper: crate::StudyName::Interactive.paper().into(),
            product_version: "0.1.0".into(),
            started_at: "2026-01-02 03:04".into(),
            command: "holdfast lab interactive --peer postgres".into(),
            options: vec![Fact::new("Seconds a point", "5")],
            machine: vec![Fact::new("Processor", "Example <fast>, 2 cores")],
        },
        servers: vec![ServerSettings { server: "holdfast".into(), settings: vec![Fact::new("Version", "0.1.0")] }],
        rates: vec![
            rate("holdfast", pgbench::FIVE_MESSAGES, 40, 6000.0, 120.0),
            rate("postgres", pgbench::FIVE_MESSAGES, 40, 3000.0, 200.0),
            rate("holdfast", &small, 40, 2000.0, 150.0),
            rate("postgres", &small, 40, 1000.0, 300.0),
            rate("holdfast", &large, 40, 5000.0, 150.0),
            PgbenchResult {
                skipped: Some("the disk is on fire".into()),
                ..PgbenchResult::empty("postgres", &large, 40)
            },
            rate("holdfast", rates::THINKING, 200, 4000.0, 150.0),
        ],
        sleepers: [("holdfast", 800.0), ("postgres", 990.0)]
            .map(|(server, with)| Sleeper {
                server: server.into(),
                sleep_seconds: 10,
                clients: 40,
                tps_without: vec![1000.0, 1000.0],
                tps_with: vec![with, with],
            })
            .to_vec(),
        memory: [("holdfast", 60_000), ("postgres", 2_000_000)]
            .map(|(server, each)| MemoryUse {
                server: server.into(),
                connections: 1000,
                before_bytes: 100 << 20,
                first_connections: 100,
                first_bytes: (100 << 20) + 100 * each,
                idle_bytes: (100 << 20) + 1000 * each,
                open_bytes: (100 << 20) + 2000 * each,
            })
            .to_vec(),
        long_transactions: ["holdfast", "postgres"]
            .map(|server| LongTransaction {
                server: server.into(),
                statements: 10_000,
                tenths_ms: (0..10).map(|i| 90.0 + f64::from(i)).collect(),
                commit_ms: 12.0,
                foreign_tps: 700.0,
            })
            .to_vec(),
        checks: vec![Check {
            server: "holdfast".into(),
            what: "the balances agree".into(),
            holds: true,
            found: "history 7, accounts 7".into(),
        }],
        findings: vec![],
        failures: vec!["TPC-B at postgres: the disk is on fire".into()],
        notes: vec!["A note with <angle brackets>.".into()],
    };
    results.findings = super::findings::findings(&results);
    results
}
