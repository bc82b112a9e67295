//! What a statement about publications changes, by the role that runs it.
//!
//! The rules, and the order of the checks, are PostgreSQL's (`CreatePublication`, `AlterPublication`, `OpenTableList`,
//! `publication_add_relation`).
//!
//! Failure: PostgreSQL's errors. In a database of SQLite's dialect 0A000.

use super::filter;
use crate::catalogue;
use crate::context::Context;
use crate::names::Among;
use crate::privilege_statement::{RelationName, RoleName};
use crate::publication_statement::{Alteration, Content, PublicationStatement, WrittenOptions, WrittenTable};
use crate::subscriptions::partition;
use holdfast_types::access::check::{denied, not_owner, sequence_name, word_of};
use holdfast_types::access::{Checker, DatabaseAccess, Privileges};
use holdfast_types::publication::{Publication, PublicationOptions, Publications, PublishedTable};
use holdfast_types::schema::{Dialect, Table, TableKind};
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// The role that runs a statement.
pub struct Actor<'a> {
    pub checker: Checker<'a>,
    pub role: u32,
    pub session_role: u32,
    /// Owner and grants of the database.
    pub database: DatabaseAccess,
}

impl Actor<'_> {
    /// The OID of a role by name.
    pub fn role_named(&self, name: &RoleName) -> SqlResult<u32> {
        let name = match name {
            RoleName::CurrentRole => return Ok(self.role),
            RoleName::SessionUser => return Ok(self.session_role),
            RoleName::Public => "public",
            RoleName::Name(name) => name,
        };
        let found = self.checker.roles.by_name(name).map(|role| role.oid);
        let message = || format!("role \"{name}\" does not exist");
        found.ok_or_else(|| SqlError::new(SqlState::UNDEFINED_OBJECT, message()))
    }
}

/// The publications after a statement.
pub struct Outcome {
    pub publications: Publications,
    /// What is reported to the client, with severities.
    pub notices: Vec<(&'static str, SqlError)>,
}

/// The publications after the statement.
pub fn work_out(statement: &PublicationStatement, actor: &Actor<'_>, context: &Context<'_>) -> SqlResult<Outcome> {
    if context.dialect == Dialect::Sqlite {
        return Err(SqlError::unsupported("a publication in a database of SQLite's dialect"));
    }
    let publications = Publications::clone(&context.schema.publications);
    let mut work = Work { actor, context, outcome: Outcome { publications, notices: Vec::new() } };
    match statement {
        PublicationStatement::Create { name, content, options } => work.create(name, content, options)?,
        PublicationStatement::Alter { name, change } => work.alter(name, change)?,
        PublicationStatement::Drop { names, if_exists } => work.drop(names, *if_exists)?,
        PublicationStatement::Comment(name) => work.comment(name)?,
    }
    partition::refuse_subscribed(&work.outcome.publications, context.schema)?;
    Ok(work.outcome)
}

/// A table that a statement names, as it is found.
struct Opened<'a> {
    table: &'a Arc<Table>,
    written: &'a WrittenTable,
    /// The condition, bound.
    filter: Option<String>,
}

struct Work<'a> {
    actor: &'a Actor<'a>,
    context: &'a Context<'a>,
    outcome: Outcome,
}

fn error(state: &'static str, message: String) -> SqlError {
    SqlError::new(SqlState(state), message)
}

fn undefined(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("publication \"{name}\" does not exist"))
}

fn duplicate(name: &str) -> SqlError {
    SqlError::new(SqlState::DUPLICATE_OBJECT, format!("publication \"{name}\" already exists"))
}

impl<'a> Work<'a> {
    fn notice(&mut self, severity: &'static str, notice: SqlError) {
        self.outcome.notices.push((severity, notice));
    }

    fn is_superuser(&self, role: u32) -> bool {
        self.actor.checker.roles.is_superuser(role)
    }

    fn owns(&self, owner: u32) -> bool {
        let checker = &self.actor.checker;
        checker.owns(&checker.acting(self.actor.role), owner)
    }

    /// The place of a publication by name: 42704 if there is none, 42501 unless the role is its owner's.
    fn owned(&self, name: &str) -> SqlResult<usize> {
        let list = &self.outcome.publications.list;
        let at = list.iter().position(|p| p.name == name).ok_or_else(|| undefined(name))?;
        if self.owns(list[at].owner) { Ok(at) } else { Err(not_owner("publication", name)) }
    }

    fn create(&mut self, name: &str, content: &'a Content, options: &WrittenOptions) -> SqlResult<()> {
        if !self.is_superuser(self.actor.role) && !self.actor.checker.on_database.contains(Privileges::CREATE) {
            return Err(denied("database", self.context.database));
        }
        let all_tables = *content == Content::AllTables;
        if all_tables && !self.is_superuser(self.actor.role) {
            let message = "must be superuser to create FOR ALL TABLES publication";
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        if self.outcome.publications.by_name(name).is_some() {
            return Err(duplicate(name));
        }
        let mut publication = Publication {
            number: self.outcome.publications.next_number(),
            name: name.to_owned(),
            owner: self.actor.role,
            all_tables,
            options: with_written(PublicationOptions::default(), options),
            tables: Vec::new(),
        };
        if let Content::Tables(tables) = content {
            for opened in self.opened(tables)? {
                self.add(&mut publication, &opened)?;
            }
        }
        self.outcome.publications.list.push(publication);
        Ok(())
    }

    fn alter(&mut self, name: &str, change: &'a Alteration) -> SqlResult<()> {
        if let Alteration::Rename(new) = change {
            return self.rename(name, new);
        }
        let at = self.owned(name)?;
        let mut publication = self.outcome.publications.list[at].clone();
        match change {
            Alteration::Options(options) => publication.options = with_written(publication.options, options),
            Alteration::Owner(to) => self.give(&mut publication, to)?,
            Alteration::Add(tables) => {
                check_lists_tables(&publication)?;
                for opened in self.opened(tables)? {
                    self.add(&mut publication, &opened)?;
                }
            }
            Alteration::Set(tables) => {
                check_lists_tables(&publication)?;
                let opened = self.opened(tables)?;
                publication.tables.clear();
                for opened in opened {
                    self.add(&mut publication, &opened)?;
                }
            }
            Alteration::Drop(tables) => {
                check_lists_tables(&publication)?;
                self.take_out(&mut publication, tables)?;
            }
            Alteration::Rename(_) => {}
        }
        self.outcome.publications.list[at] = publication;
        Ok(())
    }

    fn rename(&mut self, name: &str, new: &str) -> SqlResult<()> {
        let at = self.owned(name)?;
        if self.outcome.publications.by_name(new).is_some() {
            return Err(duplicate(new));
        }
        self.outcome.publications.list[at].name = new.to_owned();
        Ok(())
    }

    /// OWNER TO.
    fn give(&self, publication: &mut Publication, to: &RoleName) -> SqlResult<()> {
        let roles = self.actor.checker.roles;
        let new = self.actor.role_named(to)?;
        if new == publication.owner {
            return Ok(());
        }
        if !self.is_superuser(self.actor.role) {
            if !roles.is_member_of(self.actor.role, new) {
                let message = format!("must be member of role \"{}\"", roles.name_of(new));
                return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
            }
            if !self.actor.database.privileges(roles, new).contains(Privileges::CREATE) {
                return Err(denied("database", self.context.database));
            }
            if publication.all_tables && !self.is_superuser(new) {
                let message = format!("permission denied to change owner of publication \"{}\"", publication.name);
                return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
                    .with_hint("The owner of a FOR ALL TABLES publication must be a superuser."));
            }
        }
        publication.owner = new;
        Ok(())
    }

    fn drop(&mut self, names: &[String], if_exists: bool) -> SqlResult<()> {
        let mut gone = Vec::new();
        for name in names {
            match self.owned(name) {
                Ok(at) => gone.push(self.outcome.publications.list[at].number),
                Err(e) if if_exists && e.state() == SqlState::UNDEFINED_OBJECT => {
                    let message = format!("publication \"{name}\" does not exist, skipping");
                    self.notice("NOTICE", error("00000", message));
                }
                Err(e) => return Err(e),
            }
        }
        self.outcome.publications.list.retain(|p| !gone.contains(&p.number));
        Ok(())
    }

    fn comment(&mut self, name: &str) -> SqlResult<()> {
        self.owned(name)?;
        let message = "COMMENT has no effect: comments are not stored";
        self.notice("WARNING", error("0A000", message.to_owned()));
        Ok(())
    }

    /// Finds the tables of a list, each once, and binds the conditions.
    fn opened(&self, tables: &'a [WrittenTable]) -> SqlResult<Vec<Opened<'a>>> {
        let mut opened: Vec<Opened<'a>> = Vec::new();
        for written in tables {
            let table = self.find(&written.relation)?;
            let Some(first) = opened.iter().find(|o| o.table.oid == table.oid) else {
                opened.push(Opened { table, written, filter: None });
                continue;
            };
            let conflicting = |what: &str| {
                let message = format!("conflicting or redundant {what} for table \"{}\"", table.name);
                Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message))
            };
            if written.filter.is_some() || first.written.filter.is_some() {
                return conflicting("WHERE clauses");
            }
            if written.columns.is_some() || first.written.columns.is_some() {
                return conflicting("column lists");
            }
        }
        for opened in &mut opened {
            if let Some(query) = &opened.written.filter {
                opened.filter = Some(filter::bound(query, opened.table, self.context)?);
            }
        }
        Ok(opened)
    }

    fn find(&self, relation: &RelationName) -> SqlResult<&'a Arc<Table>> {
        let (schema, name) = (self.context.schema, &relation.name);
        if relation.among == Among::All && catalogue::find(None, name).is_some() {
            return Err(cannot_add(name, "system tables"));
        }
        if relation.among != Among::Permanent && schema.table_among(true, name).is_some() {
            return Err(cannot_add(name, "temporary tables"));
        }
        let permanent = || schema.tables.iter().filter(|t| !t.temp);
        if let Some(table) = permanent().find(|t| t.name == *name && relation.among != Among::Temporary) {
            return Ok(table);
        }
        if permanent().any(|t| t.indexes.iter().any(|i| i.name == *name) || t.key_name == *name) {
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is an index")));
        }
        if permanent().any(|t| catalogue::has_sequence(t) && sequence_name(t).is_some_and(|n| n == *name)) {
            return Err(cannot_add(name, "sequences"));
        }
        Err(SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist")))
    }

    fn add(&self, publication: &mut Publication, opened: &Opened<'_>) -> SqlResult<()> {
        let table = opened.table;
        if !self.owns(self.context.schema.grants.owner(table.oid)) {
            return Err(not_owner(word_of(table).word(), &table.name));
        }
        if publication.table(table.oid).is_some() {
            let message =
                format!("relation \"{}\" is already member of publication \"{}\"", table.name, publication.name);
            return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
        }
        if table.kind != TableKind::Table {
            return Err(cannot_add(&table.name, "views"));
        }
        let columns = opened.written.columns.as_ref().map(|names| in_order(table, names)).transpose()?;
        let entry = PublishedTable { table: table.oid, columns, filter: opened.filter.clone() };
        let at = publication.tables.partition_point(|t| t.table < table.oid);
        publication.tables.insert(at, entry);
        Ok(())
    }

    /// ALTER PUBLICATION ... DROP TABLE.
    fn take_out(&self, publication: &mut Publication, tables: &'a [WrittenTable]) -> SqlResult<()> {
        let mut gone = Vec::new();
        for written in tables {
            let table = self.find(&written.relation)?;
            if written.columns.is_some() {
                let message = "column list must not be specified in ALTER PUBLICATION ... DROP";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            if publication.table(table.oid).is_none() {
                let message = format!("relation \"{}\" is not part of the publication", table.name);
                return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
            }
            if written.filter.is_some() {
                let message = "cannot use a WHERE clause when removing a table from a publication";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            gone.push(table.oid);
        }
        publication.tables.retain(|t| !gone.contains(&t.table));
        Ok(())
    }
}

fn with_written(before: PublicationOptions, written: &WrittenOptions) -> PublicationOptions {
    let before_kinds = [before.insert, before.update, before.delete, before.truncate];
    let [insert, update, delete, truncate] = written.publish.unwrap_or(before_kinds);
    PublicationOptions { insert, update, delete, truncate, via_root: written.via_root.unwrap_or(before.via_root) }
}

/// 55000 for a publication FOR ALL TABLES.
fn check_lists_tables(publication: &Publication) -> SqlResult<()> {
    if !publication.all_tables {
        return Ok(());
    }
    let message = format!("publication \"{}\" is defined as FOR ALL TABLES", publication.name);
    Err(error("55000", message).with_detail("Tables cannot be added to or dropped from FOR ALL TABLES publications."))
}

fn cannot_add(name: &str, kind: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("cannot add relation \"{name}\" to publication"))
        .with_detail(format!("This operation is not supported for {kind}."))
}

/// The columns of a list in the table's order.
fn in_order(table: &Table, names: &[String]) -> SqlResult<Vec<String>> {
    let mut places = Vec::new();
    for name in names {
        let Some(at) = table.columns.iter().position(|c| c.name == *name) else {
            if matches!(name.as_str(), "cmax" | "cmin" | "ctid" | "tableoid" | "xmax" | "xmin") {
                let message = format!("cannot use system column \"{name}\" in publication column list");
                return Err(error("42P10", message));
            }
            let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
        };
        if table.columns[at].generated {
            return Err(error("42P10", format!("cannot use generated column \"{name}\" in publication column list")));
        }
        if places.contains(&at) {
            let message = format!("duplicate column \"{name}\" in publication column list");
            return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
        }
        places.push(at);
    }
    places.sort_unstable();
    Ok(places.into_iter().map(|at| table.columns[at].name.clone()).collect())
}
