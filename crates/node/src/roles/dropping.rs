//! DROP ROLE.

use super::{DEPENDENT_OBJECTS, Work, denied, no_role};
use holdfast_sql::RoleSpec;
use holdfast_types::access::predefined::BOOTSTRAP_OID;
use holdfast_types::access::{Role, RoleChanges};
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;

impl Work<'_> {
    pub(super) fn drop_roles(&mut self, roles: &[RoleSpec], if_exists: bool) -> SqlResult<()> {
        if !self.may_create_roles() {
            return Err(denied("permission denied to drop role"));
        }
        for spec in roles {
            let RoleSpec::Name(name) = spec else {
                let message = "cannot use special role specifier in DROP ROLE";
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
            };
            match self.roles.by_name(name).cloned() {
                Some(role) => self.drop_role(&role)?,
                None if if_exists => {
                    self.notice("NOTICE", "00000", format!("role \"{name}\" does not exist, skipping"));
                }
                None => return Err(no_role(name)),
            }
        }
        Ok(())
    }

    fn drop_role(&mut self, role: &Arc<Role>) -> SqlResult<()> {
        let in_use = |message: &str| Err(SqlError::new(SqlState::OBJECT_IN_USE, message));
        if role.oid == self.scope.current {
            return in_use("current user cannot be dropped");
        }
        if role.oid == self.scope.session {
            return in_use("session user cannot be dropped");
        }
        if role.superuser {
            self.superuser_only("must be superuser to drop superusers")?;
        }
        if role.is_predefined() || role.oid == BOOTSTRAP_OID {
            let message = format!("cannot drop role {} because it is required by the database system", role.name);
            return Err(SqlError::new(DEPENDENT_OBJECTS, message));
        }
        let mut details = self.databases_of(role.oid);
        details.extend((self.scope.objects_of)(role.oid));
        if !details.is_empty() {
            let message = format!("role \"{}\" cannot be dropped because some objects depend on it", role.name);
            return Err(SqlError::new(DEPENDENT_OBJECTS, message).with_detail(details.join("\n")));
        }
        for member in self.roles.list() {
            let left: Vec<_> = member.member_of.iter().filter(|m| m.role != role.oid).copied().collect();
            if left.len() < member.member_of.len() {
                self.set(member.oid, Some(Role { member_of: left, ..Role::clone(&member) }));
            }
        }
        self.set(role.oid, None);
        Ok(())
    }

    /// The databases that it owns or is granted, as PostgreSQL's lines of DETAIL.
    fn databases_of(&self, oid: u32) -> Vec<String> {
        let RoleChanges { databases: changed, .. } = &self.outcome.changes;
        let mut lines = Vec::new();
        for database in &self.scope.databases {
            let after = changed.iter().find(|c| c.database == database.oid).map(|c| c.after.clone());
            let access = after.unwrap_or_else(|| self.roles.database(database.oid));
            let granted = access.acl.iter().flatten().any(|item| item.grantee == oid || item.grantor == oid);
            if access.owner == oid {
                lines.push(format!("owner of database {}", database.name));
            } else if granted {
                lines.push(format!("privileges for database {}", database.name));
            }
        }
        lines
    }
}
