//! What statements about roles and about access to databases change, and who may run them: PostgreSQL 15's rules.
//!
//! [`run`] computes the change from one state of the roles; it changes nothing itself. `current` is the role whose rights
//! count, which SET ROLE changes.
//!
//! | file | statements |
//! |---|---|
//! | [`attributes`] | CREATE, ALTER and RENAME |
//! | [`dropping`] | DROP |
//! | [`membership`] | GRANT and REVOKE of roles |
//! | [`parameters`] | ALTER ROLE ... SET |
//! | [`on_databases`] | owner, limit and grants of databases |
//!
//! Failure: PostgreSQL's errors and texts (`commands/user.c`, `catalog/aclchk.c`); messages never contain a password.

mod attributes;
mod dropping;
mod membership;
mod on_databases;
mod parameters;

pub use on_databases::{check_connect, check_database_owner, new_database};

use holdfast_sql::{Notice, RoleSpec, RoleStatement};
use holdfast_types::access::{Role, RoleChanges, Roles};
use holdfast_types::{SqlError, SqlResult, SqlState, VolumeId};
use std::sync::Arc;

/// reserved_name
const RESERVED_NAME: SqlState = SqlState("42939");
/// dependent_objects_still_exist
const DEPENDENT_OBJECTS: SqlState = SqlState("2BP01");
/// invalid_grant_operation
const INVALID_GRANT: SqlState = SqlState("0LP01");

/// The role that runs a statement, and what it is run against.
pub struct Scope {
    /// All roles as the statement sees them.
    pub roles: Arc<Roles>,
    pub current: u32,
    pub session: u32,
    pub databases: Vec<Listed>,
    /// What a role owns or is granted in the databases, as lines of DETAIL.
    pub objects_of: Box<dyn Fn(u32) -> Vec<String> + Send>,
    /// Reserves the OID of a new role.
    pub new_oid: Box<dyn Fn() -> SqlResult<u32> + Send>,
}

/// A database by its names.
#[derive(Clone, Debug)]
pub struct Listed {
    pub name: String,
    pub oid: u32,
    pub volume: VolumeId,
}

/// What a statement changes, and the notices it gives.
#[derive(Default)]
pub struct Outcome {
    pub changes: RoleChanges,
    pub notices: Vec<Notice>,
}

/// Computes what a statement changes.
pub fn run(scope: &Scope, statement: &RoleStatement) -> SqlResult<Outcome> {
    let mut work = Work { scope, roles: Roles::clone(&scope.roles), outcome: Outcome::default() };
    match statement {
        RoleStatement::Create { name, user, options } => work.create(name, *user, options)?,
        RoleStatement::Alter { role, options } => work.alter(role, options)?,
        RoleStatement::AlterGroup { role, add, members } => work.alter_group(role, *add, members)?,
        RoleStatement::Rename { name, to } => work.rename(name, to)?,
        RoleStatement::Drop { roles, if_exists } => work.drop_roles(roles, *if_exists)?,
        RoleStatement::Membership { grant, roles, members, admin, by } => {
            work.change_memberships(*grant, roles, members, *admin, by.as_ref())?;
        }
        RoleStatement::Parameter { role, database, change } => work.set_parameter(role, database.as_deref(), change)?,
        RoleStatement::OnDatabase(of) => work.grant_on_databases(of)?,
        RoleStatement::DatabaseOwner { database, to } => work.set_owner(database, to)?,
        RoleStatement::DatabaseLimit { database, limit } => work.set_limit(database, *limit)?,
    }
    Ok(work.outcome)
}

/// A statement at work.
struct Work<'a> {
    scope: &'a Scope,
    /// The roles with what the statement has changed so far.
    roles: Roles,
    outcome: Outcome,
}

/// 42501
fn denied(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
}

fn no_role(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))
}

/// A name that the system keeps for itself.
fn is_reserved(name: &str) -> bool {
    name.starts_with("pg_")
}

fn reserved(name: &str) -> SqlError {
    SqlError::new(RESERVED_NAME, format!("role name \"{name}\" is reserved"))
}

const RESERVED_DETAIL: &str = "Role names starting with \"pg_\" are reserved.";

impl Work<'_> {
    fn superuser(&self) -> bool {
        self.roles.is_superuser(self.scope.current)
    }

    fn may_create_roles(&self) -> bool {
        self.superuser() || self.roles.by_oid(self.scope.current).is_some_and(|role| role.create_role)
    }

    fn notice(&mut self, severity: &'static str, state: &'static str, message: String) {
        self.outcome.notices.push(Notice { severity, state: SqlState(state), message });
    }

    fn by_name(&self, name: &str) -> SqlResult<Arc<Role>> {
        self.roles.by_name(name).cloned().ok_or_else(|| no_role(name))
    }

    /// The role that a statement names.
    fn role(&self, spec: &RoleSpec) -> SqlResult<Arc<Role>> {
        role_of(&self.roles, self.scope, spec)
    }

    /// Sets a role, or drops it.
    fn set(&mut self, oid: u32, after: Option<Role>) {
        let before = self.scope.roles.by_oid(oid).map(|role| Role::clone(role));
        match &after {
            Some(role) => self.roles.put(role.clone()),
            None => self.roles.remove(oid),
        }
        self.outcome.changes.set_role(oid, before, after);
    }
}

fn role_of(roles: &Roles, scope: &Scope, spec: &RoleSpec) -> SqlResult<Arc<Role>> {
    let by_oid = |oid| roles.by_oid(oid).cloned().ok_or_else(|| no_role(&roles.name_of(oid)));
    match spec {
        RoleSpec::Name(name) => roles.by_name(name).cloned().ok_or_else(|| no_role(name)),
        RoleSpec::Public => Err(no_role("public")),
        RoleSpec::CurrentRole => by_oid(scope.current),
        RoleSpec::SessionUser => by_oid(scope.session),
    }
}
