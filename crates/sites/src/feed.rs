//! Makes messages of committed transactions: those changes that the publications of a subscriber have, in the trail's order.
//!
//! Each change is described and filtered as its table and the publications were at its place in the trail ([`Shapes`]). A
//! subscriber may lag behind a schema change.
//!
//! | row before | row after | message |
//! |---|---|---|
//! | none | in a publication | insert |
//! | in | in | update with every published column; a large one that did not change is marked as unchanged |
//! | in | out | delete, by the key before |
//! | out | in | insert of the whole published row, which the image carries then |
//! | in | none | delete |
//! | out, or none | out, or none | nothing |
//!
//! A transaction without a published change sends nothing. Headers name the end of the transaction before until the commit's
//! own message, because a subscriber may confirm any LSN that it has seen ([`crate::link`]).
//!
//! Failure: [`FeedError`] names the table; nothing of the transaction counts at the subscriber, because its commit was not sent.

use crate::pgoutput::{self, Cell, Commit};
use crate::table::{ChangeKind, Row, Table};
use holdfast_changes::{ChangesError, Committed};
use holdfast_store::schema_map::SchemaError;
use holdfast_store::shapes::{Shapes, Taken};
use holdfast_store::sqlite::SqliteError;
use holdfast_types::record::{Cells, DecodeError, Key, Mask, Op, Ops};
use holdfast_types::schema;
use holdfast_types::{ColumnDesc, SqlError, TableId, Value, ValueRef};
use std::collections::HashMap;

/// Why a feed ends.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    #[error(transparent)]
    Changes(#[from] ChangesError),
    #[error("the trail cannot be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("table {table} cannot be read as it was: {source}")]
    Table { table: String, source: SqliteError },
    #[error("table {table} cannot be read as it was: {source}")]
    Definition { table: String, source: SchemaError },
    #[error("table {table} cannot be read as it was")]
    Unknown { table: String },
    #[error("cannot use different column lists for table \"public.{table}\" in different publications")]
    ColumnLists { table: String },
    #[error("a change of table {table} in the trail lacks columns that subscribers need")]
    Incomplete { table: String },
    #[error("the recorded shapes cannot be read: {0}")]
    Shapes(SqlError),
    #[error("the trail from LSN {lsn} on lacks the beginning of a transaction")]
    NotWhole { lsn: u64 },
    /// The subscriber has gone, or the feed was stopped.
    #[error("the feed was stopped")]
    Stopped,
}

/// What a feed needs from the server: the types of columns, and the shapes of tables.
pub trait Types {
    /// The column with its type OID and type modifier.
    fn describe(&self, table: &schema::Table, column: &schema::Column) -> ColumnDesc;

    /// Appends the text form of a value that is not NULL.
    fn text(&self, value: ValueRef<'_>, column: &ColumnDesc, out: &mut Vec<u8>);

    /// The recorded shapes, and the schema epoch up to which they are recorded.
    fn shapes(&self) -> Result<(Shapes, u32), SqlError>;

    /// The server's own table of slots, whose changes do not count.
    fn own_table(&self) -> Option<TableId>;
}

/// A message of the output plugin, and the LSN that its header names.
pub struct Message<'a> {
    pub lsn: u64,
    pub body: &'a [u8],
}

/// The tables that one subscriber knows, and the place up to which it has everything.
pub struct Feed<T> {
    types: T,
    /// Names of publications.
    publications: Vec<String>,
    shapes: Shapes,
    shapes_to: u32,
    /// The schema epoch behind the last transaction.
    epoch: u32,
    tables: HashMap<TableId, Known>,
    /// The end of the last transaction.
    end: u64,
    body: Vec<u8>,
}

/// A table in one shape.
struct Known {
    /// The schema epoch from which on it has the shape.
    epoch: u32,
    /// `None`: none of the publications has it.
    table: Option<Box<Table>>,
    /// The subscriber was sent its relation message.
    announced: bool,
}

/// A transaction whose messages are being sent.
struct Sending<'a> {
    commit: Commit,
    begun: bool,
    /// The end of the transaction before.
    before: u64,
    send: &'a mut dyn FnMut(Message<'_>) -> Result<(), FeedError>,
}

impl Sending<'_> {
    /// Sends a message about a change; the transaction's first one is preceded by its beginning.
    fn change(&mut self, body: &[u8]) -> Result<(), FeedError> {
        if !self.begun {
            let mut begin = Vec::new();
            pgoutput::begin(&mut begin, &self.commit);
            (self.send)(Message { lsn: self.before, body: &begin })?;
            self.begun = true;
        }
        (self.send)(Message { lsn: self.before, body })
    }
}

impl<T: Types> Feed<T> {
    /// A feed of these publications to a subscriber that has everything before `end`.
    pub fn new(types: T, publications: Vec<String>, end: u64) -> Feed<T> {
        let (shapes, tables) = (Shapes::default(), HashMap::new());
        Feed { types, publications, shapes, shapes_to: 0, epoch: 0, tables, end, body: Vec::new() }
    }

    /// Everything before this place was sent, or is not published.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Sends what a transaction publishes. Returns whether that was anything. Transactions that the subscriber has are passed over;
    /// they count for the schema. The server's own writes of positions do not move [`Feed::end`]: a subscriber that confirms
    /// what it sees would cause the next one.
    pub fn transaction(
        &mut self,
        committed: &Committed<'_>,
        send: &mut dyn FnMut(Message<'_>) -> Result<(), FeedError>,
    ) -> Result<bool, FeedError> {
        self.epoch = self.epoch.max(committed.schema_epoch);
        let (start, end) = (committed.start.lsn().0, committed.end.lsn().0);
        let is_new = end > self.end;
        if is_new && !committed.is_whole {
            return Err(FeedError::NotWhole { lsn: start });
        }
        let own_table = self.types.own_table();
        let mut is_own = true;
        let commit = Commit {
            start,
            end,
            unix_us: committed.head.hlc.unix_ms() as i64 * 1000,
            transaction: committed.head.id.0 as u32,
        };
        let mut sending = Sending { commit, begun: false, before: self.end, send };
        for piece in committed.pieces() {
            for op in Ops::new(&piece?) {
                let op = op?;
                is_own &= matches!(&op, Op::Update { table, .. } if Some(*table) == own_table);
                self.op(&op, is_new.then_some(&mut sending))?;
            }
        }
        let begun = sending.begun;
        if begun {
            self.body.clear();
            pgoutput::commit(&mut self.body, &commit);
            (sending.send)(Message { lsn: end, body: &self.body })?;
        }
        if !is_own {
            self.end = self.end.max(end);
        }
        Ok(begun)
    }

    fn op(&mut self, op: &Op<'_>, sending: Option<&mut Sending<'_>>) -> Result<(), FeedError> {
        if let Op::Ddl(ddl) = op {
            self.epoch = ddl.epoch_after;
        }
        let Some(sending) = sending else { return Ok(()) };
        let (Op::Insert { table: id, .. } | Op::Update { table: id, .. } | Op::Delete { table: id, .. }) = op else {
            return Ok(());
        };
        self.know(*id)?;
        let Feed { tables, types, body, .. } = self;
        let Some(Known { table: Some(table), announced, .. }) = tables.get_mut(id) else { return Ok(()) };
        body.clear();
        if !put_change(table, op, types, body)? {
            return Ok(());
        }
        if !std::mem::replace(announced, true) {
            let mut relation = Vec::new();
            pgoutput::relation(&mut relation, table.relation());
            sending.change(&relation)?;
        }
        sending.change(body)
    }

    /// Makes the table known as it is at this epoch.
    fn know(&mut self, id: TableId) -> Result<(), FeedError> {
        if self.epoch > self.shapes_to {
            (self.shapes, self.shapes_to) = self.types.shapes().map_err(FeedError::Shapes)?;
        }
        let Some(shape) = self.shapes.at(id, self.epoch) else {
            self.tables.remove(&id);
            return Ok(());
        };
        if self.tables.get(&id).is_some_and(|known| known.epoch == shape.epoch) {
            return Ok(());
        }
        let wanted = |taken: &&Taken| self.publications.contains(&taken.publication);
        let taken: Vec<Taken> = shape.taken.iter().filter(wanted).cloned().collect();
        let table = match taken.is_empty() {
            true => None,
            false => Some(Box::new(Table::new(shape, taken, &self.types)?)),
        };
        self.tables.insert(id, Known { epoch: shape.epoch, table, announced: false });
        Ok(())
    }
}

/// Appends the message for one operation; false if the publications do not have it.
fn put_change(table: &mut Table, op: &Op<'_>, types: &dyn Types, out: &mut Vec<u8>) -> Result<bool, FeedError> {
    let oid = table.relation().oid;
    match op {
        Op::Insert { rowid, values, .. } if table.publishes(ChangeKind::Insert) => {
            let row = whole(table, values, rowid.map(Key::Rowid));
            let is_in = table.has(&row, ChangeKind::Insert);
            if is_in {
                pgoutput::insert(out, oid, &all_cells(table, &row, types)?);
            }
            Ok(is_in)
        }
        Op::Delete { key, before, .. } if table.publishes(ChangeKind::Delete) => {
            let row = whole(table, before, Some(*key));
            let is_in = table.has(&row, ChangeKind::Delete);
            if is_in {
                pgoutput::delete(out, oid, &key_cells(table, &row, types)?);
            }
            Ok(is_in)
        }
        Op::Update { key, new_key, mask, changes, .. } if table.publishes(ChangeKind::Update) => {
            let (before, after) = both(table, *key, *new_key, *mask, changes);
            match (table.has(&before, ChangeKind::Update), table.has(&after, ChangeKind::Update)) {
                (false, false) => return Ok(false),
                (true, false) => pgoutput::delete(out, oid, &key_cells(table, &before, types)?),
                (false, true) => pgoutput::insert(out, oid, &all_cells(table, &after, types)?),
                (true, true) => {
                    let moved = table.key().iter().any(|&at| before[at] != after[at]);
                    let old = if moved { Some(key_cells(table, &before, types)?) } else { None };
                    key_cells(table, &after, types)?;
                    pgoutput::update(out, oid, old.as_deref(), &known_cells(table, &after, types));
                }
            }
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// A row of which the image has every column.
fn whole(table: &Table, values: &Cells<'_>, key: Option<Key<'_>>) -> Row {
    let mut row = table.empty_row();
    for (cell, value) in row.iter_mut().zip(*values) {
        *cell = Some(value.to_value());
    }
    // The column that is the rowid is NULL in the image.
    key.iter().for_each(|key| table.put_key(&mut row, key));
    row
}

/// What an update's image has of the row before and after.
fn both(table: &Table, key: Key<'_>, new_key: Option<Key<'_>>, mask: Mask<'_>, changes: &Cells<'_>) -> (Row, Row) {
    let (mut before, mut after) = (table.empty_row(), table.empty_row());
    let mut cells = *changes;
    for position in mask.positions() {
        let (Some(was), Some(is)) = (cells.next(), cells.next()) else { break };
        if let (Some(old), Some(new)) = (before.get_mut(position), after.get_mut(position)) {
            (*old, *new) = (Some(was.to_value()), Some(is.to_value()));
        }
    }
    table.put_key(&mut before, &key);
    table.put_key(&mut after, &new_key.unwrap_or(key));
    (before, after)
}

fn cell(value: &Value, column: &ColumnDesc, types: &dyn Types) -> Cell {
    if *value == Value::Null {
        return Cell::Null;
    }
    let mut text = Vec::new();
    types.text(value.as_ref(), column, &mut text);
    Cell::Text(text)
}

/// The published columns; those that the image does not have are unchanged.
fn known_cells(table: &Table, row: &Row, types: &dyn Types) -> Vec<Cell> {
    let published = row.iter().zip(table.columns()).zip(table.published()).filter(|(_, place)| place.is_some());
    published
        .map(|((value, column), _)| value.as_ref().map_or(Cell::Unchanged, |value| cell(value, column, types)))
        .collect()
}

/// The published columns, of which the image must have all.
fn all_cells(table: &Table, row: &Row, types: &dyn Types) -> Result<Vec<Cell>, FeedError> {
    let cells = known_cells(table, row, types);
    if cells.contains(&Cell::Unchanged) {
        return Err(FeedError::Incomplete { table: table.relation().name.clone() });
    }
    Ok(cells)
}

/// The key as a row of the published columns.
fn key_cells(table: &Table, row: &Row, types: &dyn Types) -> Result<Vec<Cell>, FeedError> {
    let mut cells = vec![Cell::Null; table.relation().columns.len()];
    let incomplete = || FeedError::Incomplete { table: table.relation().name.clone() };
    for &at in table.key() {
        let value = row[at].as_ref().ok_or_else(incomplete)?;
        // A publication's column list has the key.
        let place = table.published()[at].ok_or_else(incomplete)?;
        cells[place] = cell(value, &table.columns()[at], types);
    }
    if table.key().is_empty() { Err(incomplete()) } else { Ok(cells) }
}
