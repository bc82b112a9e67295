//! The sites that this server exchanges rows with: `holdfast_stat_sites` with both directions; `pg_stat_subscription` and
//! `pg_stat_subscription_stats` as in PostgreSQL.
//!
//! Failure: none; what is not known is NULL.

use super::live::{SlotRow, SubscriptionRow, WalStatus};
use super::oids;
use super::replication::lsn;
use super::table::{CatalogContext, CatalogTable, int, moment, text};
use holdfast_types::Value;
use holdfast_types::desc::oid;

/// The subscriptions of the database that is asked.
fn of_database(context: &CatalogContext<'_>) -> Vec<SubscriptionRow> {
    let all = context.live.subscriptions().into_iter();
    let here = |row: &SubscriptionRow| row.database == context.database;
    all.filter(here).collect()
}

fn known_moment(us: i64) -> Value {
    moment((us != 0).then_some(us))
}

fn known_lsn(value: u64) -> Value {
    if value == 0 { Value::Null } else { lsn(value) }
}

fn number(value: u64) -> Value {
    Value::Int(value.try_into().unwrap_or(i64::MAX))
}

/// A worker is a thread, and has no process number. The publisher's clock is not compared with this one: the moments are of this server.
pub const PG_STAT_SUBSCRIPTION: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_stat_subscription",
    columns: &[
        ("subid", oid::OID),
        ("subname", oid::NAME),
        ("pid", oid::INT4),
        ("relid", oid::OID),
        ("received_lsn", oid::PG_LSN),
        ("last_msg_send_time", oid::TIMESTAMPTZ),
        ("last_msg_receipt_time", oid::TIMESTAMPTZ),
        ("latest_end_lsn", oid::PG_LSN),
        ("latest_end_time", oid::TIMESTAMPTZ),
    ],
    always_empty: false,
    rows: |context| {
        let row = |of: SubscriptionRow| {
            vec![
                int(oids::subscription(of.number)),
                text(of.name),
                Value::Null,
                of.copying.map_or(Value::Null, int),
                known_lsn(of.received_lsn),
                Value::Null,
                known_moment(of.heard_us),
                known_lsn(of.applied_lsn),
                known_moment(of.committed_us),
            ]
        };
        of_database(context).into_iter().map(row).collect()
    },
};

pub const PG_STAT_SUBSCRIPTION_STATS: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_stat_subscription_stats",
    columns: &[
        ("subid", oid::OID),
        ("subname", oid::NAME),
        ("apply_error_count", oid::INT8),
        ("sync_error_count", oid::INT8),
        ("stats_reset", oid::TIMESTAMPTZ),
    ],
    always_empty: false,
    rows: |context| {
        let row = |of: SubscriptionRow| {
            let oid = int(oids::subscription(of.number));
            vec![oid, text(of.name), number(of.apply_errors), number(of.copy_errors), Value::Null]
        };
        of_database(context).into_iter().map(row).collect()
    },
};

/// A row for each subscription of this server, `from`, and for each slot, `to`. Figures are since the server started.
pub const SITES: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "holdfast_stat_sites",
    columns: &[
        ("direction", oid::TEXT),
        ("name", oid::NAME),
        ("database", oid::NAME),
        ("state", oid::TEXT),
        ("sent_lsn", oid::PG_LSN),
        ("applied_lsn", oid::PG_LSN),
        ("lag_bytes", oid::INT8),
        ("lag_ms", oid::INT8),
        ("transactions", oid::INT8),
        ("changes", oid::INT8),
        ("bytes", oid::INT8),
        ("bytes_per_transaction", oid::INT8),
        ("rows_copied", oid::INT8),
        ("rows_missing", oid::INT8),
        ("errors", oid::INT8),
        ("last_contact", oid::TIMESTAMPTZ),
        ("last_error", oid::TEXT),
    ],
    always_empty: false,
    rows: |context| {
        let from = context.live.subscriptions().into_iter().map(from_row);
        let durable = context.live.standing().durable_lsn;
        from.chain(context.live.slots().into_iter().map(|slot| to_row(slot, durable))).collect()
    },
};

fn from_row(of: SubscriptionRow) -> Vec<Value> {
    let each = of.bytes.checked_div(of.transactions);
    vec![
        text("from"),
        text(of.name),
        text(of.database),
        text(of.state),
        known_lsn(of.received_lsn),
        known_lsn(of.applied_lsn),
        number(of.received_lsn.saturating_sub(of.applied_lsn)),
        if of.transactions == 0 { Value::Null } else { Value::Int(of.lag_us / 1000) },
        number(of.transactions),
        number(of.changes),
        number(of.bytes),
        each.map_or(Value::Null, number),
        number(of.rows_copied),
        number(of.rows_missing),
        number(of.apply_errors + of.copy_errors),
        known_moment(of.heard_us),
        of.last_error.map_or(Value::Null, text),
    ]
}

/// The publisher does not count what it sends to each.
fn to_row(slot: SlotRow, durable: u64) -> Vec<Value> {
    let state = match (&slot.subscriber, slot.wal_status) {
        (_, WalStatus::Lost) => "lost",
        (Some(_), _) => "following",
        (None, _) => "away",
    };
    let applied = slot.subscriber.as_ref().map_or(slot.confirmed_lsn, |of| of.applied_lsn.max(slot.confirmed_lsn));
    let mut row = vec![
        text("to"),
        text(slot.name),
        text(slot.database),
        text(state),
        slot.subscriber.as_ref().map_or(Value::Null, |of| lsn(of.sent_lsn)),
        lsn(applied),
        number(durable.saturating_sub(applied)),
    ];
    row.extend(std::iter::repeat_n(Value::Null, 8));
    row.push(moment(slot.subscriber.and_then(|of| of.answered_us)));
    row.push(Value::Null);
    row
}
