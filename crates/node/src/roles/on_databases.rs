//! Owner, limit and grants of databases, and the rights that CREATE, DROP and ALTER DATABASE need.

use super::attributes::check_connection_limit;
use super::{Listed, Scope, Work, denied, role_of};
use holdfast_sql::{DatabaseGrant, RoleSpec};
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
        self.set_access(database.oid, DatabaseAccess { owner: owner.oid, ..access });
        Ok(())
    }

    pub(super) fn grant_on_databases(&mut self, of: &DatabaseGrant) -> SqlResult<()> {
        let verb = if of.grant { "GRANT" } else { "REVOKE" };
        Err(SqlError::unsupported(format!("{verb} ON DATABASE")))
    }
}
