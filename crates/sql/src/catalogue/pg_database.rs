//! `pg_database`: the databases of the server. PostgreSQL does not have the column `datdialect`.

use super::table::{CatalogTable, boolean, int, text};
use crate::types::more;
use holdfast_types::Value;
use holdfast_types::access::{Acl, AclItem, Roles};
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
        let access = |d: &super::DatabaseRow| context.roles.database(d.oid);
        let row = |d: &super::DatabaseRow| {
            vec![
                int(d.oid),
                text(d.name.as_str()),
                int(access(d).owner),
                int(6),
                text("c"),
                boolean(false),
                boolean(true),
                int(access(d).connection_limit),
                int(0),
                int(0),
                int(1663),
                text("C"),
                text("C"),
                Value::Null,
                Value::Null,
                grants(context.roles, access(d).acl),
                text(match d.dialect {
                    Dialect::Postgres => "postgres",
                    Dialect::Sqlite => "sqlite",
                }),
            ]
        };
        context.databases.iter().map(row).collect()
    },
};

/// A list of grants as PostgreSQL's `aclitem[]`; NULL where nothing was granted or revoked.
pub fn grants(roles: &Roles, acl: Option<Acl>) -> Value {
    let Some(acl) = acl else { return Value::Null };
    let items: Vec<String> = acl.iter().map(|item| acl_item_text(roles, item)).collect();
    text(format!("{{{}}}", items.iter().map(|item| super::pg_roles::element(item)).collect::<Vec<_>>().join(",")))
}

/// An item of such a list.
pub fn acl_item_text(roles: &Roles, item: &AclItem) -> String {
    item.text(|oid| item_name(&roles.name_of(oid)))
}

/// A role's name in an item: quoted where it is not plain.
fn item_name(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}
