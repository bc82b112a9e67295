//! The positions of the trail, here, on standbys and at subscribers: `pg_stat_replication` and `pg_replication_slots` as in
//! PostgreSQL; `holdfast_stat_standbys` with what PostgreSQL has no column for; `holdfast_stat_standby` on a standby itself; and the one row behind
//! `pg_is_in_recovery`, `pg_current_wal_lsn` and similar functions.
//!
//! A position is written as PostgreSQL writes one, `16/B374D848`: the high and the low 32 bits in hexadecimal.

use super::live::{SessionRow, SlotRow, SubscriberRow};
use super::oids::OWNER_OID;
use super::standing::walsenders;
use super::table::{CatalogTable, boolean, count, int, moment, text};
use crate::types::{lsn_text, more};
use holdfast_types::desc::oid;
use holdfast_types::{LinkRow, StandbyRow, Value};

pub(super) fn lsn(value: u64) -> Value {
    text(lsn_text(value))
}

/// The one row that functions such as `pg_is_in_recovery` read.
pub const STANDING: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "hf_standing",
    columns: &[
        ("in_recovery", oid::BOOL),
        ("current_lsn", oid::PG_LSN),
        ("receive_lsn", oid::PG_LSN),
        ("replay_lsn", oid::PG_LSN),
        ("epoch", oid::INT8),
    ],
    always_empty: false,
    rows: |context| {
        let s = context.live.standing();
        let on_standby = |value: u64| if s.in_recovery { lsn(value) } else { Value::Null };
        vec![vec![
            boolean(s.in_recovery),
            lsn(s.durable_lsn),
            on_standby(s.durable_lsn),
            on_standby(s.applied_lsn),
            int(s.epoch),
        ]]
    },
};

/// PostgreSQL's view. Lags in time are not measured; those columns are NULL.
pub const PG_STAT_REPLICATION: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_stat_replication",
    columns: &[
        ("pid", oid::INT4),
        ("usesysid", oid::OID),
        ("usename", oid::NAME),
        ("application_name", oid::TEXT),
        ("client_addr", oid::INET),
        ("client_hostname", oid::TEXT),
        ("client_port", oid::INT4),
        ("backend_start", oid::TIMESTAMPTZ),
        ("backend_xmin", more::XID),
        ("state", oid::TEXT),
        ("sent_lsn", oid::PG_LSN),
        ("write_lsn", oid::PG_LSN),
        ("flush_lsn", oid::PG_LSN),
        ("replay_lsn", oid::PG_LSN),
        ("write_lag", oid::INTERVAL),
        ("flush_lag", oid::INTERVAL),
        ("replay_lag", oid::INTERVAL),
        ("sync_priority", oid::INT4),
        ("sync_state", oid::TEXT),
        ("reply_time", oid::TIMESTAMPTZ),
    ],
    always_empty: false,
    rows: |context| {
        let standing = context.live.standing();
        let standbys = walsenders(&standing.standbys).map(|(pid, s)| replication_row(pid, s));
        let sessions = context.live.sessions();
        let of_slot = |slot: &SlotRow| {
            let subscriber = slot.subscriber.as_ref()?;
            let session = sessions.iter().find(|session| session.pid == subscriber.pid)?;
            Some(subscriber_row(subscriber, session))
        };
        standbys.chain(context.live.slots().iter().filter_map(of_slot)).collect()
    },
};

fn subscriber_row(subscriber: &SubscriberRow, session: &SessionRow) -> Vec<Value> {
    let reported = |value: u64| if subscriber.answered_us.is_some() { lsn(value) } else { Value::Null };
    vec![
        int(subscriber.pid),
        int(session.role),
        text(&*session.user),
        text(&*session.application_name),
        session.client.as_deref().map_or(Value::Null, text),
        Value::Null,
        session.client_port.map_or(Value::Null, int),
        moment(Some(session.backend_start_us)),
        Value::Null,
        text("streaming"),
        lsn(subscriber.sent_lsn),
        reported(subscriber.written_lsn),
        reported(subscriber.flushed_lsn),
        reported(subscriber.applied_lsn),
        Value::Null,
        Value::Null,
        Value::Null,
        int(0),
        text("async"),
        moment(subscriber.answered_us),
    ]
}

/// The logical replication slots of all databases.
pub const PG_REPLICATION_SLOTS: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_replication_slots",
    columns: &[
        ("slot_name", oid::NAME),
        ("plugin", oid::NAME),
        ("slot_type", oid::TEXT),
        ("datoid", oid::OID),
        ("database", oid::NAME),
        ("temporary", oid::BOOL),
        ("active", oid::BOOL),
        ("active_pid", oid::INT4),
        ("xmin", more::XID),
        ("catalog_xmin", more::XID),
        ("restart_lsn", oid::PG_LSN),
        ("confirmed_flush_lsn", oid::PG_LSN),
        ("wal_status", oid::TEXT),
        ("safe_wal_size", oid::INT8),
        ("two_phase", oid::BOOL),
    ],
    always_empty: false,
    rows: |context| {
        let row = |slot: SlotRow| {
            vec![
                text(slot.name),
                text(slot.plugin),
                text("logical"),
                int(slot.database_oid),
                text(slot.database),
                boolean(false),
                boolean(slot.subscriber.is_some()),
                slot.subscriber.map_or(Value::Null, |of| int(of.pid)),
                Value::Null,
                Value::Null,
                lsn(slot.restart_lsn),
                lsn(slot.confirmed_lsn),
                text(slot.wal_status.name()),
                Value::Null,
                boolean(false),
            ]
        };
        context.live.slots().into_iter().map(row).collect()
    },
};

fn replication_row(pid: i64, s: &StandbyRow) -> Vec<Value> {
    let optional = |t: Option<&str>| t.map_or(Value::Null, text);
    vec![
        Value::Int(pid),
        int(OWNER_OID),
        text("holdfast"),
        text(&*s.name),
        optional(s.client.as_ref().map(|c| c.0.as_str())),
        Value::Null,
        s.client.as_ref().map_or(Value::Null, |c| int(c.1)),
        moment(s.since_us),
        Value::Null,
        text(&*s.state),
        s.sent_lsn.map_or(Value::Null, lsn),
        s.received_lsn.map_or(Value::Null, lsn),
        s.durable_lsn.map_or(Value::Null, lsn),
        s.applied_lsn.map_or(Value::Null, lsn),
        Value::Null,
        Value::Null,
        Value::Null,
        int(s.priority),
        text(if s.synchronous { "sync" } else { "async" }),
        moment(s.acked_us),
    ]
}

/// Every standby that is connected, or that is disconnected and has trail kept for it.
pub const STANDBYS: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "holdfast_stat_standbys",
    columns: &[
        ("name", oid::TEXT),
        ("connected", oid::BOOL),
        ("state", oid::TEXT),
        ("synchronous", oid::BOOL),
        ("sent_lsn", oid::INT8),
        ("received_lsn", oid::INT8),
        ("durable_lsn", oid::INT8),
        ("applied_lsn", oid::INT8),
        ("lag_bytes", oid::INT8),
        ("apply_bytes_per_s", oid::INT8),
        ("delay_us", oid::INT8),
        ("reason", oid::TEXT),
    ],
    always_empty: false,
    rows: |context| {
        let standing = context.live.standing();
        let known = |value: Option<u64>| value.map_or(Value::Null, count);
        let row = |s: &StandbyRow| {
            vec![
                text(&*s.name),
                boolean(s.connected),
                text(&*s.state),
                boolean(s.synchronous),
                known(s.sent_lsn),
                known(s.received_lsn),
                known(s.durable_lsn),
                known(s.applied_lsn),
                known(s.applied_lsn.or(s.durable_lsn).map(|has| standing.durable_lsn.saturating_sub(has))),
                count(s.apply_bytes_per_s),
                count(s.delay_us),
                text(&*s.reason),
            ]
        };
        standing.standbys.iter().map(row).collect()
    },
};

/// The link of a standby to its master: one row on a standby, none on a master.
pub const STANDBY: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "holdfast_stat_standby",
    columns: &[
        ("master", oid::TEXT),
        ("state", oid::TEXT),
        ("epoch", oid::INT8),
        ("master_durable_lsn", oid::INT8),
        ("durable_lsn", oid::INT8),
        ("applied_lsn", oid::INT8),
        ("behind_bytes", oid::INT8),
        ("behind_ms", oid::INT8),
        ("error", oid::TEXT),
    ],
    always_empty: false,
    rows: |context| {
        let s = context.live.standing();
        let row = |link: &LinkRow| {
            let if_follows = |value| if link.follows { value } else { Value::Null };
            vec![
                text(&*link.master),
                text(&*link.state),
                int(s.epoch),
                count(link.master_durable_lsn),
                count(s.durable_lsn),
                count(s.applied_lsn),
                if_follows(count(link.master_durable_lsn.saturating_sub(s.applied_lsn))),
                if_follows(link.behind_ms.map_or(Value::Null, count)),
                link.error.as_deref().map_or(Value::Null, text),
            ]
        };
        s.link.iter().map(row).collect()
    },
};
