//! A change of roles against the list of databases: whether it can be made, its records, and its effect.
//!
//! | what is found | answer |
//! |---|---|
//! | a role or database is not as it was when the change was computed | 40001 |
//! | another role has the new name | 42710 |
//! | a membership names a role that does not exist | 40001: it was dropped meanwhile |
//! | a role that is dropped has members, or owns or is granted a database | 40001: that was changed meanwhile |
//! | memberships make a circle | 0LP01 |

use crate::state::database::database_oid;
use crate::state::manifest::{Entry, Manifest};
use holdfast_types::access::{DatabaseAccess, Role, RoleChanges, Roles};
use holdfast_types::record::{put_database_access, put_role, put_role_drop};
use holdfast_types::{SqlError, SqlResult, SqlState, VolumeId};
use std::collections::BTreeSet;

/// Changes that were checked against the list and can be made.
#[derive(Clone)]
pub struct CheckedChanges {
    roles: Vec<(u32, Option<Role>)>,
    databases: Vec<(VolumeId, DatabaseAccess)>,
}

/// invalid_grant_operation
const INVALID_GRANT_OPERATION: SqlState = SqlState("0LP01");

fn overtaken() -> SqlError {
    SqlError::new(SqlState::SERIALIZATION_FAILURE, "could not serialize access due to concurrent update")
        .with_detail("Another session has changed the same roles or databases.")
        .with_hint("Run the transaction again.")
}

impl Manifest {
    /// Checks a change. The list must not change before it is made.
    pub fn check_changes(&self, mut changes: RoleChanges) -> SqlResult<CheckedChanges> {
        self.take_parameters_over(&mut changes);
        let mut roles = Roles::new(0, self.stored_roles());
        for change in &changes.roles {
            if roles.by_oid(change.oid).map(|role| &**role) != change.before.as_ref() {
                return Err(overtaken());
            }
        }
        changes.apply_to(&mut roles);
        self.check_roles(&changes, &roles)?;
        let mut databases = Vec::new();
        for change in changes.databases {
            let entry = self.databases.iter().find(|e| database_oid(e.volume()) == change.database);
            let entry = entry.filter(|e| e.access() == change.before).ok_or_else(overtaken)?;
            databases.push((entry.volume(), change.after));
        }
        self.check_no_database_of_dropped(&roles, &databases)?;
        Ok(CheckedChanges { roles: changes.roles.into_iter().map(|c| (c.oid, c.after)).collect(), databases })
    }

    /// A new role starts with the parameters that a list of format 2 has for its name.
    fn take_parameters_over(&self, changes: &mut RoleChanges) {
        for change in changes.roles.iter_mut().filter(|c| c.before.is_none()) {
            let Some(role) = &mut change.after else { continue };
            let stored = self.roles.iter().find(|r| r.oid.is_none() && r.name == role.name);
            for (name, value) in stored.into_iter().flat_map(|stored| &stored.parameters) {
                if !role.parameters.iter().any(|p| p.database.0 == 0 && p.name == *name) {
                    let (name, value) = (name.clone(), value.clone());
                    let database = VolumeId(0);
                    role.parameters.push(holdfast_types::access::RoleParameter { database, name, value });
                }
            }
        }
    }

    fn check_roles(&self, changes: &RoleChanges, after: &Roles) -> SqlResult<()> {
        let all = after.list();
        for role in changes.roles.iter().filter_map(|c| c.after.as_ref()) {
            if all.iter().any(|other| other.oid != role.oid && other.name == role.name) {
                let message = format!("role \"{}\" already exists", role.name);
                return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
            }
            if let Some(of) = role.member_of.iter().find(|m| leads_to(after, m.role, role.oid)) {
                let (member, of) = (&role.name, after.name_of(of.role));
                let message = format!("role \"{of}\" is a member of role \"{member}\"");
                return Err(SqlError::new(INVALID_GRANT_OPERATION, message));
            }
        }
        let exists = |m: &holdfast_types::access::Membership| after.by_oid(m.role).is_some();
        if all.iter().all(|role| role.member_of.iter().all(exists)) { Ok(()) } else { Err(overtaken()) }
    }

    fn check_no_database_of_dropped(&self, after: &Roles, changed: &[(VolumeId, DatabaseAccess)]) -> SqlResult<()> {
        let access_after = |entry: &Entry| {
            let changed = changed.iter().find(|(id, _)| *id == entry.volume());
            changed.map_or_else(|| entry.access(), |(_, access)| access.clone())
        };
        let exists = |oid: u32| oid == 0 || after.by_oid(oid).is_some();
        for entry in &self.databases {
            let access = access_after(entry);
            let grants = access.acl.unwrap_or_default();
            if !exists(access.owner) || !grants.iter().all(|item| exists(item.grantee) && exists(item.grantor)) {
                return Err(overtaken());
            }
        }
        Ok(())
    }
}

/// Whether memberships lead from one role to another, whatever superusers are.
fn leads_to(roles: &Roles, from: u32, to: u32) -> bool {
    let (mut open, mut seen) = (vec![from], BTreeSet::new());
    while let Some(oid) = open.pop() {
        if oid == to {
            return true;
        }
        if let (true, Some(role)) = (seen.insert(oid), roles.by_oid(oid)) {
            open.extend(role.member_of.iter().map(|m| m.role));
        }
    }
    false
}

impl CheckedChanges {
    /// Their records.
    pub fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for (oid, role) in &self.roles {
            match role {
                Some(role) => put_role(&mut body, role),
                None => put_role_drop(&mut body, *oid),
            }
        }
        self.databases.iter().for_each(|(id, access)| put_database_access(&mut body, *id, access));
        body
    }

    /// Makes the changes.
    pub fn apply(self, manifest: &mut Manifest) {
        for (oid, role) in &self.roles {
            match role {
                Some(role) => manifest.set_role(role),
                None => manifest.remove_role(*oid),
            }
        }
        self.databases.iter().for_each(|(id, access)| manifest.set_access(*id, access));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::manifest::ParameterOwner;
    use holdfast_types::access::Membership;
    use holdfast_types::schema::Dialect;

    fn member(oid: u32, name: &str, of: &[u32]) -> Role {
        let membership = |role: &u32| Membership { role: *role, grantor: 10, admin: false };
        Role { member_of: of.iter().map(membership).collect(), ..Role::new(oid, name) }
    }

    fn one(oid: u32, before: Option<Role>, after: Option<Role>) -> RoleChanges {
        let mut changes = RoleChanges::default();
        changes.set_role(oid, before, after);
        changes
    }

    fn list() -> Manifest {
        let mut m = Manifest::empty();
        m.add("shop", Dialect::Postgres);
        m.set_role(&member(16384, "a", &[]));
        m.set_role(&member(16385, "b", &[16384]));
        m
    }

    #[test]
    fn a_change_is_made_only_to_what_it_was_computed_from() {
        let m = list();
        let state = |changes| m.check_changes(changes).err().map(|e| e.state().0);
        let (a, b) = (member(16384, "a", &[]), member(16385, "b", &[16384]));
        assert_eq!(state(one(16384, Some(b.clone()), Some(a.clone()))), Some("40001"));
        assert_eq!(state(one(16386, None, Some(member(16386, "b", &[])))), Some("42710"));
        assert_eq!(state(one(16386, None, Some(member(16386, "c", &[99])))), Some("40001"));
        assert_eq!(state(one(16384, Some(a.clone()), Some(member(16384, "a", &[16385])))), Some("0LP01"));
        assert_eq!(state(one(16384, Some(a.clone()), Some(member(16384, "a", &[16384])))), Some("0LP01"), "itself");
        assert_eq!(state(one(16384, Some(a.clone()), None)), Some("40001"), "it has a member");
        assert_eq!(state(one(16385, Some(b.clone()), None)), None);
        // Two names are exchanged.
        let mut swap = one(16384, Some(a), Some(member(16384, "b", &[])));
        swap.append(one(16385, Some(b), Some(member(16385, "a", &[16384]))));
        let mut after = m.clone();
        m.check_changes(swap).ok().unwrap().apply(&mut after);
        assert_eq!(after.stored_roles().map(|r| r.name).collect::<Vec<_>>(), ["b", "a"]);
    }

    #[test]
    fn a_role_with_a_database_stays() {
        let mut m = list();
        m.set_access(VolumeId(1), &DatabaseAccess { owner: 16385, ..DatabaseAccess::default() });
        let b = member(16385, "b", &[16384]);
        assert_eq!(m.check_changes(one(16385, Some(b), None)).err().map(|e| e.state().0), Some("40001"));
    }

    #[test]
    fn a_new_role_takes_the_parameters_of_its_name_over() {
        let mut m = list();
        m.set_parameters(&ParameterOwner::Role("clerk".into()), [("lock_timeout".into(), "1s".into())].into());
        let checked = m.check_changes(one(16386, None, Some(member(16386, "clerk", &[])))).ok().unwrap();
        checked.apply(&mut m);
        let clerk = m.stored_roles().find(|r| r.name == "clerk").unwrap();
        assert_eq!((clerk.parameters[0].name.as_str(), clerk.parameters[0].value.as_str()), ("lock_timeout", "1s"));
        assert_eq!(m.roles.len(), 3);
    }
}
