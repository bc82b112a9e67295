//! A table into which a subscription writes: the publisher's description of it joined with this database's, and the statements
//! that make one change.
//!
//! Values arrive as text. They are read as COPY reads them, by the types of this database's columns; the statements are those that
//! a client would send, except that the table is open to them.
//!
//! Failure: 55000 where the table here lacks a column or the key by which a row is found; it names table and column.

use holdfast_engine::{Database, Report, Statement, Step};
use holdfast_sites::pgoutput::Cell;
use holdfast_sites::received::RemoteRelation;
use holdfast_sql::keys::primary_key;
use holdfast_sql::{Context, Kind, Scan, SessionValue, SessionValues, Translated, facts, translate};
use holdfast_types::schema::{Schema, Table, TableKind};
use holdfast_types::{SqlError, SqlResult, SqlState, Value};
use std::collections::HashMap;
use std::sync::Arc;

use super::publisher::named;
use crate::clock::now_us;
use crate::database::report_under;

/// A statement, and how its values are read.
pub struct Prepared {
    pub statement: Arc<Statement>,
    translated: Translated,
}

/// One column that is both here and at the publisher.
#[derive(Clone, Debug)]
struct Column {
    name: String,
    type_oid: u32,
    typmod: i32,
    /// It is part of the primary key here.
    is_key: bool,
}

/// See the module.
pub struct Target {
    pub name: String,
    pub oid: u32,
    columns: Vec<Column>,
    inserts: HashMap<Vec<bool>, Arc<Prepared>>,
    updates: HashMap<Vec<bool>, Arc<Prepared>>,
    delete: Option<Arc<Prepared>>,
    truncate: Option<Arc<Statement>>,
}

fn prerequisite(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
}

/// Translates and prepares a statement that a subscription runs.
pub fn prepared(db: &Database, schema: &Schema, sql: &str, types: &[u32]) -> SqlResult<Prepared> {
    let scan = Scan::new(sql, db.dialect())?;
    let piece = scan.pieces().next().ok_or_else(|| SqlError::internal("a statement without text"))?;
    let (dialect, database) = (db.dialect(), db.name());
    let context = Context { dialect, schema, database, user: "", param_types: types, applies: true };
    let translated = translate(&piece, &context)?;
    let [step] = translated.steps.as_slice() else {
        return Err(SqlError::internal(format!("not one statement: {sql}")));
    };
    let statement = db.prepare(&step.sql, Report { applied: true, ..report_under(&translated, schema) })?;
    Ok(Prepared { statement, translated })
}

impl Prepared {
    pub fn step(&self, values: &[Value]) -> SqlResult<Step> {
        let params = self.translated.bind(&[], values, &Applied)?;
        Ok(Step { stmt: self.statement.clone(), params })
    }

    /// The names, types and type modifiers of the columns of a COPY.
    fn columns(&self) -> Vec<(String, u32, i32)> {
        match &self.translated.kind {
            Kind::CopyIn(copy) => copy.columns.iter().map(|c| (c.name.clone(), c.type_oid, c.typmod)).collect(),
            _ => Vec::new(),
        }
    }
}

/// The session of an applied change: defaults may ask for the time, and for nothing else.
struct Applied;

impl SessionValues for Applied {
    fn session_value(&self, which: &SessionValue) -> SqlResult<Value> {
        Ok(match which {
            SessionValue::TransactionTime | SessionValue::StatementTime | SessionValue::ClockTime => {
                Value::Int(now_us())
            }
            _ => Value::Null,
        })
    }
}

impl Target {
    /// Joins the publisher's description with the table here. `None`: the subscription does not write it.
    pub fn of(
        db: &Database,
        schema: &Schema,
        relation: &RemoteRelation,
        subscribed: &[u32],
    ) -> SqlResult<Option<Target>> {
        let full = format!("{}.{}", relation.schema, relation.name);
        let found = (relation.schema == "public").then(|| schema.table_among(false, &relation.name)).flatten();
        if found.is_none() {
            let message = format!("logical replication target relation \"{full}\" does not exist");
            return Err(prerequisite(message)
                .with_hint("Create it, or give the table its name back; then the subscription continues."));
        }
        let Some(table) = found.filter(|table| subscribed.contains(&table.oid)) else { return Ok(None) };
        if table.kind != TableKind::Table {
            return Err(prerequisite(format!("cannot use relation \"{full}\" as logical replication target")));
        }
        let lacks = |column: &&holdfast_sites::pgoutput::Column| !table.columns.iter().any(|c| c.name == column.name);
        if let Some(missing) = relation.columns.iter().find(lacks) {
            let name = &missing.name;
            let message =
                format!("logical replication target relation \"{full}\" is missing replicated column: \"{name}\"");
            return Err(prerequisite(message).with_hint("Add the column, then the subscription continues by itself."));
        }
        let names: Vec<&str> = relation.columns.iter().map(|c| c.name.as_str()).collect();
        let copy = prepared(db, schema, &insert_text(&table.name, &names), &[])?;
        let key = primary_key(table);
        let columns = copy.columns().into_iter().map(|(name, type_oid, typmod)| {
            let is_key = key.contains(&name);
            Column { name, type_oid, typmod, is_key }
        });
        let mut target = Target {
            name: table.name.clone(),
            oid: table.oid,
            columns: columns.collect(),
            inserts: HashMap::new(),
            updates: HashMap::new(),
            delete: None,
            truncate: None,
        };
        target.inserts.insert(vec![true; names.len()], Arc::new(copy));
        Ok(Some(target))
    }

    /// Where a row cannot be found: the key here has a column that the publisher does not send.
    pub fn check_key(&self, table: &Table, relation: &RemoteRelation) -> SqlResult<()> {
        let sent = |name: &str| relation.columns.iter().any(|c| c.name == name && (c.is_key || relation.is_full));
        let key = primary_key(table);
        if key.is_empty() {
            let message = format!(
                "logical replication target relation \"public.{}\" has no primary key, by which rows are found",
                self.name
            );
            return Err(prerequisite(message)
                .with_hint("Add a primary key of the columns that the publisher sends as its key."));
        }
        match key.iter().find(|column| !sent(column)) {
            None => Ok(()),
            Some(column) => Err(prerequisite(format!(
                "publisher did not send replica identity column \"{}\" expected by the logical replication target relation \"public.{}\"",
                column, self.name
            ))),
        }
    }

    fn value(&self, at: usize, cell: &Cell) -> SqlResult<Value> {
        let column = self.columns.get(at).ok_or_else(|| {
            prerequisite(format!("a row of \"{}\" has more columns than it was announced with", self.name))
        })?;
        match cell {
            Cell::Null | Cell::Unchanged => Ok(Value::Null),
            Cell::Text(text) => {
                let text = std::str::from_utf8(text).map_err(|_| {
                    let message = format!("column \"{}\" of \"{}\" has text that is not UTF-8", column.name, self.name);
                    SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message)
                })?;
                holdfast_sql::types::input(column.type_oid, column.typmod, text)
            }
        }
    }

    /// The cells that `which` names as values, and the marks of which they are.
    fn chosen(&self, row: &[Cell], which: impl Fn(usize, &Cell) -> bool) -> SqlResult<(Vec<bool>, Vec<Value>)> {
        let marks: Vec<bool> = row.iter().enumerate().map(|(at, cell)| which(at, cell)).collect();
        let values = row.iter().enumerate().filter(|(at, _)| marks[*at]);
        Ok((marks.clone(), values.map(|(at, cell)| self.value(at, cell)).collect::<SqlResult<_>>()?))
    }

    fn is_key(&self, at: usize) -> bool {
        self.columns.get(at).is_some_and(|column| column.is_key)
    }

    /// The key of a row, for messages: `(id)=(7)`.
    pub fn key_text(&self, row: &[Cell]) -> String {
        let (mut names, mut values) = (Vec::new(), Vec::new());
        for (at, cell) in row.iter().enumerate().filter(|(at, _)| self.is_key(*at)) {
            names.push(self.columns[at].name.as_str());
            values.push(match cell {
                Cell::Text(text) => String::from_utf8_lossy(text).into_owned(),
                _ => "null".to_owned(),
            });
        }
        format!("({})=({})", names.join(", "), values.join(", "))
    }

    pub fn insert(&mut self, db: &Database, schema: &Schema, row: &[Cell]) -> SqlResult<Step> {
        let (marks, values) = self.chosen(row, |_, cell| *cell != Cell::Unchanged)?;
        let prepared = match self.inserts.get(&marks) {
            Some(prepared) => prepared.clone(),
            None => {
                let text = insert_text(&self.name, &self.names(&marks));
                let prepared = Arc::new(prepared(db, schema, &text, &[])?);
                self.inserts.insert(marks, prepared.clone());
                prepared
            }
        };
        prepared.step(&values)
    }

    /// `old`: the key before; `None` where it has not changed. No step where nothing changes.
    pub fn update(
        &mut self,
        db: &Database,
        schema: &Schema,
        old: Option<&[Cell]>,
        new: &[Cell],
    ) -> SqlResult<Option<Step>> {
        let moves = old.is_some();
        let (marks, mut values) =
            self.chosen(new, |at, cell| *cell != Cell::Unchanged && (moves || !self.is_key(at)))?;
        if values.is_empty() {
            return Ok(None);
        }
        let (_, key) = self.chosen(old.unwrap_or(new), |at, _| self.is_key(at))?;
        values.extend(key);
        let prepared = match self.updates.get(&marks) {
            Some(prepared) => prepared.clone(),
            None => {
                let set = self.names(&marks);
                let assignments: Vec<String> =
                    set.iter().enumerate().map(|(n, name)| format!("{} = ${}", named(name), n + 1)).collect();
                let text = format!(
                    "UPDATE public.{} SET {} WHERE {}",
                    named(&self.name),
                    assignments.join(", "),
                    self.condition(set.len())
                );
                let prepared = Arc::new(prepared(db, schema, &text, &self.types(&marks, true))?);
                self.updates.insert(marks, prepared.clone());
                prepared
            }
        };
        prepared.step(&values).map(Some)
    }

    pub fn delete(&mut self, db: &Database, schema: &Schema, old: &[Cell]) -> SqlResult<Step> {
        let (_, key) = self.chosen(old, |at, _| self.is_key(at))?;
        if self.delete.is_none() {
            let text = format!("DELETE FROM public.{} WHERE {}", named(&self.name), self.condition(0));
            self.delete = Some(Arc::new(prepared(db, schema, &text, &self.types(&[], true))?));
        }
        match &self.delete {
            Some(prepared) => prepared.step(&key),
            None => Err(SqlError::internal("no statement was prepared")),
        }
    }

    /// Removes all rows.
    pub fn truncate(&mut self, db: &Database, schema: &Schema) -> SqlResult<Step> {
        if self.truncate.is_none() {
            let text = format!("DELETE FROM public.{}", named(&self.name));
            let all = prepared(db, schema, &text, &[])?.statement;
            let conditions = schema.subscriptions.of_table(self.oid).map(|of| &of.conditions);
            self.truncate = Some(match conditions.and_then(|conditions| conditions.get(&self.oid)) {
                // Its own rows stay.
                Some(condition) => {
                    let text = format!("DELETE FROM main.{} WHERE {condition}", named(&self.name));
                    db.prepare(&text, all.report.clone())?
                }
                None => all,
            });
        }
        match &self.truncate {
            Some(statement) => Ok(Step { stmt: statement.clone(), params: Vec::new() }),
            None => Err(SqlError::internal("no statement was prepared")),
        }
    }

    /// The statement that inserts whole rows, and how one row of text becomes its values.
    pub fn loader(&self) -> SqlResult<Arc<Prepared>> {
        let whole = vec![true; self.columns.len()];
        self.inserts.get(&whole).cloned().ok_or_else(|| SqlError::internal("no statement was prepared"))
    }

    pub fn column_names(&self) -> Vec<String> {
        self.columns.iter().map(|column| column.name.clone()).collect()
    }

    /// The values of one row of a COPY.
    pub fn loaded(&self, loader: &Prepared, fields: &mut Vec<Option<String>>) -> SqlResult<Vec<Value>> {
        let one = |(field, column): (Option<String>, &Column)| match field {
            Some(text) => holdfast_sql::types::input(column.type_oid, column.typmod, &text),
            None => Ok(Value::Null),
        };
        let values = fields.drain(..).zip(&self.columns).map(one).collect::<SqlResult<Vec<Value>>>()?;
        loader.translated.bind(&[], &values, &Applied)
    }

    fn names(&self, marks: &[bool]) -> Vec<&str> {
        let marked = self.columns.iter().zip(marks).filter(|(_, marked)| **marked);
        marked.map(|(column, _)| column.name.as_str()).collect()
    }

    /// The types of the marked columns, then those of the key.
    fn types(&self, marks: &[bool], with_key: bool) -> Vec<u32> {
        let marked = self.columns.iter().zip(marks).filter(|(_, marked)| **marked).map(|(column, _)| column);
        let key = self.columns.iter().filter(|column| with_key && column.is_key);
        marked.chain(key).map(|column| column.type_oid).collect()
    }

    /// Names the row by its key, whose values come behind `before` others.
    fn condition(&self, before: usize) -> String {
        let key = self.columns.iter().filter(|column| column.is_key).enumerate();
        let equal: Vec<String> = key.map(|(n, c)| format!("{} = ${}", named(&c.name), before + n + 1)).collect();
        equal.join(" AND ")
    }
}

fn insert_text(table: &str, columns: &[&str]) -> String {
    let columns: Vec<String> = columns.iter().map(|name| named(name)).collect();
    format!("COPY public.{} ({}) FROM STDIN", named(table), columns.join(", "))
}

/// A statement of the server's own on the table of positions.
pub fn internal(db: &Database, sql: &str) -> SqlResult<Arc<Statement>> {
    db.prepare(sql, Report { verb: "UPDATE", counts: true, internal: true, facts: facts(sql), ..Report::default() })
}
