//! GRANT and REVOKE, ownership and default privileges, as they were written.

use crate::names::Among;

/// A statement about owners and privileges.
#[derive(Clone, Debug, PartialEq)]
pub enum PrivilegeStatement {
    Change(Box<GrantStatement>),
    /// ALTER ... OWNER TO.
    Owner {
        of: Owned,
        /// IF EXISTS.
        if_exists: bool,
        to: RoleName,
    },
    Reassign {
        from: Vec<RoleName>,
        to: RoleName,
    },
    DropOwned {
        roles: Vec<RoleName>,
        cascade: bool,
    },
    /// ALTER DEFAULT PRIVILEGES.
    Default {
        /// FOR ROLE; empty for the current role.
        of: Vec<RoleName>,
        /// IN SCHEMA, by name.
        schemas: Vec<String>,
        /// PostgreSQL's `defaclobjtype`: `r`, `S`, `n`; `f` and `T` for kinds that Holdfast does not have.
        object: char,
        change: Box<GrantStatement>,
    },
}

/// What gets another owner.
#[derive(Clone, Debug, PartialEq)]
pub enum Owned {
    Table(RelationName),
    View(RelationName),
    Sequence(RelationName),
    Schema(String),
}

/// A relation by name.
#[derive(Clone, Debug, PartialEq)]
pub struct RelationName {
    pub among: Among,
    pub name: String,
}

/// A role by name.
#[derive(Clone, Debug, PartialEq)]
pub enum RoleName {
    Name(String),
    Public,
    CurrentRole,
    SessionUser,
}

/// GRANT or REVOKE.
#[derive(Clone, Debug, PartialEq)]
pub struct GrantStatement {
    pub grant: bool,
    /// WITH GRANT OPTION, or GRANT OPTION FOR.
    pub option: bool,
    pub cascade: bool,
    /// The words, `None` for ALL, each with the columns after it.
    pub privileges: Vec<(Option<String>, Vec<String>)>,
    pub on: GrantOn,
    pub to: Vec<RoleName>,
    pub by: Option<RoleName>,
}

/// The objects of a GRANT.
#[derive(Clone, Debug, PartialEq)]
pub enum GrantOn {
    Tables(Vec<RelationName>),
    Sequences(Vec<RelationName>),
    Schemas(Vec<String>),
    /// Holdfast's own: SELECT, which lets a role follow them.
    Publications(Vec<String>),
    /// All of schemas, by PostgreSQL's letter of the kind (`r`, `S`, `f`).
    All(char, Vec<String>),
    /// The objects that ALTER DEFAULT PRIVILEGES is about.
    Future,
}
