//! `pg_prepared_xacts`: transactions between PREPARE TRANSACTION and their end, of the databases in use.

use super::{CatalogTable, int, text};
use crate::types::datetime::format_timestamp;
use crate::types::more;
use holdfast_types::Value;
use holdfast_types::desc::oid;

/// A prepared transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedRow {
    pub gid: String,
    /// Microseconds since 1970.
    pub prepared_unix_us: i64,
    pub owner: String,
    pub database: String,
}

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

/// Transactions have no numbers here that a client could meet elsewhere: the first column is 0.
fn row(of: &PreparedRow) -> Vec<Value> {
    let prepared = format_timestamp(of.prepared_unix_us).map_or(Value::Null, |t| text(t + "+00"));
    vec![int(0), text(&*of.gid), prepared, text(&*of.owner), text(&*of.database)]
}
