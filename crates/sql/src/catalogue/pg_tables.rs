//! `pg_tables`: the readable view of tables.

use super::shapes;
use super::table::{CatalogTable, boolean, text};
use holdfast_types::Value;
use holdfast_types::desc::oid;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_tables",
    columns: &[
        ("schemaname", oid::NAME),
        ("tablename", oid::NAME),
        ("tableowner", oid::NAME),
        ("tablespace", oid::NAME),
        ("hasindexes", oid::BOOL),
        ("hasrules", oid::BOOL),
        ("hastriggers", oid::BOOL),
        ("rowsecurity", oid::BOOL),
    ],
    always_empty: false,
    rows: |context| {
        let row = |schema: &str, name: &str, owner: u32, indexed: bool, triggers: bool| {
            let mut row = vec![text(schema), text(name), text(context.roles.name_of(owner)), Value::Null];
            row.extend([indexed, false, triggers, false].map(boolean));
            row
        };
        let tables = context.schema.tables.iter().filter(|t| shapes::visible(t) && shapes::relkind(t) == "r");
        let mut rows: Vec<_> = tables
            .map(|t| {
                let owner = context.schema.grants.owner(t.oid);
                let indexed = !shapes::indexes(t).is_empty();
                row(super::oids::namespace(t).1, &t.name, owner, indexed, !t.triggers.is_empty())
            })
            .collect();
        let own = super::tables().filter(|t| t.schema == "pg_catalog");
        rows.extend(own.map(|t| row(t.schema, t.name, super::oids::OWNER_OID, false, false)));
        rows
    },
};
