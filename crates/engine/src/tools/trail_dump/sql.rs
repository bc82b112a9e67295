//! The changes of boxcars as SQL that a person can read, judge and run again: the changes that only a deposed server has.
//!
//! Each transaction is written between BEGIN and COMMIT under a comment with its time, in the database of the
//! last USE before it. A row is found by its key; the values that an update or delete replaced are in a comment. Values
//! are written in the dialect of the database.
//!
//! A row of a table without an INTEGER PRIMARY KEY is named by its rowid, which another history may have given to another
//! row: such statements need a look at the values before. Prepared transactions are in comments.

use super::shown::{Cells, Item, OpItem, RecordItem, TxnItem, Val, hex};
use super::{Filter, dump};
use crate::state::options::Options;
use holdfast_store::schema_map::PREPARED_TABLE;
use holdfast_types::quoting::quote;
use holdfast_types::schema::Dialect;
use holdfast_types::{Value, VolumeId};
use std::path::Path;

/// A script that is written boxcar by boxcar.
pub struct Script<'a> {
    dir: &'a Path,
    options: &'a Options,
    out: &'a mut dyn FnMut(&str),
    /// Where statements go by now.
    database: Option<String>,
    /// How many transactions were written.
    pub transactions: u64,
    /// Whether something was changed besides rows: tables, databases, parameters, roles.
    pub reshapes: bool,
}

impl<'a> Script<'a> {
    /// `dir`: the data directory whose trail it is; large transactions are read there once more. `out` gets the text.
    pub fn new(dir: &'a Path, options: &'a Options, out: &'a mut dyn FnMut(&str)) -> Script<'a> {
        Script { dir, options, out, database: None, transactions: 0, reshapes: false }
    }

    /// Adds what a boxcar holds.
    pub fn add(&mut self, item: &Item) {
        let Item::Boxcar { lsn, records, .. } = item else { return };
        records.iter().for_each(|record| self.record(*lsn, record));
    }

    fn record(&mut self, lsn: u64, record: &RecordItem) {
        match record {
            RecordItem::Batch { volume, database, dialect, transactions, .. } => {
                let name = database.clone().unwrap_or_else(|| format!("volume {volume}"));
                let of = (VolumeId(*volume), *dialect);
                transactions.iter().for_each(|t| self.transaction(lsn, &name, of, t));
            }
            RecordItem::VolumeCreate { name, dialect, .. } => {
                self.reshapes = true;
                self.line(&format!("CREATE DATABASE {} DIALECT {dialect};", quote(name)));
            }
            RecordItem::VolumeDrop { volume } => {
                self.reshapes = true;
                self.comment(&format!("database of volume {volume} dropped"));
            }
            RecordItem::Parameters { .. }
            | RecordItem::Role { .. }
            | RecordItem::RoleDrop { .. }
            | RecordItem::DatabaseAccess { .. } => {
                self.reshapes = true;
                self.comment(&record.to_string());
            }
            RecordItem::Unreadable { .. } => self.comment(&record.to_string()),
            // The parts of a large transaction are written where it ends, if it was committed.
            RecordItem::Fragment { .. } | RecordItem::FragmentDrop { .. } | RecordItem::Checkpoint { .. } => {}
        }
    }

    fn line(&mut self, text: &str) {
        (self.out)(text);
        (self.out)("\n");
    }

    /// A value may hold a line break; a comment must not end in its midst.
    fn comment(&mut self, text: &str) {
        self.line(&format!("-- {}", in_one_line(text)));
    }

    fn transaction(&mut self, lsn: u64, database: &str, of: (VolumeId, Dialect), t: &TxnItem) {
        self.transactions += 1;
        if self.database.as_deref() != Some(database) {
            self.line(&format!("USE {};", quote(database)));
            self.database = Some(database.to_owned());
        }
        let by = t.by().map(|by| format!(", by {by}")).unwrap_or_default();
        self.comment(&format!("database {database}, LSN {lsn}, transaction {}, {} ms after 1970{by}", t.id, t.unix_ms));
        self.line("BEGIN;");
        t.ops.iter().for_each(|op| self.operation(op, of));
        self.line("COMMIT;");
    }

    /// The parts that a large transaction left in the trail before its end; the first may lie far before.
    fn fragments(&mut self, (volume, dialect): (VolumeId, Dialect), transaction: u64) {
        let (dir, options) = (self.dir, self.options);
        let read = dump(dir, options, Filter { from: None, volume: Some(volume) }, |item| {
            let Item::Boxcar { records, .. } = item else { return true };
            for record in records {
                if let RecordItem::Fragment { transaction: of, ops, .. } = record
                    && *of == transaction
                {
                    ops.iter().for_each(|op| self.operation(op, (volume, dialect)));
                }
            }
            true
        });
        if let Err(error) = read {
            self.comment(&format!("the rest of this transaction cannot be read: {error}"));
        }
    }

    fn operation(&mut self, op: &OpItem, (volume, dialect): (VolumeId, Dialect)) {
        let value = |v: &Val| literal(&v.0, dialect);
        match op {
            OpItem::Insert { table, .. } | OpItem::Update { table, .. } | OpItem::Delete { table, .. }
                if table == PREPARED_TABLE =>
            {
                self.comment(&op.to_string());
            }
            OpItem::Insert { table, values, .. } => {
                let columns: Vec<String> = values.0.iter().map(|(name, _)| quote(name)).collect();
                let literals: Vec<String> = values.0.iter().map(|(_, v)| value(v)).collect();
                let (columns, literals) = (columns.join(", "), literals.join(", "));
                self.line(&format!("INSERT INTO {} ({columns}) VALUES ({literals});", quote(table)));
            }
            OpItem::Update { table, key, changes, .. } => {
                let set: Vec<String> =
                    changes.iter().map(|c| format!("{} = {}", quote(&c.column), value(&c.after))).collect();
                let before: Vec<String> = changes.iter().map(|c| format!("{} = {}", c.column, c.before)).collect();
                let (set, found, before) = (set.join(", "), found(key, dialect), in_one_line(&before.join(", ")));
                self.line(&format!("UPDATE {} SET {set} WHERE {found}; -- before: {before}", quote(table)));
            }
            OpItem::Delete { table, key, before } => {
                let (found, before) = (found(key, dialect), in_one_line(&before.to_string()));
                self.line(&format!("DELETE FROM {} WHERE {found}; -- before: {before}", quote(table)));
            }
            OpItem::Ddl { sql, .. } => {
                self.reshapes = true;
                self.line(&format!("{sql};"));
            }
            OpItem::Pragma { sql } => self.line(&format!("{sql};")),
            OpItem::Sequence { .. } | OpItem::AllSequences { .. } => {}
            OpItem::Fragments { transaction, .. } => self.fragments((volume, dialect), *transaction),
            OpItem::Unreadable { .. } => self.comment(&op.to_string()),
        }
    }
}

fn in_one_line(text: &str) -> String {
    text.replace('\n', "\\n").replace('\r', "\\r")
}

fn found(key: &Cells, dialect: Dialect) -> String {
    let parts = key.0.iter().map(|(name, value)| format!("{} = {}", quote(name), literal(&value.0, dialect)));
    parts.collect::<Vec<_>>().join(" AND ")
}

/// A value that reads back as it was. What is quoted takes any type in the PostgreSQL dialect: a stored number may be a
/// boolean.
pub fn literal(value: &Value, dialect: Dialect) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    match (value, dialect) {
        (Value::Null, _) => "NULL".to_owned(),
        (Value::Text(text), _) => quoted(text),
        (Value::Int(n), Dialect::Postgres) => format!("'{n}'"),
        (Value::Real(r), Dialect::Postgres) => format!("'{r:?}'"),
        (Value::Blob(bytes), Dialect::Postgres) => format!("'\\x{}'", hex(bytes)),
        (Value::Int(n), Dialect::Sqlite) => n.to_string(),
        // SQLite has no word for it.
        (Value::Real(r), Dialect::Sqlite) if r.is_infinite() => if *r > 0.0 { "9e999" } else { "-9e999" }.to_owned(),
        (Value::Real(r), Dialect::Sqlite) => format!("{r:?}"),
        (Value::Blob(bytes), Dialect::Sqlite) => format!("x'{}'", hex(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_back_in_their_dialect() {
        let both = |value: Value| [literal(&value, Dialect::Postgres), literal(&value, Dialect::Sqlite)];
        assert_eq!(both(Value::Int(-5)), ["'-5'", "-5"]);
        assert_eq!(both(Value::Real(0.1)), ["'0.1'", "0.1"]);
        assert_eq!(both(Value::Real(f64::NEG_INFINITY))[1], "-9e999");
        assert_eq!(both(Value::Text("a'b\n\\n".into())), ["'a''b\n\\n'", "'a''b\n\\n'"]);
        assert_eq!(both(Value::Blob([0, 255].into())), ["'\\x00ff'", "x'00ff'"]);
        assert_eq!(both(Value::Null), ["NULL", "NULL"]);
    }

    #[test]
    fn a_line_break_ends_no_comment() {
        let (mut written, options) = (String::new(), Options::default());
        let mut out = |text: &str| written.push_str(text);
        let mut script = Script::new(Path::new("/nowhere"), &options, &mut out);
        let text = |t: &str| Val(Value::Text(t.into()));
        let before = Cells(vec![("v".to_owned(), text("x\nDROP TABLE t;"))]);
        let key = Cells(vec![("id".to_owned(), Val(Value::Int(1)))]);
        script.operation(&OpItem::Delete { table: "t".to_owned(), key, before }, (VolumeId(1), Dialect::Sqlite));
        assert_eq!(written, "DELETE FROM \"t\" WHERE \"id\" = 1; -- before: v='x\\nDROP TABLE t;'\n");
    }
}
