//! `pg_prepared_xacts`: transactions between PREPARE TRANSACTION and their end, of the databases in use.

use super::live::PreparedRow;
use super::table::{CatalogTable, int, text};
use crate::types::datetime::format_timestamp;
use crate::types::more;
use holdfast_types::Value;
use holdfast_types::desc::oid;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_prepared_xacts",
    columns: &[
        ("transaction", more::XID),
        ("gid", oid::TEXT),
        ("prepared", oid::TIMESTAMPTZ),
        ("owner", oid::NAME),
        ("database", oid::NAME),
    ],
    always_empty: false,
    rows: |context| context.prepared.iter().map(row).collect(),
};

/// One row. The first column is 0, because clients see no numbers of prepared transactions anywhere.
fn row(of: &PreparedRow) -> Vec<Value> {
    let prepared = format_timestamp(of.prepared_unix_us).map_or(Value::Null, |t| text(t + "+00"));
    vec![int(0), text(&*of.gid), prepared, text(&*of.owner), text(&*of.database)]
}
