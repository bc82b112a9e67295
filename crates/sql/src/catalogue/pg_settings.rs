//! `pg_settings`: the session's settings.

use super::table::{CatalogTable, boolean, text};
use crate::types::more;
use holdfast_types::desc::oid;
use holdfast_types::{SettingRow, Value};

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
        let or_null = |value: &Option<String>| value.as_deref().map_or(Value::Null, text);
        let row = |of: &SettingRow| {
            let mut row = vec![text(of.name.as_str()), text(of.setting.as_str()), of.unit.map_or(Value::Null, text)];
            row.extend([text("Holdfast"), text(""), Value::Null, text(of.context), text(of.vartype), text(of.source)]);
            row.extend([or_null(&of.min), or_null(&of.max)]);
            row.push(if of.values.is_empty() { Value::Null } else { words(&of.values) });
            row.extend([text(of.boot.as_str()), text(of.reset.as_str()), Value::Null, Value::Null, boolean(false)]);
            row
        };
        context.settings.iter().map(row).collect()
    },
};

/// An array of texts.
fn words(values: &[&str]) -> Value {
    let quoted = values.iter().map(|v| if v.contains(' ') { format!("\"{v}\"") } else { (*v).to_owned() });
    text(format!("{{{}}}", quoted.collect::<Vec<_>>().join(",")))
}
