//! A made-up run, for the tests of what is drawn and written.

use crate::configuration::Configuration;
use crate::histogram::Summary;
use crate::results::*;

fn point(offered_rate: Option<f64>, clients: usize, completed_rate: f64, mean_us: f64) -> Point {
    let us = mean_us as u64;
    Point {
        offered_rate,
        clients,
        completed_rate,
        response: Summary { count: 1000, mean_us, p50_us: us, p99_us: us * 3, p999_us: us * 8, max_us: us * 10 },
        waiting: offered_rate.map_or(0, |o| (o - completed_rate) as u64),
        syncs_per_transaction: Some(0.125),
        server_cpu_us: None,
    }
}

fn configuration(configuration: Configuration, peak: f64) -> ConfigurationResult {
    let rates = crate::schedule::ladder(peak);
    ConfigurationResult {
        configuration,
        skipped: None,
        settings: vec![Fact::new("synchronous", "full")],
        log_rows: (30_000, 50_000),
        peaks: vec![point(None, 40, peak, 40e6 / peak)],
        points: rates
            .into_iter()
            .map(|r| point(Some(r), 40, r.min(peak), if r > peak { 2e6 } else { 100.0 + 4e7 / (peak * 1.05 - r) }))
            .collect(),
    }
}

/// One run with everything in it.
pub fn results() -> Results {
    let mut results = Results {
        schema: SCHEMA.into(),
        paper: crate::StudyName::Authorization.paper().into(),
        product_version: "0.1.0".into(),
        started_at: "2026-01-02 03:04".into(),
        command: "holdfast lab authorization --seconds 5".into(),
        options: Options {
            seconds_per_point: 5.0,
            clients: vec![40],
            disk_sync_ms: 0,
            log_rows_in_process: 30_000,
            log_rows_wire: 300_000,
            peer: Some("postgres".into()),
        },
        machine: vec![Fact::new("Processor", "Example <fast>, 2 cores")],
        configurations: vec![
            configuration(Configuration::Unaudited, 1000.0),
            configuration(Configuration::SqliteFull, 6000.0),
            configuration(Configuration::Audited, 45_000.0),
            configuration(Configuration::Autotmf, 28_000.0),
            ConfigurationResult::skipped(Configuration::AuditedWireSimple, "the server fell over"),
            configuration(Configuration::AuditedWirePipeline, 30_000.0),
            configuration(Configuration::PostgresPipeline, 15_000.0),
        ],
        pgbench: [("holdfast", 26_000.0, 80.0), ("postgres", 12_500.0, 210.0)]
            .map(|(server, tps, cpu)| PgbenchResult {
                server: server.into(),
                case: crate::pgbench::ONE_MESSAGE.into(),
                clients: 40,
                remark: None,
                skipped: None,
                tps,
                latency_mean_ms: 40e3 / tps,
                failed: 0,
                syncs_per_transaction: Some(0.1),
                server_cpu_us: Some(cpu),
            })
            .to_vec(),
        ratios: vec![],
        failures: vec!["measuring sqlite-off: the disk is on fire".into()],
        notes: vec!["A note with <angle brackets>.".into()],
    };
    results.ratios = crate::ratios::ratios(&results);
    results
}
