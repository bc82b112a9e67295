//! A change of roles and of the access to databases: what it is made of, and what it makes of [`Roles`].
//!
//! Each part names the state that it was computed from. Applying it fails where that is no longer the state, so that two
//! changes that were made concurrently are never mixed.

use super::database::DatabaseAccess;
use super::role::{Role, Roles};

/// A change that takes effect as a whole or not at all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoleChanges {
    pub roles: Vec<RoleChange>,
    pub databases: Vec<AccessChange>,
}

/// One role, before and after; without `before` it is new, without `after` it is dropped.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleChange {
    pub oid: u32,
    pub before: Option<Role>,
    pub after: Option<Role>,
}

/// Owner and grants of one database, by its OID.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessChange {
    pub database: u32,
    pub before: DatabaseAccess,
    pub after: DatabaseAccess,
}

impl RoleChanges {
    pub fn is_empty(&self) -> bool {
        self.roles.is_empty() && self.databases.is_empty()
    }

    /// Records that a role becomes `after`. Of several changes of one role the first state and the last one count.
    pub fn set_role(&mut self, oid: u32, before: Option<Role>, after: Option<Role>) {
        match self.roles.iter_mut().find(|change| change.oid == oid) {
            Some(change) => change.after = after,
            None => self.roles.push(RoleChange { oid, before, after }),
        }
        // A role that was made and dropped in one transaction was never there.
        self.roles.retain(|change| change.before.is_some() || change.after.is_some());
    }

    /// Records that a database's access becomes `after`.
    pub fn set_database(&mut self, database: u32, before: DatabaseAccess, after: DatabaseAccess) {
        match self.databases.iter_mut().find(|change| change.database == database) {
            Some(change) => change.after = after,
            None => self.databases.push(AccessChange { database, before, after }),
        }
    }

    /// Appends a later change of the same transaction.
    pub fn append(&mut self, later: RoleChanges) {
        later.roles.into_iter().for_each(|c| self.set_role(c.oid, c.before, c.after));
        later.databases.into_iter().for_each(|c| self.set_database(c.database, c.before, c.after));
    }

    /// Makes the change.
    pub fn apply_to(&self, roles: &mut Roles) {
        for change in &self.roles {
            match &change.after {
                Some(role) => roles.put(role.clone()),
                None => roles.remove(change.oid),
            }
        }
        self.databases.iter().for_each(|change| roles.put_database(change.database, change.after.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_one_transaction_are_joined() {
        let (old, new) = (Role::new(1, "a"), Role::new(1, "b"));
        let mut changes = RoleChanges::default();
        changes.set_role(1, Some(old.clone()), Some(new.clone()));
        changes.set_role(2, None, Some(Role::new(2, "c")));
        let mut later = RoleChanges::default();
        later.set_role(1, Some(new), None);
        later.set_role(2, Some(Role::new(2, "c")), None);
        changes.append(later);
        assert_eq!(changes.roles, [RoleChange { oid: 1, before: Some(old.clone()), after: None }]);
        let mut roles = Roles::new(1, [old]);
        changes.apply_to(&mut roles);
        assert!(roles.by_name("a").is_none() && roles.by_oid(1).is_none());
    }
}
