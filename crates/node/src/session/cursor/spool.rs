//! The rows of a cursor, written once when it is declared and read in any direction afterwards.
//!
//! | bytes | a row |
//! |---|---|
//! | 4 | length of the cells, little-endian |
//! | | the cells, as in the trail ([`holdfast_types::record`]) |
//! | 4 | the length again, for reading backwards |
//!
//! Up to [`MEMORY_BYTES_MAX`] the rows stay in memory; beyond it they go to an unlinked file in the data directory's scratch
//! folder, which disappears with the cursor. An [`Index`] of bounded size leads to any row in a few steps.
//!
//! Failure: a disk that is full or fails ends the statement that declares (53100, 58030) or fetches (58030). A file
//! beyond `scratch_bytes_max` is 54000. Nothing here must survive a crash, so nothing is synced.

use super::movement::Span;
use holdfast_store::pages::scratch::unlinked_file;
use holdfast_types::record::{put_cell, take_cell};
use holdfast_types::{Row, Sink, SqlError, SqlResult, SqlState, StatementDesc, Tag, ValueRef};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of rows that one cursor keeps in memory.
pub const MEMORY_BYTES_MAX: usize = 1 << 20;
/// Bytes written to a file at once, and the buffer's size from then on.
const WRITE_BYTES: usize = 256 << 10;
/// Bytes read from a file at once.
const READ_BYTES: usize = 32 << 10;
/// Bytes of one length.
const LENGTH_BYTES: usize = 4;
/// Rows from one entry of an index to the next, at first.
const STRIDE: u64 = 64;
/// Entries of an index; with more rows the distance between entries doubles.
const INDEX_ENTRIES_MAX: usize = 1 << 16;

/// Where spools are stored that do not fit in memory, and how large one may grow.
#[derive(Debug)]
pub struct Scratch {
    pub dir: PathBuf,
    pub bytes_max: u64,
}

/// Where every `stride`-th row begins.
#[derive(Debug)]
struct Index {
    stride: u64,
    offsets: Vec<u64>,
    entries_max: usize,
}

impl Index {
    fn new(entries_max: usize) -> Index {
        Index { stride: STRIDE, offsets: Vec::new(), entries_max }
    }

    /// Row number `row`, from 0, begins at `offset`. Called for every row, in order.
    fn add(&mut self, row: u64, offset: u64) {
        if self.offsets.len() == self.entries_max && row.is_multiple_of(self.stride) {
            let mut i = 0;
            self.offsets.retain(|_| {
                i += 1;
                i % 2 == 1
            });
            self.stride *= 2;
        }
        if row.is_multiple_of(self.stride) {
            self.offsets.push(offset);
        }
    }

    /// Keeps the entries of the first `rows` rows only.
    fn truncate(&mut self, rows: u64) {
        self.offsets.truncate(rows.div_ceil(self.stride) as usize);
    }

    /// The nearest indexed row at or before `row`, from 0, and where it begins.
    fn before(&self, row: u64) -> Option<(u64, u64)> {
        let entry = row / self.stride;
        self.offsets.get(entry as usize).map(|offset| (entry * self.stride, *offset))
    }
}

/// A sink that stores the rows of one statement.
pub struct SpoolWriter {
    scratch: Arc<Scratch>,
    /// What is not in the file.
    buffer: Vec<u8>,
    file: Option<File>,
    file_bytes: u64,
    rows: u64,
    index: Index,
    memory_bytes_max: usize,
    /// Rows and bytes that `reset` keeps.
    kept: (u64, u64),
}

impl SpoolWriter {
    pub fn new(scratch: Arc<Scratch>) -> SpoolWriter {
        SpoolWriter::with_limits(scratch, MEMORY_BYTES_MAX, INDEX_ENTRIES_MAX)
    }

    fn with_limits(scratch: Arc<Scratch>, memory_bytes_max: usize, index_entries_max: usize) -> SpoolWriter {
        SpoolWriter {
            scratch,
            buffer: Vec::new(),
            file: None,
            file_bytes: 0,
            rows: 0,
            index: Index::new(index_entries_max),
            memory_bytes_max,
            kept: (0, 0),
        }
    }

    fn bytes(&self) -> u64 {
        self.file_bytes + self.buffer.len() as u64
    }

    fn write_out(&mut self) -> SqlResult<()> {
        if self.bytes() > self.scratch.bytes_max {
            let message = format!("a cursor's rows exceed scratch_bytes_max ({})", self.scratch.bytes_max);
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).with_hint("Narrow the query."));
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => unlinked_file(&self.scratch.dir).map_err(|e| io_error("create a file for", &e))?,
        };
        let written = file.write_all_at(&self.buffer, self.file_bytes);
        self.file = Some(file);
        written.map_err(|e| io_error("write", &e))?;
        self.file_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        self.buffer.shrink_to(WRITE_BYTES);
        Ok(())
    }

    /// Ends the spool: all rows have been written.
    pub fn finish(mut self) -> SqlResult<Spool> {
        if self.file.is_some() {
            self.write_out()?;
        }
        let bytes = self.bytes();
        let store = match self.file {
            Some(file) => Store::File(file),
            None => {
                self.buffer.shrink_to_fit();
                Store::Memory(self.buffer)
            }
        };
        self.index.offsets.shrink_to_fit();
        Ok(Spool { store, bytes, rows: self.rows, index: self.index })
    }
}

impl Sink for SpoolWriter {
    fn begin(&mut self, _step: usize, _desc: &Arc<StatementDesc>) {}

    fn row(&mut self, row: &dyn Row) -> SqlResult<()> {
        self.index.add(self.rows, self.bytes());
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; LENGTH_BYTES]);
        (0..row.len()).for_each(|i| put_cell(&mut self.buffer, row.get(i)));
        let length = u32::try_from(self.buffer.len() - start - LENGTH_BYTES)
            .map_err(|_| SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a row of a cursor is larger than 4 GiB"))?;
        self.buffer[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        self.buffer.extend_from_slice(&length.to_le_bytes());
        self.rows += 1;
        let full = if self.file.is_some() { WRITE_BYTES } else { self.memory_bytes_max };
        if self.buffer.len() > full { self.write_out() } else { Ok(()) }
    }

    fn end(&mut self, _tag: &Tag) {}

    fn keep(&mut self) {
        self.kept = (self.rows, self.bytes());
    }

    fn reset(&mut self) {
        let (rows, bytes) = self.kept;
        // Later bytes in the file are overwritten.
        let in_file = self.file_bytes.min(bytes);
        self.buffer.truncate((bytes - in_file) as usize);
        self.file_bytes = in_file;
        self.rows = rows;
        self.index.truncate(rows);
    }
}

fn io_error(what: &str, error: &io::Error) -> SqlError {
    let state = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SqlState::DISK_FULL,
        _ => SqlState::IO_ERROR,
    };
    SqlError::new(state, format!("cannot {what} a cursor's rows: {error}"))
}

fn damaged() -> SqlError {
    SqlError::internal("a cursor's rows cannot be read back")
}

#[derive(Debug)]
enum Store {
    Memory(Vec<u8>),
    File(File),
}

/// A cursor's rows.
#[derive(Debug)]
pub struct Spool {
    store: Store,
    bytes: u64,
    rows: u64,
    index: Index,
}

impl Spool {
    /// The number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether reading the rows touches no file.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.store, Store::Memory(_))
    }

    /// Passes the rows of `span`, in its order, to `take` until that fails.
    pub fn read(&self, span: Span, take: &mut dyn FnMut(&dyn Row) -> SqlResult<()>) -> SqlResult<()> {
        if span.count == 0 {
            return Ok(());
        }
        let mut window = Window { spool: self, start: 0, bytes: Vec::new(), backward: false };
        let mut at = self.find(&mut window, span.first - 1)?;
        window.backward = span.backward;
        for left in (0..span.count).rev() {
            let length = window.length(at)?;
            take(&Cells::read(window.get(at + LENGTH_BYTES as u64, length)?)?)?;
            if left > 0 {
                at = if span.backward { window.before(at)? } else { behind(at, length) };
            }
        }
        Ok(())
    }

    /// Where row number `row`, from 0, begins.
    fn find(&self, window: &mut Window<'_>, row: u64) -> SqlResult<u64> {
        let (known, mut at) = self.index.before(row).ok_or_else(damaged)?;
        for _ in known..row {
            at = behind(at, window.length(at)?);
        }
        Ok(at)
    }
}

/// Where the row after the one at `at` begins.
fn behind(at: u64, length: usize) -> u64 {
    at + (length + 2 * LENGTH_BYTES) as u64
}

/// The part of a spool that is in memory for reading.
struct Window<'s> {
    spool: &'s Spool,
    start: u64,
    bytes: Vec<u8>,
    /// Rows are read backwards.
    backward: bool,
}

impl Window<'_> {
    fn get(&mut self, at: u64, length: usize) -> SqlResult<&[u8]> {
        let end = at.checked_add(length as u64).filter(|end| *end <= self.spool.bytes).ok_or_else(damaged)?;
        match &self.spool.store {
            Store::Memory(bytes) => Ok(&bytes[at as usize..end as usize]),
            Store::File(file) => {
                if at < self.start || end > self.start + self.bytes.len() as u64 {
                    let size = READ_BYTES.max(length) as u64;
                    self.start = if self.backward { end.saturating_sub(size) } else { at };
                    self.bytes.resize(size.min(self.spool.bytes - self.start) as usize, 0);
                    file.read_exact_at(&mut self.bytes, self.start).map_err(|e| io_error("read", &e))?;
                }
                let from = (at - self.start) as usize;
                Ok(&self.bytes[from..from + length])
            }
        }
    }

    fn length(&mut self, at: u64) -> SqlResult<usize> {
        let bytes = self.get(at, LENGTH_BYTES)?;
        let length: [u8; LENGTH_BYTES] = bytes.try_into().map_err(|_| damaged())?;
        Ok(u32::from_le_bytes(length) as usize)
    }

    /// Where the row before the one at `at` begins.
    fn before(&mut self, at: u64) -> SqlResult<u64> {
        let end = at.checked_sub(LENGTH_BYTES as u64).ok_or_else(damaged)?;
        let length = self.length(end)? as u64;
        end.checked_sub(length + LENGTH_BYTES as u64).ok_or_else(damaged)
    }
}

/// A row read back.
struct Cells<'a>(Vec<ValueRef<'a>>);

impl<'a> Cells<'a> {
    fn read(mut bytes: &'a [u8]) -> SqlResult<Cells<'a>> {
        let mut cells = Vec::new();
        while !bytes.is_empty() {
            cells.push(take_cell(&mut bytes).map_err(|_| damaged())?);
        }
        Ok(Cells(cells))
    }
}

impl Row for Cells<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn get(&self, i: usize) -> ValueRef<'_> {
        self.0.get(i).copied().unwrap_or(ValueRef::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_types::Value;

    struct Given(Vec<Value>);

    impl Row for Given {
        fn len(&self) -> usize {
            self.0.len()
        }
        fn get(&self, i: usize) -> ValueRef<'_> {
            self.0[i].as_ref()
        }
    }

    /// Row `n` of the tests: now and then a large one.
    fn row(n: u64) -> Vec<Value> {
        let text = "x".repeat(if n.is_multiple_of(97) { 50_000 } else { (n % 40) as usize });
        vec![
            Value::Int(n as i64),
            Value::Text(text),
            Value::Null,
            Value::Real(n as f64 / 2.0),
            Value::Blob(vec![0, 255]),
        ]
    }

    fn writer(bytes_max: u64, memory_bytes_max: usize) -> SpoolWriter {
        let scratch = Scratch { dir: std::env::temp_dir(), bytes_max };
        SpoolWriter::with_limits(Arc::new(scratch), memory_bytes_max, 4)
    }

    fn fill(writer: &mut SpoolWriter, rows: std::ops::RangeInclusive<u64>) {
        rows.for_each(|n| writer.row(&Given(row(n))).unwrap());
    }

    fn read(spool: &Spool, span: Span) -> Vec<Vec<Value>> {
        let mut rows = Vec::new();
        let mut take = |row: &dyn Row| {
            rows.push((0..row.len()).map(|i| row.get(i).to_value()).collect());
            Ok(())
        };
        spool.read(span, &mut take).unwrap();
        rows
    }

    #[test]
    fn rows_come_back_in_both_directions_from_memory_and_from_a_file() {
        for memory_bytes_max in [64 << 20, 1000] {
            let mut writer = writer(u64::MAX, memory_bytes_max);
            fill(&mut writer, 1..=1500);
            let spool = writer.finish().unwrap();
            assert_eq!((spool.rows(), spool.is_in_memory()), (1500, memory_bytes_max > 1000));
            for first in [1, 2, 63, 64, 65, 128, 777, 1499, 1500] {
                let forward = Span { first, count: 1501 - first, backward: false };
                assert_eq!(read(&spool, forward), (first..=1500).map(row).collect::<Vec<_>>(), "from {first}");
                let backward = Span { first, count: first, backward: true };
                assert_eq!(read(&spool, backward), (1..=first).rev().map(row).collect::<Vec<_>>(), "back from {first}");
            }
            assert!(read(&spool, Span::default()).is_empty());
        }
    }

    #[test]
    fn an_index_stays_small_and_leads_close_to_every_row() {
        let mut index = Index::new(8);
        (0..100_000).for_each(|row| index.add(row, row * 10));
        assert!(index.offsets.len() <= 8);
        for row in [0, 1, 64, 50_000, 99_999] {
            let (known, offset) = index.before(row).unwrap();
            assert_eq!(offset, known * 10);
            assert!(known <= row && row - known < index.stride, "{row}: {known}");
        }
        index.truncate(1);
        assert_eq!(index.offsets, [0]);
    }

    #[test]
    fn what_runs_again_is_forgotten_first() {
        for memory_bytes_max in [64 << 20, 1000] {
            let mut writer = writer(u64::MAX, memory_bytes_max);
            fill(&mut writer, 1..=900);
            writer.reset();
            fill(&mut writer, 1..=100);
            writer.keep();
            fill(&mut writer, 500..=900);
            writer.reset();
            fill(&mut writer, 101..=700);
            let spool = writer.finish().unwrap();
            let all = Span { first: 1, count: 700, backward: false };
            assert_eq!(read(&spool, all), (1..=700).map(row).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_spool_beyond_its_limit_is_refused() {
        let mut writer = writer(100_000, 1000);
        let refused = (1..10_000).find_map(|n| writer.row(&Given(row(n))).err()).expect("refused");
        assert_eq!(refused.state(), SqlState::PROGRAM_LIMIT_EXCEEDED);
    }

    #[test]
    fn a_folder_that_is_gone_is_an_error() {
        let scratch = Scratch { dir: "/nonexistent/holdfast".into(), bytes_max: u64::MAX };
        let mut writer = SpoolWriter::with_limits(Arc::new(scratch), 10, 4);
        assert_eq!(writer.row(&Given(row(20))).unwrap_err().state(), SqlState::IO_ERROR);
    }
}
