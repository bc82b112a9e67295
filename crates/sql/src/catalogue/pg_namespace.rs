//! `pg_namespace`: schemas.

use super::oids::{NAMESPACES, OWNER_OID, PUBLIC_OID, TEMP_OID};
use super::pg_database::grants;
use super::table::{CatalogTable, int, text};
use crate::names::TEMP_NAMESPACE;
use crate::types::more;
use holdfast_types::desc::oid;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_namespace",
    columns: &[("oid", oid::OID), ("nspname", oid::NAME), ("nspowner", oid::OID), ("nspacl", more::ACLITEM_ARRAY)],
    always_empty: false,
    rows: |context| {
        let temporary = context.schema.has_temporary().then_some((TEMP_OID, TEMP_NAMESPACE));
        let all = NAMESPACES.into_iter().chain(temporary);
        all.map(|(o, name)| {
            let public = Some(&context.schema.grants.schema).filter(|_| o == PUBLIC_OID);
            let owner = public.map_or(OWNER_OID, |schema| schema.owner);
            vec![int(o), text(name), int(owner), grants(context.roles, public.and_then(|schema| schema.acl.clone()))]
        })
        .collect()
    },
};
