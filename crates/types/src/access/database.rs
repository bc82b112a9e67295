//! Who may use a database: its owner, its limit of sessions, and the grants on it.
//!
//! Failure: none; a database of which nothing was set is the bootstrap superuser's, with PostgreSQL's initial grants.

use super::predefined::{BOOTSTRAP_OID, PUBLIC_OID};
use super::privilege::{Acl, AclItem, Privileges};
use super::role::Roles;

/// Owner and grants of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseAccess {
    pub owner: u32,
    /// The largest number of its sessions at one time; -1: no limit.
    pub connection_limit: i32,
    /// `None`: the initial grants, as no GRANT or REVOKE has changed them.
    pub acl: Option<Acl>,
}

impl Default for DatabaseAccess {
    fn default() -> DatabaseAccess {
        DatabaseAccess { owner: BOOTSTRAP_OID, connection_limit: -1, acl: None }
    }
}

impl DatabaseAccess {
    /// The grants in force.
    pub fn grants(&self) -> Acl {
        self.acl.clone().unwrap_or_else(|| initial(self.owner))
    }

    /// The privileges that a role has on it.
    pub fn privileges(&self, roles: &Roles, role: u32) -> Privileges {
        if roles.is_superuser(role) {
            return Privileges::OF_DATABASE;
        }
        let has = |item: &&AclItem| item.grantee == PUBLIC_OID || roles.has_privileges_of(role, item.grantee);
        self.grants().iter().filter(has).fold(Privileges::NONE, |sum, item| sum | item.granted)
    }
}

/// The grants of a new database: everyone connects and makes temporary tables.
fn initial(owner: u32) -> Acl {
    let of = |grantee, granted| AclItem { grantee, grantor: owner, granted, grantable: Privileges::NONE };
    vec![of(PUBLIC_OID, Privileges::TEMPORARY | Privileges::CONNECT), of(owner, Privileges::OF_DATABASE)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Role;

    #[test]
    fn everyone_connects_until_that_is_revoked() {
        let roles = Roles::new(1, [Role::new(16384, "ann"), Role::new(16385, "bob")]);
        let mut access = DatabaseAccess { owner: 16384, ..DatabaseAccess::default() };
        assert_eq!(access.privileges(&roles, 16384), Privileges::OF_DATABASE);
        assert_eq!(access.privileges(&roles, 16385), Privileges::CONNECT | Privileges::TEMPORARY);
        access.acl = Some(Vec::new());
        assert_eq!(access.privileges(&roles, 16385), Privileges::NONE);
        assert!(access.privileges(&roles, BOOTSTRAP_OID).contains(Privileges::OF_DATABASE), "a superuser");
    }
}
