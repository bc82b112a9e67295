//! A made-up run, for the tests of what is said, drawn and written.

use super::results::*;
use super::row::Row;
use super::{arithmetic, findings, history};
use crate::results::Fact;
use crate::study_results::{Head, ServerSettings};

fn turns(rates: [f64; 2], cpu_us: [f64; 2]) -> Vec<Turn> {
    let turn = |server: &str, value, cpu_us| Turn {
        server: server.into(),
        value,
        cpu_us: Some(cpu_us),
        syncs_per_transaction: Some(0.5),
        log_bytes_per_transaction: Some(300.0),
        ..Turn::default()
    };
    vec![turn("holdfast", rates[0], cpu_us[0]), turn("postgres", rates[1], cpu_us[1])]
}

/// One run: a row that meets its goals, one that misses them, one without a peer.
pub fn results() -> Results {
    let line = |row: Row, turns: Vec<Turn>| Line { turns, ..Line::empty(row, format!("the row {}", row.name())) };
    let mut without = line(Row::RowByKey, turns([9000.0, 1.0], [80.0, 1.0])[..1].to_vec());
    without.missing.push("PostgreSQL: no <initdb> here".into());
    let mut lines = vec![
        line(Row::OneMessage, turns([25_000.0, 10_000.0], [20.0, 100.0])),
        line(Row::InsertOne, turns([900.0, 1000.0], [150.0, 100.0])),
        without,
    ];
    lines.iter_mut().for_each(arithmetic::conclude);
    let sync = Some(SyncFloor { bytes: 4096, syncs_a_second: 1800.0, rate: 1800.0 });
    lines[1].floor = Some(Floor { value: 1800.0, echo_rate: Some(20_000.0), echo_cpu_us: Some(9.0), sync });
    let earlier =
        EarlierLine { row: Row::InsertOne.name().into(), value: Some(1000.0), ratio: Some(1.0), cpu_ratio: Some(1.5) };
    let (started_at, product_version) = ("2026-01-01 03:04".into(), "0.1.0".into());
    let history = vec![Earlier { started_at, product_version, lines: vec![earlier] }];
    lines.iter_mut().for_each(|line| line.changes = history::changes(line, &history));
    Results {
        head: Head {
            schema: SCHEMA.into(),
            paper: crate::StudyName::Speed.paper().into(),
            product_version: "0.1.0".into(),
            started_at: "2026-01-02 03:04".into(),
            command: "holdfast lab speed --peer postgres".into(),
            options: vec![Fact::new("Seconds a turn", "5")],
            machine: vec![Fact::new("Processor", "Example <fast>, 2 cores")],
        },
        servers: vec![ServerSettings { server: "holdfast".into(), settings: vec![Fact::new("Version", "0.1.0")] }],
        history,
        findings: findings::findings(&lines),
        lines,
        failures: Vec::new(),
        notes: vec!["A note with <angle brackets>.".into()],
    }
}
