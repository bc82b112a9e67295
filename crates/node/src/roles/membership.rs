//! GRANT and REVOKE of roles, and ALTER GROUP.

use super::attributes::check_not_reserved;
use super::{INVALID_GRANT, Work, denied};
use holdfast_sql::RoleSpec;
use holdfast_types::access::predefined::DATABASE_OWNER_OID;
use holdfast_types::access::{Membership, Role, Roles};
use holdfast_types::{SqlError, SqlResult};
use std::collections::HashSet;
use std::sync::Arc;

impl Work<'_> {
    pub(super) fn change_memberships(
        &mut self,
        grant: bool,
        roles: &[String],
        members: &[RoleSpec],
        admin: bool,
        by: Option<&RoleSpec>,
    ) -> SqlResult<()> {
        let grantor = by.map(|by| self.role(by)).transpose()?.map_or(self.scope.current, |role| role.oid);
        members.iter().try_for_each(|member| self.role(member).map(drop))?;
        for name in roles {
            let role = self.by_name(name)?;
            match grant {
                true => self.add_members(role.oid, members, grantor, admin)?,
                false => self.remove_members(&role, members, admin)?,
            }
        }
        Ok(())
    }

    pub(super) fn alter_group(&mut self, spec: &RoleSpec, add: bool, members: &[RoleSpec]) -> SqlResult<()> {
        check_not_reserved(spec)?;
        let role = self.role(spec)?;
        if role.superuser {
            self.superuser_only("must be superuser to alter superuser roles or change superuser attribute")?;
        } else if role.replication {
            self.superuser_only("must be superuser to alter replication roles or change replication attribute")?;
        } else if !self.may_create_roles() {
            return Err(denied("permission denied"));
        }
        match add {
            true => self.add_members(role.oid, members, self.scope.current, false),
            false => self.remove_members(&role, members, false),
        }
    }

    /// 42501 unless the current role may change a role's members.
    fn check_may_change(&self, role: &Role, grantor: u32) -> SqlResult<()> {
        if role.superuser {
            return self.superuser_only("must be superuser to alter superusers");
        }
        if self.may_create_roles() || is_admin_of(&self.roles, grantor, role.oid) {
            return Ok(());
        }
        Err(denied(format!("must have admin option on role \"{}\"", role.name)))
    }

    pub(super) fn add_members(&mut self, oid: u32, members: &[RoleSpec], grantor: u32, admin: bool) -> SqlResult<()> {
        let role: Arc<Role> = self.role(&RoleSpec::Name(self.roles.name_of(oid)))?;
        if members.is_empty() {
            return Ok(());
        }
        self.check_may_change(&role, grantor)?;
        if role.oid == DATABASE_OWNER_OID {
            return Err(SqlError::internal(format!("role \"{}\" cannot have explicit members", role.name)));
        }
        if grantor != self.scope.current {
            self.superuser_only("must be superuser to set grantor")?;
        }
        for member in members {
            let member = self.role(member)?;
            if member.oid == DATABASE_OWNER_OID {
                return Err(SqlError::internal(format!("role \"{}\" cannot be a member of any role", member.name)));
            }
            if reached(&self.roles, role.oid).contains(&member.oid) {
                let message = format!("role \"{}\" is a member of role \"{}\"", role.name, member.name);
                return Err(SqlError::new(INVALID_GRANT, message));
            }
            let mut after = Role::clone(&member);
            match after.member_of.iter_mut().find(|m| m.role == role.oid) {
                Some(there) if !admin || there.admin => {
                    let message = format!("role \"{}\" is already a member of role \"{}\"", member.name, role.name);
                    self.notice("NOTICE", "00000", message);
                    continue;
                }
                Some(there) => (there.grantor, there.admin) = (grantor, admin),
                None => after.member_of.push(Membership { role: role.oid, grantor, admin }),
            }
            self.set(member.oid, Some(after));
        }
        Ok(())
    }

    fn remove_members(&mut self, role: &Arc<Role>, members: &[RoleSpec], admin: bool) -> SqlResult<()> {
        self.check_may_change(role, self.scope.current)?;
        for member in members {
            let member = self.role(member)?;
            let mut after = Role::clone(&member);
            let Some(at) = after.member_of.iter().position(|m| m.role == role.oid) else {
                let message = format!("role \"{}\" is not a member of role \"{}\"", member.name, role.name);
                self.notice("WARNING", "01000", message);
                continue;
            };
            match admin {
                true => after.member_of[at].admin = false,
                false => _ = after.member_of.remove(at),
            }
            self.set(member.oid, Some(after));
        }
        Ok(())
    }
}

/// The roles that a role is a member of, directly or not, and itself; superusers are members like others.
fn reached(roles: &Roles, from: u32) -> HashSet<u32> {
    let (mut open, mut seen) = (vec![from], HashSet::from([from]));
    while let Some(role) = open.pop().and_then(|oid| roles.by_oid(oid)) {
        open.extend(role.member_of.iter().map(|m| m.role).filter(|oid| seen.insert(*oid)));
    }
    seen
}

/// Whether a role may grant membership in another one: by an admin option, its own or that of a role it is a member of.
pub(super) fn is_admin_of(roles: &Roles, member: u32, role: u32) -> bool {
    if roles.is_superuser(member) {
        return true;
    }
    let has = |oid: &u32| {
        let holder = roles.by_oid(*oid);
        holder.is_some_and(|holder| holder.member_of.iter().any(|m| m.role == role && m.admin))
    };
    member != role && reached(roles, member).iter().any(has)
}
