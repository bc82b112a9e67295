//! PostgreSQL's statistics views of what Holdfast does not have, or finishes at once: always empty, with PostgreSQL's columns.

use super::table::CatalogTable;
use holdfast_types::desc::oid;

const O: u32 = oid::OID;
const N: u32 = oid::NAME;
const T: u32 = oid::TEXT;
const B: u32 = oid::BOOL;
const I4: u32 = oid::INT4;
const I8: u32 = oid::INT8;
const F8: u32 = oid::FLOAT8;
const TZ: u32 = oid::TIMESTAMPTZ;

const fn empty(name: &'static str, columns: &'static [(&'static str, u32)]) -> CatalogTable {
    CatalogTable { schema: "pg_catalog", name, columns, always_empty: true, rows: |_| Vec::new() }
}

pub const TABLES: &[CatalogTable] = &[
    empty(
        "pg_file_settings",
        &[
            ("sourcefile", T),
            ("sourceline", I4),
            ("seqno", I4),
            ("name", T),
            ("setting", T),
            ("applied", B),
            ("error", T),
        ],
    ),
    empty(
        "pg_stat_progress_analyze",
        &[
            ("pid", I4),
            ("datid", O),
            ("datname", N),
            ("relid", O),
            ("phase", T),
            ("sample_blks_total", I8),
            ("sample_blks_scanned", I8),
            ("ext_stats_total", I8),
            ("ext_stats_computed", I8),
            ("child_tables_total", I8),
            ("child_tables_done", I8),
            ("current_child_table_relid", O),
        ],
    ),
    empty(
        "pg_stat_progress_basebackup",
        &[
            ("pid", I4),
            ("phase", T),
            ("backup_total", I8),
            ("backup_streamed", I8),
            ("tablespaces_total", I8),
            ("tablespaces_streamed", I8),
        ],
    ),
    empty(
        "pg_stat_progress_cluster",
        &[
            ("pid", I4),
            ("datid", O),
            ("datname", N),
            ("relid", O),
            ("command", T),
            ("phase", T),
            ("cluster_index_relid", O),
            ("heap_tuples_scanned", I8),
            ("heap_tuples_written", I8),
            ("heap_blks_total", I8),
            ("heap_blks_scanned", I8),
            ("index_rebuild_count", I8),
        ],
    ),
    empty(
        "pg_stat_progress_copy",
        &[
            ("pid", I4),
            ("datid", O),
            ("datname", N),
            ("relid", O),
            ("command", T),
            ("type", T),
            ("bytes_processed", I8),
            ("bytes_total", I8),
            ("tuples_processed", I8),
            ("tuples_excluded", I8),
        ],
    ),
    empty(
        "pg_stat_progress_create_index",
        &[
            ("pid", I4),
            ("datid", O),
            ("datname", N),
            ("relid", O),
            ("index_relid", O),
            ("command", T),
            ("phase", T),
            ("lockers_total", I8),
            ("lockers_done", I8),
            ("current_locker_pid", I8),
            ("blocks_total", I8),
            ("blocks_done", I8),
            ("tuples_total", I8),
            ("tuples_done", I8),
            ("partitions_total", I8),
            ("partitions_done", I8),
        ],
    ),
    empty(
        "pg_stat_progress_vacuum",
        &[
            ("pid", I4),
            ("datid", O),
            ("datname", N),
            ("relid", O),
            ("phase", T),
            ("heap_blks_total", I8),
            ("heap_blks_scanned", I8),
            ("heap_blks_vacuumed", I8),
            ("index_vacuum_count", I8),
            ("max_dead_tuples", I8),
            ("num_dead_tuples", I8),
        ],
    ),
    empty(
        "pg_stat_recovery_prefetch",
        &[
            ("stats_reset", TZ),
            ("prefetch", I8),
            ("hit", I8),
            ("skip_init", I8),
            ("skip_new", I8),
            ("skip_fpw", I8),
            ("skip_rep", I8),
            ("wal_distance", I4),
            ("block_distance", I4),
            ("io_depth", I4),
        ],
    ),
    empty(
        "pg_stat_replication_slots",
        &[
            ("slot_name", T),
            ("spill_txns", I8),
            ("spill_count", I8),
            ("spill_bytes", I8),
            ("stream_txns", I8),
            ("stream_count", I8),
            ("stream_bytes", I8),
            ("total_txns", I8),
            ("total_bytes", I8),
            ("stats_reset", TZ),
        ],
    ),
    empty(
        "pg_stat_user_functions",
        &[("funcid", O), ("schemaname", N), ("funcname", N), ("calls", I8), ("total_time", F8), ("self_time", F8)],
    ),
    empty(
        "pg_stat_xact_user_functions",
        &[("funcid", O), ("schemaname", N), ("funcname", N), ("calls", I8), ("total_time", F8), ("self_time", F8)],
    ),
];
