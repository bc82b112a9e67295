//! The meaning of names in a query: the tables of a FROM clause and their columns.

use super::need::Used;
use super::typed::{Shape, Typed};
use crate::names::{Among, quote, relation_name};
use crate::types::{self, Type};
use holdfast_types::schema::{Dialect, Schema, Table, TableKind};
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::ObjectName;
use std::cell::RefCell;

/// A column of a relation, as the query around it sees it.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub ty: Type,
    pub not_null: bool,
    pub table_oid: u32,
    pub attnum: i16,
    /// A literal compared with it may become a parameter.
    pub lifts: bool,
    /// The column's SQL, if that is not the relation's alias and the quoted name.
    pub sql: Option<String>,
}

pub type Columns = Vec<Column>;

/// One entry of a FROM clause.
#[derive(Clone, Debug)]
pub struct Relation {
    pub alias: String,
    pub columns: Columns,
    /// Columns that together identify a row, for GROUP BY.
    pub key: Vec<String>,
    /// The alias alone may mean the one value of its rows (set-returning functions).
    pub scalar: bool,
    pub source: Source,
    /// An outer join may put NULLs in place of its rows.
    pub nullable: bool,
    /// Notes the columns that are read, where that needs a privilege.
    pub used: Option<Used>,
    /// The system column `rowid` of a stored table.
    pub rowid: Option<Column>,
}

/// Where the rows of a relation come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A permanent table, view or virtual table, by its name.
    Table(String),
    /// A temporary table of the session.
    Temporary,
    Catalogue,
    /// A subquery in FROM, and whether it reads any table.
    Query {
        reads: bool,
    },
    /// A WITH query.
    With,
    Function,
}

impl Relation {
    /// A relation without a key that identifies its rows.
    pub fn new(alias: impl Into<String>, columns: Columns, source: Source) -> Relation {
        let (key, alias) = (Vec::new(), alias.into());
        Relation { alias, columns, key, scalar: false, source, nullable: false, used: None, rowid: None }
    }
}

/// The names that a SELECT sees, with those of the queries around it.
pub struct Scope<'p> {
    pub relations: Vec<Relation>,
    /// The columns that USING or NATURAL merged: name and SQL. They come first in `*`.
    pub merged: Vec<(Column, Vec<(usize, usize)>)>,
    pub parent: Option<&'p Scope<'p>>,
    pub grouping: RefCell<Grouping>,
}

/// What is known about aggregates and plain columns at one level.
#[derive(Default)]
pub struct Grouping {
    pub aggregates: bool,
    /// A function is computed over a window.
    pub windows: bool,
    /// The binder is inside the argument of an aggregate.
    pub inside: bool,
    /// The binder is inside an expression that GROUP BY names.
    pub grouped: bool,
    /// Names of columns used outside aggregates and GROUP BY expressions.
    pub bare: Vec<(String, usize)>,
}

impl<'p> Scope<'p> {
    pub fn new(parent: Option<&'p Scope<'p>>) -> Scope<'p> {
        Scope { relations: Vec::new(), merged: Vec::new(), parent, grouping: RefCell::default() }
    }

    pub fn column_sql(&self, relation: usize, column: usize) -> String {
        let (r, c) = (&self.relations[relation], &self.relations[relation].columns[column]);
        match &c.sql {
            Some(sql) => sql.clone(),
            None => format!("{}.{}", quote(&r.alias), quote(&c.name)),
        }
    }

    fn typed(&self, relation: usize, column: usize) -> Typed {
        let c = &self.relations[relation].columns[column];
        self.note(c, relation);
        self.reads(relation, column);
        Typed {
            sql: self.column_sql(relation, column),
            ty: c.ty,
            shape: Shape::Column { table_oid: c.table_oid, attnum: c.attnum, lifts: c.lifts },
            not_null: c.not_null,
        }
    }

    /// The statement reads a column.
    pub fn reads(&self, relation: usize, column: usize) {
        if let Some(used) = self.relations.get(relation).and_then(|r| r.used.as_ref()) {
            used.selects(column);
        }
    }

    /// The system column of a relation, if the name means it.
    fn system_column(&self, relation: usize, name: &str) -> Option<Typed> {
        let r = &self.relations[relation];
        let c = r.rowid.as_ref().filter(|c| c.name == name)?;
        self.note(c, relation);
        if let Some(used) = &r.used {
            match usize::try_from(c.attnum - 1) {
                Ok(column) => used.selects(column),
                Err(_) => used.selects_system_column(),
            }
        }
        let sql = c.sql.clone().unwrap_or_else(|| format!("{}.{}", quote(&r.alias), quote(&c.name)));
        let shape = Shape::Column { table_oid: c.table_oid, attnum: c.attnum, lifts: c.lifts };
        Some(Typed { sql, ty: c.ty, shape, not_null: !r.nullable })
    }

    fn note(&self, column: &Column, relation: usize) {
        let mut grouping = self.grouping.borrow_mut();
        if !grouping.inside && !grouping.grouped {
            let shown = match self.relations.get(relation) {
                Some(r) => format!("{}.{}", r.alias, column.name),
                None => column.name.clone(),
            };
            grouping.bare.push((shown, relation));
        }
    }

    /// Whether a relation of this level has a column of that name.
    pub fn has_column(&self, name: &str) -> bool {
        let merged = self.merged.iter().any(|(column, _)| column.name == name);
        merged || self.relations.iter().any(|r| r.columns.iter().any(|column| column.name == name))
    }

    /// Finds a column by its bare name.
    pub fn find(&self, name: &str) -> SqlResult<Option<Typed>> {
        if let Some((column, of)) = self.merged.iter().find(|(c, _)| c.name == name) {
            self.note(column, usize::MAX);
            of.iter().for_each(|(r, c)| self.reads(*r, *c));
            let sql = column.sql.clone().unwrap_or_default();
            let shape = Shape::Column { table_oid: column.table_oid, attnum: column.attnum, lifts: column.lifts };
            return Ok(Some(Typed { sql, ty: column.ty, shape, not_null: column.not_null }));
        }
        let mut found = None;
        for (r, relation) in self.relations.iter().enumerate() {
            for (c, column) in relation.columns.iter().enumerate() {
                if column.name == name {
                    if found.is_some() {
                        let message = format!("column reference \"{name}\" is ambiguous");
                        return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message));
                    }
                    found = Some((r, c));
                }
            }
        }
        if let Some((r, c)) = found {
            return Ok(Some(self.typed(r, c)));
        }
        let has = |r: &usize| self.relations[*r].rowid.as_ref().is_some_and(|c| c.name == name);
        let mut systems = (0..self.relations.len()).filter(has);
        match (systems.next(), systems.next(), self.parent) {
            (Some(_), Some(_), _) => {
                let message = format!("column reference \"{name}\" is ambiguous");
                Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message))
            }
            (Some(r), None, _) => Ok(self.system_column(r, name)),
            (None, _, Some(parent)) => parent.find(name),
            (None, _, None) => Ok(None),
        }
    }

    /// Finds a column by relation and name. `None` where there is no such relation.
    pub fn find_in(&self, alias: &str, name: &str) -> SqlResult<Option<Typed>> {
        if let Some(r) = self.relations.iter().position(|r| r.alias == alias) {
            let column = self.relations[r].columns.iter().position(|c| c.name == name);
            return match column.map_or_else(|| self.system_column(r, name), |c| Some(self.typed(r, c))) {
                Some(found) => Ok(Some(found)),
                None => Err(SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column {alias}.{name} does not exist"))),
            };
        }
        match self.parent {
            Some(parent) => parent.find_in(alias, name),
            None => Ok(None),
        }
    }

    pub fn relation(&self, alias: &str) -> Option<usize> {
        self.relations.iter().position(|r| r.alias == alias)
    }

    /// The columns of `*`: merged ones first, then the others in order.
    pub fn star(&self) -> Vec<Named> {
        let mut out: Vec<Named> = Vec::new();
        for (column, of) in &self.merged {
            let sql = column.sql.clone().unwrap_or_default();
            self.note(column, usize::MAX);
            of.iter().for_each(|(r, c)| self.reads(*r, *c));
            out.push(Named { name: column.name.clone(), typed: shaped(column, sql) });
        }
        for r in 0..self.relations.len() {
            out.extend(self.star_of(r, true));
        }
        out
    }

    pub fn star_of(&self, relation: usize, without_merged: bool) -> Vec<Named> {
        let merged = |c: usize| self.merged.iter().any(|(_, of)| of.contains(&(relation, c)));
        (0..self.relations[relation].columns.len())
            .filter(|c| !(without_merged && merged(*c)))
            .map(|c| Named { name: self.relations[relation].columns[c].name.clone(), typed: self.typed(relation, c) })
            .collect()
    }
}

fn shaped(column: &Column, sql: String) -> Typed {
    let shape = Shape::Column { table_oid: column.table_oid, attnum: column.attnum, lifts: column.lifts };
    Typed { sql, ty: column.ty, shape, not_null: column.not_null }
}

/// A named expression.
#[derive(Clone, Debug)]
pub struct Named {
    pub name: String,
    pub typed: Typed,
}

/// The columns of a stored table or view.
pub fn columns_of(table: &Table, dialect: Dialect) -> Columns {
    let partial =
        table.indexes.iter().any(|i| i.sql.as_deref().is_some_and(|sql| sql.to_ascii_lowercase().contains(" where ")));
    let not_null = crate::keys::primary_key(table);
    table
        .columns
        .iter()
        .enumerate()
        .map(|(i, c)| Column {
            name: c.name.clone(),
            ty: types::of_column(table, c, dialect),
            not_null: c.not_null || c.rowid_alias || not_null.contains(&c.name),
            table_oid: table.oid,
            attnum: i as i16 + 1,
            lifts: !partial,
            sql: None,
        })
        .collect()
}

/// The name of the system column that every stored table with a rowid has, unless a column has that name.
pub const ROWID: &str = "rowid";

/// The number of a system column that is not a column of the table as well; no grant on a column covers it.
pub const SYSTEM_ATTNUM: i16 = -1;

/// The system column `rowid`: SQLite's key of the row. A serial or integer primary key is the same number.
pub fn rowid_of(table: &Table, dialect: Dialect) -> Option<Column> {
    let is_free = !table.columns.iter().any(|c| c.name.eq_ignore_ascii_case(ROWID));
    if dialect != Dialect::Postgres || table.kind != TableKind::Table || table.without_rowid || !is_free {
        return None;
    }
    let alias = table.columns.iter().position(|c| c.rowid_alias);
    Some(Column {
        name: ROWID.to_owned(),
        ty: types::Type::INT8,
        not_null: true,
        table_oid: table.oid,
        attnum: alias.map_or(SYSTEM_ATTNUM, |at| at as i16 + 1),
        lifts: false,
        sql: None,
    })
}

/// Finds a user's table by its exact name.
pub fn table<'s>(schema: &'s Schema, among: Among, name: &str) -> SqlResult<&'s Table> {
    let found = match among {
        Among::All => schema.table_among(true, name).or_else(|| schema.table_among(false, name)),
        Among::Permanent => schema.table_among(false, name),
        Among::Temporary => schema.table_among(true, name),
    };
    match found {
        Some(table) => Ok(table),
        None => Err(SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))),
    }
}

/// The table that a name means.
pub fn table_named<'s>(schema: &'s Schema, name: &ObjectName) -> SqlResult<&'s Table> {
    let (among, bare) = relation_name(name)?;
    table(schema, among, &bare)
}
