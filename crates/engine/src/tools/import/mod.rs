//! `holdfast import`: a SQLite file becomes a database of dialect `sqlite`.
//!
//! The copy is logical (RULE 15): 4096-byte pages with 16 reserved bytes, UTF-8, auto_vacuum off, every rowid as it was.
//! The file itself is opened read-only together with its `-wal` and keeps every byte.
//!
//! 1. What can be refused by looking is refused: no SQLite file, in use, reserved names, name taken, disk too small.
//! 2. `quick_check` over the whole file.
//! 3. The copy is written, given Holdfast's internal tables, sealed and synced ([`copy`]).
//! 4. `Engine::adopt` logs the new volume with its checkpoint and lists it; it is opened once, to see that it
//!    can be served.
//!
//! A crash before the listing leaves a file that the next start removes. The file of one of the directory's own
//! databases is imported only to be adopted ([`Import::adopt`]): after another program changed it, its content becomes
//! the start of a new history under a new volume id, and the old history ends there (RULE 13).

mod collations;
mod copy;
mod source;

use crate::api::engine::Engine;
use crate::state::error::{CloseError, OpenError};
use crate::state::manifest::{Entry, Manifest};
use crate::state::options::Options;
use holdfast_seams::Disk;
use holdfast_store::schema_map::SchemaError;
use holdfast_store::sqlite::{SqliteError, ffi};
use holdfast_types::schema::Dialect;
use holdfast_types::{Level, SqlError, VolumeId};
use source::Source;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What to import, and where.
pub struct Import {
    pub file: PathBuf,
    /// The data directory; created if it does not exist. No server may use it.
    pub dir: PathBuf,
    /// The new database's name; the file's name without its extension when not given.
    pub database: Option<String>,
    /// The file is one of the directory's own databases, and its content is to be the start of a new history.
    pub adopt: bool,
}

/// How far an import has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportProgress {
    /// The file is being checked for damage.
    Checking,
    /// Bytes of the copy written, and about how many there will be.
    Copying { done: u64, total: u64 },
    /// Every page gets its checksum.
    Sealing,
}

/// Called now and then while an import is under way.
pub type OnProgress = Arc<dyn Fn(ImportProgress) + Send + Sync>;

/// What an import made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    pub database: String,
    pub path: PathBuf,
    pub bytes: u64,
}

/// Why a file was not imported. The file is as it was, and no database was made.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: String, source: std::io::Error },
    #[error("{path} is not a SQLite database: {why}")]
    NotSqlite { path: String, why: &'static str },
    #[error("{path} is in use by another program: close it there and try again")]
    InUse { path: String },
    #[error(
        "{path} is damaged, or its schema uses what SQLite alone does not have: {found}; `sqlite3 {path} .recover` saves what can be read"
    )]
    Damaged { path: String, found: String },
    #[error("{path} cannot be imported: {source}")]
    Schema { path: String, source: SchemaError },
    #[error(
        "{path} is database {name} of this data directory; to make its content the start of a new history add --adopt: changes that the trail has and the file lacks are then given up"
    )]
    OwnVolume { path: String, name: String },
    #[error("{path} is not a database of this data directory, so there is nothing to adopt; leave --adopt out")]
    NotOwnVolume { path: String },
    #[error("database {name} exists already; choose another name with --database, or drop it first")]
    Exists { name: String },
    #[error("cannot derive a database name from {path}; use --database NAME")]
    NoName { path: String },
    #[error("{dir} has {free_bytes} bytes free, the copy needs about {needed_bytes}; make room and try again")]
    Space { dir: String, free_bytes: u64, needed_bytes: u64 },
    #[error(
        "cannot import {path}: {place} uses the collation \"{collation}\", which SQLite does not have: an application \
         defined it. Make a copy of the file without it, with the program that defines it, and import the copy: for a column \
         write COLLATE NOCASE or leave COLLATE out, an index may be dropped"
    )]
    Collation { path: String, collation: String, place: String },
    #[error("cannot import {path}: {message}")]
    Failed { path: String, message: String },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Sql(#[from] SqlError),
    #[error("the database is imported, but the directory did not close cleanly: {0}")]
    Close(#[from] CloseError),
}

/// Room left for the trail and the manifest.
const SPARE_BYTES: u64 = 1 << 20;

/// Imports one file. Blocks until the new database is complete and durable.
pub fn import(what: &Import, options: Options, progress: OnProgress) -> Result<Imported, ImportError> {
    let own = own_volume(what, &options)?;
    let name = match (&own, &what.database) {
        (Some(entry), None) => entry.name.clone(),
        (_, Some(name)) => name.clone(),
        (None, None) => stem(&what.file)?,
    };
    if let Some(entry) = &own
        && (!what.adopt || name != entry.name)
    {
        return Err(ImportError::OwnVolume { path: show(&what.file), name: entry.name.clone() });
    }
    if own.is_none() && what.adopt {
        return Err(ImportError::NotOwnVolume { path: show(&what.file) });
    }
    let mut source = Source::open(&what.file)?;
    source.check_names()?;
    let needed_bytes = source.copy_bytes()?;
    check_space(what, &options, needed_bytes)?;

    let disk = options.disk.clone();
    let replaced = own.as_ref().map(Entry::volume);
    let engine = Engine::open_setting_aside(&what.dir, options, replaced)?;
    let copied = copy_in(&engine, &*disk, source, &name, replaced, needed_bytes, &progress);
    let closed = engine.close();
    let imported = copied.map_err(|error| source::explain(&what.file, error))?;
    closed?;
    Ok(imported)
}

/// What needs the directory open.
fn copy_in(
    engine: &Engine,
    disk: &dyn Disk,
    mut source: Source,
    name: &str,
    replaced: Option<VolumeId>,
    needed_bytes: u64,
    progress: &OnProgress,
) -> Result<Imported, ImportError> {
    if replaced.is_none() && engine.databases().iter().any(|d| d.name == name) {
        return Err(ImportError::Exists { name: name.to_owned() });
    }
    source.check_content(progress)?;
    let mut failed = None;
    // The new content has the owner and the grants of the old one.
    let access = engine.access_of(name);
    let made = engine.adopt(name, Dialect::Sqlite, access, Level::Local, replaced, |path, id| {
        copy::build(&mut source, path, id, disk, needed_bytes, progress).map_err(|e| {
            let message = e.to_string();
            failed = Some(e);
            message
        })
    });
    if let Some(e) = failed {
        return Err(e);
    }
    made?;
    drop(source);
    engine.database(name)?;
    let path = engine.databases().into_iter().find(|d| d.name == name).map(|d| d.path).unwrap_or_default();
    let bytes = disk.metadata(&path).ok().flatten().map_or(0, |m| m.len_bytes);
    Ok(Imported { database: name.to_owned(), path, bytes })
}

/// The entry of the directory's list whose file is to be imported.
fn own_volume(what: &Import, options: &Options) -> Result<Option<Entry>, ImportError> {
    let Some(manifest) = Manifest::read(&*options.disk, &what.dir)? else { return Ok(None) };
    let canonical = |path: &Path| path.canonicalize().ok();
    let Some(file) = canonical(&what.file) else { return Ok(None) };
    Ok(manifest.databases.into_iter().find(|e| canonical(&what.dir.join(&e.file)).as_ref() == Some(&file)))
}

fn stem(file: &Path) -> Result<String, ImportError> {
    let stem = file.file_stem().and_then(|s| s.to_str()).filter(|s| !s.is_empty() && !s.starts_with('.'));
    stem.map(str::to_owned).ok_or_else(|| ImportError::NoName { path: show(file) })
}

fn check_space(what: &Import, options: &Options, needed_bytes: u64) -> Result<(), ImportError> {
    let there = what.dir.ancestors().find(|d| d.is_dir()).unwrap_or(Path::new("."));
    let free_bytes = options.disk.free_bytes(there).map_err(|source| ImportError::Io {
        what: "look for free space in",
        path: show(there),
        source,
    })?;
    if free_bytes < needed_bytes + SPARE_BYTES {
        return Err(ImportError::Space { dir: show(&what.dir), free_bytes, needed_bytes });
    }
    Ok(())
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

/// What an error of SQLite means for an import.
fn sqlite_error(path: &Path, e: SqliteError) -> ImportError {
    let path = show(path);
    match e.primary() {
        ffi::SQLITE_NOTADB => ImportError::NotSqlite { path, why: "its content has another format, or is encrypted" },
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED => ImportError::InUse { path },
        ffi::SQLITE_CORRUPT => ImportError::Damaged { path, found: e.message },
        ffi::SQLITE_READONLY => {
            let message = format!(
                "{} (a transaction on it was interrupted; open it once with its own program or with sqlite3)",
                e.message
            );
            ImportError::Failed { path, message }
        }
        _ => ImportError::Failed { path, message: e.message },
    }
}
