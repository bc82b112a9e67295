//! `pg_indexes`: the readable view of indexes.

use super::shapes;
use super::table::{CatalogTable, text};
use holdfast_types::Value;
use holdfast_types::desc::oid;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_indexes",
    columns: &[
        ("schemaname", oid::NAME),
        ("tablename", oid::NAME),
        ("indexname", oid::NAME),
        ("tablespace", oid::NAME),
        ("indexdef", oid::TEXT),
    ],
    always_empty: false,
    rows: |context| {
        let tables = context.schema.tables.iter().filter(|t| shapes::visible(t));
        let indexes = tables.flat_map(|t| shapes::indexes(t));
        indexes
            .map(|i| {
                vec![
                    text(super::oids::namespace(i.table).1),
                    text(i.table.name.as_str()),
                    text(i.name.as_str()),
                    Value::Null,
                    text(i.definition()),
                ]
            })
            .collect()
    },
};
