//! What the server as a whole has done: `pg_stat_wal`, `pg_stat_bgwriter`, `pg_stat_wal_receiver`, and
//! `pg_stat_database_conflicts`, where nothing is: a standby's readers never conflict with its replay.
//!
//! `pg_stat_wal` shows the trail: each boxcar is one write and one sync. Its records are not counted, and it has no images of pages.

use super::table::{CatalogContext, CatalogTable, count, int, moment, text};
use crate::types::lsn_text;
use holdfast_types::desc::oid;
use holdfast_types::{LinkRow, Value};

const I8: u32 = oid::INT8;
const F8: u32 = oid::FLOAT8;

/// An engine's counter by its name.
fn counter(context: &CatalogContext<'_>, name: &str) -> u64 {
    context.counters.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
}

/// When the server started: the counters begin there.
pub(super) fn since_start(context: &CatalogContext<'_>) -> Value {
    moment(Some(context.live.started_us()).filter(|us| *us != 0))
}

pub const WAL: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_stat_wal",
    columns: &[
        ("wal_records", I8),
        ("wal_fpi", I8),
        ("wal_bytes", oid::NUMERIC),
        ("wal_buffers_full", I8),
        ("wal_write", I8),
        ("wal_sync", I8),
        ("wal_write_time", F8),
        ("wal_sync_time", F8),
        ("stats_reset", oid::TIMESTAMPTZ),
    ],
    always_empty: false,
    rows: |context| {
        let boxcars = || count(counter(context, "boxcars"));
        let bytes = text(counter(context, "bytes").to_string());
        let mut row = vec![Value::Null, int(0), bytes, int(0), boxcars(), boxcars()];
        row.extend([Value::Real(0.0), Value::Real(0.0), since_start(context)]);
        vec![row]
    },
};

pub const BGWRITER: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_stat_bgwriter",
    columns: &[
        ("checkpoints_timed", I8),
        ("checkpoints_req", I8),
        ("checkpoint_write_time", F8),
        ("checkpoint_sync_time", F8),
        ("buffers_checkpoint", I8),
        ("buffers_clean", I8),
        ("maxwritten_clean", I8),
        ("buffers_backend", I8),
        ("buffers_backend_fsync", I8),
        ("buffers_alloc", I8),
        ("stats_reset", oid::TIMESTAMPTZ),
    ],
    always_empty: false,
    rows: |context| {
        let mut row = vec![count(counter(context, "checkpoints")), int(0), Value::Real(0.0), Value::Real(0.0)];
        row.push(count(counter(context, "checkpoint_pages")));
        row.extend([int(0), int(0), int(0), int(0), int(0), since_start(context)]);
        vec![row]
    },
};

/// A standby's link to its master.
pub const WAL_RECEIVER: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_stat_wal_receiver",
    columns: &[
        ("pid", oid::INT4),
        ("status", oid::TEXT),
        ("receive_start_lsn", oid::PG_LSN),
        ("receive_start_tli", oid::INT4),
        ("written_lsn", oid::PG_LSN),
        ("flushed_lsn", oid::PG_LSN),
        ("received_tli", oid::INT4),
        ("last_msg_send_time", oid::TIMESTAMPTZ),
        ("last_msg_receipt_time", oid::TIMESTAMPTZ),
        ("latest_end_lsn", oid::PG_LSN),
        ("latest_end_time", oid::TIMESTAMPTZ),
        ("slot_name", oid::TEXT),
        ("sender_host", oid::TEXT),
        ("sender_port", oid::INT4),
        ("conninfo", oid::TEXT),
    ],
    always_empty: false,
    rows: |context| {
        let standing = context.live.standing();
        let row = |link: &LinkRow| {
            let lsn = |value: u64| text(lsn_text(value));
            let (host, port) = link.master.rsplit_once(':').unwrap_or((&link.master, ""));
            let status = if link.follows { "streaming" } else { "waiting" };
            let mut row = vec![Value::Null, text(status), Value::Null, Value::Null];
            row.extend([lsn(standing.durable_lsn), lsn(standing.durable_lsn), int(standing.epoch)]);
            row.extend([Value::Null, Value::Null, lsn(link.master_durable_lsn), Value::Null, Value::Null]);
            row.extend([text(host), port.parse::<u16>().map_or(Value::Null, int), Value::Null]);
            row
        };
        standing.link.iter().map(row).collect()
    },
};

pub const CONFLICTS: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_stat_database_conflicts",
    columns: &[
        ("datid", oid::OID),
        ("datname", oid::NAME),
        ("confl_tablespace", I8),
        ("confl_lock", I8),
        ("confl_snapshot", I8),
        ("confl_bufferpin", I8),
        ("confl_deadlock", I8),
    ],
    always_empty: false,
    rows: |context| {
        let zeros = || std::iter::repeat_n(int(0), 5);
        context.databases.iter().map(|d| [int(d.oid), text(&*d.name)].into_iter().chain(zeros()).collect()).collect()
    },
};
