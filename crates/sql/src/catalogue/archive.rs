//! The archive of the trail: `pg_stat_archiver` as PostgreSQL has it, and `holdfast_stat_archive` with what PostgreSQL has
//! no word for.
//!
//! Where PostgreSQL names a WAL file, the name of the object in the archive stands, without its directory.

use super::replication::{count, moment};
use super::{CatalogTable, boolean, text};
use holdfast_types::Value;
use holdfast_types::desc::oid;

/// How the archive stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArchiveRow {
    /// Directory or URL.
    pub place: String,
    /// In one word: what is being done.
    pub state: String,
    /// Segments archived since the server started.
    pub archived: u64,
    /// Bytes of their objects.
    pub archived_bytes: u64,
    pub last_archived: Option<String>,
    pub last_archived_us: Option<i64>,
    /// Everything below is archived.
    pub archived_lsn: u64,
    /// Tries that failed since the server started.
    pub failed: u64,
    pub last_failed: Option<String>,
    pub last_failed_us: Option<i64>,
    pub last_error: Option<String>,
    /// Finished segments that are not archived.
    pub waiting_segments: u64,
    pub waiting_bytes: u64,
    pub keep_bytes_max: u64,
    /// More is waiting than that.
    pub is_beyond: bool,
}

fn optional(word: Option<&String>) -> Value {
    word.map_or(Value::Null, |word| text(&**word))
}

/// PostgreSQL's view: always one row.
pub const PG_STAT_ARCHIVER: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_stat_archiver",
    columns: &[
        ("archived_count", oid::INT8),
        ("last_archived_wal", oid::TEXT),
        ("last_archived_time", oid::TIMESTAMPTZ),
        ("failed_count", oid::INT8),
        ("last_failed_wal", oid::TEXT),
        ("last_failed_time", oid::TIMESTAMPTZ),
        ("stats_reset", oid::TIMESTAMPTZ),
    ],
    always_empty: false,
    rows: |context| {
        let a = context.live.standing().archive.unwrap_or_default();
        vec![vec![
            count(a.archived),
            optional(a.last_archived.as_ref()),
            moment(a.last_archived_us),
            count(a.failed),
            optional(a.last_failed.as_ref()),
            moment(a.last_failed_us),
            Value::Null,
        ]]
    },
};

/// One row where there is an archive.
pub const ARCHIVE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "holdfast_stat_archive",
    columns: &[
        ("place", oid::TEXT),
        ("state", oid::TEXT),
        ("archived_count", oid::INT8),
        ("archived_bytes", oid::INT8),
        ("last_archived", oid::TEXT),
        ("last_archived_time", oid::TIMESTAMPTZ),
        ("archived_lsn", oid::INT8),
        ("failed_count", oid::INT8),
        ("last_failed", oid::TEXT),
        ("last_failed_time", oid::TIMESTAMPTZ),
        ("last_error", oid::TEXT),
        ("waiting_segments", oid::INT8),
        ("waiting_bytes", oid::INT8),
        ("keep_bytes_max", oid::INT8),
        ("is_beyond", oid::BOOL),
    ],
    always_empty: false,
    rows: |context| {
        let row = |a: ArchiveRow| {
            vec![
                text(a.place),
                text(a.state),
                count(a.archived),
                count(a.archived_bytes),
                optional(a.last_archived.as_ref()),
                moment(a.last_archived_us),
                count(a.archived_lsn),
                count(a.failed),
                optional(a.last_failed.as_ref()),
                moment(a.last_failed_us),
                optional(a.last_error.as_ref()),
                count(a.waiting_segments),
                count(a.waiting_bytes),
                count(a.keep_bytes_max),
                boolean(a.is_beyond),
            ]
        };
        context.live.standing().archive.into_iter().map(row).collect()
    },
};
