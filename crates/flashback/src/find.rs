//! `holdfast trail find`: the changes of a table's rows that a condition selects, with the values before and after.
//!
//! An update has only the columns that it changed, so a condition on the others needs the row's other columns at that time.
//! They are found backwards from the row as the server has it now: an insert and a delete have the whole row, an update the
//! changed columns before and after it. The trail behind the first reading is read again after the server was asked, and if
//! one of the rows was changed meanwhile, the server is asked again.
//!
//! Failure: where the trail does not reach back to the wanted time, what it has is shown, and [`Read`] says so.

use crate::by::By;
use crate::condition::{Search, Version, check, equality, selected};
use crate::error::FlashbackError;
use crate::events::{Event, Wanted, What, collect};
use crate::row::{Key, Keys, RowOp};
use crate::schema_text::{mentions, removes_columns};
use crate::server::{Connect, Session};
use crate::source::{Range, Read, Source};
use crate::table::{Table, sql_of};
use holdfast_engine::trail_dump::{Cells, Val};
use holdfast_types::quoting::{quote, quote_text};
use holdfast_types::record::Op;
use holdfast_types::schema::Dialect;
use holdfast_types::{Lsn, TableId, Value, VolumeId};
use serde::Serialize;
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// Keys that the server is asked for at a time.
const KEYS_MAX: usize = 400;
/// Rows of now with the wanted value, up to which the trail is searched for them; for more it is searched for all rows.
const PRESENT_MAX: usize = 100_000;
/// How often the server is asked again because rows were changed meanwhile.
const TRIES_MAX: u32 = 5;

/// What is looked for.
#[derive(Clone, Debug, Default)]
pub struct FindOptions {
    pub database: String,
    pub table: String,
    pub condition: Option<String>,
    /// Milliseconds since 1970-01-01 UTC, inclusive.
    pub since_unix_ms: Option<u64>,
    pub until_unix_ms: Option<u64>,
}

/// One change of one row, or of the schema.
#[derive(Clone, Debug, Serialize)]
pub struct RowChange {
    pub transaction: u64,
    pub site: u16,
    pub lsn: u64,
    pub unix_ms: u64,
    /// The roles that made the change, where the trail has them.
    #[serde(flatten)]
    pub by: By,
    /// insert, update, delete or schema.
    pub operation: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Cells>,
    /// All columns of a deleted row, the changed ones of an updated row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cells>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Cells>,
    /// The schema change as the trail has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sql: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct FoundChanges {
    pub changes: Vec<RowChange>,
    /// Whether the table exists now; of one that does not, only schema changes are shown.
    pub exists: bool,
    /// LSN of a schema change that removed columns: rows in front of it are shown with numbers of columns.
    pub reshaped_lsn: Option<u64>,
    /// Changes of rows in front of it that the condition could not be evaluated on, and that are not listed.
    pub not_compared: usize,
    pub read: Read,
}

struct OfTable<'a> {
    volume: VolumeId,
    name: &'a str,
    table: Option<&'a Table>,
    search: &'a Search,
}

impl Wanted for OfTable<'_> {
    fn volume(&self, volume: VolumeId) -> bool {
        volume == self.volume
    }

    fn row(&self, _: VolumeId, id: TableId, op: &Op<'_>) -> bool {
        self.table.is_some_and(|table| table.id == id && self.search.has(op, &table.key))
    }

    fn schema(&self, _: VolumeId, sql: &str) -> bool {
        mentions(sql, self.name)
    }
}

/// Looks for changes.
pub fn find(source: &Source, connect: &Connect, options: &FindOptions) -> Result<FoundChanges, FlashbackError> {
    let session = Session::open(connect, &options.database)?;
    let databases = session.databases()?;
    let volume = databases.iter().find(|database| database.name == options.database).map(|database| database.volume);
    let volume = volume.ok_or(FlashbackError::Answer { what: "the list of databases" })?;
    let table = Table::named(&session, session.dialect(), &options.table)?;
    let condition = options.condition.as_deref();
    if condition.is_some() && table.is_none() {
        return Err(FlashbackError::NoTable(options.table.clone()));
    }
    if let (Some(condition), Some(table)) = (condition, &table) {
        check(&session, table, condition)?;
    }
    let from = Range { unix_ms: options.since_unix_ms.unwrap_or(0), ..Range::default() };
    let time = options.since_unix_ms.unwrap_or(0)..=options.until_unix_ms.unwrap_or(u64::MAX);
    let looking = Looking {
        time: time.clone(),
        source,
        session: &session,
        name: &options.table,
        table: table.as_ref(),
        volume,
        from,
    };
    let Chosen { mut events, read, not_compared } = looking.events(condition)?;
    events.retain(|event| time.contains(&event.head.hlc.unix_ms()));
    let reshaped_lsn = reshaped(&events);
    let changes = events.iter().map(|event| change(event, table.as_ref(), reshaped_lsn)).collect();
    Ok(FoundChanges { changes, exists: table.is_some(), reshaped_lsn, not_compared, read })
}

/// The last schema change that removed columns of a table.
pub fn reshaped(events: &[Event]) -> Option<u64> {
    let removes = |event: &&Event| match &event.what {
        What::Schema { sql } => removes_columns(sql),
        What::Row { .. } => false,
    };
    events.iter().rev().find(removes).map(|event| event.lsn.0)
}

/// The events that a condition selects.
struct Chosen {
    events: Vec<Event>,
    read: Read,
    not_compared: usize,
}

impl Chosen {
    fn all((events, read): (Vec<Event>, Read)) -> Chosen {
        Chosen { events, read, not_compared: 0 }
    }
}

struct Looking<'a> {
    source: &'a Source,
    session: &'a Session,
    name: &'a str,
    table: Option<&'a Table>,
    volume: VolumeId,
    from: Range,
    /// Of commits that are listed.
    time: RangeInclusive<u64>,
}

impl Looking<'_> {
    fn collect(&self, from: Range, search: &Search) -> Result<(Vec<Event>, Read), FlashbackError> {
        collect(self.source, from, &OfTable { volume: self.volume, name: self.name, table: self.table, search })
    }

    fn events(&self, condition: Option<&str>) -> Result<Chosen, FlashbackError> {
        let (Some(condition), Some(table)) = (condition, self.table) else {
            return self.collect(self.from, &Search::All).map(Chosen::all);
        };
        let equality = equality(condition);
        let mut search = Search::of(table, equality.as_ref());
        if let (Search::Column { keys, .. }, Some(equality)) = (&mut search, &equality)
            && !self.present_keys(table, &equality.column, &equality.value, keys)?
        {
            search = Search::All;
        }
        let (mut events, mut read) = self.collect(self.from, &search)?;
        // Rows that had the value at some time and have it no longer: their other changes.
        while let Search::Column { keys, .. } = &mut search {
            let mut grown = false;
            for key in events.iter().flat_map(|event| keys_of(event, table)) {
                grown |= keys.insert(&key);
            }
            if !grown {
                break;
            }
            (events, read) = self.collect(self.from, &search)?;
        }
        if equality.is_some_and(|equality| equality.is_all) && matches!(search, Search::Rowid(_)) {
            return Ok(Chosen::all((events, read)));
        }
        let reshaped = reshaped(&events).unwrap_or(0);
        let present = self.present(table, &mut events, &search, &mut read)?;
        let versions = versions(&events, table, present);
        let is_wanted = |event: &Event| self.time.contains(&event.head.hlc.unix_ms());
        let is_asked = |place: &usize| events[*place].lsn.0 >= reshaped && is_wanted(&events[*place]);
        let is_old_row = |event: &&Event| event.lsn.0 < reshaped && matches!(event.what, What::Row { .. });
        let not_compared = events.iter().filter(is_old_row).filter(|event| is_wanted(event)).count();
        let both = versions.iter().enumerate().filter(|(place, _)| is_asked(place));
        let key = |place: usize, is_new: bool| match &events[place].what {
            What::Row { op, .. } if is_new => op.new_key(&table.key),
            What::Row { op, .. } => op.old_key(&table.key),
            What::Schema { .. } => None,
        };
        let both = both.flat_map(|(place, (before, after))| {
            [(before, false), (after, true)].map(|(v, is_new)| v.as_ref().map(|v| (place, (v, key(place, is_new)))))
        });
        let (places, rows): (Vec<usize>, Vec<(&Version, Option<Key>)>) = both.flatten().unzip();
        let chosen = selected(self.session, table, condition, &rows)?;
        let mut keep = vec![false; events.len()];
        chosen.iter().filter_map(|row| places.get(*row)).for_each(|place| keep[*place] = true);
        let mut keep = keep.into_iter();
        events.retain(|event| keep.next() == Some(true) || matches!(event.what, What::Schema { .. }));
        Ok(Chosen { events, read, not_compared })
    }

    /// The keys of the rows that have a value in a column now; false if there are too many.
    fn present_keys(
        &self,
        table: &Table,
        column: &str,
        value: &Value,
        keys: &mut Keys,
    ) -> Result<bool, FlashbackError> {
        let crate::row::TableKey::Rowid { name, .. } = &table.key else { return Ok(false) };
        let (name, of, value) = (quote(name), quote(&table.name), sql_of(value, table.dialect));
        let limit = PRESENT_MAX + 1;
        let sql = format!("SELECT {name} FROM {of} WHERE {} = {value} LIMIT {limit}", quote(column));
        let rows = self.session.rows("the rows of now", &sql)?;
        let is_few = rows.len() <= PRESENT_MAX;
        for row in rows {
            let rowid = row.first().and_then(|cell| cell.as_deref()?.parse().ok());
            keys.insert(&Key::Rowid(rowid.ok_or(FlashbackError::Answer { what: "a rowid" })?));
        }
        Ok(is_few)
    }

    /// The rows as they are behind all of `events`, which grow by what is committed meanwhile.
    fn present(
        &self,
        table: &Table,
        events: &mut Vec<Event>,
        search: &Search,
        read: &mut Read,
    ) -> Result<HashMap<Vec<u8>, Version>, FlashbackError> {
        let mut tries = 0;
        loop {
            let mut keys: HashMap<Vec<u8>, Key> = HashMap::new();
            events.iter().flat_map(|event| keys_of(event, table)).for_each(|key| _ = keys.insert(key.bytes(), key));
            let rows = self.rows_of(table, &keys.into_values().collect::<Vec<_>>())?;
            tries += 1;
            if !read.has_newest || tries > TRIES_MAX {
                return Ok(rows);
            }
            let (more, later) = self.collect(Range::from(Lsn(read.last_lsn + 1)), search)?;
            read.last_lsn = read.last_lsn.max(later.last_lsn);
            if !more.iter().any(|event| matches!(event.what, What::Row { .. })) {
                return Ok(rows);
            }
            events.extend(more);
        }
    }

    fn rows_of(&self, table: &Table, keys: &[Key]) -> Result<HashMap<Vec<u8>, Version>, FlashbackError> {
        let of = quote(&table.name);
        let shown = |column: &crate::table::Column| match table.dialect {
            Dialect::Postgres => format!("{of}.{}", quote(&column.name)),
            Dialect::Sqlite => format!("quote({of}.{})", quote(&column.name)),
        };
        let columns: Vec<String> = table.columns.iter().map(shown).collect();
        let mut rows = HashMap::new();
        for chunk in keys.chunks(KEYS_MAX) {
            let found: Vec<String> = chunk.iter().map(|key| format!("({})", table.found(key))).collect();
            let names: Vec<String> = table.key_names().iter().map(|name| format!("{of}.{}", quote(name))).collect();
            let whens = found.iter().enumerate().map(|(n, found)| format!("WHEN {found} THEN {n}"));
            // Each row comes with the place of its key in the list.
            let place = match (&table.key, names.first()) {
                (crate::row::TableKey::Rowid { .. }, Some(name)) => name.clone(),
                _ => format!("CASE {} END", whens.collect::<Vec<_>>().join(" ")),
            };
            let sql =
                format!("SELECT {place}, {} FROM {of} WHERE {}", columns.join(", "), any_of(table, chunk, &found));
            for row in self.session.rows("the rows of now", &sql)? {
                let number = row.first().and_then(|cell| cell.as_deref()?.parse::<i64>().ok());
                let number = number.ok_or(FlashbackError::Answer { what: "the rows of now" })?;
                let key = match &table.key {
                    crate::row::TableKey::Rowid { .. } => Key::Rowid(number),
                    crate::row::TableKey::Columns(_) => {
                        chunk.get(number as usize).cloned().unwrap_or(Key::Rowid(number))
                    }
                };
                let values = row.into_iter().skip(1).map(|cell| Some(literal_of(cell, table.dialect))).collect();
                rows.insert(key.bytes(), values);
            }
        }
        Ok(rows)
    }
}

fn any_of(table: &Table, keys: &[Key], found: &[String]) -> String {
    let (crate::row::TableKey::Rowid { .. }, Some(name)) = (&table.key, table.key_names().pop()) else {
        return found.join(" OR ");
    };
    let rowids = keys.iter().filter_map(|key| match key {
        Key::Rowid(rowid) => Some(rowid.to_string()),
        Key::Columns(_) => None,
    });
    format!("{} IN ({})", quote(&name), rowids.collect::<Vec<_>>().join(", "))
}

fn literal_of(cell: Option<String>, dialect: Dialect) -> String {
    match (cell, dialect) {
        (None, _) => "NULL".to_owned(),
        // Made by quote().
        (Some(text), Dialect::Sqlite) => text,
        (Some(text), Dialect::Postgres) => quote_text(&text),
    }
}

fn keys_of(event: &Event, table: &Table) -> Vec<Key> {
    match &event.what {
        What::Row { op, .. } => [op.old_key(&table.key), op.new_key(&table.key)].into_iter().flatten().collect(),
        What::Schema { .. } => Vec::new(),
    }
}

/// The row before and after each event, from its present version backwards.
fn versions(
    events: &[Event],
    table: &Table,
    mut present: HashMap<Vec<u8>, Version>,
) -> Vec<(Option<Version>, Option<Version>)> {
    let whole = |values: &[Value]| values.iter().map(|value| Some(sql_of(value, table.dialect))).collect::<Version>();
    let mut versions = vec![(None, None); events.len()];
    for (place, event) in events.iter().enumerate().rev() {
        let What::Row { op, .. } = &event.what else { continue };
        let (Some(old), Some(new)) = (op.old_key(&table.key), op.new_key(&table.key)) else { continue };
        versions[place] = match op {
            RowOp::Insert { values, .. } => {
                present.remove(&old.bytes());
                (None, Some(whole(values)))
            }
            RowOp::Delete { before, .. } => {
                present.insert(old.bytes(), whole(before));
                (Some(whole(before)), None)
            }
            RowOp::Update { changes, .. } => {
                let mut after = present.remove(&new.bytes()).unwrap_or_default();
                after.resize(table.columns.len(), None);
                let mut before = after.clone();
                for (position, was, is) in changes.iter().filter(|(position, ..)| *position < table.columns.len()) {
                    before[*position] = Some(sql_of(was, table.dialect));
                    after[*position] = Some(sql_of(is, table.dialect));
                }
                present.insert(old.bytes(), before.clone());
                (Some(before), Some(after))
            }
        };
    }
    versions
}

fn change(event: &Event, table: Option<&Table>, reshaped_lsn: Option<u64>) -> RowChange {
    let head = event.head;
    let named = table.filter(|_| reshaped_lsn.is_none_or(|lsn| event.lsn.0 >= lsn));
    let name = |position: usize| match named {
        Some(table) => table.column_name(position),
        None => format!("column {position}"),
    };
    let all = |values: &[Value]| Cells(values.iter().enumerate().map(|(at, v)| (name(at), Val(v.clone()))).collect());
    let some =
        |values: Vec<(usize, &Value)>| Cells(values.into_iter().map(|(at, v)| (name(at), Val(v.clone()))).collect());
    let (operation, sql, before, after) = match &event.what {
        What::Schema { sql } => ("schema", Some(sql.clone()), None, None),
        What::Row { op: op @ RowOp::Insert { values, .. }, .. } => (op.word(), None, None, Some(all(values))),
        What::Row { op: op @ RowOp::Delete { before, .. }, .. } => (op.word(), None, Some(all(before)), None),
        What::Row { op: op @ RowOp::Update { changes, .. }, .. } => {
            let before = some(changes.iter().map(|(at, before, _)| (*at, before)).collect());
            let after = some(changes.iter().map(|(at, _, after)| (*at, after)).collect());
            (op.word(), None, Some(before), Some(after))
        }
    };
    let key = table.and_then(|table| match &event.what {
        What::Row { op, .. } => op.old_key(&table.key).map(|key| key_shown(table, &key)),
        What::Schema { .. } => None,
    });
    let (transaction, site, unix_ms) = (head.id.0, head.site.0, head.hlc.unix_ms());
    let by = By::of(event.author.as_deref());
    RowChange { transaction, site, lsn: event.lsn.0, unix_ms, by, operation, key, before, after, sql }
}

/// A key with the names of its columns.
pub fn key_shown(table: &Table, key: &Key) -> Cells {
    let values = match key {
        Key::Rowid(rowid) => vec![Value::Int(*rowid)],
        Key::Columns(values) => values.clone(),
    };
    Cells(table.key_names().into_iter().zip(values.into_iter().map(Val)).collect())
}
