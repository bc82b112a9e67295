//! What an ALTER TABLE makes of a table: collected action by action, then written as steps.
//!
//! | step | holds |
//! |---|---|
//! | 1 | DROP INDEX of what is dropped or built again |
//! | 2 | a redefinition without the constraints that are dropped, with new foreign keys; it takes the locks |
//! | 3 | SQLite's DROP COLUMN, ADD COLUMN |
//! | 4 | UPDATE: values of the new type, defaults of new columns |
//! | 5 | queries that fail where a row violates a new constraint |
//! | 6 | CREATE INDEX |
//! | 7 | the redefinition with everything |
//! | 8 | the same for other tables, whose foreign keys a CASCADE drops |
//!
//! Values change as rows do, so the trail carries their images. Constraints, defaults and types change as text.

use crate::context::Context;
use crate::names::{quote, quote_table, quote_text};
use holdfast_types::definition::redefinition::Redefinition;
use holdfast_types::definition::{Clause, ClauseKind, ColumnText, Definition};
use holdfast_types::schema::{ForeignKey, Table};
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::fmt::Write as _;

/// The changes of one table.
pub struct Change<'a> {
    pub context: &'a Context<'a>,
    pub table: &'a Table,
    /// As it is stored, all constraints named.
    pub before: Definition,
    /// As it will be.
    pub now: Definition,
    pub drops: Vec<String>,
    pub adds: Vec<ColumnText>,
    /// Columns and their new values.
    pub fills: Vec<(String, String)>,
    /// Columns of which the values change their type.
    pub retyped: Vec<String>,
    pub checks: Vec<String>,
    pub dropped_indexes: Vec<String>,
    pub new_indexes: Vec<String>,
    /// Indexes with their new texts.
    pub index_texts: Vec<(String, String)>,
    pub others: Vec<String>,
    /// Names of constraints that were added.
    pub added_names: Vec<String>,
    /// The text is written even if nothing but names of constraints changes.
    pub writes_names: bool,
}

pub fn not_understood(table: &Table) -> SqlError {
    SqlError::unsupported(format!("this change of table \"{}\", whose stored definition is not understood", table.name))
}

/// The stored definition with a name for each constraint except the primary key.
pub fn named_definition(table: &Table) -> SqlResult<Definition> {
    let mut definition = Definition::parse(&table.sql).ok_or_else(|| not_understood(table))?;
    definition.name = table.name.clone();
    let mut keys: Vec<&ForeignKey> = table.foreign_keys.iter().collect();
    let mut checks = crate::catalogue::check_names(table).into_iter();
    definition.each_clause(|column, clause| match &clause.kind {
        ClauseKind::ForeignKey(reference) => {
            let columns = column.map_or_else(|| reference.columns.clone(), |c| vec![c.to_owned()]);
            let same = |k: &&ForeignKey| k.columns == columns && k.parent.eq_ignore_ascii_case(&reference.parent);
            if let Some(at) = keys.iter().position(same) {
                clause.name = Some(keys.remove(at).name.clone());
            }
        }
        ClauseKind::Check => clause.name = checks.next().or(clause.name.take()),
        _ => {}
    });
    Ok(definition)
}

impl<'a> Change<'a> {
    pub fn new(context: &'a Context<'a>, table: &'a Table) -> SqlResult<Change<'a>> {
        let before = named_definition(table)?;
        Ok(Change {
            context,
            table,
            now: before.clone(),
            before,
            drops: Vec::new(),
            adds: Vec::new(),
            fills: Vec::new(),
            retyped: Vec::new(),
            checks: Vec::new(),
            dropped_indexes: Vec::new(),
            new_indexes: Vec::new(),
            index_texts: Vec::new(),
            others: Vec::new(),
            added_names: Vec::new(),
            writes_names: false,
        })
    }

    /// The column's text, or 42703.
    pub fn column(&mut self, name: &str) -> SqlResult<&mut ColumnText> {
        let table = self.table;
        let gone = self.drops.iter().any(|d| d == name);
        let found = self.now.columns.iter_mut().find(|c| c.name == name).filter(|_| !gone);
        found.ok_or_else(|| no_column(table, name))
    }

    /// Gives a column the clause, in place of one of its kind.
    pub fn put(&mut self, column: &str, kind: ClauseKind, text: &str) -> SqlResult<()> {
        let column = self.column(column)?;
        column.clauses.retain(|c| c.kind != kind);
        column.clauses.push(Clause { name: None, kind, text: text.to_owned() });
        Ok(())
    }

    /// A query that fails with this error where the table has a row that `condition` selects. `detail` is an expression.
    pub fn check_rows(&mut self, condition: &str, error: &SqlError, detail: &str) {
        let parts = error.parts();
        let constraint = parts.constraint.as_deref().unwrap_or_default();
        let call = format!(
            "hf_violates({}, {}, {detail}, {})",
            quote_text(parts.state.0),
            quote_text(&parts.message),
            quote_text(constraint)
        );
        self.checks.push(format!("SELECT {call} FROM {} WHERE {condition} LIMIT 1", quote_table(self.table)));
    }

    fn redefine(&self, from: &Definition, to: &Definition, indexes: &[(String, String)]) -> SqlResult<String> {
        if self.table.temp {
            return Err(SqlError::unsupported("this ALTER TABLE of a temporary table"));
        }
        Redefinition::text(from, to, indexes)
            .ok_or_else(|| SqlError::unsupported("a definition that contains the character U+001E"))
    }

    /// The steps.
    pub fn steps(mut self) -> SqlResult<Vec<String>> {
        let mut steps: Vec<String> =
            self.dropped_indexes.iter().map(|name| format!("DROP INDEX {}", quote(name))).collect();
        let mut stored = self.before.clone();
        let works = !self.fills.is_empty() || !self.checks.is_empty();
        let interim = self.interim();
        if works || self.writes_names || interim != stored || !self.index_texts.is_empty() {
            steps.push(self.redefine(&stored, &interim, &self.index_texts)?);
            // An index behind a primary key that is dropped is a plain one now.
            let gone = |sql: &String| sql.contains(GOING_MARK);
            let going = self.index_texts.iter().filter(|(_, sql)| gone(sql));
            steps.extend(going.map(|_| format!("DROP INDEX {}", quote(&going_index(self.table)))));
            stored = interim;
        }
        let target = quote_table(self.table);
        for name in &self.drops {
            steps.push(format!("ALTER TABLE {target} DROP COLUMN {}", quote(name)));
            stored.columns.retain(|c| c.name != *name);
            self.now.columns.retain(|c| c.name != *name);
        }
        for column in &self.adds {
            steps.push(format!("ALTER TABLE {target} ADD COLUMN {}", column.sql()));
            stored.columns.push(column.clone());
        }
        if !self.fills.is_empty() {
            let sets: Vec<String> = self.fills.iter().map(|(c, e)| format!("{} = {e}", quote(c))).collect();
            steps.push(format!("UPDATE {target} SET {}", sets.join(", ")));
        }
        steps.append(&mut self.checks);
        steps.append(&mut self.new_indexes);
        if self.now != stored {
            steps.push(self.redefine(&stored, &self.now, &[])?);
        }
        steps.append(&mut self.others);
        Ok(steps)
    }

    /// The definition under which rows are changed: without what is dropped, columns of new types without any affinity.
    fn interim(&self) -> Definition {
        let mut interim = self.before.clone();
        // A primary key under another name is the same one: its index stays.
        let stays = |now: &Clause, was: &Clause| {
            now.kind == was.kind && (now.name == was.name || matches!(was.kind, ClauseKind::PrimaryKey(_)))
        };
        for column in &mut interim.columns {
            let Some(now) = self.now.columns.iter().find(|c| c.name == column.name) else { continue };
            column.clauses.retain(|clause| match clause.kind {
                ClauseKind::Default | ClauseKind::NotNull => true,
                _ => now.clauses.iter().any(|c| stays(c, clause)),
            });
            if self.retyped.contains(&column.name) {
                column.ty = String::new();
                column.clauses.retain(|c| !matches!(c.kind, ClauseKind::Default | ClauseKind::Check));
            }
            if !now.has(&ClauseKind::NotNull) {
                column.clauses.retain(|c| c.kind != ClauseKind::NotNull);
            }
        }
        let retyped = |clause: &Clause| self.retyped.iter().any(|name| mentions(&clause.text, name));
        interim.constraints.retain(|c| self.now.constraints.iter().any(|n| stays(n, c)));
        interim.constraints.retain(|c| c.kind != ClauseKind::Check || !retyped(c));
        let new = |c: &&Clause| matches!(c.kind, ClauseKind::ForeignKey(_)) && !interim.constraints.contains(c);
        let on_known = |c: &&Clause| !self.adds.iter().any(|add| mentions(&c.text, &add.name));
        let added: Vec<Clause> = self.now.constraints.iter().filter(new).filter(on_known).cloned().collect();
        interim.constraints.extend(added.into_iter().filter(|c| !self.before.constraints.contains(c)));
        interim
    }
}

/// In the text of an index that is about to be dropped.
pub const GOING_MARK: &str = "/*going*/";

/// The name of the index behind a primary key, while that is dropped.
pub fn going_index(table: &Table) -> String {
    format!("{} key going", table.name)
}

pub fn no_column(table: &Table, name: &str) -> SqlError {
    let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
    SqlError::new(SqlState::UNDEFINED_COLUMN, message)
}

/// Whether a stored text names a column.
pub fn mentions(text: &str, column: &str) -> bool {
    let tokens = holdfast_types::definition::token::tokens(text);
    let is_string = |t: &holdfast_types::definition::token::Token| t.text(text).starts_with('\'');
    tokens.iter().any(|t| !is_string(t) && t.name(text).is_some_and(|name| name.eq_ignore_ascii_case(column)))
}

/// `Key (a, b)=(1, 2) is ...` as an expression of SQLite's over the columns.
pub fn key_detail(columns: &[String], rest: &str) -> String {
    let mut sql = quote_text(&format!("Key ({})=(", columns.join(", ")));
    for (i, column) in columns.iter().enumerate() {
        let comma = if i == 0 { "" } else { " || ', '" };
        // Writing to a String cannot fail.
        let _ = write!(sql, "{comma} || {}", quote(column));
    }
    format!("{sql} || {}", quote_text(&format!(") {rest}")))
}

/// 2BP01 with what depends on an object.
pub fn depends(what: &str, on: &str) -> SqlError {
    SqlError::new(SqlState("2BP01"), format!("cannot drop {what} because other objects depend on it"))
        .with_detail(on.to_owned())
        .with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
}
