//! `pg_database`: the databases of the server. PostgreSQL does not have the column `datdialect`.

use super::oids::OWNER_OID;
use super::table::{CatalogTable, boolean, int, text};
use crate::types::more;
use holdfast_types::Value;
use holdfast_types::desc::oid;
use holdfast_types::schema::Dialect;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_database",
    columns: &[
        ("oid", oid::OID),
        ("datname", oid::NAME),
        ("datdba", oid::OID),
        ("encoding", oid::INT4),
        ("datlocprovider", oid::CHAR),
        ("datistemplate", oid::BOOL),
        ("datallowconn", oid::BOOL),
        ("datconnlimit", oid::INT4),
        ("datfrozenxid", more::XID),
        ("datminmxid", more::XID),
        ("dattablespace", oid::OID),
        ("datcollate", oid::TEXT),
        ("datctype", oid::TEXT),
        ("daticulocale", oid::TEXT),
        ("datcollversion", oid::TEXT),
        ("datacl", more::ACLITEM_ARRAY),
        ("datdialect", oid::TEXT),
    ],
    always_empty: false,
    rows: |context| {
        let row = |d: &super::DatabaseRow| {
            vec![
                int(d.oid),
                text(d.name.as_str()),
                int(OWNER_OID),
                int(6),
                text("c"),
                boolean(false),
                boolean(true),
                int(-1),
                int(0),
                int(0),
                int(1663),
                text("C"),
                text("C"),
                Value::Null,
                Value::Null,
                Value::Null,
                text(match d.dialect {
                    Dialect::Postgres => "postgres",
                    Dialect::Sqlite => "sqlite",
                }),
            ]
        };
        context.databases.iter().map(row).collect()
    },
};
