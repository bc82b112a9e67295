//! The views of `information_schema` that show privileges. The binder leaves out what the current role may not see.

use super::table::{CatalogContext, CatalogTable, text};
use super::{oids, shapes};
use holdfast_types::Value;
use holdfast_types::access::grants::default_acl;
use holdfast_types::access::predefined::PUBLIC_OID;
use holdfast_types::access::{Acl, AclItem, Privileges, Roles};
use holdfast_types::desc::oid;
use holdfast_types::schema::Table;

const N: u32 = oid::NAME;
const T: u32 = oid::VARCHAR;

const fn view(
    name: &'static str,
    columns: &'static [(&'static str, u32)],
    rows: fn(&CatalogContext<'_>) -> Vec<Vec<Value>>,
) -> CatalogTable {
    CatalogTable { schema: "information_schema", name, columns, always_empty: false, rows }
}

const OF_TABLES: &[(&str, u32)] = &[
    ("grantor", N),
    ("grantee", N),
    ("table_catalog", N),
    ("table_schema", N),
    ("table_name", N),
    ("privilege_type", T),
    ("is_grantable", T),
    ("with_hierarchy", T),
];

const OF_COLUMNS: &[(&str, u32)] = &[
    ("grantor", N),
    ("grantee", N),
    ("table_catalog", N),
    ("table_schema", N),
    ("table_name", N),
    ("column_name", N),
    ("privilege_type", T),
    ("is_grantable", T),
];

pub const TABLES: &[CatalogTable] = &[
    view("table_privileges", OF_TABLES, |context| of_tables(context, true)),
    view("role_table_grants", OF_TABLES, |context| of_tables(context, false)),
    view("column_privileges", OF_COLUMNS, |context| of_columns(context, true)),
    view("role_column_grants", OF_COLUMNS, |context| of_columns(context, false)),
    view(
        "usage_privileges",
        &[
            ("grantor", N),
            ("grantee", N),
            ("object_catalog", N),
            ("object_schema", N),
            ("object_name", N),
            ("object_type", T),
            ("privilege_type", T),
            ("is_grantable", T),
        ],
        |_| Vec::new(),
    ),
];

fn yes_or_no(value: bool) -> Value {
    text(if value { "YES" } else { "NO" })
}

fn role(roles: &Roles, oid: u32) -> Value {
    if oid == PUBLIC_OID { text("PUBLIC") } else { text(roles.name_of(oid)) }
}

/// The permanent tables and views, each with its list and owner.
fn listed<'c>(context: &'c CatalogContext<'_>) -> impl Iterator<Item = (&'c Table, Acl, u32)> {
    let tables = context.schema.tables.iter().filter(|t| shapes::visible(t) && !t.temp);
    tables.map(|table| {
        let owner = context.schema.grants.owner(table.oid);
        let acl = context.schema.grants.of(table.oid).and_then(|g| g.acl.clone());
        (&**table, acl.unwrap_or_else(|| default_acl(Privileges::OF_TABLE, owner)), owner)
    })
}

/// Each privilege of an item, and whether it can be granted: an owner can always.
fn each(item: &AclItem, owner: u32, of: Privileges) -> impl Iterator<Item = (&'static str, bool)> {
    let (granted, grantable) = (item.granted & of, item.grantable);
    let is_owner = item.grantee == owner;
    let has = move |(privilege, _, _): &&(Privileges, char, &'static str)| granted.contains(*privilege);
    Privileges::ALL.iter().filter(has).map(move |(p, _, word)| (*word, is_owner || grantable.contains(*p)))
}

fn of_tables(context: &CatalogContext<'_>, public: bool) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for (table, acl, owner) in listed(context) {
        for item in acl.iter().filter(|item| public || item.grantee != PUBLIC_OID) {
            for (word, grantable) in each(item, owner, Privileges::OF_TABLE) {
                let mut row = vec![role(context.roles, item.grantor), role(context.roles, item.grantee)];
                row.extend([text(context.database), text(oids::namespace(table).1), text(table.name.as_str())]);
                row.extend([text(word), yes_or_no(grantable), yes_or_no(word == "SELECT")]);
                rows.push(row);
            }
        }
    }
    rows
}

fn of_columns(context: &CatalogContext<'_>, public: bool) -> Vec<Vec<Value>> {
    let mut rows: Vec<Vec<Value>> = Vec::new();
    for (table, acl, owner) in listed(context) {
        let own = context.schema.grants.of(table.oid);
        for column in &table.columns {
            let of_column = own.and_then(|g| g.columns.get(&column.name)).into_iter().flatten();
            for item in acl.iter().chain(of_column).filter(|item| public || item.grantee != PUBLIC_OID) {
                for (word, grantable) in each(item, owner, Privileges::OF_COLUMN) {
                    let mut row = vec![role(context.roles, item.grantor), role(context.roles, item.grantee)];
                    row.extend([text(context.database), text(oids::namespace(table).1), text(table.name.as_str())]);
                    row.extend([text(column.name.as_str()), text(word), yes_or_no(grantable)]);
                    // The table's grant and the column's may be the same.
                    if !rows.contains(&row) {
                        rows.push(row);
                    }
                }
            }
        }
    }
    rows
}
