//! `pg_stat_statements` and `pg_stat_statements_info`, as version 1.10 of PostgreSQL's extension shows them.
//!
//! Times are those of execution: waits for locks are in them, waits for a durable commit are in the COMMIT's, or in none where
//! the statement is its own transaction. `wal_records` and `wal_bytes` count the row images of its changes; what is recorded for the
//! transaction as a whole, and COPY FROM, is not in them. Columns of blocks, of planning and of the just-in-time compiler are 0. As
//! in PostgreSQL text and number of other roles' statements are hidden.

use super::table::{CatalogContext, CatalogTable, boolean, count, int, moment, text};
use holdfast_types::Value;
use holdfast_types::desc::oid;

/// What is known of one statement. Times in milliseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatementRow {
    pub role: u32,
    pub database_oid: u32,
    pub query_id: i64,
    pub query: String,
    pub calls: u64,
    pub rows: u64,
    pub total_ms: f64,
    pub min_ms: f64,
    pub max_ms: f64,
    pub mean_ms: f64,
    pub stddev_ms: f64,
    /// Row images in the trail, and their bytes.
    pub wal_records: u64,
    pub wal_bytes: u64,
}

const I8: u32 = oid::INT8;
const F8: u32 = oid::FLOAT8;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_stat_statements",
    columns: &[
        ("userid", oid::OID),
        ("dbid", oid::OID),
        ("toplevel", oid::BOOL),
        ("queryid", I8),
        ("query", oid::TEXT),
        ("plans", I8),
        ("total_plan_time", F8),
        ("min_plan_time", F8),
        ("max_plan_time", F8),
        ("mean_plan_time", F8),
        ("stddev_plan_time", F8),
        ("calls", I8),
        ("total_exec_time", F8),
        ("min_exec_time", F8),
        ("max_exec_time", F8),
        ("mean_exec_time", F8),
        ("stddev_exec_time", F8),
        ("rows", I8),
        ("shared_blks_hit", I8),
        ("shared_blks_read", I8),
        ("shared_blks_dirtied", I8),
        ("shared_blks_written", I8),
        ("local_blks_hit", I8),
        ("local_blks_read", I8),
        ("local_blks_dirtied", I8),
        ("local_blks_written", I8),
        ("temp_blks_read", I8),
        ("temp_blks_written", I8),
        ("blk_read_time", F8),
        ("blk_write_time", F8),
        ("temp_blk_read_time", F8),
        ("temp_blk_write_time", F8),
        ("wal_records", I8),
        ("wal_fpi", I8),
        ("wal_bytes", oid::NUMERIC),
        ("jit_functions", I8),
        ("jit_generation_time", F8),
        ("jit_inlining_count", I8),
        ("jit_inlining_time", F8),
        ("jit_optimization_count", I8),
        ("jit_optimization_time", F8),
        ("jit_emission_count", I8),
        ("jit_emission_time", F8),
    ],
    always_empty: false,
    rows: |context| context.live.statements().iter().map(|s| row(context, s)).collect(),
};

pub const INFO: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_stat_statements_info",
    columns: &[("dealloc", I8), ("stats_reset", oid::TIMESTAMPTZ)],
    always_empty: false,
    rows: |context| {
        let (forgotten, reset_us) = context.live.statements_info();
        vec![vec![count(forgotten), moment(Some(reset_us))]]
    },
};

fn row(context: &CatalogContext<'_>, s: &StatementRow) -> Vec<Value> {
    let zero = |column: &(&str, u32)| match column.1 {
        oid::FLOAT8 => Value::Real(0.0),
        oid::NUMERIC => text("0"),
        _ => int(0),
    };
    let sees = context.viewer.sees_statistics_of(s.role);
    let mut row = vec![int(s.role), int(s.database_oid), boolean(true)];
    row.push(if sees { Value::Int(s.query_id) } else { Value::Null });
    row.push(text(if sees { &*s.query } else { "<insufficient privilege>" }));
    row.extend(TABLE.columns[5..11].iter().map(zero));
    row.push(count(s.calls));
    row.extend([s.total_ms, s.min_ms, s.max_ms, s.mean_ms, s.stddev_ms].map(Value::Real));
    row.push(count(s.rows));
    row.extend(TABLE.columns[18..].iter().map(|column| match column.0 {
        "wal_records" => count(s.wal_records),
        "wal_bytes" => text(s.wal_bytes.to_string()),
        _ => zero(column),
    }));
    row
}
