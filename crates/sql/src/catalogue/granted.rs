//! The views of `information_schema` that show roles and privileges. The binder leaves out what the current role may not see.

use super::information_schema::{N, T, view, yes_or_no};
use super::pg_sequence::sequences;
use super::table::{CatalogContext, CatalogTable, text};
use super::{oids, shapes};
use holdfast_types::Value;
use holdfast_types::access::grants::default_acl;
use holdfast_types::access::predefined::{DATABASE_OWNER_OID, PUBLIC_OID};
use holdfast_types::access::{Acl, AclItem, Privileges, Roles};
use holdfast_types::schema::Table;

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

const OF_USAGE: &[(&str, u32)] = &[
    ("grantor", N),
    ("grantee", N),
    ("object_catalog", N),
    ("object_schema", N),
    ("object_name", N),
    ("object_type", T),
    ("privilege_type", T),
    ("is_grantable", T),
];

const OF_MEMBERS: &[(&str, u32)] = &[("grantee", N), ("role_name", N), ("is_grantable", T)];

pub const TABLES: &[CatalogTable] = &[
    view("table_privileges", OF_TABLES, of_tables),
    view("role_table_grants", OF_TABLES, of_tables),
    view("column_privileges", OF_COLUMNS, of_columns),
    view("role_column_grants", OF_COLUMNS, of_columns),
    view("usage_privileges", OF_USAGE, of_usage),
    view("role_usage_grants", OF_USAGE, of_usage),
    view("enabled_roles", &[("role_name", N)], |context| {
        context.roles.list().iter().map(|role| vec![text(role.name.as_str())]).collect()
    }),
    view("applicable_roles", OF_MEMBERS, |context| members(context, false)),
    view("administrable_role_authorizations", OF_MEMBERS, |context| members(context, true)),
    view("information_schema_catalog_name", &[("catalog_name", N)], |context| vec![vec![text(context.database)]]),
];

/// Each role with the roles that it is a member of.
fn members(context: &CatalogContext<'_>, only_grantable: bool) -> Vec<Vec<Value>> {
    let mut pairs: Vec<(u32, u32, bool)> = Vec::new();
    for role in context.roles.list() {
        pairs.extend(role.member_of.iter().map(|m| (role.oid, m.role, m.admin)));
    }
    // The owner of a database is a member of this role there.
    let owner = (context.roles.database(context.database_oid).owner, DATABASE_OWNER_OID, false);
    if !pairs.contains(&owner) {
        pairs.push(owner);
    }
    let named = |oid: u32| text(context.roles.name_of(oid));
    let shown = pairs.into_iter().filter(|(_, _, admin)| *admin || !only_grantable);
    shown.map(|(member, role, admin)| vec![named(member), named(role), yes_or_no(admin)]).collect()
}

/// As in PostgreSQL only what was granted explicitly: an owner's own USAGE is not listed.
fn of_usage(context: &CatalogContext<'_>) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for (table, name) in sequences(context).filter(|(table, _)| !table.temp) {
        let Some(own) = context.schema.grants.of(table.oid) else { continue };
        for item in own.sequence.iter().flatten() {
            for (word, grantable) in each(context.roles, item, own.owner, Privileges::USAGE) {
                let mut row = vec![role(context.roles, item.grantor), role(context.roles, item.grantee)];
                row.extend([text(context.database), text(oids::namespace(table).1), text(name.as_str())]);
                row.extend([text("SEQUENCE"), text(word), yes_or_no(grantable)]);
                rows.push(row);
            }
        }
    }
    rows
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

/// Each privilege of an item, and whether it can be granted: a role with the owner's privileges can always.
fn each(roles: &Roles, item: &AclItem, owner: u32, of: Privileges) -> impl Iterator<Item = (&'static str, bool)> {
    let (granted, grantable) = (item.granted & of, item.grantable);
    let is_owner = item.grantee != PUBLIC_OID && roles.has_privileges_of(item.grantee, owner);
    let has = move |(privilege, _, _): &&(Privileges, char, &'static str)| granted.contains(*privilege);
    Privileges::ALL.iter().filter(has).map(move |(p, _, word)| (*word, is_owner || grantable.contains(*p)))
}

fn of_tables(context: &CatalogContext<'_>) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for (table, acl, owner) in listed(context) {
        for item in &acl {
            for (word, grantable) in each(context.roles, item, owner, Privileges::OF_TABLE) {
                let mut row = vec![role(context.roles, item.grantor), role(context.roles, item.grantee)];
                row.extend([text(context.database), text(oids::namespace(table).1), text(table.name.as_str())]);
                row.extend([text(word), yes_or_no(grantable), yes_or_no(word == "SELECT")]);
                rows.push(row);
            }
        }
    }
    rows
}

fn of_columns(context: &CatalogContext<'_>) -> Vec<Vec<Value>> {
    let mut rows: Vec<Vec<Value>> = Vec::new();
    for (table, acl, owner) in listed(context) {
        let own = context.schema.grants.of(table.oid);
        for column in &table.columns {
            let of_column = own.and_then(|g| g.columns.get(&column.name)).into_iter().flatten();
            for item in acl.iter().chain(of_column) {
                for (word, grantable) in each(context.roles, item, owner, Privileges::OF_COLUMN) {
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
