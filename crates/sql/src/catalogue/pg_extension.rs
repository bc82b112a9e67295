//! `pg_extension`: plpgsql, which clients expect to find.

use super::oids::{OWNER_OID, PG_CATALOG_OID};
use super::table::{CatalogTable, boolean, int, text};
use crate::types::more;
use holdfast_types::Value;
use holdfast_types::desc::oid;

pub const PLPGSQL_OID: u32 = 13_500;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_extension",
    columns: &[
        ("oid", oid::OID),
        ("extname", oid::NAME),
        ("extowner", oid::OID),
        ("extnamespace", oid::OID),
        ("extrelocatable", oid::BOOL),
        ("extversion", oid::TEXT),
        ("extconfig", more::OID_ARRAY),
        ("extcondition", more::TEXT_ARRAY),
    ],
    always_empty: false,
    rows: |_| {
        let (owner, space) = (int(OWNER_OID), int(PG_CATALOG_OID));
        vec![vec![
            int(PLPGSQL_OID),
            text("plpgsql"),
            owner,
            space,
            boolean(false),
            text("1.0"),
            Value::Null,
            Value::Null,
        ]]
    },
};
