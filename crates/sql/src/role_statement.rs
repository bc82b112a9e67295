//! Statements about roles and about the access to databases, as they were written. What they change depends on the role that
//! runs them and on all other roles, so the session computes it.

use holdfast_types::ParameterChange;

/// A role where a statement names one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleSpec {
    Name(String),
    Public,
    /// CURRENT_USER or CURRENT_ROLE.
    CurrentRole,
    SessionUser,
}

/// An option of CREATE ROLE and ALTER ROLE.
#[derive(Clone, PartialEq)]
pub enum RoleOption {
    Superuser(bool),
    CreateDb(bool),
    CreateRole(bool),
    Inherit(bool),
    Login(bool),
    Replication(bool),
    BypassRls(bool),
    ConnectionLimit(i32),
    /// As it was written: a password, or its verifier. `None` is PASSWORD NULL.
    Password(Option<String>),
    ValidUntil(String),
    /// IN ROLE, IN GROUP.
    InRole(Vec<RoleSpec>),
    /// ROLE, USER.
    Members(Vec<RoleSpec>),
    /// ADMIN.
    Admins(Vec<RoleSpec>),
    SysId,
}

/// Not the password: what is written with `{:?}` may reach a log.
impl std::fmt::Debug for RoleOption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.words())
    }
}

impl RoleOption {
    /// What distinguishes it from other options: each may be written once.
    pub fn words(&self) -> &'static str {
        match self {
            RoleOption::Superuser(_) => "SUPERUSER",
            RoleOption::CreateDb(_) => "CREATEDB",
            RoleOption::CreateRole(_) => "CREATEROLE",
            RoleOption::Inherit(_) => "INHERIT",
            RoleOption::Login(_) => "LOGIN",
            RoleOption::Replication(_) => "REPLICATION",
            RoleOption::BypassRls(_) => "BYPASSRLS",
            RoleOption::ConnectionLimit(_) => "CONNECTION LIMIT",
            RoleOption::Password(_) => "PASSWORD",
            RoleOption::ValidUntil(_) => "VALID UNTIL",
            RoleOption::InRole(_) => "IN ROLE",
            RoleOption::Members(_) => "ROLE",
            RoleOption::Admins(_) => "ADMIN",
            RoleOption::SysId => "SYSID",
        }
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub enum RoleStatement {
    Create {
        name: String,
        /// CREATE USER: LOGIN unless an option says otherwise.
        user: bool,
        options: Vec<RoleOption>,
    },
    Alter {
        role: RoleSpec,
        options: Vec<RoleOption>,
    },
    /// ALTER GROUP ... ADD USER and DROP USER.
    AlterGroup {
        role: RoleSpec,
        add: bool,
        members: Vec<RoleSpec>,
    },
    Rename {
        name: String,
        to: String,
    },
    Drop {
        roles: Vec<RoleSpec>,
        if_exists: bool,
    },
    /// GRANT and REVOKE of roles.
    Membership {
        grant: bool,
        roles: Vec<String>,
        members: Vec<RoleSpec>,
        /// WITH ADMIN OPTION, or ADMIN OPTION FOR.
        admin: bool,
        by: Option<RoleSpec>,
    },
    /// ALTER ROLE ... SET and RESET.
    Parameter {
        role: RoleSpec,
        database: Option<String>,
        change: ParameterChange,
    },
    /// GRANT and REVOKE ON DATABASE.
    OnDatabase(Box<DatabaseGrant>),
    DatabaseOwner {
        database: String,
        to: RoleSpec,
    },
    DatabaseLimit {
        database: String,
        limit: i32,
    },
}

/// GRANT or REVOKE ON DATABASE.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseGrant {
    pub grant: bool,
    /// The words; empty for ALL.
    pub privileges: Vec<String>,
    pub databases: Vec<String>,
    pub grantees: Vec<RoleSpec>,
    /// WITH GRANT OPTION, or GRANT OPTION FOR.
    pub option: bool,
    pub cascade: bool,
    pub by: Option<RoleSpec>,
}
