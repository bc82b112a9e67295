//! The restored database in its scratch file.
//!
//! The file is the caller's own copy, so SQLite itself gives a table its new name in it: with ALTER TABLE, which changes every
//! mention of the table in definitions.
//!
//! Failure: a definition that SQLite cannot read is reported with its words.

use crate::error::PartError;
use crate::order::{parents_first, rowid_name, without_foreign_keys};
use holdfast_dump::identifier::{after_word, read_name};
use holdfast_dump::restore::Part;
use holdfast_store::schema_map::read_map;
use holdfast_store::schema_read::read_schema;
use holdfast_store::sqlite::{Conn, OpenFlags};
use holdfast_types::Value;
use holdfast_types::quoting::{quote, quote_text};
use holdfast_types::schema::{Dialect, Schema, Table, TableKind};
use std::sync::Arc;

/// See the module.
pub struct Source {
    pub conn: Conn,
    pub dialect: Dialect,
    pub schema: Schema,
}

/// A table as it is to be in the server.
pub struct Definition {
    /// As it is in the dump; its columns are those of the definition.
    pub table: Arc<Table>,
    /// Its name here, by now, and in the server.
    pub name: String,
    /// The stored statements.
    pub create: String,
    pub indexes: Vec<String>,
    pub rows: u64,
    /// The counter of AUTOINCREMENT, where it is ahead of the rows.
    pub sequence: Option<i64>,
}

fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::Text(text)) => text.clone(),
        _ => String::new(),
    }
}

impl Source {
    pub fn open(part: &Part) -> Result<Source, PartError> {
        let name = part.file.display().to_string();
        let mut conn = Conn::open(&name, OpenFlags { write: true, create: false }, None)?;
        // The copy is thrown away: nothing in it has to be durable.
        conn.exec("PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF; PRAGMA legacy_alter_table = OFF")?;
        let map = read_map(&mut conn)?;
        let schema = read_schema(&mut conn, &map)?;
        Ok(Source { conn, dialect: part.dialect, schema })
    }

    /// One table under its new name. Triggers and views are not part of it.
    pub fn table(
        &mut self,
        database: &str,
        table: &str,
        name: &str,
        taken: &[String],
        foreign_keys: bool,
    ) -> Result<Definition, PartError> {
        let Some(found) = self.schema.table(table).cloned() else {
            let near = self.schema.tables.iter().map(|t| t.name.as_str()).collect::<Vec<_>>().join(", ");
            let near = if near.is_empty() { "; it has no tables".to_owned() } else { format!("; it has: {near}") };
            return Err(PartError::NoTable { database: database.to_owned(), table: table.to_owned(), near });
        };
        let kind = match found.kind {
            TableKind::Table => None,
            TableKind::View => Some("view"),
            TableKind::Virtual => Some("virtual table"),
        };
        if let Some(kind) = kind {
            return Err(PartError::NotATable { name: found.name.clone(), kind });
        }
        for row in self.conn.query_rows("SELECT type, name FROM sqlite_schema WHERE type IN ('trigger', 'view')")? {
            self.conn.exec(&format!("DROP {} {}", text(row.first()), quote(&text(row.get(1)))))?;
        }
        if found.name != name {
            if self.schema.table(name).is_some_and(|other| !other.name.eq_ignore_ascii_case(&found.name)) {
                self.conn.exec(&format!("DROP TABLE IF EXISTS {}", quote(name)))?;
            }
            self.conn.exec(&format!("ALTER TABLE {} RENAME TO {}", quote(&found.name), quote(name)))?;
        }
        let mut definition = self.definition(&found, name, foreign_keys)?;
        let mut names = taken.to_vec();
        let rename = |sql: &String| rename_index(sql, &found.name, name, &mut names);
        definition.indexes = definition.indexes.iter().map(rename).collect();
        Ok(definition)
    }

    /// All tables, parents first.
    pub fn tables(&mut self, foreign_keys: bool) -> Result<Vec<Definition>, PartError> {
        let tables = parents_first(&self.schema.tables);
        tables.iter().map(|table| self.definition(table, &table.name, foreign_keys)).collect()
    }

    fn definition(&mut self, table: &Arc<Table>, name: &str, foreign_keys: bool) -> Result<Definition, PartError> {
        let of = quote_text(name);
        let sql = format!("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = {of}");
        let create = text(Some(&self.conn.query_value(&sql)?));
        let plain = if foreign_keys { None } else { without_foreign_keys(&create) };
        let sql = format!(
            "SELECT sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = {of} AND sql IS NOT NULL ORDER BY rowid"
        );
        let indexes = self.conn.query_rows(&sql)?.iter().map(|row| text(row.first())).collect();
        let rows = match self.conn.query_value(&format!("SELECT count(*) FROM {}", quote(name)))? {
            Value::Int(rows) => rows as u64,
            _ => 0,
        };
        let sequence = self.sequence(table, name)?;
        Ok(Definition {
            table: table.clone(),
            name: name.to_owned(),
            create: plain.unwrap_or(create),
            indexes,
            rows,
            sequence,
        })
    }

    fn sequence(&mut self, table: &Table, name: &str) -> Result<Option<i64>, PartError> {
        if !table.columns.iter().any(|column| column.autoincrement) {
            return Ok(None);
        }
        let Some(rowid) = rowid_name(table) else { return Ok(None) };
        let (of, table) = (quote_text(name), quote(name));
        let ahead = format!(
            "SELECT seq FROM sqlite_sequence WHERE name = {of} AND seq > coalesce((SELECT max({rowid}) FROM {table}), 0)"
        );
        Ok(match self.conn.query_value(&ahead)? {
            Value::Int(sequence) => Some(sequence),
            _ => None,
        })
    }

    /// The statements that create views, in the order in which they were created.
    pub fn views(&self) -> Vec<String> {
        self.of_kind(TableKind::View).map(|table| table.sql.clone()).collect()
    }

    /// Virtual tables with their names.
    pub fn virtual_tables(&self) -> Vec<Arc<Table>> {
        self.of_kind(TableKind::Virtual).cloned().collect()
    }

    fn of_kind(&self, kind: TableKind) -> impl Iterator<Item = &Arc<Table>> {
        self.schema.tables.iter().filter(move |table| table.kind == kind)
    }

    /// The statements that create triggers.
    pub fn triggers(&self) -> Vec<String> {
        self.schema.tables.iter().flat_map(|table| &table.triggers).map(|trigger| trigger.sql.clone()).collect()
    }
}

/// A CREATE INDEX with a name that is free: that of the index, with the table's new name for its old one.
fn rename_index(sql: &str, old: &str, new: &str, taken: &mut Vec<String>) -> String {
    let begin = after_word(sql, "create").map(|rest| after_word(rest, "unique").unwrap_or(rest));
    let Some((rest, (name, behind))) =
        begin.and_then(|rest| after_word(rest, "index")).and_then(|rest| Some((rest, read_name(rest)?)))
    else {
        return sql.to_owned();
    };
    let wanted = match name.strip_prefix(old) {
        Some(end) => format!("{new}{end}"),
        None if old == new => name.clone(),
        None => format!("{new}_{name}"),
    };
    let is_free = |name: &String| !taken.iter().any(|other| other.eq_ignore_ascii_case(name));
    let free = std::iter::once(wanted.clone()).chain((1..).map(|n| format!("{wanted}{n}"))).find(is_free);
    let free = free.unwrap_or(wanted);
    taken.push(free.clone());
    format!("{} {}{behind}", &sql[..sql.len() - rest.len()], quote(&free))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_get_free_names() {
        let mut taken = vec!["o2_a_key".to_owned()];
        let mut renamed = |sql: &str| rename_index(sql, "o", "o2", &mut taken);
        assert_eq!(
            renamed("CREATE UNIQUE INDEX \"o_a_key\" /*constraint*/ ON \"o2\" (\"a\")"),
            "CREATE UNIQUE INDEX \"o2_a_key1\" /*constraint*/ ON \"o2\" (\"a\")"
        );
        assert_eq!(renamed("CREATE INDEX by_date ON o2(d)"), "CREATE INDEX \"o2_by_date\" ON o2(d)");
        assert_eq!(renamed("CREATE INDEX [by_date] ON o2(e)"), "CREATE INDEX \"o2_by_date1\" ON o2(e)");
    }
}
