//! `pg_subscription` and `pg_subscription_rel`, of this database only; and Holdfast's own list of the tables with the rows that are the
//! subscription's.
//!
//! `subconninfo` is NULL for roles that are not superusers; PostgreSQL refuses them the column.

use super::table::{CatalogContext, CatalogTable, boolean, int, text};
use super::{filter_text, oids};
use crate::types::{lsn_text, more};
use holdfast_types::Value;
use holdfast_types::array::Array;
use holdfast_types::desc::oid;
use holdfast_types::subscription::Subscription;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_subscription",
    columns: &[
        ("oid", oid::OID),
        ("subdbid", oid::OID),
        ("subskiplsn", oid::PG_LSN),
        ("subname", oid::NAME),
        ("subowner", oid::OID),
        ("subenabled", oid::BOOL),
        ("subbinary", oid::BOOL),
        ("substream", oid::BOOL),
        ("subtwophasestate", oid::CHAR),
        ("subdisableonerr", oid::BOOL),
        ("subconninfo", oid::TEXT),
        ("subslotname", oid::NAME),
        ("subsynccommit", oid::TEXT),
        ("subpublications", more::TEXT_ARRAY),
    ],
    always_empty: false,
    rows: |context| context.schema.subscriptions.list.iter().map(|s| row(context, s)).collect(),
};

fn row(context: &CatalogContext<'_>, subscription: &Subscription) -> Vec<Value> {
    let options = &subscription.options;
    let names = subscription.publications.iter().cloned().map(Some).collect();
    vec![
        int(oids::subscription(subscription.number)),
        int(context.database_oid),
        text(lsn_text(subscription.skip)),
        text(subscription.name.as_str()),
        int(subscription.owner),
        boolean(options.enabled),
        boolean(false),
        boolean(false),
        text("d"),
        boolean(options.disable_on_error),
        if context.viewer.is_superuser() { text(subscription.connection.as_str()) } else { Value::Null },
        subscription.slot.as_deref().map_or(Value::Null, text),
        text(options.synchronous_commit.name()),
        text(Array::flat(names).to_text()),
    ]
}

/// The tables: `r` for one that has been copied, with the LSN of its copy; `i` for one that has not.
pub const RELATIONS: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_subscription_rel",
    columns: &[("srsubid", oid::OID), ("srrelid", oid::OID), ("srsubstate", oid::CHAR), ("srsublsn", oid::PG_LSN)],
    always_empty: false,
    rows: |context| {
        let list = &context.schema.subscriptions.list;
        // A read of the volume.
        let positions = match list.is_empty() {
            true => Vec::new(),
            false => context.live.subscription_positions(context.database),
        };
        let listed = list.iter().flat_map(|s| s.tables.iter().map(move |table| (s.number, *table)));
        listed
            .map(|(number, table)| {
                let object = oids::stable_id(table);
                let copied = positions.iter().find(|(of, id, _)| (*of, *id) == (number, object)).map(|(.., lsn)| *lsn);
                let lsn = copied.filter(|lsn| *lsn > 0).map_or(Value::Null, |lsn| text(lsn_text(lsn)));
                let state = text(if copied.is_some() { "r" } else { "i" });
                vec![int(oids::subscription(number)), int(table), state, lsn]
            })
            .collect()
    },
};

pub const TABLES: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "holdfast_site_tables",
    columns: &[
        ("subname", oid::NAME),
        ("schemaname", oid::NAME),
        ("tablename", oid::NAME),
        // NULL: every row is the subscription's.
        ("rowfilter", oid::TEXT),
    ],
    always_empty: false,
    rows: |context| {
        let listed =
            context.schema.subscriptions.list.iter().flat_map(|s| s.tables.iter().map(move |table| (s, table)));
        let found = listed.filter_map(|(s, oid)| Some((s, context.schema.by_oid(*oid)?)));
        found
            .map(|(subscription, table)| {
                let condition = subscription.conditions.get(&table.oid);
                let condition = condition.map(|condition| filter_text::shown(condition, table, context.dialect));
                let name = text(subscription.name.as_str());
                vec![name, text("public"), text(table.name.as_str()), condition.map_or(Value::Null, text)]
            })
            .collect()
    },
};
