//! A stored CREATE TABLE, taken apart into columns and constraints and put together again.
//!
//! SQLite keeps a table's definition as the text of its CREATE TABLE, and shows neither the names of constraints nor
//! their deferral. ALTER TABLE changes parts of the text and keeps the rest as it is.
//!
//! | part | kept as |
//! |---|---|
//! | a column | name, type, clauses |
//! | a clause of a column, a constraint of the table | its name after CONSTRAINT, what it is, its text without the name |
//! | comments | part of the type or clause before them |
//!
//! Failure: a text that is not a CREATE TABLE with a list of columns has no [`Definition`]; neither has one whose
//! clauses are not understood. The caller reports that.

pub mod names;
mod parse;
pub mod redefinition;
pub mod token;

use crate::quoting::quote;
use std::fmt::Write as _;

/// In a constraint's text: the rows that were there before it have not been checked.
pub const NOT_VALID_MARK: &str = "/*not valid*/";

/// In an index's text: it is that of a primary key that was added later.
pub const PRIMARY_MARK: &str = "/*primary key*/";

/// A stored CREATE TABLE.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    pub name: String,
    pub columns: Vec<ColumnText>,
    pub constraints: Vec<Clause>,
    /// What follows the list, such as WITHOUT ROWID.
    pub options: String,
}

/// One column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnText {
    pub name: String,
    /// The declared type with its comments; may be empty.
    pub ty: String,
    pub clauses: Vec<Clause>,
}

/// A clause of a column, or a constraint of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause {
    pub name: Option<String>,
    pub kind: ClauseKind,
    /// Without CONSTRAINT and its name.
    pub text: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ClauseKind {
    /// The columns, none where it belongs to a column.
    PrimaryKey(Vec<String>),
    Unique(Vec<String>),
    NotNull,
    Null,
    Default,
    Check,
    ForeignKey(Reference),
    Generated,
    Collate,
}

/// A foreign key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reference {
    /// None where it belongs to a column.
    pub columns: Vec<String>,
    pub parent: String,
    /// None where it means the primary key.
    pub parent_columns: Vec<String>,
    pub deferrable: bool,
    pub deferred: bool,
}

impl Clause {
    /// The rows that were there before it have been checked.
    pub fn is_valid(&self) -> bool {
        !self.text.contains(NOT_VALID_MARK)
    }
}

impl Definition {
    /// Takes a stored CREATE TABLE apart.
    pub fn parse(sql: &str) -> Option<Definition> {
        parse::definition(sql)
    }

    /// The column of this name; ASCII case is ignored, as in SQLite.
    pub fn column(&self, name: &str) -> Option<&ColumnText> {
        self.columns.iter().find(|c| c.name.eq_ignore_ascii_case(name))
    }

    pub fn column_mut(&mut self, name: &str) -> Option<&mut ColumnText> {
        self.columns.iter_mut().find(|c| c.name.eq_ignore_ascii_case(name))
    }

    /// Each clause with the column it belongs to; `None` for a constraint of the table.
    pub fn clauses(&self) -> impl Iterator<Item = (Option<&ColumnText>, &Clause)> {
        let of_columns = self.columns.iter().flat_map(|c| c.clauses.iter().map(move |clause| (Some(c), clause)));
        of_columns.chain(self.constraints.iter().map(|clause| (None, clause)))
    }

    /// The foreign keys in the order of the text: their clauses, and their columns.
    pub fn foreign_keys(&self) -> impl Iterator<Item = (&Clause, &Reference, Vec<String>)> {
        self.clauses().filter_map(|(column, clause)| match &clause.kind {
            ClauseKind::ForeignKey(reference) => {
                let columns = column.map_or_else(|| reference.columns.clone(), |c| vec![c.name.clone()]);
                Some((clause, reference, columns))
            }
            _ => None,
        })
    }

    /// The checks in the order of the text, each with the column it belongs to.
    pub fn checks(&self) -> impl Iterator<Item = (Option<&ColumnText>, &Clause)> {
        self.clauses().filter(|(_, clause)| clause.kind == ClauseKind::Check)
    }

    /// The primary key, and its columns.
    pub fn primary_key(&self) -> Option<(&Clause, Vec<String>)> {
        self.clauses().find_map(|(column, clause)| match &clause.kind {
            ClauseKind::PrimaryKey(columns) => {
                Some((clause, column.map_or_else(|| columns.clone(), |c| vec![c.name.clone()])))
            }
            _ => None,
        })
    }

    /// Keeps the clauses for which `keep` is true, of columns and of the table.
    pub fn retain(&mut self, mut keep: impl FnMut(Option<&str>, &Clause) -> bool) {
        for column in &mut self.columns {
            let name = column.name.clone();
            column.clauses.retain(|clause| keep(Some(&name), clause));
        }
        self.constraints.retain(|clause| keep(None, clause));
    }

    /// Calls `change` with each clause, of columns and of the table.
    pub fn each_clause(&mut self, mut change: impl FnMut(Option<&str>, &mut Clause)) {
        for column in &mut self.columns {
            let name = column.name.clone();
            column.clauses.iter_mut().for_each(|clause| change(Some(&name), clause));
        }
        self.constraints.iter_mut().for_each(|clause| change(None, clause));
    }

    /// The text of the CREATE TABLE.
    pub fn sql(&self) -> String {
        let columns = self.columns.iter().map(ColumnText::sql);
        let parts: Vec<String> = columns.chain(self.constraints.iter().map(Clause::sql)).collect();
        let mut sql = format!("CREATE TABLE {} ({})", quote(&self.name), parts.join(", "));
        if !self.options.is_empty() {
            // Writing to a String cannot fail.
            let _ = write!(sql, " {}", self.options);
        }
        sql
    }
}

impl ColumnText {
    /// Whether it has a clause of this kind.
    pub fn has(&self, kind: &ClauseKind) -> bool {
        self.clauses.iter().any(|c| c.kind == *kind)
    }

    /// The text of its DEFAULT without the keyword.
    pub fn default(&self) -> Option<&str> {
        let clause = self.clauses.iter().find(|c| c.kind == ClauseKind::Default)?;
        clause.text.get("DEFAULT".len()..).map(str::trim)
    }

    /// The column's text in the list.
    pub fn sql(&self) -> String {
        let mut sql = quote(&self.name);
        for part in std::iter::once(self.ty.clone()).chain(self.clauses.iter().map(Clause::sql)) {
            if !part.is_empty() {
                sql.push(' ');
                sql.push_str(&part);
            }
        }
        sql
    }
}

impl Clause {
    fn sql(&self) -> String {
        match &self.name {
            Some(name) => format!("CONSTRAINT {} {}", quote(name), self.text),
            None => self.text.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
