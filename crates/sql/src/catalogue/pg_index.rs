//! `pg_index`, and the texts that `pg_get_indexdef` returns.

use super::shapes;
use super::table::{CatalogContext, CatalogTable, boolean, int, text, vector};
use crate::types::more;
use holdfast_types::Value;
use holdfast_types::desc::oid;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_index",
    columns: &[
        ("indexrelid", oid::OID),
        ("indrelid", oid::OID),
        ("indnatts", oid::INT2),
        ("indnkeyatts", oid::INT2),
        ("indisunique", oid::BOOL),
        ("indnullsnotdistinct", oid::BOOL),
        ("indisprimary", oid::BOOL),
        ("indisexclusion", oid::BOOL),
        ("indimmediate", oid::BOOL),
        ("indisclustered", oid::BOOL),
        ("indisvalid", oid::BOOL),
        ("indcheckxmin", oid::BOOL),
        ("indisready", oid::BOOL),
        ("indislive", oid::BOOL),
        ("indisreplident", oid::BOOL),
        ("indkey", more::INT2VECTOR),
        ("indcollation", more::OIDVECTOR),
        ("indclass", more::OIDVECTOR),
        ("indoption", more::INT2VECTOR),
        ("indexprs", more::PG_NODE_TREE),
        ("indpred", more::PG_NODE_TREE),
    ],
    always_empty: false,
    rows,
};

fn rows(context: &CatalogContext<'_>) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for table in context.schema.tables.iter().filter(|t| shapes::visible(t)) {
        for index in shapes::indexes(table) {
            let count = index.keys.len();
            let expressions: Vec<&str> =
                index.keys.iter().zip(&index.attnums).filter(|(_, n)| **n == 0).map(|(k, _)| k.as_str()).collect();
            rows.push(vec![
                int(index.oid),
                int(table.oid),
                int(count as i64),
                int(count as i64),
                boolean(index.unique),
                boolean(false),
                boolean(index.primary),
                boolean(false),
                boolean(true),
                boolean(false),
                boolean(true),
                boolean(false),
                boolean(true),
                boolean(true),
                boolean(false),
                vector(index.attnums.iter().copied()),
                vector(index.keys.iter().map(|_| 0)),
                vector(index.keys.iter().map(|_| 0)),
                vector(index.descending.iter().map(|d| if *d { 3 } else { 0 })),
                if expressions.is_empty() { Value::Null } else { text(expressions.join(", ")) },
                index.predicate.as_deref().map_or(Value::Null, text),
            ]);
        }
    }
    rows
}

/// The texts of `pg_get_indexdef`: `attnum` 0 is the whole definition, any other number one key.
pub const DEFINITIONS: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "hf_indexdef",
    columns: &[("oid", oid::OID), ("attnum", oid::INT4), ("def", oid::TEXT)],
    always_empty: false,
    rows: |context| {
        let mut rows = Vec::new();
        for table in context.schema.tables.iter().filter(|t| shapes::visible(t)) {
            for index in shapes::indexes(table) {
                rows.push(vec![int(index.oid), int(0), text(index.definition())]);
                for i in 0..index.keys.len() {
                    rows.push(vec![int(index.oid), int(i as i64 + 1), text(index.key(i))]);
                }
            }
        }
        rows
    },
};
