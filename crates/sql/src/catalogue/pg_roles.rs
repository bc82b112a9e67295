//! `pg_roles` and `pg_user`: the only role.

use super::oids::OWNER_OID;
use super::table::{CatalogTable, boolean, int, text};
use crate::types::more;
use holdfast_types::Value;
use holdfast_types::desc::oid;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_roles",
    columns: &[
        ("rolname", oid::NAME),
        ("rolsuper", oid::BOOL),
        ("rolinherit", oid::BOOL),
        ("rolcreaterole", oid::BOOL),
        ("rolcreatedb", oid::BOOL),
        ("rolcanlogin", oid::BOOL),
        ("rolreplication", oid::BOOL),
        ("rolconnlimit", oid::INT4),
        ("rolpassword", oid::TEXT),
        ("rolvaliduntil", oid::TIMESTAMPTZ),
        ("rolbypassrls", oid::BOOL),
        ("rolconfig", more::TEXT_ARRAY),
        ("oid", oid::OID),
    ],
    always_empty: false,
    rows: |context| {
        let (yes, no) = (|| boolean(true), || boolean(false));
        vec![vec![
            text(context.user),
            yes(),
            yes(),
            no(),
            yes(),
            yes(),
            no(),
            int(-1),
            text("********"),
            Value::Null,
            no(),
            Value::Null,
            int(OWNER_OID),
        ]]
    },
};

pub const USERS: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_user",
    columns: &[
        ("usename", oid::NAME),
        ("usesysid", oid::OID),
        ("usecreatedb", oid::BOOL),
        ("usesuper", oid::BOOL),
        ("userepl", oid::BOOL),
        ("usebypassrls", oid::BOOL),
        ("passwd", oid::TEXT),
        ("valuntil", oid::TIMESTAMPTZ),
        ("useconfig", more::TEXT_ARRAY),
    ],
    always_empty: false,
    rows: |context| {
        let mut row = vec![text(context.user), int(OWNER_OID)];
        row.extend([true, true, false, false].map(boolean));
        row.extend([text("********"), Value::Null, Value::Null]);
        vec![row]
    },
};
