//! Roles: `pg_roles`, `pg_user`, `pg_group`, `pg_auth_members`, `pg_db_role_setting`, and `hf_role_reach`, from which
//! `pg_has_role` is computed.
//!
//! They show a transaction its own changes of roles, and other sessions what is committed.

use super::table::{CatalogContext, CatalogTable, array, boolean, int, text};
use crate::types::{instant_text, more};
use holdfast_types::Value;
use holdfast_types::access::{Role, Roles};
use holdfast_types::desc::oid;
use std::collections::HashMap;
use std::sync::Arc;

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
        let row = |role: Arc<Role>| {
            let mut row = vec![text(role.name.as_str())];
            let switches =
                [role.superuser, role.inherit, role.create_role, role.create_db, role.login, role.replication];
            row.extend(switches.map(boolean));
            row.extend([int(role.connection_limit), text(HIDDEN), valid_until(&role), boolean(role.bypass_rls)]);
            row.extend([config(&role), int(role.oid)]);
            row
        };
        context.roles.list().into_iter().map(row).collect()
    },
};

/// Stands for every password, whether there is one or not.
const HIDDEN: &str = "********";

fn valid_until(role: &Role) -> Value {
    role.valid_until_us.map_or(Value::Null, |us| text(instant_text(us)))
}

/// What its sessions in every database start with.
fn config(role: &Role) -> Value {
    let everywhere = role.parameters.iter().filter(|p| p.database.0 == 0);
    settings(everywhere.map(|p| (p.name.as_str(), p.value.as_str())))
}

/// Parameters as PostgreSQL's `setconfig`; NULL where there are none.
fn settings<'a>(parameters: impl Iterator<Item = (&'a str, &'a str)>) -> Value {
    let all: Vec<String> = parameters.map(|(name, value)| element(&format!("{name}={value}"))).collect();
    if all.is_empty() { Value::Null } else { text(format!("{{{}}}", all.join(","))) }
}

/// An element of an array in its text form.
pub(super) fn element(value: &str) -> String {
    let quoted = value.is_empty()
        || value.eq_ignore_ascii_case("null")
        || value.contains(|c: char| c.is_whitespace() || "{}\",\\".contains(c));
    if !quoted {
        return value.to_owned();
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

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
        let row = |role: Arc<Role>| {
            let mut row = vec![text(role.name.as_str()), int(role.oid)];
            row.extend([role.create_db, role.superuser, role.replication, role.bypass_rls].map(boolean));
            row.extend([text(HIDDEN), valid_until(&role), config(&role)]);
            row
        };
        context.roles.list().into_iter().filter(|role| role.login).map(row).collect()
    },
};

/// `pg_authid`: [`TABLE`] with the verifiers. The session admits superusers only.
pub const WITH_PASSWORDS: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_authid",
    columns: &[
        ("oid", oid::OID),
        ("rolname", oid::NAME),
        ("rolsuper", oid::BOOL),
        ("rolinherit", oid::BOOL),
        ("rolcreaterole", oid::BOOL),
        ("rolcreatedb", oid::BOOL),
        ("rolcanlogin", oid::BOOL),
        ("rolreplication", oid::BOOL),
        ("rolbypassrls", oid::BOOL),
        ("rolconnlimit", oid::INT4),
        ("rolpassword", oid::TEXT),
        ("rolvaliduntil", oid::TIMESTAMPTZ),
    ],
    always_empty: false,
    rows: |context| {
        let row = |role: Arc<Role>| {
            let mut row = vec![int(role.oid), text(role.name.as_str())];
            let switches =
                [role.superuser, role.inherit, role.create_role, role.create_db, role.login, role.replication];
            row.extend(switches.map(boolean));
            row.extend([
                boolean(role.bypass_rls),
                int(role.connection_limit),
                password(context, &role),
                valid_until(&role),
            ]);
            row
        };
        context.roles.list().into_iter().map(row).collect()
    },
};

/// `pg_shadow`: [`USERS`] with the verifiers. The session admits superusers only.
pub const SHADOW: CatalogTable = CatalogTable {
    name: "pg_shadow",
    rows: |context| {
        let row = |role: Arc<Role>| {
            let mut row = vec![text(role.name.as_str()), int(role.oid)];
            row.extend([role.create_db, role.superuser, role.replication, role.bypass_rls].map(boolean));
            row.extend([password(context, &role), valid_until(&role), config(&role)]);
            row
        };
        context.roles.list().into_iter().filter(|role| role.login).map(row).collect()
    },
    ..USERS
};

/// The verifier. Whatever way a statement has found to the table: it is shown to superusers only.
fn password(context: &CatalogContext<'_>, role: &Role) -> Value {
    let shown = role.password.as_deref().filter(|_| context.viewer.is_superuser());
    shown.map_or(Value::Null, text)
}

pub const GROUPS: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_group",
    columns: &[("groname", oid::NAME), ("grosysid", oid::OID), ("grolist", more::OID_ARRAY)],
    always_empty: false,
    rows: |context| {
        let all = context.roles.list();
        let members = |of: u32| {
            let is_member = |role: &&Arc<Role>| role.member_of.iter().any(|m| m.role == of);
            array(all.iter().filter(is_member).map(|role| i64::from(role.oid)).collect::<Vec<_>>())
        };
        let groups = all.iter().filter(|role| !role.login);
        groups.map(|role| vec![text(role.name.as_str()), int(role.oid), members(role.oid)]).collect()
    },
};

pub const MEMBERS: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_auth_members",
    columns: &[("roleid", oid::OID), ("member", oid::OID), ("grantor", oid::OID), ("admin_option", oid::BOOL)],
    always_empty: false,
    rows: |context| {
        let of = |role: Arc<Role>| {
            let row = |m: &holdfast_types::access::Membership| {
                vec![int(m.role), int(role.oid), int(m.grantor), boolean(m.admin)]
            };
            role.member_of.iter().map(row).collect::<Vec<_>>()
        };
        context.roles.list().into_iter().flat_map(of).collect()
    },
};

pub const SETTINGS: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_db_role_setting",
    columns: &[("setdatabase", oid::OID), ("setrole", oid::OID), ("setconfig", more::TEXT_ARRAY)],
    always_empty: false,
    rows: setting_rows,
};

fn setting_rows(context: &CatalogContext<'_>) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    if !context.parameters_of_all.is_empty() {
        let parameters = context.parameters_of_all.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        rows.push(vec![int(0), int(0), settings(parameters)]);
    }
    for database in context.databases.iter().filter(|d| !d.parameters.is_empty()) {
        let parameters = database.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        rows.push(vec![int(database.oid), int(0), settings(parameters)]);
    }
    for role in context.roles.list() {
        let mut databases: Vec<_> = role.parameters.iter().map(|p| p.database).collect();
        databases.dedup();
        for volume in databases {
            let oid = context.databases.iter().find(|d| d.volume == volume).map_or(0, |d| d.oid);
            if volume.0 != 0 && oid == 0 {
                continue; // of a database that was dropped
            }
            let those = role.parameters.iter().filter(|p| p.database == volume);
            let those = settings(those.map(|p| (p.name.as_str(), p.value.as_str())));
            rows.push(vec![int(oid), int(role.oid), those]);
        }
    }
    rows
}

/// Which roles a role reaches: as a member (`member`), with their privileges (`usage`), and with an admin option (`admin`).
pub const REACH: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "hf_role_reach",
    columns: &[
        ("member", oid::OID),
        ("membername", oid::NAME),
        ("role", oid::OID),
        ("rolename", oid::NAME),
        ("usage", oid::BOOL),
        ("admin", oid::BOOL),
    ],
    always_empty: false,
    rows: |context| reach(context.roles),
};

fn reach(roles: &Roles) -> Vec<Vec<Value>> {
    let all = roles.list();
    let mut rows = Vec::new();
    for member in &all {
        let usage = roles.privileges_from(member.oid);
        for role in reached(roles, member, &all) {
            let (of, admin) = role;
            let usage = member.superuser || usage.contains(&of.oid);
            let mut row = vec![int(member.oid), text(member.name.as_str()), int(of.oid), text(of.name.as_str())];
            row.extend([boolean(usage), boolean(admin)]);
            rows.push(row);
        }
    }
    rows
}

/// The roles that one is a member of, directly or not, each with whether that is with an admin option.
fn reached(roles: &Roles, member: &Arc<Role>, all: &[Arc<Role>]) -> Vec<(Arc<Role>, bool)> {
    if member.superuser {
        return all.iter().map(|role| (role.clone(), true)).collect();
    }
    let (mut open, mut found) = (vec![member.clone()], HashMap::from([(member.oid, (member.clone(), false))]));
    while let Some(at) = open.pop() {
        for m in &at.member_of {
            let Some(role) = roles.by_oid(m.role) else { continue };
            let known = found.entry(m.role).or_insert_with(|| {
                open.push(role.clone());
                (role.clone(), false)
            });
            known.1 |= m.admin;
        }
    }
    let mut found: Vec<_> = found.into_values().collect();
    found.sort_by_key(|(role, _)| role.oid);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_an_array_of_postgresql() {
        let all = [("a", "b"), ("x", "two words"), ("y", "q\"\\")];
        assert_eq!(settings(all.into_iter()), text(r#"{a=b,"x=two words","y=q\"\\"}"#));
        assert_eq!(settings([].into_iter()), Value::Null);
    }
}
