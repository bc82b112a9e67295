//! `pg_settings`: the session's settings.

use super::table::{CatalogTable, boolean, text};
use crate::types::more;
use holdfast_types::Value;
use holdfast_types::desc::oid;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_settings",
    columns: &[
        ("name", oid::TEXT),
        ("setting", oid::TEXT),
        ("unit", oid::TEXT),
        ("category", oid::TEXT),
        ("short_desc", oid::TEXT),
        ("extra_desc", oid::TEXT),
        ("context", oid::TEXT),
        ("vartype", oid::TEXT),
        ("source", oid::TEXT),
        ("min_val", oid::TEXT),
        ("max_val", oid::TEXT),
        ("enumvals", more::TEXT_ARRAY),
        ("boot_val", oid::TEXT),
        ("reset_val", oid::TEXT),
        ("sourcefile", oid::TEXT),
        ("sourceline", oid::INT4),
        ("pending_restart", oid::BOOL),
    ],
    always_empty: false,
    rows: |context| {
        let row = |name: &str, setting: &str| {
            let mut row = vec![text(name), text(setting), Value::Null, text("Holdfast"), text(""), Value::Null];
            row.extend([text("user"), text("string"), text("session")]);
            row.extend(std::iter::repeat_n(Value::Null, 3));
            row.extend([text(setting), text(setting), Value::Null, Value::Null, boolean(false)]);
            row
        };
        context.settings.iter().map(|(name, setting)| row(name, setting)).collect()
    },
};
