//! `pg_language`.

use super::oids::OWNER_OID;
use super::table::{CatalogTable, boolean, int, text};
use holdfast_types::desc::oid;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_language",
    columns: &[
        ("oid", oid::OID),
        ("lanname", oid::NAME),
        ("lanowner", oid::OID),
        ("lanispl", oid::BOOL),
        ("lanpltrusted", oid::BOOL),
    ],
    always_empty: false,
    rows: |_| vec![vec![int(14), text("sql"), int(OWNER_OID), boolean(false), boolean(true)]],
};
