//! The file to be imported: opened so that nothing of it changes.
//!
//! SQLite makes a `-shm` file, and an empty `-wal`, next to a WAL database even when it only reads; what was not there
//! before is removed again when the source is dropped, unless another program has opened the database meanwhile.

use super::{ImportError, ImportProgress, OnProgress, collations, show, sqlite_error};
use crate::state::sqlite_uri::sqlite_uri;
use holdfast_store::pages::RESERVED_BYTES;
use holdfast_store::schema_map::{PREPARED_TABLE, SchemaError, is_internal, read_position};
use holdfast_store::sqlite::{Conn, FileLock, OpenFlags};
use holdfast_types::Value;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Findings of quick_check that a message shows.
const FINDINGS_MAX: usize = 3;
/// Instructions of SQLite's machine between two calls of the progress function.
const PROGRESS_STEPS: i32 = 200_000;

pub struct Source {
    path: PathBuf,
    conn: Option<Conn>,
    /// Files next to it that did not exist before it was opened.
    litter: Vec<PathBuf>,
}

impl Source {
    pub fn open(path: &Path) -> Result<Source, ImportError> {
        check_header(path)?;
        let beside = |suffix: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            PathBuf::from(name)
        };
        let litter: Vec<_> = ["-wal", "-shm"].into_iter().map(beside).filter(|p| !p.exists()).collect();
        let mut source = Source { path: path.to_owned(), conn: None, litter };
        let flags = OpenFlags { write: false, create: false };
        let mut conn = Conn::open(&sqlite_uri(path, "mode=ro"), flags, Some(c"unix")).map_err(|e| source.error(e))?;
        let wal_is_empty = std::fs::metadata(beside("-wal")).map_or(true, |m| m.len() == 0);
        let mut read = conn.query_value("select count(*) from sqlite_schema");
        if let Err(e) = &read
            && e.primary() == holdfast_store::sqlite::ffi::SQLITE_CANTOPEN
            && wal_is_empty
        {
            // No -shm can be made in a directory that is not writable; with nothing in the -wal none is needed.
            let uri = sqlite_uri(path, "mode=ro&immutable=1");
            conn = Conn::open(&uri, flags, Some(c"unix")).map_err(|e| source.error(e))?;
            read = conn.query_value("select count(*) from sqlite_schema");
        }
        source.conn = Some(conn);
        read.map_err(|e| source.error(e))?;
        Ok(source)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn conn(&mut self) -> &mut Conn {
        self.conn.as_mut().expect("set by open, taken by drop")
    }

    fn error(&self, e: holdfast_store::sqlite::SqliteError) -> ImportError {
        sqlite_error(&self.path, e)
    }

    fn int(&mut self, sql: &str) -> Result<u64, ImportError> {
        match self.conn().query_value(sql) {
            Ok(Value::Int(n)) => Ok(n.max(0) as u64),
            Ok(_) => Ok(0),
            Err(e) => Err(self.error(e)),
        }
    }

    /// Refuses names that Holdfast keeps for itself, except in a volume, which has them from us.
    pub fn check_names(&mut self) -> Result<(), ImportError> {
        let volume = read_position(self.conn()).is_ok();
        let sql = "select name from sqlite_schema where type in ('table', 'view')";
        let names = self.conn().query_rows(sql).map_err(|e| sqlite_error(&self.path, e))?;
        for row in names {
            let Some(Value::Text(name)) = row.into_iter().next() else { continue };
            let ours = volume && matches!(&*name, "holdfast_meta" | "holdfast_tables" | PREPARED_TABLE);
            if is_internal(name.as_bytes()) && !ours {
                let source = SchemaError::ReservedName(name);
                return Err(ImportError::Schema { path: show(&self.path), source });
            }
        }
        Ok(())
    }

    /// The column or index that names a collation.
    fn place_of_collation(&mut self, collation: &str) -> Option<String> {
        let sql = "select type || ' ' || name, sql from sqlite_schema where type in ('table', 'index')";
        self.conn().query_rows(sql).ok()?.into_iter().find_map(|row| {
            let [Value::Text(place), Value::Text(sql)] = row.as_slice() else { return None };
            let used = collations::used(sql).into_iter().find(|of| of.name.eq_ignore_ascii_case(collation))?;
            Some(match used.column {
                Some(column) => format!("column {column} of {place}"),
                None => place.clone(),
            })
        })
    }

    /// About how large the copy will be: the pages in use, with room for reserved bytes and for a smaller page size.
    pub fn copy_bytes(&mut self) -> Result<u64, ImportError> {
        let pages = self.int("pragma page_count")?.saturating_sub(self.int("pragma freelist_count")?);
        let bytes = pages * self.int("pragma page_size")?;
        Ok(bytes + bytes / 8 + 16 * 4096)
    }

    /// Refuses a damaged file.
    pub fn check_content(&mut self, progress: &OnProgress) -> Result<(), ImportError> {
        let report = progress.clone();
        report(ImportProgress::Checking);
        self.watch(move || report(ImportProgress::Checking));
        let found = self.conn().query_rows(&format!("pragma quick_check({FINDINGS_MAX})"));
        self.watch_no_more();
        let found: Vec<String> = found
            .map_err(|e| self.error(e))?
            .into_iter()
            .filter_map(|row| match row.into_iter().next() {
                Some(Value::Text(finding)) if finding != "ok" => Some(finding),
                _ => None,
            })
            .collect();
        if found.is_empty() {
            return Ok(());
        }
        Err(ImportError::Damaged { path: show(&self.path), found: found.join("; ") })
    }

    /// Calls `report` now and then while the connection works.
    pub fn watch(&mut self, report: impl Fn() + Send + 'static) {
        let set = self.conn().rusqlite().progress_handler(
            PROGRESS_STEPS,
            Some(move || {
                report();
                false
            }),
        );
        if let Err(e) = set {
            tracing::debug!("no progress is shown: {e}");
        }
    }

    pub fn watch_no_more(&mut self) {
        if let Err(e) = self.conn().rusqlite().progress_handler(0, None::<fn() -> bool>) {
            tracing::debug!("the progress display continues: {e}");
        }
    }

    /// Its text is UTF-8 and it can be copied as a whole.
    pub fn is_utf8(&mut self) -> Result<bool, ImportError> {
        let encoding = self.conn().query_value("pragma encoding").map_err(|e| self.error(e))?;
        let reserved = header(&self.path).map_or(0, |h| usize::from(h[20]));
        Ok(encoding == Value::Text("UTF-8".into()) && reserved <= RESERVED_BYTES)
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        drop(self.conn.take());
        // No program has a WAL database open without holding a lock on it, so no program misses what is removed here. An adopted
        // file is gone by now.
        let unused = match FileLock::take(&self.path) {
            Ok(lock) => lock.map(Some),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Some(None),
            Err(_) => None,
        };
        let Some(_lock) = unused else { return };
        for path in &self.litter {
            let is_shm = path.as_os_str().as_encoded_bytes().ends_with(b"-shm");
            let empty = std::fs::metadata(path).is_ok_and(|m| m.len() == 0);
            if (empty || is_shm)
                && let Err(e) = std::fs::remove_file(path)
                && e.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!("cannot remove {}: {e}", path.display());
            }
        }
    }
}

/// SQLite's words for a collation that it does not have.
const NO_COLLATION: &str = "no such collation sequence: ";

/// An error of SQLite that does not say where, with the place that it is about.
pub fn explain(path: &Path, error: ImportError) -> ImportError {
    let text = error.to_string();
    let Some((_, collation)) = text.split_once(NO_COLLATION) else { return error };
    let collation = collation.split_whitespace().next().unwrap_or_default().trim_end_matches([';', ',']).to_owned();
    let place = Source::open(path).ok().and_then(|mut source| source.place_of_collation(&collation));
    let place = place.unwrap_or_else(|| "its schema".to_owned());
    ImportError::Collation { path: show(path), collation, place }
}

fn header(path: &Path) -> std::io::Result<[u8; 100]> {
    let mut header = [0; 100];
    File::open(path)?.read_exact(&mut header)?;
    Ok(header)
}

/// Refuses what is not a SQLite file before SQLite sees it.
fn check_header(path: &Path) -> Result<(), ImportError> {
    let io = |what, source| ImportError::Io { what, path: show(path), source };
    let metadata = std::fs::metadata(path).map_err(|e| io("open", e))?;
    let not = |why| Err(ImportError::NotSqlite { path: show(path), why });
    if !metadata.is_file() {
        return not("it is not a regular file");
    }
    match header(path) {
        Ok(h) if h.starts_with(b"SQLite format 3\0") => Ok(()),
        Ok(_) => not("no SQLite header; an encrypted database must be decrypted with its own program first"),
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            not("no SQLite header: the file is shorter than 100 bytes")
        }
        Err(e) => Err(io("read", e)),
    }
}
