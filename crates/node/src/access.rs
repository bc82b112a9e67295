//! What a prepared statement needs: what its translation says, and what SQLite has reported of views and triggers.
//!
//! SQLite names the innermost view, trigger or WITH query in which a statement touches a table. A view's query needs the
//! privileges of the view's owner, a trigger's program those of the owner of its table. A WITH query may have the name of a
//! view; what it touches counts for the statement, view or trigger in whose text it is defined, so that nothing is read with
//! another owner's privileges than the text allows.
//!
//! | touched in | counts for |
//! |---|---|
//! | nothing | the statement |
//! | a view | the view's owner |
//! | a trigger | the owner of the trigger's table |
//! | a WITH query | every text among those three that defines one of this name |
//!
//! SQLite names no view that it merges into the query around it and no column of which is read, and names tables that only
//! foreign keys touch. So a table counts for a text only where the text mentions it, and a view that a text mentions
//! counts as read.

use crate::plan::Extra;
use holdfast_engine::{Touch, TouchKind};
use holdfast_sql::Entry;
use holdfast_sql::catalogue::SECRETS;
use holdfast_sql::sqlite::TextWords;
use holdfast_types::access::needs::{Need, TableNeed};
use holdfast_types::access::{Access, Privileges};
use holdfast_types::schema::{Schema, Table, TableKind};
use std::sync::Arc;

/// A text that touches tables with the privileges of one role.
struct Text<'a> {
    /// Its name as SQLite reports it; `None` for the statement.
    name: Option<&'a str>,
    /// The view or the trigger's table whose owner needs the privileges; `None` for the statement.
    owner_of: Option<u32>,
    words: TextWords,
}

impl<'a> Text<'a> {
    fn new(name: Option<&'a str>, text: &str, owner_of: Option<u32>) -> Text<'a> {
        Text { name, owner_of, words: TextWords::new(text) }
    }

    fn touches(&self, touch: &Touch) -> bool {
        if !self.words.mentions(&touch.table) {
            return false;
        }
        if touch.column.is_empty() && touch.kind == TouchKind::Read {
            return true;
        }
        // Any other table that the statement itself changes is changed by a foreign key.
        let foreign =
            touch.kind != TouchKind::Read && self.words.target().is_some_and(|t| !touch.table.eq_ignore_ascii_case(t));
        match (&touch.via, self.name) {
            (None, None) => !foreign,
            (Some(via), Some(name)) if via.eq_ignore_ascii_case(name) => true,
            (Some(via), _) => self.words.defines(via),
            (None, Some(_)) => false,
        }
    }
}

/// All needs of a statement under the schema that it was prepared under.
pub fn needs(entry: &Entry<Extra>, schema: &Schema) -> Vec<Need> {
    let access = &entry.translated.access;
    let mut needs = access.needs.clone();
    // PostgreSQL checks the views that a query names before its tables.
    needs.sort_by_key(|need| match need {
        Need::Table(need) => need.privileges != Privileges::SELECT || !is_view(schema, need.table),
        _ => true,
    });
    if let Some(statement) = &entry.extra {
        let after = entry.translated.access_after_prepare;
        needs.extend(of_touched(&statement.touched, &statement.sql, access, after, schema));
    }
    needs
}

/// The needs of a statement by what it touches: those of views and triggers, with `own` also its own.
pub fn of_touched(touched: &[Touch], sql: &str, access: &Access, own: bool, schema: &Schema) -> Vec<Need> {
    let mut needs = Vec::new();
    // Views in use, each with the text that mentions it.
    let mut views: Vec<&Table> = Vec::new();
    let mut texts = vec![Text::new(None, sql, None)];
    let mut at = 0;
    while let Some(text) = texts.get(at) {
        if own || text.name.is_some() {
            needs.extend(of_text(text, touched, (at == 0).then_some(access), schema));
        }
        let mut found = Vec::new();
        for table in schema.tables.iter().filter(|t| !t.temp) {
            if table.kind == TableKind::View && text.words.reads_from(&table.name) {
                if own || text.name.is_some() {
                    let need = TableNeed { privileges: Privileges::SELECT, owner_of: text.owner_of, ..need_of(table) };
                    needs.push(Need::Table(need));
                }
                if !views.iter().any(|v| v.oid == table.oid) {
                    views.push(table);
                    found.push(Text::new(Some(&table.name), &table.sql, Some(table.oid)));
                }
            }
        }
        texts.extend(found);
        at += 1;
    }
    let via = |name: &str| touched.iter().any(|t| t.via.as_deref().is_some_and(|via| via.eq_ignore_ascii_case(name)));
    for table in schema.tables.iter().filter(|t| !t.temp) {
        for trigger in table.triggers.iter().filter(|trigger| via(&trigger.name)) {
            let text = Text::new(Some(&trigger.name), &trigger.sql, Some(table.oid));
            needs.extend(of_text(&text, touched, None, schema));
        }
        // A view that only a trigger reads.
        if table.kind == TableKind::View && via(&table.name) && !views.iter().any(|v| v.oid == table.oid) {
            let text = Text::new(Some(&table.name), &table.sql, Some(table.oid));
            needs.extend(of_text(&text, touched, None, schema));
        }
    }
    needs
}

fn is_view(schema: &Schema, oid: u32) -> bool {
    schema.by_oid(oid).is_some_and(|table| table.kind == TableKind::View)
}

fn need_of(table: &Table) -> TableNeed {
    TableNeed { table: table.oid, ..TableNeed::default() }
}

fn of_text(text: &Text<'_>, touched: &[Touch], access: Option<&Access>, schema: &Schema) -> Vec<Need> {
    let mut needs: Vec<TableNeed> = Vec::new();
    let mut others = Vec::new();
    for touch in touched.iter().filter(|touch| text.touches(touch)) {
        // Whatever table of the database has this name: the catalogue's may be the one that is read.
        others.extend(of_secret(touch, text.owner_of));
        let Some(table) = meant(touch, schema) else {
            others.extend(of_internal(touch, text.owner_of));
            continue;
        };
        // A view's columns, seen from inside the view.
        if text.owner_of == Some(table.oid) && table.kind == TableKind::View {
            continue;
        }
        let at = needs.iter().position(|need| need.table == table.oid).unwrap_or_else(|| {
            needs.push(TableNeed { owner_of: text.owner_of, ..need_of(table) });
            needs.len() - 1
        });
        let need = &mut needs[at];
        let number =
            |name: &str| table.columns.iter().position(|c| c.name.eq_ignore_ascii_case(name)).map(|at| at as i16 + 1);
        match touch.kind {
            TouchKind::Read => {
                need.privileges |= Privileges::SELECT;
                // The rowid, if no column shows it, is in no list.
                need.select.extend(number(&touch.column));
            }
            TouchKind::Update => {
                need.privileges |= Privileges::UPDATE;
                need.update.extend(number(&touch.column));
            }
            TouchKind::Delete => need.privileges |= Privileges::DELETE,
            TouchKind::Insert => {
                need.privileges |= Privileges::INSERT;
                match access.and_then(|access| access.inserts.as_ref()) {
                    Some(names) => need.insert.extend(names.iter().filter_map(|name| number(name))),
                    None => need.insert.extend(1..=table.columns.len() as i16),
                }
                // REPLACE deletes the row that was there.
                if access.is_some_and(|access| access.replaces) {
                    need.privileges |= Privileges::DELETE;
                }
            }
        }
    }
    needs.into_iter().map(Need::Table).chain(others).collect()
}

/// The table that is touched. The tables in which a virtual table keeps its content count as the virtual table.
fn meant<'s>(touch: &Touch, schema: &'s Schema) -> Option<&'s Arc<Table>> {
    let is_it = |t: &&Arc<Table>| t.name.eq_ignore_ascii_case(&touch.table);
    let permanent = || schema.tables.iter().filter(|t| !t.temp);
    let keeps = |t: &&Arc<Table>| {
        let head = touch.table.get(..t.name.len() + 1).unwrap_or_default();
        t.kind == TableKind::Virtual && head.strip_suffix('_').is_some_and(|head| head.eq_ignore_ascii_case(&t.name))
    };
    permanent().find(is_it).or_else(|| permanent().find(keeps))
}

/// Verifiers of passwords, and the rules of access, are read by superusers only.
fn of_secret(touch: &Touch, owner_of: Option<u32>) -> Option<Need> {
    let (word, name) = SECRETS.iter().find(|(_, name)| touch.table.eq_ignore_ascii_case(name))?;
    Some(Need::Superuser { message: format!("permission denied for {word} {name}"), owner_of })
}

/// The schema can be read by all, as the catalogue; other tables of SQLite's and of Holdfast only by superusers: statistics
/// and prepared transactions hold values of columns.
fn of_internal(touch: &Touch, owner_of: Option<u32>) -> Option<Need> {
    let name = touch.table.to_ascii_lowercase();
    let is_internal = name.starts_with("sqlite_") || name.starts_with("holdfast_");
    let is_open =
        ["sqlite_schema", "sqlite_master", "sqlite_temp_schema", "sqlite_temp_master"].contains(&name.as_str());
    (is_internal && !is_open)
        .then(|| Need::Superuser { message: format!("permission denied for table {}", touch.table), owner_of })
}
