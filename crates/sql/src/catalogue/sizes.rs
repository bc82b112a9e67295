//! Sizes of databases, tables and indexes: what `pg_database_size`, `pg_table_size` and the like read.
//!
//! They are exact: the pages of each b-tree and its overflow pages. A temporary table has no size here. Free pages belong to the
//! database and to no table.

use super::shapes;
use super::table::{CatalogContext, CatalogTable, count, int, text};
use holdfast_types::Value;
use holdfast_types::desc::oid;

/// Own bytes of a relation, and those of a table's indexes.
pub const RELATIONS: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "hf_relation_size",
    columns: &[("oid", oid::OID), ("bytes", oid::INT8), ("index_bytes", oid::INT8)],
    always_empty: false,
    rows: relations,
};

/// In the place of the size of a database to which the role may not connect.
const REFUSED: i64 = -1;

pub const DATABASES: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "hf_database_size",
    columns: &[("oid", oid::OID), ("name", oid::NAME), ("bytes", oid::INT8)],
    always_empty: false,
    rows: |context| {
        let bytes = |oid| match context.viewer.connects_to(oid) {
            true => context.live.database_bytes(oid).map_or(Value::Null, count),
            false => int(REFUSED),
        };
        context.databases.iter().map(|d| vec![int(d.oid), text(&d.name), bytes(d.oid)]).collect()
    },
};

fn relations(context: &CatalogContext<'_>) -> Vec<Vec<Value>> {
    let sizes = context.live.object_sizes(context.database);
    let of = |name: &str| sizes.get(name).copied().unwrap_or(0);
    let mut rows = Vec::new();
    for table in context.schema.tables.iter().filter(|t| shapes::visible(t)) {
        let own = |bytes: u64| if table.temp { 0 } else { bytes };
        let indexes: u64 = table.indexes.iter().map(|index| of(&index.name)).sum();
        rows.push(vec![int(table.oid), count(own(of(&table.name))), count(own(indexes))]);
        for index in &table.indexes {
            rows.push(vec![int(index.oid), count(own(of(&index.name))), int(0)]);
        }
        // The key of a rowid is the table itself.
        let shown = shapes::indexes(table);
        let keys = shown.iter().filter(|shown| !table.indexes.iter().any(|index| index.oid == shown.oid));
        rows.extend(keys.map(|key| vec![int(key.oid), int(0), int(0)]));
    }
    rows
}
