//! `pg_tablespace`.

use super::oids::OWNER_OID;
use super::table::{CatalogTable, int, text};
use crate::types::more;
use holdfast_types::Value;
use holdfast_types::desc::oid;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_tablespace",
    columns: &[
        ("oid", oid::OID),
        ("spcname", oid::NAME),
        ("spcowner", oid::OID),
        ("spcacl", more::ACLITEM_ARRAY),
        ("spcoptions", more::TEXT_ARRAY),
    ],
    always_empty: false,
    rows: |_| {
        let row = |(oid, name)| vec![int(oid), text(name), int(OWNER_OID), Value::Null, Value::Null];
        [(1663, "pg_default"), (1664, "pg_global")].map(row).to_vec()
    },
};
