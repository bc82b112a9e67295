//! A pair of databases: statements change one, and the other is changed only by the trail's operations.

use holdfast_store::apply::{Applier, ApplyError};
use holdfast_store::capture::{Capture, flush_virtual_tables};
use holdfast_store::ddl::execute_ddl;
use holdfast_store::position::PositionWriter;
use holdfast_store::schema_map::{RowKey, TableMap, create_internal_tables, read_map};
use holdfast_store::sequences::flush_sequences;
use holdfast_store::sqlite::{Conn, OpenFlags, SqliteError};
use holdfast_types::quoting::quote;
use holdfast_types::record::{BatchBuilder, Op, Record, RecordReader, TxnHead};
use holdfast_types::{Epoch, Hlc, SiteId, TxnId, Value, VolumeId};
use std::path::Path;
use std::sync::Arc;

pub const VOLUME: VolumeId = VolumeId(3);

pub fn open(path: &Path) -> Conn {
    let mut conn = Conn::open(path.to_str().unwrap(), OpenFlags { write: true, create: true }, None).unwrap();
    conn.exec("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY; PRAGMA recursive_triggers = ON").unwrap();
    conn
}

/// The database that statements change.
pub struct Source {
    pub conn: Conn,
    position: PositionWriter,
    number: u64,
    map_at_begin: Arc<TableMap>,
}

impl Source {
    pub fn create(path: &Path) -> Source {
        let mut conn = open(path);
        let map = Arc::new(create_internal_tables(&mut conn, VOLUME).unwrap());
        conn.install_capture(Capture::new(Arc::clone(&map))).unwrap();
        conn.exec("PRAGMA foreign_keys = ON").unwrap();
        let position = PositionWriter::prepare(&mut conn).unwrap();
        Source { conn, position, number: 0, map_at_begin: map }
    }

    pub fn begin(&mut self) {
        self.conn.exec("BEGIN IMMEDIATE").unwrap();
        self.map_at_begin = Arc::clone(self.conn.capture().map());
    }

    /// Runs a statement as one message of a client: all of it or nothing.
    pub fn run(&mut self, sql: &str) -> Result<(), String> {
        self.step(sql, |conn| conn.exec(sql).map_err(|e| e.to_string()))
    }

    pub fn ddl(&mut self, sql: &str) -> Result<(), String> {
        self.step(sql, |conn| execute_ddl(conn, sql).map(drop).map_err(|e| e.to_string()))
    }

    fn step(&mut self, sql: &str, run: impl FnOnce(&mut Conn) -> Result<(), String>) -> Result<(), String> {
        self.conn.exec("SAVEPOINT step").unwrap();
        let (mark, map) = (self.conn.capture().mark(), Arc::clone(self.conn.capture().map()));
        let result = run(&mut self.conn);
        if result.is_err() {
            self.conn.exec("ROLLBACK TO step").unwrap();
            self.conn.capture().truncate(mark);
            self.conn.capture().set_map(map);
        }
        self.conn.exec("RELEASE step").unwrap();
        self.conn.capture().check().unwrap_or_else(|e| panic!("{sql}: {e}"));
        result
    }

    /// Commits and returns the batch's body.
    pub fn commit(&mut self) -> Result<Vec<u8>, SqliteError> {
        flush_virtual_tables(&mut self.conn)?;
        flush_sequences(&mut self.conn)?;
        self.position.write(&mut self.conn, self.number + 1, Epoch(1))?;
        let ops = self.conn.capture().take();
        self.conn.exec("COMMIT")?;
        assert!(self.conn.capture().is_empty(), "COMMIT itself wrote rows that are in no batch");
        self.number += 1;
        let mut body = Vec::new();
        let mut batch = BatchBuilder::begin(&mut body, VOLUME, self.number, self.map_at_begin.epoch);
        batch.begin_transaction(&mut body, TxnHead { id: TxnId(self.number), site: SiteId(0), hlc: Hlc(1) }, None);
        body.extend_from_slice(&ops);
        batch.end_transaction(&mut body);
        batch.finish(&mut body);
        Ok(body)
    }

    pub fn rollback(&mut self) {
        self.conn.exec("ROLLBACK").unwrap();
        let map = Arc::clone(&self.map_at_begin);
        let capture = self.conn.capture();
        capture.take();
        capture.forget_sequences();
        capture.set_map(map);
    }
}

/// The database that only the trail's operations change.
pub struct Copy {
    pub conn: Conn,
    applier: Applier,
    position: PositionWriter,
}

impl Copy {
    pub fn create(path: &Path) -> Copy {
        let mut conn = open(path);
        create_internal_tables(&mut conn, VOLUME).unwrap();
        let map = read_map(&mut conn).unwrap();
        let applier = Applier::begin(&mut conn, Arc::new(map)).unwrap();
        let position = PositionWriter::prepare(&mut conn).unwrap();
        Copy { conn, applier, position }
    }

    pub fn apply(&mut self, body: &[u8]) -> Result<(), ApplyError> {
        self.conn.exec("BEGIN IMMEDIATE")?;
        for record in RecordReader::new(body) {
            let Record::Batch(batch) = record? else { continue };
            for transaction in batch.transactions() {
                self.applier.apply(&mut self.conn, transaction?.ops)?;
            }
            self.position.write(&mut self.conn, batch.number, Epoch(1))?;
        }
        Ok(self.conn.exec("COMMIT")?)
    }
}

/// Number of operations in a batch's body.
pub fn count_ops(body: &[u8]) -> usize {
    ops(body, |_| true)
}

/// Number of operations for which `which` holds.
pub fn ops(body: &[u8], mut which: impl FnMut(&Op<'_>) -> bool) -> usize {
    let mut count = 0;
    for record in RecordReader::new(body) {
        let Record::Batch(batch) = record.unwrap() else { continue };
        for transaction in batch.transactions() {
            count += transaction.unwrap().ops.filter(|op| which(op.as_ref().unwrap())).count();
        }
    }
    count
}

/// All content of a database as lines: schema, rows with their hidden rowids, header fields.
pub fn dump(conn: &mut Conn) -> Vec<String> {
    let map = read_map(conn).unwrap();
    let mut lines = Vec::new();
    let mut add = |conn: &mut Conn, title: &str, sql: &str| {
        lines.push(format!("-- {title}"));
        for row in conn.query_rows(sql).unwrap_or_else(|e| panic!("{sql}: {e}")) {
            lines.push(row.iter().map(show).collect::<Vec<_>>().join("|"));
        }
    };
    add(conn, "schema", "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name");
    add(conn, "ids", "SELECT * FROM holdfast_tables ORDER BY id");
    add(conn, "meta", "SELECT * FROM holdfast_meta");
    if map.has_sequences {
        add(conn, "sequences", "SELECT rowid, * FROM sqlite_sequence ORDER BY rowid");
    }
    add(conn, "version", "PRAGMA user_version");
    for table in map.tables() {
        let columns: Vec<String> = table.columns.iter().map(|column| quote(&column.name)).collect();
        let key = match &table.key {
            RowKey::Rowid { name, .. } => name.clone(),
            RowKey::Columns(positions) => columns[positions[0]].clone(),
        };
        let (name, columns) = (quote(&table.name), columns.join(","));
        add(conn, &table.name, &format!("SELECT {key}, {columns} FROM main.{name} ORDER BY {key}, {columns}"));
    }
    lines
}

/// Shows reals by their bits, so that -0.0 and 0.0 differ.
fn show(value: &Value) -> String {
    match value {
        Value::Real(r) => format!("{r:?}:{:x}", r.to_bits()),
        Value::Blob(b) if b.len() > 64 => format!("blob of {} {:?}", b.len(), &b[..8]),
        other => format!("{other:?}"),
    }
}
