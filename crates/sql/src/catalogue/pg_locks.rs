//! `pg_locks`: locks that are held or waited for. Unlike PostgreSQL's view it also lists row locks, one line each.

use super::live::LockRow;
use super::table::{CatalogTable, int, text};
use holdfast_types::Value;
use holdfast_types::desc::oid;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_locks",
    columns: &[
        ("locktype", oid::TEXT),
        ("database", oid::OID),
        ("relation", oid::OID),
        ("classid", oid::OID),
        ("objid", oid::OID),
        ("objsubid", oid::INT2),
        ("pid", oid::INT4),
        ("mode", oid::TEXT),
        ("granted", oid::BOOL),
    ],
    always_empty: false,
    rows: |context| context.locks.iter().map(row).collect(),
};

fn row(lock: &LockRow) -> Vec<Value> {
    let number = |n: Option<u32>| n.map_or(Value::Null, |n| int(i64::from(n)));
    vec![
        text(lock.kind),
        int(i64::from(lock.database)),
        number(lock.relation),
        number(lock.advisory.map(|a| a.0)),
        number(lock.advisory.map(|a| a.1)),
        number(lock.advisory.map(|a| a.2)),
        // A prepared transaction belongs to no process.
        if lock.pid == 0 { Value::Null } else { int(i64::from(lock.pid)) },
        text(lock.mode),
        int(i64::from(lock.granted)),
    ]
}
