//! `pg_am`: access methods.

use super::oids::{BTREE_OID, HEAP_OID};
use super::table::{CatalogTable, int, text};
use holdfast_types::desc::oid;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_am",
    columns: &[("oid", oid::OID), ("amname", oid::NAME), ("amhandler", oid::REGPROC), ("amtype", oid::CHAR)],
    always_empty: false,
    rows: |_| {
        let row = |o: u32, name: &str, kind: &str| vec![int(o), text(name), int(0), text(kind)];
        vec![row(HEAP_OID, "heap", "t"), row(BTREE_OID, "btree", "i")]
    },
};
