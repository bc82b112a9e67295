//! Roles: users and groups are the same thing, as in PostgreSQL.
//!
//! [`Roles`] is one state of all roles; a change makes another one. Failure: a name or OID that is not there is `None`,
//! and a role that was dropped has no rights.

use super::database::DatabaseAccess;
use super::predefined::{BOOTSTRAP_NAME, BOOTSTRAP_OID, PREDEFINED};
use crate::ids::VolumeId;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// One role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    pub oid: u32,
    pub name: String,
    pub superuser: bool,
    /// The role has the privileges of the roles that it is a member of, without SET ROLE.
    pub inherit: bool,
    pub create_role: bool,
    pub create_db: bool,
    pub login: bool,
    pub replication: bool,
    pub bypass_rls: bool,
    /// The largest number of its sessions at one time; -1: no limit.
    pub connection_limit: i32,
    /// The verifier of its password (`SCRAM-SHA-256$...`); never the password.
    pub password: Option<String>,
    /// The password is not accepted from then on, in microseconds since 1970-01-01 UTC; `i64::MAX` is `infinity`.
    pub valid_until_us: Option<i64>,
    /// The roles that it is a member of.
    pub member_of: Vec<Membership>,
    /// What its sessions start with: ALTER ROLE ... SET.
    pub parameters: Vec<RoleParameter>,
}

/// A run-time parameter that a role's sessions start with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoleParameter {
    /// Only in this database; 0: in every database.
    pub database: VolumeId,
    pub name: String,
    pub value: String,
}

/// A role's membership in another role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    pub role: u32,
    pub grantor: u32,
    /// WITH ADMIN OPTION.
    pub admin: bool,
}

impl Role {
    /// A role with the attributes of CREATE ROLE without options.
    pub fn new(oid: u32, name: &str) -> Role {
        Role {
            oid,
            name: name.to_owned(),
            superuser: false,
            inherit: true,
            create_role: false,
            create_db: false,
            login: false,
            replication: false,
            bypass_rls: false,
            connection_limit: -1,
            password: None,
            valid_until_us: None,
            member_of: Vec::new(),
            parameters: Vec::new(),
        }
    }

    /// The bootstrap superuser.
    pub fn bootstrap() -> Role {
        Role {
            superuser: true,
            create_role: true,
            create_db: true,
            login: true,
            replication: true,
            bypass_rls: true,
            ..Role::new(BOOTSTRAP_OID, BOOTSTRAP_NAME)
        }
    }

    /// Whether it is predefined: it cannot be changed or dropped, but roles can become its members.
    pub fn is_predefined(&self) -> bool {
        PREDEFINED.iter().any(|(oid, _)| *oid == self.oid)
    }
}

/// All roles of a server at one moment.
#[derive(Clone, Debug)]
pub struct Roles {
    /// Rises with every change.
    pub version: u64,
    by_oid: HashMap<u32, Arc<Role>>,
    by_name: HashMap<String, u32>,
    databases: HashMap<u32, DatabaseAccess>,
}

impl Default for Roles {
    /// The roles of a new server.
    fn default() -> Roles {
        Roles::new(0, std::iter::empty())
    }
}

impl Roles {
    /// The bootstrap superuser, the predefined roles, and `stored`, which replaces those of the same OID.
    pub fn new(version: u64, stored: impl IntoIterator<Item = Role>) -> Roles {
        let initial = PREDEFINED.iter().map(|(oid, name)| Role::new(*oid, name)).map(|mut role| {
            use super::predefined::{MONITOR_OID, READ_ALL_SETTINGS_OID, READ_ALL_STATS_OID, STAT_SCAN_TABLES_OID};
            if role.oid == MONITOR_OID {
                let of = |role| Membership { role, grantor: BOOTSTRAP_OID, admin: false };
                role.member_of = [READ_ALL_SETTINGS_OID, READ_ALL_STATS_OID, STAT_SCAN_TABLES_OID].map(of).to_vec();
            }
            role
        });
        let (by_oid, by_name, databases) = Default::default();
        let mut roles = Roles { version, by_oid, by_name, databases };
        std::iter::once(Role::bootstrap()).chain(initial).chain(stored).for_each(|role| roles.put(role));
        roles
    }

    /// Adds a role, or replaces the one of this OID.
    pub fn put(&mut self, role: Role) {
        self.remove(role.oid);
        self.by_name.insert(role.name.clone(), role.oid);
        self.by_oid.insert(role.oid, Arc::new(role));
    }

    /// Removes a role.
    pub fn remove(&mut self, oid: u32) {
        let Some(before) = self.by_oid.remove(&oid) else { return };
        // Another role may have this name by now.
        if self.by_name.get(&before.name) == Some(&oid) {
            self.by_name.remove(&before.name);
        }
    }

    /// Sets the owner and the grants of a database, by its OID.
    pub fn put_database(&mut self, oid: u32, access: DatabaseAccess) {
        self.databases.insert(oid, access);
    }

    /// Owner and grants of a database, by its OID.
    pub fn database(&self, oid: u32) -> DatabaseAccess {
        self.databases.get(&oid).cloned().unwrap_or_default()
    }

    /// The databases whose owner or grants were set, by OID.
    pub fn databases(&self) -> impl Iterator<Item = (u32, &DatabaseAccess)> {
        self.databases.iter().map(|(oid, access)| (*oid, access))
    }

    pub fn by_name(&self, name: &str) -> Option<&Arc<Role>> {
        self.by_oid.get(self.by_name.get(name)?)
    }

    pub fn by_oid(&self, oid: u32) -> Option<&Arc<Role>> {
        self.by_oid.get(&oid)
    }

    /// A role's name; for an OID without a role PostgreSQL's `unknown (OID=...)`.
    pub fn name_of(&self, oid: u32) -> String {
        self.by_oid(oid).map_or_else(|| format!("unknown (OID={oid})"), |role| role.name.clone())
    }

    /// All roles in the order of their OIDs.
    pub fn list(&self) -> Vec<Arc<Role>> {
        let mut all: Vec<Arc<Role>> = self.by_oid.values().cloned().collect();
        all.sort_by_key(|role| role.oid);
        all
    }

    pub fn is_superuser(&self, oid: u32) -> bool {
        self.by_oid(oid).is_some_and(|role| role.superuser)
    }

    /// Whether `member` has the privileges of `role` without SET ROLE: through memberships of roles that inherit. A
    /// superuser has everyone's.
    pub fn has_privileges_of(&self, member: u32, role: u32) -> bool {
        self.is_superuser(member) || self.reaches(member, role, true)
    }

    /// Whether `member` may SET ROLE to `role`: it is the role, or a member, directly or not, or a superuser.
    pub fn is_member_of(&self, member: u32, role: u32) -> bool {
        self.is_superuser(member) || self.reaches(member, role, false)
    }

    /// The roles whose privileges `member` has, itself first.
    pub fn privileges_from(&self, member: u32) -> Vec<u32> {
        let mut found = vec![member];
        let mut seen: HashSet<u32> = HashSet::from([member]);
        let mut at = 0;
        while let Some(role) = found.get(at).and_then(|oid| self.by_oid(*oid)) {
            at += 1;
            if role.inherit {
                found.extend(role.member_of.iter().map(|m| m.role).filter(|oid| seen.insert(*oid)));
            }
        }
        found
    }

    fn reaches(&self, member: u32, role: u32, inherits: bool) -> bool {
        let (mut open, mut seen) = (vec![member], HashSet::from([member]));
        while let Some(oid) = open.pop() {
            let Some(at) = self.by_oid(oid) else { continue };
            if oid == role {
                return true;
            }
            if at.inherit || !inherits {
                open.extend(at.member_of.iter().map(|m| m.role).filter(|oid| seen.insert(*oid)));
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_pass_through_roles_that_inherit() {
        let of = |role| vec![Membership { role, grantor: BOOTSTRAP_OID, admin: false }];
        let ann = Role { member_of: of(3), ..Role::new(1, "ann") };
        let bob = Role { member_of: of(3), inherit: false, ..Role::new(2, "bob") };
        let staff = Role { member_of: of(4), ..Role::new(3, "staff") };
        let roles = Roles::new(1, [ann, bob, staff, Role::new(4, "all")]);
        assert!(roles.has_privileges_of(1, 4) && roles.is_member_of(2, 4));
        assert!(!roles.has_privileges_of(2, 3), "bob does not inherit");
        assert!(!roles.is_member_of(4, 1) && roles.is_member_of(BOOTSTRAP_OID, 1));
        assert_eq!((roles.privileges_from(1), roles.privileges_from(2)), (vec![1, 3, 4], vec![2]));
    }
}
