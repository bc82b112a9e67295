//! `pg_namespace`: schemas.

use super::oids::{NAMESPACES, OWNER_OID, TEMP_OID};
use super::table::{CatalogTable, int, text};
use crate::names::TEMP_NAMESPACE;
use crate::types::more;
use holdfast_types::Value;
use holdfast_types::desc::oid;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_namespace",
    columns: &[("oid", oid::OID), ("nspname", oid::NAME), ("nspowner", oid::OID), ("nspacl", more::ACLITEM_ARRAY)],
    always_empty: false,
    rows: |context| {
        let temporary = context.schema.has_temporary().then_some((TEMP_OID, TEMP_NAMESPACE));
        let all = NAMESPACES.into_iter().chain(temporary);
        all.map(|(o, name)| vec![int(o), text(name), int(OWNER_OID), Value::Null]).collect()
    },
};
