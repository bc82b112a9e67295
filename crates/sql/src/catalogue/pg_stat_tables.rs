//! What was done to tables and indexes: `pg_stat_all_tables`, `pg_stat_all_indexes`, `pg_statio_all_tables` and the like.
//!
//! The server counts the rows that statements have inserted, updated and deleted, since it was started and, as PostgreSQL, also
//! those of transactions that were rolled back. SQLite does not count scans, blocks and live rows: those columns are NULL, and there
//! are neither dead rows nor HOT updates. `pg_stat_sys_tables` and the other views of system tables are empty: the catalogue is
//! computed when it is read.

use super::live::TableActivityRow;
use super::oids;
use super::shapes;
use super::table::{CatalogContext, CatalogTable, count, int, text};
use holdfast_types::Value;
use holdfast_types::desc::oid;
use holdfast_types::schema::{Table, TableKind};

const O: u32 = oid::OID;
const N: u32 = oid::NAME;
const I8: u32 = oid::INT8;
const TZ: u32 = oid::TIMESTAMPTZ;

type Rows = fn(&CatalogContext<'_>) -> Vec<Vec<Value>>;

const fn view(name: &'static str, columns: &'static [(&'static str, u32)], rows: Rows) -> CatalogTable {
    CatalogTable { schema: "pg_catalog", name, columns, always_empty: false, rows }
}

const fn empty(name: &'static str, columns: &'static [(&'static str, u32)]) -> CatalogTable {
    CatalogTable { schema: "pg_catalog", name, columns, always_empty: true, rows: |_| Vec::new() }
}

const OF_TABLE: &[(&str, u32)] = &[
    ("relid", O),
    ("schemaname", N),
    ("relname", N),
    ("seq_scan", I8),
    ("seq_tup_read", I8),
    ("idx_scan", I8),
    ("idx_tup_fetch", I8),
    ("n_tup_ins", I8),
    ("n_tup_upd", I8),
    ("n_tup_del", I8),
    ("n_tup_hot_upd", I8),
    ("n_live_tup", I8),
    ("n_dead_tup", I8),
    ("n_mod_since_analyze", I8),
    ("n_ins_since_vacuum", I8),
    ("last_vacuum", TZ),
    ("last_autovacuum", TZ),
    ("last_analyze", TZ),
    ("last_autoanalyze", TZ),
    ("vacuum_count", I8),
    ("autovacuum_count", I8),
    ("analyze_count", I8),
    ("autoanalyze_count", I8),
];

const OF_INDEX: &[(&str, u32)] = &[
    ("relid", O),
    ("indexrelid", O),
    ("schemaname", N),
    ("relname", N),
    ("indexrelname", N),
    ("idx_scan", I8),
    ("idx_tup_read", I8),
    ("idx_tup_fetch", I8),
];

const BLOCKS_OF_TABLE: &[(&str, u32)] = &[
    ("relid", O),
    ("schemaname", N),
    ("relname", N),
    ("heap_blks_read", I8),
    ("heap_blks_hit", I8),
    ("idx_blks_read", I8),
    ("idx_blks_hit", I8),
    ("toast_blks_read", I8),
    ("toast_blks_hit", I8),
    ("tidx_blks_read", I8),
    ("tidx_blks_hit", I8),
];

const BLOCKS_OF_INDEX: &[(&str, u32)] = &[
    ("relid", O),
    ("indexrelid", O),
    ("schemaname", N),
    ("relname", N),
    ("indexrelname", N),
    ("idx_blks_read", I8),
    ("idx_blks_hit", I8),
];

const BLOCKS_OF_SEQUENCE: &[(&str, u32)] =
    &[("relid", O), ("schemaname", N), ("relname", N), ("blks_read", I8), ("blks_hit", I8)];

pub const TABLES: &[CatalogTable] = &[
    view("pg_stat_all_tables", OF_TABLE, tables),
    view("pg_stat_user_tables", OF_TABLE, tables),
    empty("pg_stat_sys_tables", OF_TABLE),
    view("pg_stat_all_indexes", OF_INDEX, indexes),
    view("pg_stat_user_indexes", OF_INDEX, indexes),
    empty("pg_stat_sys_indexes", OF_INDEX),
    view("pg_statio_all_tables", BLOCKS_OF_TABLE, table_blocks),
    view("pg_statio_user_tables", BLOCKS_OF_TABLE, table_blocks),
    empty("pg_statio_sys_tables", BLOCKS_OF_TABLE),
    view("pg_statio_all_indexes", BLOCKS_OF_INDEX, index_blocks),
    view("pg_statio_user_indexes", BLOCKS_OF_INDEX, index_blocks),
    empty("pg_statio_sys_indexes", BLOCKS_OF_INDEX),
    view("pg_statio_all_sequences", BLOCKS_OF_SEQUENCE, sequence_blocks),
    view("pg_statio_user_sequences", BLOCKS_OF_SEQUENCE, sequence_blocks),
    empty("pg_statio_sys_sequences", BLOCKS_OF_SEQUENCE),
];

fn unknown(columns: usize) -> impl Iterator<Item = Value> {
    std::iter::repeat_n(Value::Null, columns)
}

/// The tables, without views.
fn of_user<'c>(context: &'c CatalogContext<'_>) -> impl Iterator<Item = &'c Table> {
    let tables = context.schema.tables.iter().filter(|t| shapes::visible(t) && t.kind != TableKind::View);
    tables.map(|table| &**table)
}

/// OID, schema and name.
fn place(table: &Table) -> Vec<Value> {
    vec![int(table.oid), text(oids::namespace(table).1), text(table.name.as_str())]
}

fn tables(context: &CatalogContext<'_>) -> Vec<Vec<Value>> {
    let activity = context.live.table_activity(context.database_oid);
    let row = |table: &Table| {
        let done = activity.iter().find(|a| a.table == table.oid && !table.temp).copied();
        // What is done to temporary tables is not counted.
        let done = done.or((!table.temp).then(TableActivityRow::default));
        let counted = |of: fn(&TableActivityRow) -> u64| done.as_ref().map_or(Value::Null, |a| count(of(a)));
        let mut row = place(table);
        row.extend(unknown(4));
        row.extend([counted(|a| a.rows_inserted), counted(|a| a.rows_updated), counted(|a| a.rows_deleted)]);
        // No HOT updates; live rows are not known; no dead rows.
        row.extend([int(0), Value::Null, int(0)]);
        row.extend(unknown(OF_TABLE.len() - row.len()));
        row
    };
    of_user(context).map(row).collect()
}

fn table_blocks(context: &CatalogContext<'_>) -> Vec<Vec<Value>> {
    let row = |table| place(table).into_iter().chain(unknown(BLOCKS_OF_TABLE.len() - 3)).collect();
    of_user(context).map(row).collect()
}

fn indexes(context: &CatalogContext<'_>) -> Vec<Vec<Value>> {
    of_indexes(context, OF_INDEX.len())
}

fn index_blocks(context: &CatalogContext<'_>) -> Vec<Vec<Value>> {
    of_indexes(context, BLOCKS_OF_INDEX.len())
}

fn of_indexes(context: &CatalogContext<'_>, columns: usize) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for table in of_user(context) {
        for index in shapes::indexes(table) {
            let mut row = vec![int(table.oid), int(index.oid), text(oids::namespace(table).1)];
            row.extend([text(table.name.as_str()), text(index.name)]);
            row.extend(unknown(columns - row.len()));
            rows.push(row);
        }
    }
    rows
}

fn sequence_blocks(context: &CatalogContext<'_>) -> Vec<Vec<Value>> {
    let row = |(table, name): (&Table, String)| {
        vec![int(oids::sequence(table)), text(oids::namespace(table).1), text(name), Value::Null, Value::Null]
    };
    of_user(context).filter_map(|table| Some((table, shapes::sequence(table, context.dialect)?))).map(row).collect()
}
