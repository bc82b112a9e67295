//! What GRANT, REVOKE, ALTER ... OWNER TO, REASSIGN OWNED, DROP OWNED and ALTER DEFAULT PRIVILEGES change: the rows of the
//! internal table, as schema changes.
//!
//! The rules are PostgreSQL's (`ExecuteGrantStmt`, `SetDefaultACL`, `ATExecChangeOwner`, `shdepReassignOwned`).
//!
//! Failure: PostgreSQL's errors; a role that may grant only some of the privileges, or none, gets its warnings.

mod defaults;
mod drop_owned;
mod grant;
mod owner;

pub use drop_owned::dependents;
use holdfast_sql::privilege_statement::{PrivilegeStatement, RelationName, RoleName};
use holdfast_sql::{Among, Notice};
use holdfast_store::privileges::{CREATE, Row};
use holdfast_store::publications;
use holdfast_store::schema_read::FIRST_OID;
use holdfast_store::subscriptions;
use holdfast_types::access::check::{Acting, sequence_name};
use holdfast_types::access::needs::Creates;
use holdfast_types::access::predefined::{BOOTSTRAP_OID, PUBLIC_OID};
use holdfast_types::access::{Acl, Checker, Grants, RoleChanges};
use holdfast_types::publication::Publications;
use holdfast_types::schema::Table;
use holdfast_types::subscription::Subscriptions;
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::collections::BTreeSet;
use std::sync::Arc;

/// 0A000 in PostgreSQL's words, which do not speak of support.
fn refused(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
}

/// A row of the internal table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Table(u32),
    Column(u32, String),
    Sequence(u32),
    Schema,
    Publication(u32),
    Default { role: u32, in_schema: bool, object: char },
}

/// A change that is being worked out.
pub struct Draft<'a> {
    checker: Checker<'a>,
    /// The role that makes the change.
    role: u32,
    session_role: u32,
    grants: Grants,
    publications: Publications,
    subscriptions: Subscriptions,
    changed: BTreeSet<Key>,
    notices: Vec<Notice>,
    /// Schema changes in addition to those of the internal table, before them.
    before: Vec<String>,
    on_databases: RoleChanges,
}

/// The schema changes of a statement, and its warnings.
pub struct Changes {
    pub steps: Vec<String>,
    /// Owners and grants of databases, which do not belong to this database alone.
    pub on_databases: RoleChanges,
    pub notices: Vec<Notice>,
}

/// A relation that a statement names.
enum Found<'a> {
    Table(&'a Arc<Table>),
    Sequence(&'a Arc<Table>),
}

impl<'a> Draft<'a> {
    pub fn new(checker: Checker<'a>, role: u32, session_role: u32) -> Draft<'a> {
        let grants = Grants::clone(&checker.schema.grants);
        Draft {
            checker,
            role,
            session_role,
            grants,
            publications: Publications::clone(&checker.schema.publications),
            subscriptions: Subscriptions::clone(&checker.schema.subscriptions),
            changed: BTreeSet::new(),
            notices: Vec::new(),
            before: Vec::new(),
            on_databases: RoleChanges::default(),
        }
    }

    /// What the statement changes.
    pub fn work_out(mut self, statement: &PrivilegeStatement) -> SqlResult<Changes> {
        match statement {
            PrivilegeStatement::Change(change) => self.grant(change)?,
            PrivilegeStatement::Owner { of, if_exists, to } => self.owner(of, *if_exists, to)?,
            PrivilegeStatement::Reassign { from, to } => self.reassign(from, to)?,
            PrivilegeStatement::DropOwned { roles, cascade } => self.drop_owned(roles, *cascade)?,
            PrivilegeStatement::Default { of, schemas, object, change } => {
                self.defaults(of, schemas, *object, change)?;
            }
        }
        let mut steps = std::mem::take(&mut self.before);
        steps.extend(self.steps());
        let before = &self.checker.schema.publications;
        steps.extend(publications::steps(before, &self.publications, |oid| oid - FIRST_OID));
        let before = &self.checker.schema.subscriptions;
        steps.extend(subscriptions::steps(before, &self.subscriptions, |oid| oid - FIRST_OID));
        Ok(Changes { steps, on_databases: self.on_databases, notices: self.notices })
    }

    fn steps(&self) -> Vec<String> {
        let create = (!self.grants.stored && !self.changed.is_empty()).then(|| CREATE.to_owned());
        create.into_iter().chain(self.changed.iter().flat_map(|key| self.row(key))).collect()
    }

    fn row(&self, key: &Key) -> Vec<String> {
        let of = |oid: &u32| self.grants.of(*oid);
        match key {
            Key::Table(oid) => {
                let grants = of(oid);
                let (owner, acl) = grants.map_or((BOOTSTRAP_OID, None), |g| (g.owner, g.acl.as_ref()));
                Row::Table { id: oid - FIRST_OID, owner, acl }.steps()
            }
            Key::Column(oid, name) => {
                Row::Column { id: oid - FIRST_OID, name, acl: of(oid).and_then(|g| g.columns.get(name)) }.steps()
            }
            Key::Sequence(oid) => {
                Row::Sequence { id: oid - FIRST_OID, acl: of(oid).and_then(|g| g.sequence.as_ref()) }.steps()
            }
            Key::Schema => {
                Row::Schema { owner: self.grants.schema.owner, acl: self.grants.schema.acl.as_ref() }.steps()
            }
            Key::Publication(number) => {
                Row::Publication { number: *number, acl: self.grants.publications.get(number) }.steps()
            }
            Key::Default { role, in_schema, object } => {
                let is_it = |d: &&_| defaults::is_of(d, *role, *in_schema, *object);
                let acl = self.grants.defaults.iter().find(is_it).map(|d| &d.acl);
                Row::Default { role: *role, in_schema: *in_schema, object: *object, acl }.steps()
            }
        }
    }

    fn acting(&self, role: u32) -> Acting {
        self.checker.acting(role)
    }

    /// Whether the role that makes the change is an owner's.
    fn owns(&self, owner: u32) -> bool {
        self.checker.owns(&self.acting(self.role), owner)
    }

    fn notice(&mut self, severity: &'static str, state: SqlState, message: String) {
        self.notices.push(Notice { severity, state, message });
    }

    /// A role by name; PUBLIC is none.
    fn role_named(&self, name: &RoleName) -> SqlResult<u32> {
        let name = match name {
            RoleName::CurrentRole => return Ok(self.role),
            RoleName::SessionUser => return Ok(self.session_role),
            RoleName::Public => "public",
            RoleName::Name(name) => name,
        };
        match self.checker.roles.by_name(name) {
            Some(role) => Ok(role.oid),
            None => Err(SqlError::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))),
        }
    }

    fn grantee(&self, name: &RoleName) -> SqlResult<u32> {
        if *name == RoleName::Public { Ok(PUBLIC_OID) } else { self.role_named(name) }
    }

    fn find(&self, relation: &RelationName) -> SqlResult<Found<'a>> {
        let schema = self.checker.schema;
        let name = &relation.name;
        let temporary = schema.table_among(true, name).is_some();
        if relation.among == Among::Temporary || (relation.among == Among::All && temporary) {
            return match temporary {
                true => Err(SqlError::unsupported(format!("owners and privileges of the temporary table \"{name}\""))
                    .with_hint("A temporary table belongs to its session.")),
                false => Err(undefined(name)),
            };
        }
        if let Some(table) = schema.table_among(false, name) {
            return Ok(Found::Table(table));
        }
        let permanent = || schema.tables.iter().filter(|t| !t.temp);
        if let Some(table) = permanent()
            .find(|t| holdfast_sql::catalogue::has_sequence(t) && sequence_name(t).is_some_and(|n| n == *name))
        {
            return Ok(Found::Sequence(table));
        }
        if permanent().any(|t| t.indexes.iter().any(|i| i.name == *name)) {
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is an index")));
        }
        // A database of SQLite's dialect knows names in any case.
        match schema.table(name).filter(|t| !t.temp && t.name.eq_ignore_ascii_case(name)) {
            Some(table) => Ok(Found::Table(table)),
            None => Err(undefined(name)),
        }
    }
}

fn undefined(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
}

/// Owner and grants of an object that a role has created: nothing to store for the bootstrap superuser without default
/// privileges.
pub fn of_created(checker: &Checker<'_>, role: u32, creates: &Creates) -> Vec<String> {
    let grants = &checker.schema.grants;
    let (owner, acl, sequence): (u32, Option<Acl>, Option<Acl>) = match creates.replaces {
        Some(old) => match grants.of(old) {
            Some(old) => (old.owner, old.acl.clone(), None),
            None => (BOOTSTRAP_OID, None, None),
        },
        None => {
            let sequence = creates.sequence.then(|| defaults::of_new(grants, role, 'S')).flatten();
            (role, defaults::of_new(grants, role, 'r'), sequence)
        }
    };
    if owner == BOOTSTRAP_OID && acl.is_none() && sequence.is_none() {
        return Vec::new();
    }
    let row = Row::Created { name: &creates.name, owner, acl: acl.as_ref(), sequence: sequence.as_ref() };
    let mut steps = if grants.stored { Vec::new() } else { vec![CREATE.to_owned()] };
    steps.extend(row.steps());
    // A replaced view keeps the grants on its columns.
    for (name, acl) in creates.replaces.and_then(|old| grants.of(old)).iter().flat_map(|old| &old.columns) {
        steps.extend(Row::CreatedColumn { of: &creates.name, name, acl }.steps());
    }
    steps
}
