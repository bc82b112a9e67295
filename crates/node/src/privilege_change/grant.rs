//! GRANT and REVOKE on tables, columns, sequences, publications and schema public (`ExecuteGrantStmt` in PostgreSQL).

use super::{Draft, Found, Key, refused};
use holdfast_sql::privilege_statement::{GrantOn, GrantStatement};
use holdfast_types::access::acl::{Change, INVALID_GRANT, best_grantor, changed};
use holdfast_types::access::check::{denied, sequence_name};
use holdfast_types::access::grants::default_acl;
use holdfast_types::access::{Acl, Privileges};
use holdfast_types::publication::Publication;
use holdfast_types::schema::{Table, TableKind};
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::collections::BTreeMap;
use std::sync::Arc;

const NOT_GRANTED: SqlState = SqlState("01007");
const NOT_REVOKED: SqlState = SqlState("01006");

/// The privileges that a statement names.
pub(super) struct Wanted {
    /// ALL PRIVILEGES, without columns.
    all: bool,
    whole: Privileges,
    /// By column.
    columns: Vec<(Privileges, Vec<String>)>,
}

impl Wanted {
    /// ALL PRIVILEGES.
    pub(super) fn all(possible: Privileges) -> Wanted {
        Wanted { all: true, whole: possible, columns: Vec::new() }
    }
}

/// What the messages of one object say.
struct Shown<'s> {
    /// `table`, `view`, `sequence`, `schema`.
    word: &'s str,
    name: &'s str,
    /// The column, for a grant on a column.
    column: Option<&'s str>,
}

pub fn invalid(privilege: Privileges, kind: &str) -> SqlError {
    let word = Privileges::ALL.iter().find(|(p, _, _)| privilege.contains(*p)).map_or("", |(_, _, word)| word);
    SqlError::new(INVALID_GRANT, format!("invalid privilege type {word} for {kind}"))
}

/// A privilege by its word.
pub fn named(word: &str) -> SqlResult<Privileges> {
    Privileges::by_word(word)
        .ok_or_else(|| SqlError::new(SqlState::SYNTAX_ERROR, format!("unrecognized privilege type \"{word}\"")))
}

fn wanted(statement: &GrantStatement, possible: Privileges, kind: &str) -> SqlResult<Wanted> {
    let mut wanted = Wanted { all: false, whole: Privileges::NONE, columns: Vec::new() };
    for (word, columns) in &statement.privileges {
        let privileges = word.as_deref().map(named).transpose()?;
        if columns.is_empty() {
            wanted.all |= privileges.is_none();
            let these = privileges.unwrap_or(possible);
            if !possible.contains(these) {
                return Err(invalid(these & !possible, kind));
            }
            wanted.whole |= these;
            continue;
        }
        if kind != "relation" {
            return Err(SqlError::new(INVALID_GRANT, "column privileges are only valid for relations"));
        }
        let these = privileges.unwrap_or(Privileges::OF_COLUMN);
        if !Privileges::OF_COLUMN.contains(these) {
            return Err(invalid(these & !Privileges::OF_COLUMN, "column"));
        }
        wanted.columns.push((these, columns.clone()));
    }
    Ok(wanted)
}

impl Draft<'_> {
    pub(super) fn grant(&mut self, statement: &GrantStatement) -> SqlResult<()> {
        if let Some(by) = &statement.by
            && self.role_named(by)? != self.role
        {
            return Err(refused("grantor must be current user"));
        }
        let schema = self.checker.schema;
        let (possible, kind) = match &statement.on {
            GrantOn::Tables(_) | GrantOn::All('r', _) | GrantOn::Future => {
                (Privileges::OF_TABLE | Privileges::OF_SEQUENCE, "relation")
            }
            GrantOn::Sequences(_) | GrantOn::All('S', _) => (Privileges::OF_SEQUENCE, "sequence"),
            GrantOn::Schemas(_) => (Privileges::OF_SCHEMA, "schema"),
            GrantOn::Publications(_) => (Privileges::OF_PUBLICATION, "publication"),
            GrantOn::All(..) => (Privileges::EXECUTE, "function"),
        };
        let mut found = Vec::new();
        let (mut schemas, mut publications) = (0, Vec::new());
        match &statement.on {
            GrantOn::Tables(names) => {
                for name in names {
                    found.push(self.find(name)?);
                }
            }
            GrantOn::Sequences(names) => {
                for name in names {
                    match self.find(name)? {
                        Found::Sequence(table) => found.push(Found::Sequence(table)),
                        Found::Table(table) => {
                            let message = format!("\"{}\" is not a sequence", table.name);
                            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
                        }
                    }
                }
            }
            GrantOn::All(letter, names) => {
                names.iter().try_for_each(|name| known_schema(name))?;
                let permanent = schema.tables.iter().filter(|t| !t.temp);
                match letter {
                    'r' => {
                        let (views, tables): (Vec<_>, Vec<_>) = permanent.partition(|t| is_view(t));
                        found.extend(tables.into_iter().chain(views).map(Found::Table));
                    }
                    'S' => found
                        .extend(permanent.filter(|t| holdfast_sql::catalogue::has_sequence(t)).map(Found::Sequence)),
                    _ => {}
                }
            }
            GrantOn::Schemas(names) => {
                names.iter().try_for_each(|name| known_schema(name))?;
                schemas = names.len();
            }
            GrantOn::Publications(names) => {
                for name in names {
                    let missing =
                        || SqlError::new(SqlState::UNDEFINED_OBJECT, format!("publication \"{name}\" does not exist"));
                    publications.push(schema.publications.by_name(name).ok_or_else(missing)?);
                }
            }
            GrantOn::Future => return Err(SqlError::internal("a grant of no object")),
        }
        let grantees = statement.to.iter().map(|name| self.grantee(name)).collect::<SqlResult<Vec<u32>>>()?;
        let change = Change { grant: statement.grant, option: statement.option, cascade: statement.cascade, grantees };
        let wanted = wanted(statement, possible, kind)?;
        for relation in found {
            match relation {
                Found::Table(table) => self.grant_table(table, &wanted, &change)?,
                Found::Sequence(table) => self.grant_sequence(table, &wanted, &change)?,
            }
        }
        publications.into_iter().try_for_each(|publication| self.grant_publication(publication, &wanted, &change))?;
        (0..schemas).try_for_each(|_| self.grant_schema(&wanted, &change))
    }

    pub(super) fn grant_table(&mut self, table: &Arc<Table>, wanted: &Wanted, change: &Change) -> SqlResult<()> {
        let whole = if wanted.all { wanted.whole & Privileges::OF_TABLE } else { wanted.whole };
        if !Privileges::OF_TABLE.contains(whole) {
            return Err(invalid(whole & !Privileges::OF_TABLE, "table"));
        }
        let owner = self.grants.owner(table.oid);
        let before = self.grants.of(table.oid).and_then(|g| g.acl.clone());
        let before = before.unwrap_or_else(|| default_acl(Privileges::OF_TABLE, owner));
        let mut by_column: BTreeMap<String, Privileges> = BTreeMap::new();
        for (privileges, names) in &wanted.columns {
            for name in names {
                let column = table.columns.iter().find(|c| c.name == *name).ok_or_else(|| {
                    let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
                    SqlError::new(SqlState::UNDEFINED_COLUMN, message)
                })?;
                *by_column.entry(column.name.clone()).or_default() |= *privileges;
            }
        }
        if !whole.is_empty() {
            // PostgreSQL names a view a table here.
            let shown = Shown { word: "table", name: &table.name, column: None };
            let has_any = !self.checker.on_table(&self.acting(self.role), table.oid).is_empty();
            let (grantor, these) = self.may(whole, wanted.all, &before, owner, has_any, change, &shown)?;
            let acl = changed(&before, change, these, grantor, owner)?;
            self.grants.of_mut(table.oid).acl = Some(acl);
            self.changed.insert(Key::Table(table.oid));
            // Revoking from the table also revokes from each of its columns.
            let columns = table.columns.iter().filter(|_| !change.grant && !(whole & Privileges::OF_COLUMN).is_empty());
            for column in columns {
                *by_column.entry(column.name.clone()).or_default() |= whole & Privileges::OF_COLUMN;
            }
        }
        // In the order of the table.
        for (at, column) in table.columns.iter().enumerate() {
            let Some(privileges) = by_column.get(&column.name) else { continue };
            let named = wanted.columns.iter().any(|(_, names)| names.contains(&column.name));
            self.grant_column(table, (at as i16 + 1, &column.name, named), *privileges, &before, change)?;
        }
        Ok(())
    }

    fn grant_column(
        &mut self,
        table: &Table,
        (number, name, named): (i16, &str, bool),
        privileges: Privileges,
        table_acl: &Acl,
        change: &Change,
    ) -> SqlResult<()> {
        let owner = self.grants.owner(table.oid);
        let before = self.grants.of(table.oid).and_then(|g| g.columns.get(name)).cloned().unwrap_or_default();
        let merged: Acl = table_acl.iter().chain(&before).copied().collect();
        let acting = self.acting(self.role);
        let on_column = self.checker.on_table(&acting, table.oid) | self.checker.on_column(&acting, table, number);
        // Of the columns that a REVOKE does not name, PostgreSQL begins with those of the system.
        let shown = Shown { word: "table", name: &table.name, column: Some(if named { name } else { "tableoid" }) };
        let all = privileges == Privileges::OF_COLUMN;
        let has_any = !(on_column & Privileges::OF_COLUMN).is_empty();
        let (grantor, these) = self.may(privileges, all, &merged, owner, has_any, change, &shown)?;
        let acl = changed(&before, change, these, grantor, owner)?;
        if acl == before {
            return Ok(());
        }
        let columns = &mut self.grants.of_mut(table.oid).columns;
        match acl.is_empty() {
            true => columns.remove(name),
            false => columns.insert(name.to_owned(), acl),
        };
        self.changed.insert(Key::Column(table.oid, name.to_owned()));
        Ok(())
    }

    pub(super) fn grant_sequence(&mut self, table: &Arc<Table>, wanted: &Wanted, change: &Change) -> SqlResult<()> {
        let name = sequence_name(table).unwrap_or_default();
        if !wanted.columns.is_empty() {
            return Err(SqlError::new(
                INVALID_GRANT,
                format!("sequence \"{name}\" only supports SELECT column privileges"),
            ));
        }
        let whole = wanted.whole & Privileges::OF_SEQUENCE;
        if whole != wanted.whole && !wanted.all {
            let message = format!("sequence \"{name}\" only supports USAGE, SELECT, and UPDATE privileges");
            self.notice("WARNING", INVALID_GRANT, message);
        }
        let owner = self.grants.owner(table.oid);
        let before = self.grants.of(table.oid).and_then(|g| g.sequence.clone());
        let before = before.unwrap_or_else(|| default_acl(Privileges::OF_SEQUENCE, owner));
        let has_any = !self.checker.on_sequence(&self.acting(self.role), table.oid).is_empty();
        let shown = Shown { word: "sequence", name: &name, column: None };
        let (grantor, these) = self.may(whole, wanted.all, &before, owner, has_any, change, &shown)?;
        let acl = changed(&before, change, these, grantor, owner)?;
        self.grants.of_mut(table.oid).sequence = Some(acl);
        self.changed.insert(Key::Sequence(table.oid));
        Ok(())
    }

    pub(super) fn grant_schema(&mut self, wanted: &Wanted, change: &Change) -> SqlResult<()> {
        let owner = self.grants.schema.owner;
        let before = self.grants.schema.acl.clone();
        let before = before.unwrap_or_else(|| default_acl(Privileges::OF_SCHEMA, owner));
        let has_any = !self.checker.on_schema(&self.acting(self.role)).is_empty();
        let shown = Shown { word: "schema", name: "public", column: None };
        let (grantor, these) = self.may(wanted.whole, wanted.all, &before, owner, has_any, change, &shown)?;
        self.grants.schema.acl = Some(changed(&before, change, these, grantor, owner)?);
        self.changed.insert(Key::Schema);
        Ok(())
    }

    pub(super) fn grant_publication(&mut self, of: &Publication, wanted: &Wanted, change: &Change) -> SqlResult<()> {
        let before = self.grants.publications.get(&of.number).cloned();
        let before = before.unwrap_or_else(|| default_acl(Privileges::OF_PUBLICATION, of.owner));
        let has_any = !self.checker.on_publication(&self.acting(self.role), of).is_empty();
        let shown = Shown { word: "publication", name: &of.name, column: None };
        let (grantor, these) = self.may(wanted.whole, wanted.all, &before, of.owner, has_any, change, &shown)?;
        let acl = changed(&before, change, these, grantor, of.owner)?;
        self.grants.publications.insert(of.number, acl);
        self.changed.insert(Key::Publication(of.number));
        Ok(())
    }

    /// As which role the change is made, and which of the privileges it may grant or revoke (`restrict_and_check_grant`).
    /// `has_any`: the role has some privilege on the object. The error is 42501.
    #[allow(clippy::too_many_arguments)]
    fn may(
        &mut self,
        privileges: Privileges,
        all: bool,
        acl: &Acl,
        owner: u32,
        has_any: bool,
        change: &Change,
        shown: &Shown<'_>,
    ) -> SqlResult<(u32, Privileges)> {
        let acting = self.acting(self.role);
        let (grantor, these) = match acting.with.contains(&owner) {
            // Also the database's owner as pg_database_owner.
            true => (owner, privileges),
            false => best_grantor(self.checker.roles, self.role, privileges, acl, owner),
        };
        let of_column = shown.column.map(|c| format!("column \"{c}\" of relation \"{}\"", shown.name));
        if these.is_empty() && !has_any {
            return Err(match (&of_column, change.grant) {
                (Some(what), _) => {
                    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied for {what}"))
                }
                (None, _) => denied(shown.word, shown.name),
            });
        }
        let what = of_column.unwrap_or_else(|| format!("\"{}\"", shown.name));
        let some = match (these.is_empty(), change.grant) {
            (true, true) => Some(("no privileges were granted", NOT_GRANTED)),
            (true, false) => Some(("no privileges could be revoked", NOT_REVOKED)),
            (false, true) if !all && these != privileges => Some(("not all privileges were granted", NOT_GRANTED)),
            (false, false) if !all && these != privileges => Some(("not all privileges could be revoked", NOT_REVOKED)),
            _ => None,
        };
        if let Some((message, state)) = some {
            self.notice("WARNING", state, format!("{message} for {what}"));
        }
        Ok((grantor, these))
    }
}

/// 3F000 unless it is the one schema of a user's objects.
pub fn known_schema(name: &str) -> SqlResult<()> {
    match name {
        "public" => Ok(()),
        "pg_catalog" | "information_schema" => Err(SqlError::unsupported(format!("privileges of the schema {name}"))),
        other => Err(SqlError::new(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{other}\" does not exist"))),
    }
}

/// Whether it is a view.
pub fn is_view(table: &Table) -> bool {
    table.kind == TableKind::View
}
