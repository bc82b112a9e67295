//! `pg_default_acl`: what ALTER DEFAULT PRIVILEGES has stored.

use super::oids::PUBLIC_OID;
use super::pg_database::grants;
use super::table::{CatalogTable, int, text};
use crate::types::more;
use holdfast_types::desc::oid;

/// The first OID of an entry; entries are numbered in the order of their roles.
const FIRST_ENTRY_OID: u32 = 3_900_000_000;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_default_acl",
    columns: &[
        ("oid", oid::OID),
        ("defaclrole", oid::OID),
        ("defaclnamespace", oid::OID),
        ("defaclobjtype", oid::CHAR),
        ("defaclacl", more::ACLITEM_ARRAY),
    ],
    always_empty: false,
    rows: |context| {
        let entries = context.schema.grants.defaults.iter().enumerate();
        entries
            .map(|(at, entry)| {
                vec![
                    int(FIRST_ENTRY_OID.wrapping_add(at as u32)),
                    int(entry.role),
                    int(if entry.in_schema { PUBLIC_OID } else { 0 }),
                    text(entry.object.to_string()),
                    grants(context.roles, Some(entry.acl.clone())),
                ]
            })
            .collect()
    },
};
