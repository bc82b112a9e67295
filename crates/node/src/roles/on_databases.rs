//! Owner, limit and grants of databases, and the rights that CREATE, DROP and ALTER DATABASE need.

use super::attributes::check_connection_limit;
use super::{INVALID_GRANT, Listed, Scope, Work, denied, role_of};
use holdfast_sql::{DatabaseGrant, RoleSpec};
use holdfast_types::access::acl::{self, Change};
use holdfast_types::access::predefined::PUBLIC_OID;
use holdfast_types::access::{DatabaseAccess, Privileges, Roles};
use holdfast_types::{SqlError, SqlResult, SqlState};

fn no_database(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_CATALOG_NAME, format!("database \"{name}\" does not exist"))
}

/// 42501 unless `role` has the rights of the database's owner.
pub fn check_database_owner(roles: &Roles, role: u32, oid: u32, name: &str) -> SqlResult<()> {
    let owner = roles.database(oid).owner;
    if roles.has_privileges_of(role, owner) {
        return Ok(());
    }
    Err(denied(format!("must be owner of database {name}")))
}

/// 42501 unless `role` may connect to the database.
pub fn check_connect(roles: &Roles, role: u32, oid: u32, name: &str) -> SqlResult<()> {
    if roles.database(oid).privileges(roles, role).contains(Privileges::CONNECT) {
        return Ok(());
    }
    Err(denied(format!("permission denied for database \"{name}\""))
        .with_detail("User does not have CONNECT privilege."))
}

/// Owner and limit of a new database; checks that the current role may create it.
pub fn new_database(scope: &Scope, owner: Option<&RoleSpec>, limit: Option<i32>) -> SqlResult<DatabaseAccess> {
    let roles = &scope.roles;
    let owner = owner.map_or(Ok(scope.current), |spec| role_of(roles, scope, spec).map(|role| role.oid))?;
    limit.map_or(Ok(()), check_connection_limit)?;
    let current = roles.by_oid(scope.current);
    if !current.is_some_and(|role| role.superuser || role.create_db) {
        return Err(denied("permission denied to create database"));
    }
    if !roles.is_member_of(scope.current, owner) {
        return Err(denied(format!("must be member of role \"{}\"", roles.name_of(owner))));
    }
    Ok(DatabaseAccess { owner, connection_limit: limit.unwrap_or(-1), acl: None })
}

impl Work<'_> {
    pub(super) fn database(&self, name: &str) -> SqlResult<Listed> {
        self.scope.databases.iter().find(|d| d.name == name).cloned().ok_or_else(|| no_database(name))
    }

    fn set_access(&mut self, oid: u32, after: DatabaseAccess) {
        let before = self.scope.roles.database(oid);
        self.roles.put_database(oid, after.clone());
        self.outcome.changes.set_database(oid, before, after);
    }

    pub(super) fn set_limit(&mut self, name: &str, limit: i32) -> SqlResult<()> {
        check_connection_limit(limit)?;
        let database = self.database(name)?;
        check_database_owner(&self.roles, self.scope.current, database.oid, name)?;
        let access = self.roles.database(database.oid);
        self.set_access(database.oid, DatabaseAccess { connection_limit: limit, ..access });
        Ok(())
    }

    pub(super) fn set_owner(&mut self, name: &str, to: &RoleSpec) -> SqlResult<()> {
        let owner = self.role(to)?;
        let database = self.database(name)?;
        let access = self.roles.database(database.oid);
        if access.owner == owner.oid {
            return Ok(());
        }
        check_database_owner(&self.roles, self.scope.current, database.oid, name)?;
        if !self.roles.is_member_of(self.scope.current, owner.oid) {
            return Err(denied(format!("must be member of role \"{}\"", owner.name)));
        }
        let current = self.roles.by_oid(self.scope.current);
        if !current.is_some_and(|role| role.superuser || role.create_db) {
            return Err(denied("permission denied to change owner of database"));
        }
        let acl = access.acl.as_ref().map(|acl| acl::with_new_owner(acl, access.owner, owner.oid));
        self.set_access(database.oid, DatabaseAccess { owner: owner.oid, acl, ..access });
        Ok(())
    }

    /// GRANT and REVOKE ON DATABASE.
    pub(super) fn grant_on_databases(&mut self, of: &DatabaseGrant) -> SqlResult<()> {
        if let Some(by) = &of.by
            && self.role(by)?.oid != self.scope.current
        {
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "grantor must be current user"));
        }
        let databases = of.databases.iter().map(|name| self.database(name)).collect::<SqlResult<Vec<_>>>()?;
        let grantee = |spec: &RoleSpec| match spec {
            RoleSpec::Public => Ok(PUBLIC_OID),
            other => self.role(other).map(|role| role.oid),
        };
        let grantees = of.grantees.iter().map(grantee).collect::<SqlResult<Vec<u32>>>()?;
        let privileges = privileges_of(&of.privileges)?;
        let change = Change { grant: of.grant, option: of.option, cascade: of.cascade, grantees };
        databases.iter().try_for_each(|database| self.grant_on(database, &change, privileges, of.privileges.is_empty()))
    }

    fn grant_on(&mut self, database: &Listed, change: &Change, asked: Privileges, all: bool) -> SqlResult<()> {
        let access = self.roles.database(database.oid);
        let (acl, current) = (access.grants(), self.scope.current);
        let (grantor, may) = acl::best_grantor(&self.roles, current, asked, &acl, access.owner);
        if may.is_empty() && access.privileges(&self.roles, grantor).is_empty() {
            return Err(denied(format!("permission denied for database {}", database.name)));
        }
        let (state, verb) = if change.grant { ("01007", "were granted") } else { ("01006", "could be revoked") };
        if may.is_empty() {
            self.notice("WARNING", state, format!("no privileges {verb} for \"{}\"", database.name));
            // As in PostgreSQL the initial grants are stored then.
            self.set_access(database.oid, DatabaseAccess { acl: Some(acl), ..access });
            return Ok(());
        }
        if !all && may != asked {
            self.notice("WARNING", state, format!("not all privileges {verb} for \"{}\"", database.name));
        }
        let after = acl::changed(&acl, change, may, grantor, access.owner)?;
        if after != acl || access.acl.is_some() {
            self.set_access(database.oid, DatabaseAccess { acl: Some(after), ..access });
        }
        Ok(())
    }
}

/// The privileges that words name; all of a database's where there is no word.
fn privileges_of(words: &[String]) -> SqlResult<Privileges> {
    let mut sum = Privileges::NONE;
    for word in words {
        let unknown = || SqlError::new(SqlState::SYNTAX_ERROR, format!("unrecognized privilege type \"{word}\""));
        let one = Privileges::by_word(word).ok_or_else(unknown)?;
        if !Privileges::OF_DATABASE.contains(one) {
            let message = format!("invalid privilege type {} for database", word.to_uppercase());
            return Err(SqlError::new(INVALID_GRANT, message));
        }
        sum |= one;
    }
    Ok(if words.is_empty() { Privileges::OF_DATABASE } else { sum })
}
