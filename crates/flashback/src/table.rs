//! A table as the server has it now: names, types and what a row is found by; and values as SQL.

use crate::error::FlashbackError;
use crate::row::{Key, TableKey};
use crate::server::{FIRST_OID, Session};
use holdfast_engine::trail_dump::literal;
use holdfast_types::quoting::{quote, quote_text};
use holdfast_types::schema::Dialect;
use holdfast_types::{TableId, Value};

/// SQLite's names for the rowid. The PostgreSQL dialect knows the first.
const ROWID_NAMES: [&str; 3] = ["rowid", "_rowid_", "oid"];

#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    /// As `format_type` writes it.
    pub ty: String,
}

#[derive(Clone, Debug)]
pub struct Table {
    pub id: TableId,
    pub name: String,
    pub dialect: Dialect,
    /// The stored ones, in the order of the trail's images.
    pub columns: Vec<Column>,
    pub key: TableKey,
    pub has_triggers: bool,
    /// Foreign keys that refer to this table and change the referring rows; only with [`Table::with_foreign_keys`], as is
    /// what follows.
    pub referring: Vec<Referring>,
    /// The tables that its foreign keys refer to.
    pub parents: Vec<TableId>,
}

/// A foreign key of another table, with ON DELETE or ON UPDATE.
#[derive(Clone, Debug)]
pub struct Referring {
    pub id: TableId,
    pub table: String,
    /// Names there, and here.
    pub columns: Vec<(String, String)>,
    /// The referring row is changed when this one is deleted; is set to NULL or its default when the key changes; gets the
    /// new key.
    pub on_delete: bool,
    pub on_update: bool,
    pub follows: bool,
    /// The referring table is this one: what its rows are found by.
    pub itself: bool,
}

/// A value as SQL of a dialect.
pub fn sql_of(value: &Value, dialect: Dialect) -> String {
    match (value, dialect) {
        // A literal ends at a zero byte.
        (Value::Text(text), Dialect::Sqlite) if text.contains('\0') => {
            format!("CAST({} AS TEXT)", literal(&Value::Blob(text.clone().into_bytes()), dialect))
        }
        _ => literal(value, dialect),
    }
}

impl Table {
    pub fn named(session: &Session, dialect: Dialect, name: &str) -> Result<Option<Table>, FlashbackError> {
        Table::read(session, dialect, &format!("relname = {}", quote_text(name)))
    }

    pub fn numbered(session: &Session, dialect: Dialect, id: TableId) -> Result<Option<Table>, FlashbackError> {
        Table::read(session, dialect, &format!("oid = {}", FIRST_OID + i64::from(id.0)))
    }

    fn read(session: &Session, dialect: Dialect, which: &str) -> Result<Option<Table>, FlashbackError> {
        let sql = format!("SELECT oid, relname FROM pg_class WHERE relkind = 'r' AND oid >= {FIRST_OID} AND {which}");
        let rows = session.rows("the list of tables", &sql)?;
        let Some([Some(oid), Some(name)]) = rows.first().map(Vec::as_slice) else { return Ok(None) };
        let id = oid.parse::<i64>().ok().and_then(|oid| u32::try_from(oid - FIRST_OID).ok());
        let id = TableId(id.ok_or(FlashbackError::Answer { what: "the list of tables" })?);
        let sql = format!(
            "SELECT attnum, attname, format_type(atttypid, atttypmod), attgenerated FROM pg_attribute \
             WHERE attrelid = {oid} AND attnum > 0 ORDER BY attnum"
        );
        let mut columns = Vec::new();
        let mut numbers = Vec::new();
        let mut names = Vec::new();
        for row in session.rows("the columns of a table", &sql)? {
            let [Some(number), Some(name), ty, generated] = &row[..] else {
                return Err(FlashbackError::Answer { what: "the columns of a table" });
            };
            names.push(name.to_ascii_lowercase());
            if generated.as_deref().unwrap_or_default().is_empty() {
                numbers.push(number.parse::<i16>().unwrap_or_default());
                columns.push(Column { name: name.clone(), ty: ty.clone().unwrap_or_default() });
            }
        }
        let key = key_of(session, dialect, (oid, name), &names, &numbers)?;
        let triggers = session.rows("triggers", &format!("SELECT tgname FROM pg_trigger WHERE tgrelid = {oid}"))?;
        let has_triggers = !triggers.is_empty();
        let (referring, parents) = (Vec::new(), Vec::new());
        Ok(Some(Table { id, name: name.clone(), dialect, columns, key, has_triggers, referring, parents }))
    }

    /// The table with the foreign keys that refer to it and that it has.
    pub fn with_foreign_keys(self, session: &Session) -> Result<Table, FlashbackError> {
        let oid = (FIRST_OID + i64::from(self.id.0)).to_string();
        let (referring, parents) = foreign_keys(session, &oid)?;
        Ok(Table { referring, parents, ..self })
    }

    /// The condition that finds a row.
    pub fn found(&self, key: &Key) -> String {
        let parts: Vec<String> =
            self.key_cells(key).iter().map(|(name, value)| format!("{} = {value}", quote(name))).collect();
        parts.join(" AND ")
    }

    /// The key with the names of its columns, as SQL.
    pub fn key_cells(&self, key: &Key) -> Vec<(String, String)> {
        let name = |position: &usize| self.columns.get(*position).map_or("?", |column| &column.name).to_owned();
        match (key, &self.key) {
            (Key::Rowid(rowid), TableKey::Rowid { name: hidden, alias }) => {
                let name = alias.as_ref().map_or_else(|| hidden.clone(), name);
                vec![(name, rowid.to_string())]
            }
            (Key::Columns(values), TableKey::Columns(positions)) => {
                let values = values.iter().map(|value| sql_of(value, self.dialect));
                positions.iter().map(name).zip(values).collect()
            }
            // Keys of another kind are refused where operations are read.
            _ => vec![],
        }
    }

    /// The names of the columns that the key consists of.
    pub fn key_names(&self) -> Vec<String> {
        match &self.key {
            TableKey::Rowid { alias: Some(at), .. } => self.columns.get(*at).iter().map(|c| c.name.clone()).collect(),
            TableKey::Rowid { name, .. } => vec![name.clone()],
            TableKey::Columns(positions) => {
                positions.iter().filter_map(|at| self.columns.get(*at)).map(|c| c.name.clone()).collect()
            }
        }
    }

    /// The name of a stored column; its number, where the table has fewer columns now.
    pub fn column_name(&self, position: usize) -> String {
        self.columns.get(position).map_or_else(|| format!("column {position}"), |column| column.name.clone())
    }

    /// That a column has a value, NULL or not. JSON has no operators of its own.
    pub fn has_value(&self, position: usize, value: &Value) -> String {
        let column = &self.columns[position];
        let (name, value) = (quote(&column.name), sql_of(value, self.dialect));
        match (&*column.ty, self.dialect) {
            ("json" | "jsonb", Dialect::Postgres) => format!("{name}::text IS NOT DISTINCT FROM {value}"),
            _ => format!("{name} IS NOT DISTINCT FROM {value}"),
        }
    }
}

fn key_of(
    session: &Session,
    dialect: Dialect,
    (oid, table): (&str, &str),
    names: &[String],
    numbers: &[i16],
) -> Result<TableKey, FlashbackError> {
    let position = |number: i16| numbers.iter().position(|n| *n == number);
    for hidden in ROWID_NAMES {
        if names.iter().any(|name| name == hidden) || (dialect == Dialect::Postgres && hidden != ROWID_NAMES[0]) {
            continue;
        }
        if let Ok(number) = session.column_of(&format!("SELECT {hidden} FROM {}", quote(table))) {
            return Ok(TableKey::Rowid { name: hidden.to_owned(), alias: number.and_then(position) });
        }
    }
    Ok(TableKey::Columns(primary_key(session, oid)?.into_iter().filter_map(position).collect()))
}

/// The foreign keys that refer to a table and act on their rows, and the tables that it refers to.
fn foreign_keys(session: &Session, oid: &str) -> Result<(Vec<Referring>, Vec<TableId>), FlashbackError> {
    let sql = format!(
        "SELECT conrelid, conkey, confrelid, confkey, confdeltype, confupdtype FROM pg_constraint \
         WHERE contype = 'f' AND (confrelid = {oid} OR conrelid = {oid})"
    );
    let (mut referring, mut parents) = (Vec::new(), Vec::new());
    for row in session.rows("foreign keys", &sql)? {
        let cell = |at: usize| row.get(at).and_then(Option::as_deref).unwrap_or_default();
        let (child, parent) = (cell(0), cell(2));
        if child == oid && parent != oid {
            parents.extend(table_of(parent));
        }
        let (on_delete, on_update) = (matches!(cell(4), "c" | "n" | "d"), matches!(cell(5), "n" | "d"));
        let follows = cell(5) == "c";
        if parent != oid || !(on_delete || on_update || follows) {
            continue;
        }
        let id = table_of(child).ok_or(FlashbackError::Answer { what: "foreign keys" })?;
        let there = names_of(session, child, &numbers_in(cell(1)))?;
        let mut referred = numbers_in(cell(3));
        if referred.is_empty() {
            referred = primary_key(session, parent)?;
        }
        let here = names_of(session, parent, &referred)?;
        let table = session.rows("a table", &format!("SELECT relname FROM pg_class WHERE oid = {child}"))?;
        let table = table.first().and_then(|row| row.first()?.clone());
        let table = table.ok_or(FlashbackError::Answer { what: "the name of a table" })?;
        let columns = there.into_iter().zip(here).collect();
        referring.push(Referring { id, table, columns, on_delete, on_update, follows, itself: child == oid });
    }
    Ok((referring, parents))
}

fn table_of(oid: &str) -> Option<TableId> {
    oid.parse::<i64>().ok().and_then(|oid| u32::try_from(oid - FIRST_OID).ok()).map(TableId)
}

/// The numbers in an array as text: `{1,2}`.
fn numbers_in(array: &str) -> Vec<i16> {
    array.trim_matches(['{', '}']).split(',').filter_map(|number| number.trim().parse().ok()).collect()
}

/// The numbers of the columns of a primary key, in its order.
fn primary_key(session: &Session, oid: &str) -> Result<Vec<i16>, FlashbackError> {
    let sql = format!("SELECT indkey FROM pg_index WHERE indrelid = {oid} AND indisprimary");
    let rows = session.rows("a primary key", &sql)?;
    let key = rows.first().and_then(|row| row.first()?.clone()).unwrap_or_default();
    Ok(key.split_whitespace().filter_map(|number| number.parse().ok()).collect())
}

/// The names of columns by their numbers.
fn names_of(session: &Session, oid: &str, numbers: &[i16]) -> Result<Vec<String>, FlashbackError> {
    let sql = format!("SELECT attnum, attname FROM pg_attribute WHERE attrelid = {oid} AND attnum > 0");
    let rows = session.rows("the columns of a table", &sql)?;
    let name = |number: &i16| {
        let is = |row: &&Vec<Option<String>>| {
            row.first().and_then(Option::as_deref).and_then(|cell| cell.parse().ok()) == Some(*number)
        };
        rows.iter().find(is)?.get(1)?.clone()
    };
    let names: Option<Vec<String>> = numbers.iter().map(name).collect();
    names.filter(|names| !names.is_empty()).ok_or(FlashbackError::Answer { what: "the columns of a foreign key" })
}
