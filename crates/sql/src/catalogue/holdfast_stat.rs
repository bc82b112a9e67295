//! `holdfast_stat_trail` and `holdfast_stat_transactions`, the engine's counters, and `holdfast_stat_automatic`, the
//! counters of automatic transactions, all since the start of the server. PostgreSQL does not have these views; they
//! are in `pg_catalog`, next to PostgreSQL's statistics views, so that they are found without a schema.

use super::table::{CatalogTable, count, int, text};
use holdfast_types::Value;
use holdfast_types::desc::oid;

pub const TRAIL: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "holdfast_stat_trail",
    columns: &[("name", oid::TEXT), ("value", oid::INT8)],
    always_empty: false,
    rows: |context| named(&context.counters),
};

pub const AUTOMATIC: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "holdfast_stat_automatic",
    columns: &[("name", oid::TEXT), ("value", oid::INT8)],
    always_empty: false,
    rows: |context| named(&context.automatic),
};

fn named(counters: &[(&'static str, u64)]) -> Vec<Vec<Value>> {
    counters.iter().map(|(name, v)| vec![text(*name), count(*v)]).collect()
}

/// One row: conflicts between transactions, and which session holds the oldest snapshot, so that old row versions are
/// kept.
pub const TRANSACTIONS: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "holdfast_stat_transactions",
    columns: &[
        ("statement_restarts", oid::INT8),
        ("serialization_conflicts", oid::INT8),
        ("deadlocks", oid::INT8),
        ("lock_waits", oid::INT8),
        ("lock_timeouts", oid::INT8),
        ("requests_sent_to_branches", oid::INT8),
        ("row_versions_kept", oid::INT8),
        ("oldest_snapshot", oid::INT8),
        ("oldest_snapshot_database", oid::TEXT),
        ("oldest_snapshot_age_ms", oid::INT8),
        ("oldest_snapshot_pid", oid::INT4),
        ("oldest_snapshot_client", oid::TEXT),
    ],
    always_empty: false,
    rows: |context| {
        let t = context.live.transactions();
        let counters = [
            t.statement_restarts,
            t.serialization_conflicts,
            t.deadlocks,
            t.lock_waits,
            t.lock_timeouts,
            t.requests_sent_to_branches,
            t.row_versions_kept,
        ];
        let mut row: Vec<Value> = counters.into_iter().map(count).collect();
        match t.oldest_snapshot {
            Some(o) => row.extend([
                count(o.number),
                text(o.database),
                count(o.age_ms),
                int(o.pid),
                o.client.map_or(Value::Null, text),
            ]),
            None => row.extend(std::iter::repeat_n(Value::Null, 5)),
        }
        vec![row]
    },
};
