//! `pg_collation`: the default, C and POSIX, which are the same collation in Holdfast.

use super::oids::{OWNER_OID, PG_CATALOG_OID};
use super::table::{CatalogTable, boolean, int, text};
use holdfast_types::Value;
use holdfast_types::desc::oid;

pub const DEFAULT_OID: u32 = 100;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_collation",
    columns: &[
        ("oid", oid::OID),
        ("collname", oid::NAME),
        ("collnamespace", oid::OID),
        ("collowner", oid::OID),
        ("collprovider", oid::CHAR),
        ("collisdeterministic", oid::BOOL),
        ("collencoding", oid::INT4),
        ("collcollate", oid::TEXT),
        ("collctype", oid::TEXT),
        ("colliculocale", oid::TEXT),
        ("collversion", oid::TEXT),
    ],
    always_empty: false,
    rows: |_| {
        let row = |o: u32, name: &str| {
            vec![
                int(o),
                text(name),
                int(PG_CATALOG_OID),
                int(OWNER_OID),
                text(if o == DEFAULT_OID { "d" } else { "c" }),
                boolean(true),
                int(-1),
                text("C"),
                text("C"),
                Value::Null,
                Value::Null,
            ]
        };
        vec![row(DEFAULT_OID, "default"), row(950, "C"), row(951, "POSIX")]
    },
};
