//! A role as the list of databases ([`super::manifest`]) stores it.
//!
//! ```toml
//! [[role]]
//! name = "app"
//! oid = 16385         # absent: not a role but parameters for a name, from a list of format 2
//! attributes = ["inherit", "login"]   # also superuser, create_role, create_db, replication, bypass_rls
//! connection_limit = 5                # absent: none
//! password = "SCRAM-SHA-256$..."      # the verifier; absent: none
//! valid_until_us = 1798675200000000   # since 1970-01-01 UTC; absent: always
//! [role.parameters]                   # in every database
//! lock_timeout = "1s"
//! [[role.member_of]]
//! role = 16384
//! grantor = 10
//! admin = true                        # WITH ADMIN OPTION; absent where false
//! [[role.database_parameters]]        # in one database
//! database = 1
//! name = "work_mem"
//! value = "8MB"
//! ```
//!
//! Failure: an attribute or field of a newer program is an error of the list.

use crate::state::manifest::Parameters;
use holdfast_types::VolumeId;
use holdfast_types::access::{Membership, Role, RoleParameter};
use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct StoredRole {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oid: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<Attribute>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    connection_limit: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    password: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    valid_until_us: Option<i64>,
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    member_of: Vec<StoredMembership>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    database_parameters: Vec<DatabaseParameter>,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Attribute {
    Superuser,
    Inherit,
    CreateRole,
    CreateDb,
    Login,
    Replication,
    BypassRls,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
struct StoredMembership {
    role: u32,
    grantor: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    admin: bool,
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
struct DatabaseParameter {
    database: u32,
    name: String,
    value: String,
}

/// The attributes of a role and where it has them.
fn attributes(role: &mut Role) -> [(Attribute, &mut bool); 7] {
    [
        (Attribute::Superuser, &mut role.superuser),
        (Attribute::Inherit, &mut role.inherit),
        (Attribute::CreateRole, &mut role.create_role),
        (Attribute::CreateDb, &mut role.create_db),
        (Attribute::Login, &mut role.login),
        (Attribute::Replication, &mut role.replication),
        (Attribute::BypassRls, &mut role.bypass_rls),
    ]
}

impl StoredRole {
    /// Parameters for a user's name: there is no role of it.
    pub fn of_format_2(name: &str, parameters: Parameters) -> StoredRole {
        StoredRole { name: name.to_owned(), parameters, ..StoredRole::default() }
    }

    /// The role; `None` where only parameters for a name are stored.
    pub fn role(&self) -> Option<Role> {
        let mut role = Role::new(self.oid?, &self.name);
        for (attribute, on) in attributes(&mut role) {
            *on = self.attributes.contains(&attribute);
        }
        role.connection_limit = self.connection_limit.unwrap_or(-1);
        role.password = self.password.clone();
        role.valid_until_us = self.valid_until_us;
        let membership = |m: &StoredMembership| Membership { role: m.role, grantor: m.grantor, admin: m.admin };
        role.member_of = self.member_of.iter().map(membership).collect();
        let everywhere = self.parameters.iter().map(|(name, value)| (0, name, value));
        let in_one = self.database_parameters.iter().map(|p| (p.database, &p.name, &p.value));
        let parameter = |(database, name, value): (u32, &String, &String)| RoleParameter {
            database: VolumeId(database),
            name: name.clone(),
            value: value.clone(),
        };
        role.parameters = everywhere.chain(in_one).map(parameter).collect();
        Some(role)
    }
}

impl From<&Role> for StoredRole {
    fn from(role: &Role) -> StoredRole {
        let mut role = role.clone();
        let attributes = attributes(&mut role).into_iter().filter(|(_, on)| **on).map(|(attribute, _)| attribute);
        let attributes = attributes.collect();
        let (in_one, everywhere): (Vec<RoleParameter>, Vec<RoleParameter>) =
            role.parameters.into_iter().partition(|p| p.database.0 != 0);
        let stored = |m: Membership| StoredMembership { role: m.role, grantor: m.grantor, admin: m.admin };
        let in_database = |p: RoleParameter| DatabaseParameter { database: p.database.0, name: p.name, value: p.value };
        StoredRole {
            name: role.name,
            oid: Some(role.oid),
            attributes,
            connection_limit: Some(role.connection_limit).filter(|limit| *limit >= 0),
            password: role.password,
            valid_until_us: role.valid_until_us,
            parameters: everywhere.into_iter().map(|p| (p.name, p.value)).collect(),
            member_of: role.member_of.into_iter().map(stored).collect(),
            database_parameters: in_one.into_iter().map(in_database).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_survives_being_stored() {
        let parameter = |database, name: &str| RoleParameter {
            database: VolumeId(database),
            name: name.to_owned(),
            value: "x\n\"".to_owned(),
        };
        let full = Role {
            connection_limit: 0,
            password: Some("SCRAM-SHA-256$4096:s$a:b".into()),
            valid_until_us: Some(i64::MIN),
            member_of: vec![Membership { role: 7, grantor: 10, admin: true }],
            parameters: vec![parameter(0, "a"), parameter(3, "a.b")],
            ..Role::bootstrap()
        };
        for role in [full, Role::new(16384, "x"), Role::new(16385, "\u{1f511} \"'\n]")] {
            let text = toml::to_string(&StoredRole::from(&role)).unwrap();
            assert_eq!(toml::from_str::<StoredRole>(&text).unwrap().role().unwrap(), role, "{text}");
        }
    }
}
