//! The SQL functions that ask for privileges: `has_table_privilege` and the like, `acldefault`, and which rows of
//! `information_schema` a role sees.
//!
//! Failure: PostgreSQL's errors for names that do not exist; NULL for numbers without an object.

use holdfast_sql::catalogue::{self, acl_value};
use holdfast_types::access::check::{Acting, sequence_name};
use holdfast_types::access::grants::default_acl;
use holdfast_types::access::predefined::PUBLIC_OID;
use holdfast_types::access::{Acl, AclItem, Checker, Privileges, Roles};
use holdfast_types::schema::{Schema, Table};
use holdfast_types::{SqlError, SqlResult, SqlState, Value, ValueRef};
use std::sync::Arc;

/// What the functions are answered from.
pub struct Asked {
    pub schema: Arc<Schema>,
    pub roles: Arc<Roles>,
    pub database_oid: u32,
    /// All databases, with their OIDs.
    pub databases: Vec<(String, u32)>,
}

/// One privilege that is asked for.
struct Wanted {
    privilege: Privileges,
    option: bool,
}

fn text(value: &ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    }
}

fn number(value: &ValueRef<'_>) -> Option<u32> {
    if let ValueRef::Int(n) = value { u32::try_from(*n).ok() } else { None }
}

fn wanted(words: &str, possible: Privileges) -> SqlResult<Vec<Wanted>> {
    let one = |word: &str| {
        let word = word.trim();
        let upper = word.to_ascii_uppercase();
        let (name, option) = match upper.strip_suffix(" WITH GRANT OPTION") {
            Some(name) => (name.trim_end(), true),
            None => (upper.as_str(), false),
        };
        match Privileges::by_word(name).filter(|p| possible.contains(*p)) {
            Some(privilege) => Ok(Wanted { privilege, option }),
            None => {
                let message = format!("unrecognized privilege type: \"{word}\"");
                Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
            }
        }
    };
    words.split(',').map(one).collect()
}

/// The relation that is meant.
enum Relation<'a> {
    Table(&'a Table),
    Sequence(&'a Table),
    Catalogue,
}

impl Asked {
    fn checker(&self) -> Checker<'_> {
        let database = self.roles.database(self.database_oid);
        Checker {
            schema: &self.schema,
            roles: &self.roles,
            database_owner: database.owner,
            on_database: Privileges::NONE,
        }
    }

    /// A role by name or OID; PUBLIC is a name here.
    fn role(&self, value: &ValueRef<'_>) -> SqlResult<Option<u32>> {
        match text(value) {
            Some(name) if name == "public" => Ok(Some(PUBLIC_OID)),
            Some(name) => match self.roles.by_name(&name) {
                Some(role) => Ok(Some(role.oid)),
                None => Err(SqlError::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))),
            },
            None => Ok(number(value)),
        }
    }

    /// The table whose serial column's sequence is meant.
    fn sequence(&self, is_it: impl Fn(&Table) -> bool) -> Option<&Table> {
        let tables = self.schema.tables.iter().map(|table| &**table);
        tables.filter(|t| !t.temp && catalogue::has_sequence(t)).find(|t| is_it(t))
    }

    fn relation(&self, value: &ValueRef<'_>) -> SqlResult<Option<Relation<'_>>> {
        if let Some(oid) = number(value) {
            let found = self.schema.by_oid(oid).map(|t| Relation::Table(t));
            let of_catalogue = || {
                let is_it = |t: &&catalogue::CatalogTable| catalogue::of_catalogue_table(t.schema, t.name) == Some(oid);
                catalogue::tables().find(is_it).map(|_| Relation::Catalogue)
            };
            let of_sequence = || self.sequence(|table| catalogue::sequence_oid(table) == oid).map(Relation::Sequence);
            return Ok(found.or_else(of_sequence).or_else(of_catalogue));
        }
        let Some(given) = text(value) else { return Ok(None) };
        let (schema, name) = parts(&given);
        let table = self.schema.table_among(true, &name).or_else(|| self.schema.table_among(false, &name));
        if let Some(table) = table.filter(|_| schema.as_deref().is_none_or(|s| s == "public")) {
            return Ok(Some(Relation::Table(table)));
        }
        if let Some(table) = self.sequence(|table| sequence_name(table).as_deref() == Some(&name)) {
            return Ok(Some(Relation::Sequence(table)));
        }
        match catalogue::find(schema.as_deref(), &name) {
            Some(_) => Ok(Some(Relation::Catalogue)),
            None => Err(SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{given}\" does not exist"))),
        }
    }

    /// `hf_has_privilege`: kind of object, role, object, column, privileges.
    pub fn has(&self, args: &[ValueRef<'_>]) -> SqlResult<Value> {
        let [kind, user, object, column, words] = args else { return Ok(Value::Null) };
        let (Some(kind), Some(words)) = (text(kind), text(words)) else { return Ok(Value::Null) };
        if [user, object, column].iter().any(|v| matches!(v, ValueRef::Null)) {
            return Ok(Value::Null);
        }
        let Some(role) = self.role(user)? else { return Ok(Value::Null) };
        let checker = self.checker();
        let mut acting = checker.acting(role);
        acting.with.retain(|oid| role != PUBLIC_OID || *oid == PUBLIC_OID);
        let found = match kind.as_str() {
            "schema" => self.on_schema(&checker, &acting, object, &words)?,
            "database" => self.on_database(&acting, object, &words)?,
            _ => self.on_relation(&checker, &acting, (&kind, object, column), &words)?,
        };
        Ok(found.map_or(Value::Null, |has| Value::Int(i64::from(has))))
    }

    fn on_schema(
        &self,
        checker: &Checker<'_>,
        acting: &Acting,
        object: &ValueRef<'_>,
        words: &str,
    ) -> SqlResult<Option<bool>> {
        let oid = match text(object) {
            Some(name) => catalogue::namespace_oid(&name).ok_or_else(|| {
                SqlError::new(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"))
            })?,
            None => number(object).unwrap_or_default(),
        };
        let wanted = wanted(words, Privileges::OF_SCHEMA)?;
        let grants = &self.schema.grants.schema;
        let acl = grants.acl.clone().unwrap_or_else(|| default_acl(Privileges::OF_SCHEMA, grants.owner));
        Ok(match oid {
            catalogue::PUBLIC_OID => Some(any(&wanted, acting, grants.owner, &acl, checker.on_schema(acting))),
            _ => Some(acting.superuser || wanted.iter().any(|w| w.privilege == Privileges::USAGE && !w.option)),
        })
    }

    fn on_database(&self, acting: &Acting, object: &ValueRef<'_>, words: &str) -> SqlResult<Option<bool>> {
        let oid = match text(object) {
            Some(name) => match self.databases.iter().find(|(n, _)| *n == name) {
                Some((_, oid)) => *oid,
                None => {
                    let message = format!("database \"{name}\" does not exist");
                    return Err(SqlError::new(SqlState("3D000"), message));
                }
            },
            None => match number(object).filter(|n| self.databases.iter().any(|(_, oid)| oid == n)) {
                Some(oid) => oid,
                None => return Ok(None),
            },
        };
        let wanted = wanted(words, Privileges::OF_DATABASE)?;
        let database = self.roles.database(oid);
        let acl = database.grants();
        let has = holdfast_types::access::acl::granted_to(&acl, &acting.with);
        Ok(Some(any(&wanted, acting, database.owner, &acl, has)))
    }

    fn on_relation(
        &self,
        checker: &Checker<'_>,
        acting: &Acting,
        (kind, object, column): (&str, &ValueRef<'_>, &ValueRef<'_>),
        words: &str,
    ) -> SqlResult<Option<bool>> {
        let Some(relation) = self.relation(object)? else { return Ok(None) };
        let possible = match kind {
            "sequence" => Privileges::OF_SEQUENCE,
            "table" => Privileges::OF_TABLE,
            _ => Privileges::OF_COLUMN,
        };
        let wanted = wanted(words, possible)?;
        let table = match relation {
            Relation::Catalogue => {
                return Ok(Some(
                    acting.superuser || wanted.iter().any(|w| w.privilege == Privileges::SELECT && !w.option),
                ));
            }
            Relation::Sequence(table) => {
                let owner = self.schema.grants.owner(table.oid);
                let acl = self.schema.grants.of(table.oid).and_then(|g| g.sequence.clone());
                let acl = acl.unwrap_or_else(|| default_acl(Privileges::OF_SEQUENCE, owner));
                return Ok(Some(any(&wanted, acting, owner, &acl, checker.on_sequence(acting, table.oid))));
            }
            Relation::Table(table) if kind == "sequence" => {
                let message = format!("\"{}\" is not a sequence", table.name);
                return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
            }
            Relation::Table(table) => table,
        };
        if table.temp {
            return Ok(Some(true));
        }
        let owner = self.schema.grants.owner(table.oid);
        let acl = self.schema.grants.of(table.oid).and_then(|g| g.acl.clone());
        let acl = acl.unwrap_or_else(|| default_acl(Privileges::OF_TABLE, owner));
        let of_table = any(&wanted, acting, owner, &acl, checker.on_table(acting, table.oid));
        let of_column = |number: i16| {
            let none = Acl::new();
            let name = usize::try_from(number - 1).ok().and_then(|at| table.columns.get(at)).map(|c| &c.name);
            let grants = self.schema.grants.of(table.oid);
            let acl = name.and_then(|name| grants?.columns.get(name)).unwrap_or(&none);
            any(&wanted, acting, owner, acl, checker.on_column(acting, table, number))
        };
        let count = table.columns.len() as i16;
        Ok(match kind {
            "table" => Some(of_table),
            "any column" => Some(of_table || (1..=count).any(of_column)),
            _ => {
                let at = match text(column) {
                    Some(name) => match table.columns.iter().position(|c| c.name == name) {
                        Some(at) => at as i16 + 1,
                        None => {
                            let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
                            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
                        }
                    },
                    None => number(column).and_then(|n| i16::try_from(n).ok()).unwrap_or_default(),
                };
                if at < 1 || at > count { None } else { Some(of_table || of_column(at)) }
            }
        })
    }

    /// `hf_may_see`: the view, the role, and the names in its row.
    pub fn may_see(&self, args: &[ValueRef<'_>]) -> SqlResult<Value> {
        let [view, user, a, b, c] = args else { return Ok(Value::Null) };
        let (Some(view), Some(a), Some(b), Some(c)) = (text(view), text(a), text(b), text(c)) else {
            return Ok(Value::Int(0));
        };
        let checker = self.checker();
        let acting = checker.acting(self.role(user)?.unwrap_or_default());
        let of_roles = ["_privileges", "_grants", "_roles", "_authorizations"];
        if of_roles.iter().any(|end| view.ends_with(end)) {
            // PUBLIC is no enabled role, but what it has, every role has.
            let public = view.ends_with("_privileges");
            let enabled = |name: &str| match name {
                "PUBLIC" => public,
                name => self.roles.by_name(name).is_some_and(|r| checker.owns(&acting, r.oid)),
            };
            return Ok(Value::Int(i64::from(enabled(&b) || enabled(&c))));
        }
        if acting.superuser || a != "public" {
            return Ok(Value::Int(1));
        }
        if view == "sequences" {
            let Some(table) = self.sequence(|table| sequence_name(table).as_deref() == Some(&b)) else {
                return Ok(Value::Int(0));
            };
            let owns = checker.owns(&acting, self.schema.grants.owner(table.oid));
            return Ok(Value::Int(i64::from(owns || !checker.on_sequence(&acting, table.oid).is_empty())));
        }
        let Some(table) = self.schema.table_among(false, &b) else { return Ok(Value::Int(0)) };
        let owns = checker.owns(&acting, self.schema.grants.owner(table.oid));
        let on_table = checker.on_table(&acting, table.oid);
        let on = |number: i16| checker.on_column(&acting, table, number);
        let count = table.columns.len() as i16;
        let changes = !Privileges::SELECT;
        let sees = match view.as_str() {
            "table_constraints" => {
                !(on_table & changes).is_empty() || (1..=count).any(|n| !(on(n) & changes).is_empty())
            }
            "columns" | "key_column_usage" => {
                let at = table.columns.iter().position(|column| column.name == c);
                !(on_table & Privileges::OF_COLUMN).is_empty() || at.is_some_and(|at| !on(at as i16 + 1).is_empty())
            }
            _ => checker.any_on_table(&acting, table),
        };
        Ok(Value::Int(i64::from(owns || sees)))
    }

    /// `hf_acldefault`: the kind of object, its owner.
    pub fn acl_default(&self, args: &[ValueRef<'_>]) -> SqlResult<Value> {
        let [kind, owner] = args else { return Ok(Value::Null) };
        let (Some(kind), Some(owner)) = (text(kind), number(owner)) else { return Ok(Value::Null) };
        let (all, public) = match kind.as_str() {
            "r" => (Privileges::OF_TABLE, Privileges::NONE),
            "c" => (Privileges::NONE, Privileges::NONE),
            "s" => (Privileges::OF_SEQUENCE, Privileges::NONE),
            "n" => (Privileges::OF_SCHEMA, Privileges::NONE),
            "d" => (Privileges::OF_DATABASE, Privileges::TEMPORARY | Privileges::CONNECT),
            "f" => (Privileges::EXECUTE, Privileges::EXECUTE),
            "T" | "l" => (Privileges::USAGE, Privileges::USAGE),
            other => {
                let message = format!("unrecognized objtype abbreviation: {other}");
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
            }
        };
        let mut acl = Acl::new();
        if !public.is_empty() {
            acl.push(AclItem { grantee: PUBLIC_OID, grantor: owner, granted: public, grantable: Privileges::NONE });
        }
        if !all.is_empty() {
            acl.extend(default_acl(all, owner));
        }
        Ok(acl_value(&self.roles, Some(acl)))
    }
}

/// Whether a role has one of the privileges. An owner has all grant options.
fn any(wanted: &[Wanted], acting: &Acting, owner: u32, acl: &Acl, has: Privileges) -> bool {
    let grantable = |privilege: Privileges| {
        acting.superuser
            || acting.with.contains(&owner)
            || acl.iter().any(|item| acting.with.contains(&item.grantee) && item.grantable.contains(privilege))
    };
    let holds = |w: &Wanted| match w.option {
        true => grantable(w.privilege),
        false => acting.superuser || has.contains(w.privilege),
    };
    wanted.iter().any(holds)
}

/// The schema, if one was written, and the name: folded unless quoted.
fn parts(given: &str) -> (Option<String>, String) {
    let fold = |part: &str| match part.strip_prefix('"').and_then(|p| p.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => part.to_lowercase(),
    };
    match given.trim().split_once('.') {
        Some((schema, name)) => (Some(fold(schema)), fold(name)),
        None => (None, fold(given.trim())),
    }
}
