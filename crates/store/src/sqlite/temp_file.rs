//! The pages of one session's temporary tables. They are a SQLite database of their own, which is attached as `pg_temp`
//! to whatever connection runs a statement about it, and detached afterwards.
//!
//! SQLite's transactions end with the statement. The client's transactions are kept here, a level below SQLite: before
//! a page is written for the first time since a mark, its content is saved, so that going back to a mark means
//! restoring the saved pages. A savepoint is a mark; the first mark is where the client's transaction began.
//!
//! | event | the saved pages |
//! |---|---|
//! | a page is written or cut off, and a mark is set | its content is saved, once for each mark |
//! | back to a mark | those since the mark are restored, the last one first; so is the size |
//! | the mark is released | they belong to the mark before it |
//! | no mark is left | they are dropped |
//!
//! The pages and the saved pages are kept in memory up to [`MEMORY_BYTES_MAX`] each, then in unlinked files. Nothing of
//! them survives the process, and nothing is synced.
//!
//! Failure: a write beyond `bytes_max` is SQLITE_FULL, and [`TempPages::take_overflow`] distinguishes that from a full
//! disk. If a page cannot be restored, the state of the tables is unknown: the caller drops them all.

use super::conn::Conn;
use super::error::SqliteError;
use super::scratch_file::{ByteFile, ScratchFile};
use crate::pages::PAGE_BYTES;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

/// The schema name under which temporary tables are attached.
pub const TEMP_SCHEMA: &str = "pg_temp";

/// Bytes of pages, and of saved pages, kept in memory for each session.
const MEMORY_BYTES_MAX: usize = 256 << 10;

/// All temporary tables, by the number in the name under which they are attached.
static KNOWN: LazyLock<Mutex<HashMap<i64, Weak<TempPages>>>> = LazyLock::new(Mutex::default);

/// The pages of one session's temporary tables.
pub struct TempPages {
    id: i64,
    bytes_max: u64,
    state: Mutex<State>,
}

struct State {
    dir: PathBuf,
    file: ScratchFile,
    aside: ScratchFile,
    /// Numbers, from 0, of the saved pages, in the order in which they were saved.
    numbers: Vec<u64>,
    /// Pages saved since the last mark.
    saved: HashSet<u64>,
    marks: Vec<Mark>,
    overflowed: bool,
}

#[derive(Clone, Copy)]
struct Mark {
    aside: usize,
    length: u64,
}

impl TempPages {
    /// Makes an empty set of tables. Files are made in `dir` and have at most `bytes_max` bytes together.
    pub fn new(dir: PathBuf, bytes_max: u64) -> Arc<TempPages> {
        static NEXT: AtomicI64 = AtomicI64::new(1);
        let file = |dir: &PathBuf| ScratchFile::with_memory(dir.clone(), MEMORY_BYTES_MAX);
        let state = State {
            file: file(&dir),
            aside: file(&dir),
            dir,
            numbers: Vec::new(),
            saved: HashSet::new(),
            marks: Vec::new(),
            overflowed: false,
        };
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let pages = Arc::new(TempPages { id, bytes_max, state: Mutex::new(state) });
        KNOWN.lock().insert(id, Arc::downgrade(&pages));
        pages
    }

    /// Sets a mark and returns how many marks there are.
    pub fn set_mark(&self) -> usize {
        let mut state = self.state.lock();
        let mark = Mark { aside: state.numbers.len(), length: state.file.length() };
        state.marks.push(mark);
        state.saved.clear();
        state.marks.len()
    }

    /// Forgets mark `number`, counted from 0, and all later ones; changes made since then stay.
    pub fn release(&self, number: usize) {
        let mut state = self.state.lock();
        state.marks.truncate(number);
        if state.marks.is_empty() {
            state.forget_aside();
        }
    }

    /// Goes back to mark `number`, counted from 0, which stays.
    pub fn back_to(&self, number: usize) -> io::Result<()> {
        let mut state = self.state.lock();
        let Some(mark) = state.marks.get(number).copied() else { return Ok(()) };
        let mut page = [0; PAGE_BYTES];
        for entry in (mark.aside..state.numbers.len()).rev() {
            state.aside.read(&mut page, (entry * PAGE_BYTES) as u64)?;
            let offset = state.numbers[entry] * PAGE_BYTES as u64;
            state.file.write(&page, offset)?;
        }
        state.file.truncate(mark.length)?;
        state.numbers.truncate(mark.aside);
        state.aside.truncate((mark.aside * PAGE_BYTES) as u64)?;
        state.marks.truncate(number + 1);
        state.saved.clear();
        Ok(())
    }

    /// Whether a write was refused because of the limit since the last call.
    pub fn take_overflow(&self) -> bool {
        std::mem::take(&mut self.state.lock().overflowed)
    }

    /// Bytes that may be used.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Bytes of saved pages.
    pub fn bytes_aside(&self) -> u64 {
        self.state.lock().aside.length()
    }
}

impl Drop for TempPages {
    fn drop(&mut self) {
        KNOWN.lock().remove(&self.id);
    }
}

impl State {
    /// Those of `pages` whose current content is needed for going back to the last mark.
    fn needed(&self, pages: Range<u64>) -> impl Iterator<Item = u64> + use<> {
        let known = self.marks.last().map_or(0, |mark| mark.length.div_ceil(PAGE_BYTES as u64));
        pages.start..pages.end.min(known)
    }

    fn to_put_aside(&self, pages: Range<u64>) -> u64 {
        self.needed(pages).filter(|number| !self.saved.contains(number)).count() as u64
    }

    /// Saves the content of `pages` where going back to a mark needs it.
    fn put_aside(&mut self, pages: Range<u64>) -> io::Result<()> {
        let mut page = [0; PAGE_BYTES];
        for number in self.needed(pages) {
            if self.saved.contains(&number) {
                continue;
            }
            self.file.read(&mut page, number * PAGE_BYTES as u64)?;
            self.aside.write(&page, (self.numbers.len() * PAGE_BYTES) as u64)?;
            self.numbers.push(number);
            self.saved.insert(number);
        }
        Ok(())
    }

    fn forget_aside(&mut self) {
        self.aside = ScratchFile::with_memory(self.dir.clone(), MEMORY_BYTES_MAX);
        self.numbers = Vec::new();
        self.saved = HashSet::new();
    }
}

/// The page numbers from the one at `offset` up to the one after the byte before `end`.
fn pages_of(offset: u64, end: u64) -> Range<u64> {
    offset / PAGE_BYTES as u64..end.div_ceil(PAGE_BYTES as u64)
}

impl ByteFile for Arc<TempPages> {
    fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let end = offset + bytes.len() as u64;
        // A write that needs no more room is never refused: SQLite must be able to undo what it has written.
        let more =
            end.saturating_sub(state.file.length()) + state.to_put_aside(pages_of(offset, end)) * PAGE_BYTES as u64;
        if more > 0 && state.file.length() + state.aside.length() + more > self.bytes_max {
            state.overflowed = true;
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.put_aside(pages_of(offset, end))?;
        state.file.write(bytes, offset)
    }

    fn read(&self, out: &mut [u8], offset: u64) -> io::Result<bool> {
        self.state.lock().file.read(out, offset)
    }

    fn truncate(&mut self, size: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let end = state.file.length();
        state.put_aside(pages_of(size, end))?;
        state.file.truncate(size)
    }

    fn length(&self) -> u64 {
        self.state.lock().file.length()
    }
}

/// Finds the pages of that number, while a session owns them.
pub(super) fn find(id: i64) -> Option<Arc<TempPages>> {
    KNOWN.lock().get(&id)?.upgrade()
}

impl Conn {
    /// Attaches temporary tables. Statements about them must be finalized before they are detached.
    pub fn attach_temp(&mut self, pages: &TempPages) -> Result<(), SqliteError> {
        self.exec(&format!("ATTACH 'file:temp?role=temp&id={}' AS {TEMP_SCHEMA}", pages.id))
    }

    /// Detaches the temporary tables, outside a transaction.
    pub fn detach_temp(&mut self) -> Result<(), SqliteError> {
        self.exec(&format!("DETACH {TEMP_SCHEMA}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(byte: u8) -> [u8; PAGE_BYTES] {
        [byte; PAGE_BYTES]
    }

    fn content(pages: &Arc<TempPages>) -> Vec<u8> {
        let count = pages.length() / PAGE_BYTES as u64;
        let first = |n: u64| {
            let mut byte = [0];
            pages.read(&mut byte, n * PAGE_BYTES as u64).unwrap();
            byte[0]
        };
        (0..count).map(first).collect()
    }

    fn put(pages: &mut Arc<TempPages>, number: u64, byte: u8) {
        pages.write(&page(byte), number * PAGE_BYTES as u64).unwrap();
    }

    #[test]
    fn marks_are_gone_back_to_in_any_depth() {
        let dir = tempfile::tempdir().unwrap();
        let mut pages = TempPages::new(dir.path().into(), 1 << 30);
        put(&mut pages, 0, 1);
        put(&mut pages, 1, 2);
        assert_eq!(pages.set_mark(), 1);
        put(&mut pages, 0, 3);
        put(&mut pages, 2, 4);
        assert_eq!(pages.set_mark(), 2);
        put(&mut pages, 0, 5);
        pages.truncate(PAGE_BYTES as u64).unwrap();
        put(&mut pages, 1, 6);
        assert_eq!(content(&pages), [5, 6]);
        pages.back_to(1).unwrap();
        assert_eq!(content(&pages), [3, 2, 4]);
        put(&mut pages, 0, 7);
        pages.release(1);
        put(&mut pages, 0, 8);
        pages.back_to(0).unwrap();
        assert_eq!(content(&pages), [1, 2]);
        put(&mut pages, 1, 9);
        pages.release(0);
        assert_eq!((content(&pages), pages.bytes_aside()), (vec![1, 9], 0));
    }

    /// A model that copies everything predicts the result of random writes, marks and returns.
    #[test]
    fn random_histories_agree_with_whole_copies() {
        let dir = tempfile::tempdir().unwrap();
        let mut seed = 7u64;
        let mut random = move |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for _ in 0..50 {
            let mut pages = TempPages::new(dir.path().into(), 1 << 30);
            let mut copies: Vec<Vec<u8>> = Vec::new();
            for _ in 0..200 {
                match random(10) {
                    0..5 => {
                        let end = pages.length() / PAGE_BYTES as u64;
                        put(&mut pages, random(end + 1).min(150), random(256) as u8);
                    }
                    5 => {
                        let end = pages.length() / PAGE_BYTES as u64;
                        pages.truncate(random(end + 1) * PAGE_BYTES as u64).unwrap();
                    }
                    6 | 7 => {
                        copies.push(content(&pages));
                        pages.set_mark();
                    }
                    8 if !copies.is_empty() => {
                        let to = random(copies.len() as u64) as usize;
                        copies.truncate(to + 1);
                        pages.back_to(to).unwrap();
                        assert_eq!(content(&pages), copies[to]);
                    }
                    9 if !copies.is_empty() => {
                        let from = random(copies.len() as u64) as usize;
                        copies.truncate(from);
                        pages.release(from);
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn the_limit_counts_what_is_put_aside() {
        let dir = tempfile::tempdir().unwrap();
        let mut pages = TempPages::new(dir.path().into(), 3 * PAGE_BYTES as u64);
        put(&mut pages, 0, 1);
        put(&mut pages, 1, 1);
        pages.set_mark();
        put(&mut pages, 0, 2);
        assert!(!pages.take_overflow());
        let error = pages.write(&page(2), PAGE_BYTES as u64).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(pages.take_overflow() && !pages.take_overflow());
        put(&mut pages, 0, 3);
        pages.back_to(0).unwrap();
        assert_eq!(content(&pages), [1, 1]);
    }
}
