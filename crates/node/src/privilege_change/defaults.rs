//! ALTER DEFAULT PRIVILEGES, and what a new object gets by them (`SetDefaultACL`, `get_user_default_acl` in PostgreSQL).

use super::grant::{invalid, known_schema, named};
use super::{Draft, Key};
use holdfast_sql::privilege_statement::{GrantStatement, RoleName};
use holdfast_types::access::acl::{Change, INVALID_GRANT, changed};
use holdfast_types::access::grants::{DefaultGrants, default_acl};
use holdfast_types::access::predefined::PUBLIC_OID;
use holdfast_types::access::{Acl, AclItem, Grants, Privileges};
use holdfast_types::{SqlError, SqlResult, SqlState};

/// Whether it is the entry of a role for a kind of object.
pub fn is_of(entry: &DefaultGrants, role: u32, in_schema: bool, object: char) -> bool {
    (entry.role, entry.in_schema, entry.object) == (role, in_schema, object)
}

/// The privileges of a kind of object, and its name in messages.
fn kind(object: char) -> (Privileges, &'static str) {
    match object {
        'S' => (Privileges::OF_SEQUENCE, "sequence"),
        'n' => (Privileges::OF_SCHEMA, "schema"),
        'f' => (Privileges::EXECUTE, "function"),
        'T' => (Privileges::USAGE, "type"),
        _ => (Privileges::OF_TABLE, "relation"),
    }
}

/// The list of a new object without default privileges.
fn built_in(object: char, role: u32) -> Acl {
    let (all, _) = kind(object);
    let mut acl = Acl::new();
    if matches!(object, 'f' | 'T') {
        acl.push(AclItem { grantee: PUBLIC_OID, grantor: role, granted: all, grantable: Privileges::NONE });
    }
    acl.extend(default_acl(all, role));
    acl
}

impl Draft<'_> {
    pub(super) fn defaults(
        &mut self,
        of: &[RoleName],
        schemas: &[String],
        object: char,
        statement: &GrantStatement,
    ) -> SqlResult<()> {
        let grantees = statement.to.iter().map(|name| self.grantee(name)).collect::<SqlResult<Vec<u32>>>()?;
        let (possible, word) = kind(object);
        let mut privileges = Privileges::NONE;
        for (name, columns) in &statement.privileges {
            if !columns.is_empty() {
                return Err(SqlError::new(INVALID_GRANT, "default privileges cannot be set for columns"));
            }
            let these = name.as_deref().map(named).transpose()?.unwrap_or(possible);
            if !possible.contains(these) {
                return Err(invalid(these & !possible, word));
            }
            privileges |= these;
        }
        schemas.iter().try_for_each(|name| known_schema(name))?;
        if object == 'n' && !schemas.is_empty() {
            let message = "cannot use IN SCHEMA clause when using GRANT/REVOKE ON SCHEMAS";
            return Err(SqlError::new(INVALID_GRANT, message));
        }
        let mut roles = of.iter().map(|name| self.role_named(name)).collect::<SqlResult<Vec<u32>>>()?;
        if roles.is_empty() {
            roles.push(self.role);
        }
        let change = Change { grant: statement.grant, option: statement.option, cascade: statement.cascade, grantees };
        for role in roles {
            if !self.checker.roles.is_member_of(self.role, role) {
                let message = format!("must be member of role \"{}\"", self.checker.roles.name_of(role));
                return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
            }
            self.set_default(role, !schemas.is_empty(), object, privileges, &change)?;
        }
        Ok(())
    }

    fn set_default(
        &mut self,
        role: u32,
        in_schema: bool,
        object: char,
        privileges: Privileges,
        change: &Change,
    ) -> SqlResult<()> {
        let without = if in_schema { Acl::new() } else { built_in(object, role) };
        let at = self.grants.defaults.iter().position(|d| is_of(d, role, in_schema, object));
        let before = at.map_or_else(|| without.clone(), |at| self.grants.defaults[at].acl.clone());
        let acl = changed(&before, change, privileges, role, role)?;
        if let Some(at) = at {
            self.grants.defaults.remove(at);
        }
        if !same(&acl, &without) {
            self.grants.defaults.push(DefaultGrants { role, in_schema, object, acl });
        }
        self.changed.insert(Key::Default { role, in_schema, object });
        Ok(())
    }
}

/// Whether two lists grant the same, in any order.
fn same(one: &Acl, other: &Acl) -> bool {
    one.len() == other.len() && one.iter().all(|item| other.contains(item))
}

/// The list of a new object of a role; `None` where it is the built-in one.
pub fn of_new(grants: &Grants, role: u32, object: char) -> Option<Acl> {
    let entry = |in_schema| grants.defaults.iter().find(|d| is_of(d, role, in_schema, object)).map(|d| &d.acl);
    let (everywhere, in_schema) = (entry(false), entry(true));
    if everywhere.is_none() && in_schema.is_none() {
        return None;
    }
    let built_in = built_in(object, role);
    let mut acl = everywhere.cloned().unwrap_or_else(|| built_in.clone());
    for item in in_schema.into_iter().flatten() {
        match acl.iter_mut().find(|i| i.grantee == item.grantee && i.grantor == item.grantor) {
            Some(found) => {
                found.granted |= item.granted;
                found.grantable |= item.grantable;
            }
            None => acl.push(*item),
        }
    }
    (!same(&acl, &built_in)).then_some(acl)
}
