//! `pg_locks`: who holds what and who waits for what. Unlike PostgreSQL's it lists row locks as well, one line each.

use super::{CatalogTable, int, text};
use holdfast_types::Value;
use holdfast_types::desc::oid;

/// A lock that is held or waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct LockRow {
    /// `relation`, `tuple`, `unique key`, `database` or `advisory`.
    pub kind: &'static str,
    pub database: u32,
    pub relation: Option<u32>,
    /// Advisory: the key's upper and lower half, and 1 for one number, 2 for two.
    pub advisory: Option<(u32, u32, u32)>,
    pub pid: i32,
    pub mode: &'static str,
    pub granted: bool,
}

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
        // A prepared transaction is no process's.
        if lock.pid == 0 { Value::Null } else { int(i64::from(lock.pid)) },
        text(lock.mode),
        int(i64::from(lock.granted)),
    ]
}
