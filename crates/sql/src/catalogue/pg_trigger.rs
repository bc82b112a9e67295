//! `pg_trigger`: SQLite's triggers (in databases of its dialect). The column `tgdef`, which PostgreSQL does not have,
//! holds their text.

use super::shapes;
use super::table::{CatalogTable, boolean, int, text, vector};
use crate::types::more;
use holdfast_types::Value;
use holdfast_types::desc::oid;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_trigger",
    columns: &[
        ("oid", oid::OID),
        ("tgrelid", oid::OID),
        ("tgparentid", oid::OID),
        ("tgname", oid::NAME),
        ("tgfoid", oid::OID),
        ("tgtype", oid::INT2),
        ("tgenabled", oid::CHAR),
        ("tgisinternal", oid::BOOL),
        ("tgconstrrelid", oid::OID),
        ("tgconstrindid", oid::OID),
        ("tgconstraint", oid::OID),
        ("tgdeferrable", oid::BOOL),
        ("tginitdeferred", oid::BOOL),
        ("tgnargs", oid::INT2),
        ("tgattr", more::INT2VECTOR),
        ("tgargs", oid::BYTEA),
        ("tgqual", more::PG_NODE_TREE),
        ("tgoldtable", oid::NAME),
        ("tgnewtable", oid::NAME),
        ("tgdef", oid::TEXT),
    ],
    always_empty: false,
    rows: |context| {
        let mut rows = Vec::new();
        let mut number = 0u32;
        for table in context.schema.tables.iter().filter(|t| shapes::visible(t)) {
            for trigger in &table.triggers {
                number += 1;
                let mut row = vec![int(3_900_000_000 + number), int(table.oid), int(0), text(trigger.name.as_str())];
                row.extend([int(0), int(0), text("O"), boolean(false), int(0), int(0), int(0)]);
                row.extend([boolean(false), boolean(false), int(0), vector([])]);
                row.extend([Value::Blob(Vec::new()), Value::Null, Value::Null, Value::Null]);
                row.push(text(trigger.sql.as_str()));
                rows.push(row);
            }
        }
        rows
    },
};
