//! `pg_attrdef`: column defaults, and expressions of generated columns. `adbin` holds the text that `pg_get_expr` returns.

use super::table::{CatalogTable, int, text};
use super::{generated, oids, shapes};
use crate::default::shown;
use crate::types::{RowidKind, more};
use holdfast_types::desc::oid;
use holdfast_types::schema::{Column, Dialect, Table};

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_attrdef",
    columns: &[("oid", oid::OID), ("adrelid", oid::OID), ("adnum", oid::INT2), ("adbin", more::PG_NODE_TREE)],
    always_empty: false,
    rows: |context| {
        let mut rows = Vec::new();
        for table in &context.schema.tables {
            for (i, column) in table.columns.iter().enumerate() {
                if let Some(default) = default_of(table, i, column, context.dialect) {
                    rows.push(vec![int(oids::default(table, i + 1)), int(table.oid), int(i as i64 + 1), text(default)]);
                }
            }
        }
        rows
    },
};

/// A column's default, or the expression that generates it, as PostgreSQL would print it.
pub fn default_of(table: &Table, i: usize, column: &Column, dialect: Dialect) -> Option<String> {
    if column.rowid_alias {
        let serial = dialect == Dialect::Postgres && RowidKind::of(table).serial();
        return serial.then(|| format!("nextval('{}_{}_seq'::regclass)", table.name, column.name));
    }
    if column.generated {
        return generated::expression(&table.sql, &column.name);
    }
    column.default.as_deref().map(|d| shown(d, shapes::column_type(table, i, dialect)))
}
