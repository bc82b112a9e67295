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
//! SQLite names no view that it merges into the query around it and no column of which is read. So such a read counts for
//! each text that mentions the table, and a view that a text mentions counts as read.
//!
//! SQLite also reports what only foreign keys touch. That counts for no role, where no text mentions the table and where
//! foreign keys lead to it from a table that the statement or a trigger changes. Whatever else no text seems to touch
//! counts for the statement: the names in a text decide for which role a touch counts, never that it counts for none.

use crate::plan::Extra;
use holdfast_engine::{Place, Touch, TouchKind};
use holdfast_sql::Entry;
use holdfast_sql::catalogue::SECRETS;
use holdfast_sql::sqlite::TextWords;
use holdfast_types::access::check::word_of;
use holdfast_types::access::needs::{Need, ObjectWord, TableNeed, WHOLE_TABLE};
use holdfast_types::access::{Access, Privileges};
use holdfast_types::schema::{Schema, Table, TableKind};
use std::collections::HashSet;
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

    /// Whether the text is one of those that touch it. `others`: all texts; `foreign`: what foreign keys lead to.
    fn touches(&self, touch: &Touch, others: &[Text<'_>], foreign: &HashSet<String>) -> bool {
        let mentions = self.words.mentions(&touch.table);
        if mentions && touch.column.is_empty() && touch.kind == TouchKind::Read {
            return true;
        }
        let reaches = || foreign.contains(&touch.table.to_ascii_lowercase());
        match (&touch.via, self.name) {
            (None, None) if touch.kind == TouchKind::Read => mentions,
            (None, None) => self.words.target().is_none_or(|t| touch.table.eq_ignore_ascii_case(t)),
            (Some(via), Some(name)) if via.eq_ignore_ascii_case(name) => {
                mentions || !(reaches() || others.iter().any(|text| text.words.defines(via)))
            }
            (Some(via), _) => mentions && self.words.defines(via),
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
    let changes_schema = touched.iter().any(|touch| touch.kind.is_ddl());
    if own && changes_schema {
        of_schema_change(touched, schema, &mut needs);
    }
    let (texts, views) = texts(touched, sql, schema);
    let foreign = foreign(touched, texts.first().and_then(|text| text.words.target()), schema);
    let counts = |text: &Text<'_>| own || text.name.is_some();
    // A schema change reads and writes SQLite's own tables; it reads others only for CREATE TABLE AS.
    let copies = touched.iter().any(|touch| touch.kind == TouchKind::CreateTable);
    let data: Vec<&Touch> = touched
        .iter()
        .filter(|t| !t.kind.is_ddl() && (!changes_schema || copies && t.kind == TouchKind::Read))
        .collect();
    let nothing_claims = |touch: &Touch| {
        let claimed = texts.iter().any(|text| text.touches(touch, &texts, &foreign));
        !claimed && !foreign.contains(&touch.table.to_ascii_lowercase())
    };
    for text in texts.iter().filter(|text| counts(text)) {
        let is_statement = text.name.is_none();
        let touches = |touch: &&Touch| text.touches(touch, &texts, &foreign) || (is_statement && nothing_claims(touch));
        needs.extend(of_text(text, data.iter().copied().filter(touches), is_statement.then_some(access), schema));
        for table in views.iter().filter(|view| text.words.reads_from(&view.name)) {
            let need = TableNeed { privileges: Privileges::SELECT, owner_of: text.owner_of, ..need_of(table) };
            needs.push(Need::Table(need));
        }
    }
    needs
}

/// The statement, the views that it reads and the triggers that it fires; and all views that a text mentions.
fn texts<'a>(touched: &'a [Touch], sql: &str, schema: &'a Schema) -> (Vec<Text<'a>>, Vec<&'a Table>) {
    let via = |name: &str| touched.iter().any(|t| t.via.as_deref().is_some_and(|via| via.eq_ignore_ascii_case(name)));
    let writes = |name: &str| {
        touched.iter().any(|t| {
            t.place == Place::Main
                && matches!(t.kind, TouchKind::Insert | TouchKind::Update | TouchKind::Delete)
                && t.table.eq_ignore_ascii_case(name)
        })
    };
    let mut texts = vec![Text::new(None, sql, None)];
    let mut views: Vec<&Table> = Vec::new();
    for table in schema.tables.iter().filter(|t| !t.temp) {
        for trigger in table.triggers.iter().filter(|trigger| via(&trigger.name) || writes(&table.name)) {
            texts.push(Text::new(Some(&trigger.name), &trigger.sql, Some(table.oid)));
        }
        if table.kind == TableKind::View && via(&table.name) {
            views.push(table);
            texts.push(Text::new(Some(&table.name), &table.sql, Some(table.oid)));
        }
    }
    let mut at = 0;
    while let Some(text) = texts.get(at) {
        let is_new = |table: &&Table| {
            table.kind == TableKind::View
                && text.words.reads_from(&table.name)
                && !views.iter().any(|v| v.oid == table.oid)
        };
        let found: Vec<&Table> = schema.tables.iter().filter(|t| !t.temp).map(|t| &**t).filter(is_new).collect();
        texts.extend(found.iter().map(|view| Text::new(Some(&view.name), &view.sql, Some(view.oid))));
        views.extend(found);
        at += 1;
    }
    (texts, views)
}

/// The names of all tables to which foreign keys lead, in either direction, from the tables that the statement and its
/// triggers change. What foreign keys change themselves is reported without a trigger.
fn foreign(touched: &[Touch], target: Option<&str>, schema: &Schema) -> HashSet<String> {
    let is_change = |t: &&Touch| {
        matches!(t.kind, TouchKind::Insert | TouchKind::Update | TouchKind::Delete)
            && (t.via.is_some() || target.is_none_or(|target| t.table.eq_ignore_ascii_case(target)))
    };
    let mut found: HashSet<String> = touched.iter().filter(is_change).map(|t| t.table.to_ascii_lowercase()).collect();
    let pairs = || {
        let permanent = schema.tables.iter().filter(|t| !t.temp);
        permanent.flat_map(|t| t.foreign_keys.iter().map(move |key| (t.name.to_ascii_lowercase(), &key.parent)))
    };
    let is_target = |name: &str| target.is_some_and(|target| target.eq_ignore_ascii_case(name));
    let mut reached = HashSet::new();
    while !found.is_empty() {
        let mut next = HashSet::new();
        for (child, parent) in pairs() {
            let parent = parent.to_ascii_lowercase();
            for (from, to) in [(&child, &parent), (&parent, &child)] {
                if found.contains(from) && !reached.contains(to) && !is_target(to) {
                    next.insert(to.clone());
                }
            }
        }
        reached.extend(next.iter().cloned());
        found = next;
    }
    reached
}

/// What SQLite reports of a schema change: never decided by its text.
fn of_schema_change(touched: &[Touch], schema: &Schema, needs: &mut Vec<Need>) {
    let made = |kind: TouchKind, touch: &Touch| {
        touched.iter().any(|t| {
            t.kind == kind && t.table == touch.table && (t.column == touch.column || kind == TouchKind::CreateTable)
        })
    };
    let of_database =
        |name: &str| Need::Owner { table: 0, word: ObjectWord::Table, name: name.to_owned(), or_schema: true };
    let owner = |touch: &Touch, or_schema: bool| match meant(touch, schema) {
        Some(table) => Need::Owner { table: table.oid, word: word_of(table), name: table.name.clone(), or_schema },
        None => of_database(&touch.table),
    };
    for touch in touched {
        match (touch.kind, touch.place) {
            (TouchKind::CreateTable, Place::Temporary) => needs.push(Need::Temporary),
            (_, Place::Temporary | Place::Catalogue) => {}
            (TouchKind::CreateTable | TouchKind::CreateView, _) => needs.push(Need::CreateInSchema),
            (TouchKind::CreateIndex, _) if made(TouchKind::CreateTable, touch) => {}
            (TouchKind::CreateIndex, _) => needs.extend([owner(touch, false), Need::CreateInSchema]),
            (TouchKind::CreateVirtual, _) => {
                let message = "must be superuser to create a virtual table".to_owned();
                needs.push(Need::Superuser { message, owner_of: None });
            }
            (TouchKind::CreateTrigger | TouchKind::DropTrigger | TouchKind::AlterTable, _) => {
                needs.push(owner(touch, false));
            }
            (TouchKind::DropTable | TouchKind::DropView, _) => needs.push(owner(touch, true)),
            (TouchKind::DropIndex, _) => needs.push(match meant(touch, schema) {
                Some(table) => {
                    let name = touch.column.clone();
                    Need::Owner { table: table.oid, word: ObjectWord::Index, name, or_schema: true }
                }
                None => of_database(&touch.column),
            }),
            (TouchKind::Reindex, _) => {
                let is_it = |name: &str| name.eq_ignore_ascii_case(&touch.column);
                let mut tables = schema.tables.iter().filter(|t| !t.temp);
                let new = touched.iter().any(|t| t.kind == TouchKind::CreateIndex && t.column == touch.column);
                match tables.find(|t| t.indexes.iter().any(|index| is_it(&index.name))) {
                    Some(table) => {
                        let name = table.name.clone();
                        needs.push(Need::Owner { table: table.oid, word: word_of(table), name, or_schema: false });
                    }
                    None if new => {}
                    None => needs.push(of_database(&touch.column)),
                }
            }
            (TouchKind::Read | TouchKind::Insert | TouchKind::Update | TouchKind::Delete, _) => {}
        }
    }
}

fn is_view(schema: &Schema, oid: u32) -> bool {
    schema.by_oid(oid).is_some_and(|table| table.kind == TableKind::View)
}

fn need_of(table: &Table) -> TableNeed {
    TableNeed { table: table.oid, ..TableNeed::default() }
}

fn of_text<'t>(
    text: &Text<'_>,
    touched: impl Iterator<Item = &'t Touch>,
    access: Option<&Access>,
    schema: &Schema,
) -> Vec<Need> {
    let mut needs: Vec<TableNeed> = Vec::new();
    let mut others = Vec::new();
    for touch in touched {
        // Whatever table of the database has this name: the catalogue's may be the one that is read.
        others.extend(of_secret(touch, text.owner_of));
        if touch.place != Place::Main {
            continue;
        }
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
        match touch.kind {
            TouchKind::Read => {
                need.privileges |= Privileges::SELECT;
                need.select.extend((!touch.column.is_empty()).then(|| number(table, &touch.column)));
            }
            TouchKind::Update => {
                need.privileges |= Privileges::UPDATE;
                need.update.insert(number(table, &touch.column));
            }
            TouchKind::Delete => need.privileges |= Privileges::DELETE,
            TouchKind::Insert => {
                need.privileges |= Privileges::INSERT;
                match access.and_then(|access| access.inserts.as_ref()) {
                    Some(names) => need.insert.extend(names.iter().map(|name| number(table, name))),
                    None => need.insert.extend(1..=table.columns.len() as i16),
                }
            }
            _ => {}
        }
        // REPLACE deletes the row that was there.
        let writes = matches!(touch.kind, TouchKind::Insert | TouchKind::Update);
        if writes && access.is_some_and(|access| access.replaces) {
            need.privileges |= Privileges::DELETE;
        }
    }
    needs.into_iter().map(Need::Table).chain(others).collect()
}

/// A column's number. A name of the rowid means the INTEGER PRIMARY KEY. Where there is none, and for a name that is
/// not known, the privilege on the whole table is needed.
fn number(table: &Table, name: &str) -> i16 {
    let is_rowid = ["rowid", "_rowid_", "oid"].iter().any(|rowid| name.eq_ignore_ascii_case(rowid));
    let named = table.columns.iter().position(|c| c.name.eq_ignore_ascii_case(name));
    let at = named.or_else(|| is_rowid.then(|| table.columns.iter().position(|c| c.rowid_alias)).flatten());
    at.map_or(WHOLE_TABLE, |at| at as i16 + 1)
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
/// and prepared transactions hold values of columns, and `dbstat` shows the sizes of all tables.
fn of_internal(touch: &Touch, owner_of: Option<u32>) -> Option<Need> {
    let name = touch.table.to_ascii_lowercase();
    let is_internal = name.starts_with("sqlite_") || name.starts_with("holdfast_") || name == "dbstat";
    let is_open =
        ["sqlite_schema", "sqlite_master", "sqlite_temp_schema", "sqlite_temp_master"].contains(&name.as_str());
    (is_internal && !is_open)
        .then(|| Need::Superuser { message: format!("permission denied for table {}", touch.table), owner_of })
}
