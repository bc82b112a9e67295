//! A volume's schema as the dialect and the catalogue need it. The engine reads it from `sqlite_schema` after each
//! change; it is immutable and shared.

use crate::access::grants::Grants;
use crate::definition::Definition;
use crate::definition::names::{default_name, free};
use crate::publication::Publications;
use crate::subscription::Subscriptions;
use std::collections::HashMap;
use std::sync::Arc;

/// Which dialect of SQL a database uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// SQLite's statements with SQLite's results (imported files).
    Sqlite,
    /// PostgreSQL's statements with PostgreSQL's results, or an error.
    Postgres,
}

/// All user-visible objects of one volume at one schema epoch.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// Raised by every DDL statement.
    pub epoch: u32,
    /// With temporary tables included: the epoch of the schema without them; otherwise `None`.
    pub permanent: Option<u32>,
    pub tables: Vec<Arc<Table>>,
    /// Lower-cased name to position in `tables` (tables, views and virtual tables).
    pub by_name: HashMap<String, usize>,
    /// Owners and privileges.
    pub grants: Arc<Grants>,
    pub publications: Arc<Publications>,
    pub subscriptions: Arc<Subscriptions>,
}

impl Schema {
    /// A table, view or virtual table by name, ASCII case ignored as SQLite does.
    pub fn table(&self, name: &str) -> Option<&Arc<Table>> {
        match self.by_name.get(name) {
            Some(&i) => self.tables.get(i),
            None => self.by_name.get(&name.to_ascii_lowercase()).and_then(|&i| self.tables.get(i)),
        }
    }

    /// A table, view or virtual table with exactly this name, either among the session's temporary ones or among the
    /// others.
    pub fn table_among(&self, temp: bool, name: &str) -> Option<&Arc<Table>> {
        match self.table(name) {
            Some(found) if found.temp == temp => Some(found).filter(|t| t.name == name),
            // A temporary table hides a permanent one.
            _ => self.tables.iter().find(|t| t.temp == temp && t.name == name),
        }
    }

    /// A table or view by its OID.
    pub fn by_oid(&self, oid: u32) -> Option<&Arc<Table>> {
        // Permanent tables come first, in the order of their OIDs.
        let permanent = self.tables.partition_point(|t| !t.temp);
        match self.tables[..permanent].binary_search_by_key(&oid, |t| t.oid) {
            Ok(at) => self.tables.get(at),
            Err(_) => self.tables[permanent..].iter().find(|t| t.oid == oid),
        }
    }

    /// Returns the schema extended by a session's temporary tables, which hide permanent ones of their name.
    pub fn with_temporary(&self, epoch: u32, temporary: &[Arc<Table>]) -> Schema {
        let mut schema = Schema { epoch, permanent: Some(self.epoch), ..self.clone() };
        for table in temporary {
            schema.by_name.insert(table.name.to_ascii_lowercase(), schema.tables.len());
            schema.tables.push(table.clone());
        }
        schema
    }

    /// The epoch of the schema without temporary tables, with which statements on permanent tables are compared.
    pub fn permanent_epoch(&self) -> u32 {
        self.permanent.unwrap_or(self.epoch)
    }

    /// Whether the schema includes temporary tables.
    pub fn has_temporary(&self) -> bool {
        self.tables.last().is_some_and(|table| table.temp)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    Table,
    View,
    Virtual,
}

/// A table or view.
#[derive(Clone, Debug)]
pub struct Table {
    /// PostgreSQL OID shown in the catalogue: 16384 + stable table id.
    pub oid: u32,
    pub name: String,
    pub kind: TableKind,
    pub without_rowid: bool,
    /// The CREATE statement as stored in `sqlite_schema`.
    pub sql: String,
    pub columns: Vec<Column>,
    pub indexes: Vec<Index>,
    pub foreign_keys: Vec<ForeignKey>,
    pub triggers: Vec<Trigger>,
    /// Whether this is a temporary table of the session.
    pub temp: bool,
    /// The name of the primary key's constraint; empty where the table has none in its definition.
    pub key_name: String,
}

impl Table {
    /// Takes from the definition what SQLite does not show otherwise: names of constraints, deferral.
    pub fn with_definition(mut self) -> Table {
        let definition = match self.kind {
            TableKind::Table => Definition::parse(&self.sql),
            _ => None,
        };
        let explicit = definition.as_ref().and_then(|d| d.primary_key()).and_then(|(clause, _)| clause.name.clone());
        if self.columns.iter().any(|c| c.pk > 0) {
            self.key_name = explicit.unwrap_or_else(|| default_name(&self.name, "", "pkey"));
        }
        let mut declared: Vec<_> = definition.iter().flat_map(|d| d.foreign_keys()).collect();
        let mut names: Vec<String> = declared.iter().filter_map(|(clause, ..)| clause.name.clone()).collect();
        for key in &mut self.foreign_keys {
            let same = |columns: &[String]| {
                columns.len() == key.columns.len()
                    && columns.iter().zip(&key.columns).all(|(a, b)| a.eq_ignore_ascii_case(b))
            };
            let at = declared.iter().position(|(_, r, c)| same(c) && r.parent.eq_ignore_ascii_case(&key.parent));
            let mut name = None;
            if let Some((clause, reference, _)) = at.map(|at| declared.remove(at)) {
                (key.deferrable, key.deferred) = (reference.deferrable, reference.deferred);
                key.valid = clause.is_valid();
                name = clause.name.clone();
            }
            key.name = name.unwrap_or_else(|| {
                let name = free(&self.name, &key.columns.join("_"), "fkey", |name| !names.iter().any(|n| n == name));
                names.push(name.clone());
                name
            });
        }
        self
    }
}

#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    /// Declared type as written in the stored CREATE statement; may be empty.
    pub decl_type: String,
    pub not_null: bool,
    /// DEFAULT expression as SQL text.
    pub default: Option<String>,
    /// Position in the primary key, from 1; 0 when not part of it.
    pub pk: u32,
    /// Whether this column is the rowid itself (INTEGER PRIMARY KEY).
    pub rowid_alias: bool,
    pub autoincrement: bool,
    /// Whether this is a generated column, virtual or stored.
    pub generated: bool,
    /// Generated column that is computed when it is read.
    pub generated_virtual: bool,
}

#[derive(Clone, Debug)]
pub struct Index {
    pub oid: u32,
    pub name: String,
    pub unique: bool,
    /// Whether it implements the PRIMARY KEY.
    pub primary: bool,
    /// Key columns; `None` for an expression.
    pub columns: Vec<Option<String>>,
    /// CREATE INDEX text; `None` for the automatic index of a constraint.
    pub sql: Option<String>,
}

#[derive(Clone, Debug)]
pub struct ForeignKey {
    pub columns: Vec<String>,
    pub parent: String,
    pub parent_columns: Vec<Option<String>>,
    pub on_delete: String,
    pub on_update: String,
    /// The constraint's name, PostgreSQL's default where it was given none.
    pub name: String,
    pub deferrable: bool,
    /// INITIALLY DEFERRED.
    pub deferred: bool,
    /// The rows that were there before it have been checked.
    pub valid: bool,
}

impl Default for ForeignKey {
    fn default() -> ForeignKey {
        ForeignKey {
            columns: Vec::new(),
            parent: String::new(),
            parent_columns: Vec::new(),
            on_delete: String::new(),
            on_update: String::new(),
            name: String::new(),
            deferrable: false,
            deferred: false,
            valid: true,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Trigger {
    pub name: String,
    pub sql: String,
}
