//! `pg_stat_database`: what sessions have done in each database since the server started.
//!
//! `tup_returned` counts rows that statements returned to clients; SQLite does not count the rows that scans read, so
//! `tup_fetched` is 0, as is everything about blocks, temporary files and conflicts with recovery.

use super::table::{CatalogTable, count, int, moment, text};
use holdfast_types::Value;
use holdfast_types::desc::oid;

/// What was done in a database.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DatabaseActivityRow {
    pub database_oid: u32,
    /// Sessions now.
    pub sessions_now: u64,
    pub commits: u64,
    pub rollbacks: u64,
    pub rows_returned: u64,
    pub rows_inserted: u64,
    pub rows_updated: u64,
    pub rows_deleted: u64,
    pub deadlocks: u64,
    pub session_us: u64,
    pub active_us: u64,
    pub idle_in_transaction_us: u64,
    /// Sessions so far, and those that another session ended.
    pub sessions: u64,
    pub sessions_killed: u64,
    pub since_us: i64,
}

const I8: u32 = oid::INT8;
const F8: u32 = oid::FLOAT8;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_stat_database",
    columns: &[
        ("datid", oid::OID),
        ("datname", oid::NAME),
        ("numbackends", oid::INT4),
        ("xact_commit", I8),
        ("xact_rollback", I8),
        ("blks_read", I8),
        ("blks_hit", I8),
        ("tup_returned", I8),
        ("tup_fetched", I8),
        ("tup_inserted", I8),
        ("tup_updated", I8),
        ("tup_deleted", I8),
        ("conflicts", I8),
        ("temp_files", I8),
        ("temp_bytes", I8),
        ("deadlocks", I8),
        ("checksum_failures", I8),
        ("checksum_last_failure", oid::TIMESTAMPTZ),
        ("blk_read_time", F8),
        ("blk_write_time", F8),
        ("session_time", F8),
        ("active_time", F8),
        ("idle_in_transaction_time", F8),
        ("sessions", I8),
        ("sessions_abandoned", I8),
        ("sessions_fatal", I8),
        ("sessions_killed", I8),
        ("stats_reset", oid::TIMESTAMPTZ),
    ],
    always_empty: false,
    rows: |context| {
        let activity = context.live.database_activity();
        let none = DatabaseActivityRow::default();
        let of = |oid: u32| activity.iter().find(|a| a.database_oid == oid).unwrap_or(&none);
        context.databases.iter().map(|d| row(d.oid, &d.name, of(d.oid))).collect()
    },
};

fn row(oid: u32, name: &str, a: &DatabaseActivityRow) -> Vec<Value> {
    let ms = |us: u64| Value::Real(us as f64 / 1e3);
    let zero = || int(0);
    vec![
        int(oid),
        text(name),
        count(a.sessions_now),
        count(a.commits),
        count(a.rollbacks),
        zero(),
        zero(),
        count(a.rows_returned),
        zero(),
        count(a.rows_inserted),
        count(a.rows_updated),
        count(a.rows_deleted),
        zero(),
        zero(),
        zero(),
        count(a.deadlocks),
        Value::Null,
        Value::Null,
        ms(0),
        ms(0),
        ms(a.session_us),
        ms(a.active_us),
        ms(a.idle_in_transaction_us),
        count(a.sessions),
        zero(),
        zero(),
        count(a.sessions_killed),
        moment(Some(a.since_us).filter(|us| *us != 0)),
    ]
}
