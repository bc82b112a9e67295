//! Applies the trail's operations to a volume. Crash recovery, standbys, roll-forward and merging all use it.
//!
//! Triggers, foreign keys and CHECK constraints are off ([`Applier::begin`]), because their effects are in the images.
//! Every row image must change exactly one row. Hidden rowids are restored. Shadow tables of FTS5 and R-tree are
//! written as plain tables, so the connection must not run statements on their virtual tables, neither before nor
//! after: reopen it.
//!
//! Failure: an [`ApplyError`] means that the volume and the trail do not belong together, or a defect. The caller rolls
//! back and refuses to serve the volume; continuing would hide a lost or doubled change.

use crate::ddl::{change_schema, execute_ddl, execute_ddl_on_branch, schema_hash};
use crate::fragments::Fragments;
use crate::schema_map::{RowKey, SchemaError, TableInfo, TableMap};
use crate::sqlite::{Conn, SqliteError, StmtId, ffi, sqlite_version};
use holdfast_types::quoting::quote;
use holdfast_types::record::{Cells, Ddl, DecodeError, Key, Mask, Op, Ops, Sequences};
use holdfast_types::{TableId, TxnId, ValueRef};
use std::fmt::Write;
use std::sync::Arc;

/// Update statements kept for one table, one for each set of columns; the oldest one is dropped first.
const UPDATES_KEPT_MAX: usize = 64;

/// Why an operation could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("the trail cannot be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("the trail changes table number {table}, which the volume does not have at schema epoch {epoch}")]
    UnknownTable { table: TableId, epoch: u32 },
    #[error(
        "{what} of table {table}, row {key}, changed {changed} rows instead of one: the volume does not match the trail; restore it from a dump and roll forward"
    )]
    NotOneRow { what: &'static str, table: String, key: String, changed: u64 },
    #[error("{what} of table {table}, row {key}, failed: {error}")]
    Row { what: &'static str, table: String, key: String, error: SqliteError },
    #[error("the image of table {table} has {found} values; the table has {expected} columns at schema epoch {epoch}")]
    Columns { table: String, found: usize, expected: usize, epoch: u32 },
    #[error("the image of table {table} has another kind of key than the table at schema epoch {epoch}")]
    KeyKind { table: String, epoch: u32 },
    #[error(
        "the schema differs from the trail's schema after: {text}\nepoch {epoch}, trail {epoch_expected}; hash {hash:016x}, trail {hash_expected:016x}; SQLite {sqlite}, trail {sqlite_expected}"
    )]
    SchemaDiverged {
        text: String,
        epoch: u32,
        epoch_expected: u32,
        hash: u64,
        hash_expected: u64,
        sqlite: u32,
        sqlite_expected: u32,
    },
    #[error("transaction {txn} refers to {expected} fragments; {found} of them were read")]
    Fragments { txn: TxnId, expected: u32, found: usize },
    #[error(
        "fragments of a large transaction cannot be written to the scratch file: {0}; free disk space and start the server again"
    )]
    Scratch(#[source] std::io::Error),
    #[error("schema change failed: {0}")]
    Schema(#[from] SchemaError),
    #[error(transparent)]
    Sqlite(#[from] SqliteError),
}

/// Prepared statements of one table.
#[derive(Debug, Default)]
struct TableStatements {
    insert: Option<StmtId>,
    delete: Option<StmtId>,
    updates: Vec<UpdateStatement>,
}

#[derive(Debug)]
struct UpdateStatement {
    mask: Box<[u8]>,
    new_key: bool,
    statement: StmtId,
}

/// Who applies operations, which decides what is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyMode {
    /// Redo: nothing is recorded.
    Redo,
    /// The writer, which records what it does.
    Main,
    /// A branch, which repeats what it did on another connection.
    Branch,
}

/// Applies operations on one connection, which it does not own: the caller must always pass the same connection.
#[derive(Debug)]
pub struct Applier {
    mode: ApplyMode,
    map: Arc<TableMap>,
    statements: Vec<TableStatements>,
    sequence: Option<StmtId>,
    fragments: Fragments,
}

impl Applier {
    /// Makes the connection ready for images: triggers, foreign keys and CHECK constraints off, capture muted.
    pub fn begin(conn: &mut Conn, map: Arc<TableMap>) -> Result<Applier, SqliteError> {
        conn.set_config(ffi::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        conn.set_config(ffi::SQLITE_DBCONFIG_ENABLE_FKEY, false)?;
        conn.exec("PRAGMA ignore_check_constraints = ON")?;
        if conn.captures() {
            conn.capture().set_mute(crate::capture::Mute::All);
        }
        Ok(Applier {
            mode: ApplyMode::Redo,
            statements: empty(&map),
            map,
            sequence: None,
            fragments: Fragments::default(),
        })
    }

    /// Makes an applier that leaves the connection as it is: foreign keys act and are enforced, and the capture
    /// records. It applies row images of tables that have no triggers and belong to no virtual table. A branch's images
    /// and schema changes reach the writer this way, and are replayed on a branch this way. Images that follow from others
    /// through a foreign key must not be among them.
    pub fn for_images(mode: ApplyMode, map: Arc<TableMap>) -> Applier {
        Applier { mode, statements: empty(&map), map, sequence: None, fragments: Fragments::default() }
    }

    /// Frees its statements, because the schema has changed.
    pub fn forget(&mut self, conn: &mut Conn) {
        for table in std::mem::take(&mut self.statements) {
            let updates = table.updates.into_iter().map(|u| u.statement);
            table.insert.into_iter().chain(table.delete).chain(updates).for_each(|id| conn.finalize(id));
        }
        self.sequence.take().into_iter().for_each(|id| conn.finalize(id));
    }

    /// The tables after the operations applied so far.
    pub fn map(&self) -> &Arc<TableMap> {
        &self.map
    }

    /// Keeps a fragment's operations until its transaction arrives.
    pub fn add_fragment(&mut self, txn: TxnId, ops: &[u8]) -> Result<(), ApplyError> {
        self.fragments.add(txn, ops).map_err(ApplyError::Scratch)
    }

    /// Forgets the fragments of a transaction that was rolled back.
    pub fn drop_fragments(&mut self, txn: TxnId) {
        self.fragments.retain(|other| other != txn);
    }

    /// Forgets the fragments of all transactions except those for which `keep` returns true.
    pub fn retain_fragments(&mut self, keep: impl Fn(TxnId) -> bool) {
        self.fragments.retain(keep);
    }

    /// Takes all fragments out, for an applier on another connection.
    pub fn take_fragments(&mut self) -> Fragments {
        std::mem::take(&mut self.fragments)
    }

    /// Continues with these fragments, another applier's or none. Further fragments are kept in the same way.
    pub fn put_fragments(&mut self, fragments: Fragments) {
        self.fragments = fragments;
    }

    /// Applies operations in order, within the caller's transaction.
    pub fn apply(&mut self, conn: &mut Conn, ops: Ops<'_>) -> Result<(), ApplyError> {
        let mut values = Vec::new();
        for op in ops {
            values.clear();
            match op? {
                Op::Insert { table, rowid, values: cells } => self.insert(conn, table, rowid, cells, &mut values)?,
                Op::Update { table, key, new_key, mask, changes } => {
                    values.extend(changes.skip(1).step_by(2));
                    self.update(conn, table, key, new_key, mask, &mut values)?;
                }
                Op::Delete { table, key, before } => self.delete(conn, table, key, before.len(), &mut values)?,
                Op::Ddl(ddl) => self.ddl(conn, &ddl)?,
                Op::Sequence { table, rowid, value } => self.sequence(conn, table, rowid, value)?,
                Op::AllSequences(rows) => self.all_sequences(conn, rows)?,
                Op::Pragma(text) => conn.exec(text)?,
                Op::Fragments { txn, count } => {
                    let found = self.fragments.count(txn);
                    if found != count as usize {
                        return Err(ApplyError::Fragments { txn, expected: count, found });
                    }
                    for number in 0..found {
                        let fragment = self.fragments.get(txn, number).map_err(ApplyError::Scratch)?;
                        self.apply(conn, Ops::new(&fragment))?;
                    }
                    self.drop_fragments(txn);
                }
            }
        }
        Ok(())
    }

    fn position(&self, table: TableId) -> Result<usize, ApplyError> {
        self.map.position(table).ok_or(ApplyError::UnknownTable { table, epoch: self.map.epoch })
    }

    fn insert<'a>(
        &mut self,
        conn: &mut Conn,
        table: TableId,
        rowid: Option<i64>,
        cells: Cells<'a>,
        values: &mut Vec<ValueRef<'a>>,
    ) -> Result<(), ApplyError> {
        let position = self.position(table)?;
        let info = &self.map.tables()[position];
        values.extend(cells);
        check_columns(info, values.len(), self.map.epoch)?;
        match (&info.key, rowid) {
            (RowKey::Rowid { alias: None, .. }, Some(rowid)) => values.push(ValueRef::Int(rowid)),
            (RowKey::Rowid { alias: Some(_), .. }, Some(_)) | (RowKey::Columns(_), None) => {}
            _ => return Err(ApplyError::KeyKind { table: info.name.clone(), epoch: self.map.epoch }),
        }
        let slot = &mut self.statements[position].insert;
        let statement = match *slot {
            Some(statement) => statement,
            None => *slot.insert(conn.prepare(&insert_sql(info))?),
        };
        let key = || rowid.map_or_else(|| format!("{values:?}"), |rowid| format!("rowid {rowid}"));
        run_one(conn, statement, values, "insert", info, key)
    }

    fn update<'a>(
        &mut self,
        conn: &mut Conn,
        table: TableId,
        key: Key<'a>,
        new_key: Option<Key<'a>>,
        mask: Mask<'a>,
        values: &mut Vec<ValueRef<'a>>,
    ) -> Result<(), ApplyError> {
        let position = self.position(table)?;
        let info = &self.map.tables()[position];
        if let Some(last) = mask.positions().last().filter(|&last| last >= info.columns.len()) {
            check_columns(info, last + 1, self.map.epoch)?;
        }
        let hidden = matches!(info.key, RowKey::Rowid { alias: None, .. });
        let sets_rowid = match new_key {
            Some(Key::Rowid(rowid)) if hidden => {
                values.push(ValueRef::Int(rowid));
                true
            }
            _ => false,
        };
        push_key(info, key, values, self.map.epoch)?;
        let updates = &mut self.statements[position].updates;
        let known = updates.iter().find(|u| u.new_key == sets_rowid && *u.mask == *mask.0);
        let statement = match known {
            Some(known) => known.statement,
            None => {
                if updates.len() >= UPDATES_KEPT_MAX {
                    conn.finalize(updates.remove(0).statement);
                }
                let statement = conn.prepare(&update_sql(info, mask, sets_rowid))?;
                updates.push(UpdateStatement { mask: mask.0.into(), new_key: sets_rowid, statement });
                statement
            }
        };
        run_one(conn, statement, values, "update", info, || show_key(key))
    }

    fn delete<'a>(
        &mut self,
        conn: &mut Conn,
        table: TableId,
        key: Key<'a>,
        columns: usize,
        values: &mut Vec<ValueRef<'a>>,
    ) -> Result<(), ApplyError> {
        let position = self.position(table)?;
        let info = &self.map.tables()[position];
        check_columns(info, columns, self.map.epoch)?;
        push_key(info, key, values, self.map.epoch)?;
        let slot = &mut self.statements[position].delete;
        let statement = match *slot {
            Some(statement) => statement,
            None => *slot.insert(conn.prepare(&delete_sql(info))?),
        };
        run_one(conn, statement, values, "delete", info, || show_key(key))
    }

    fn ddl(&mut self, conn: &mut Conn, ddl: &Ddl<'_>) -> Result<(), ApplyError> {
        self.forget(conn);
        self.map = match self.mode {
            ApplyMode::Redo => Arc::new(change_schema(conn, ddl.text)?),
            ApplyMode::Main => execute_ddl(conn, ddl.text)?,
            ApplyMode::Branch => execute_ddl_on_branch(conn, ddl.text)?,
        };
        self.statements = empty(&self.map);
        if conn.captures() {
            let map = Arc::clone(&self.map);
            conn.capture().set_map(map);
        }
        let hash = schema_hash(conn)?;
        if self.map.epoch != ddl.epoch_after || hash != ddl.schema_hash {
            return Err(ApplyError::SchemaDiverged {
                text: ddl.text.into(),
                epoch: self.map.epoch,
                epoch_expected: ddl.epoch_after,
                hash,
                hash_expected: ddl.schema_hash,
                sqlite: sqlite_version(),
                sqlite_expected: ddl.sqlite_version,
            });
        }
        Ok(())
    }

    fn sequence(&mut self, conn: &mut Conn, table: TableId, rowid: i64, value: ValueRef<'_>) -> Result<(), ApplyError> {
        let map = Arc::clone(&self.map);
        let info = &map.tables()[self.position(table)?];
        self.put_counter(conn, rowid, ValueRef::Text(info.name.as_bytes()), value)
    }

    fn all_sequences(&mut self, conn: &mut Conn, rows: Sequences<'_>) -> Result<(), ApplyError> {
        conn.exec("DELETE FROM main.sqlite_sequence")?;
        for (rowid, name, value) in rows {
            self.put_counter(conn, rowid, name, value)?;
        }
        Ok(())
    }

    fn put_counter(
        &mut self,
        conn: &mut Conn,
        rowid: i64,
        name: ValueRef<'_>,
        value: ValueRef<'_>,
    ) -> Result<(), ApplyError> {
        let statement = match self.sequence {
            Some(statement) => statement,
            None => {
                let sql = "INSERT OR REPLACE INTO main.sqlite_sequence(rowid, name, seq) VALUES(?1, ?2, ?3)";
                *self.sequence.insert(conn.prepare(sql)?)
            }
        };
        Ok(conn.run_with(statement, &[ValueRef::Int(rowid), name, value])?)
    }
}

fn empty(map: &TableMap) -> Vec<TableStatements> {
    map.tables().iter().map(|_| TableStatements::default()).collect()
}

fn check_columns(info: &TableInfo, found: usize, epoch: u32) -> Result<(), ApplyError> {
    let expected = info.columns.len();
    if found == expected {
        return Ok(());
    }
    Err(ApplyError::Columns { table: info.name.clone(), found, expected, epoch })
}

fn push_key<'a>(info: &TableInfo, key: Key<'a>, values: &mut Vec<ValueRef<'a>>, epoch: u32) -> Result<(), ApplyError> {
    match (&info.key, key) {
        (RowKey::Rowid { .. }, Key::Rowid(rowid)) => values.push(ValueRef::Int(rowid)),
        (RowKey::Columns(positions), Key::Columns(cells)) if positions.len() == cells.len() => values.extend(cells),
        _ => return Err(ApplyError::KeyKind { table: info.name.clone(), epoch }),
    }
    Ok(())
}

fn run_one(
    conn: &mut Conn,
    statement: StmtId,
    values: &[ValueRef<'_>],
    what: &'static str,
    info: &TableInfo,
    key: impl Fn() -> String,
) -> Result<(), ApplyError> {
    let table = || info.name.clone();
    conn.run_with(statement, values).map_err(|error| ApplyError::Row { what, table: table(), key: key(), error })?;
    match conn.changes() {
        1 => Ok(()),
        changed => Err(ApplyError::NotOneRow { what, table: table(), key: key(), changed }),
    }
}

fn show_key(key: Key<'_>) -> String {
    match key {
        Key::Rowid(rowid) => format!("rowid {rowid}"),
        Key::Columns(cells) => {
            let values: Vec<_> = cells.map(|cell| format!("{:?}", cell.to_value())).collect();
            format!("({})", values.join(", "))
        }
    }
}

fn insert_sql(info: &TableInfo) -> String {
    let mut names: Vec<String> = info.columns.iter().map(|column| quote(&column.name)).collect();
    if let RowKey::Rowid { name, alias: None } = &info.key {
        names.push(name.clone());
    }
    let marks = vec!["?"; names.len()].join(",");
    format!("INSERT OR ABORT INTO main.{}({}) VALUES({marks})", quote(&info.name), names.join(","))
}

fn update_sql(info: &TableInfo, mask: Mask<'_>, sets_rowid: bool) -> String {
    let mut sets: Vec<String> = mask.positions().map(|p| format!("{}=?", quote(&info.columns[p].name))).collect();
    if let (RowKey::Rowid { name, .. }, true) = (&info.key, sets_rowid) {
        sets.push(format!("{name}=?"));
    }
    format!("UPDATE OR ABORT main.{} SET {}{}", quote(&info.name), sets.join(","), where_key(info))
}

fn delete_sql(info: &TableInfo) -> String {
    format!("DELETE FROM main.{}{}", quote(&info.name), where_key(info))
}

fn where_key(info: &TableInfo) -> String {
    let mut sql = String::from(" WHERE ");
    match &info.key {
        RowKey::Rowid { name, .. } => {
            sql.push_str(name);
            sql.push_str("=?");
        }
        RowKey::Columns(positions) => {
            for (i, &position) in positions.iter().enumerate() {
                let and = if i > 0 { " AND " } else { "" };
                // Writing to a String cannot fail.
                let _ = write!(sql, "{and}{}=?", quote(&info.columns[position].name));
            }
        }
    }
    sql
}
