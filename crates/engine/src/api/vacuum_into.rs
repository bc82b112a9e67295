//! VACUUM INTO: a copy of the database as a reader sees it, a plain SQLite file on the server's machine.
//!
//! The copy is written under another name, synced and renamed: a file of the name that was asked for is whole. Only its
//! owner can read it. What an interrupted one leaves ends in `.partial`.
//!
//! Failure: a file that exists, a path within the data directory, a directory that does not exist are refused; what was
//! begun is removed.

use crate::api::database::Database;
use crate::state::sqlite_uri::sqlite_uri;
use holdfast_seams::{Create, Disk, OpenHow};
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

const UNDEFINED_FILE: SqlState = SqlState("58P01");
const DUPLICATE_FILE: SqlState = SqlState("58P02");
const INSUFFICIENT_PRIVILEGE: SqlState = SqlState("42501");

impl Database {
    /// Writes a copy of the newest visible snapshot to `path`. Blocks until the copy is durable; neither readers nor writers
    /// wait.
    pub fn vacuum_into(&self, path: &Path) -> SqlResult<()> {
        let engine = &self.state().engine;
        let disk = &*engine.options.disk;
        let dir = path.parent().unwrap_or(Path::new("/"));
        let dir = dir.canonicalize().map_err(|e| failed(path, &e))?;
        if engine.dir.canonicalize().is_ok_and(|data| dir.starts_with(data)) {
            let message = format!("cannot write \"{}\": it is in the data directory", path.display());
            return Err(SqlError::new(INSUFFICIENT_PRIVILEGE, message).with_hint("Choose a path outside of it."));
        }
        if disk.metadata(path).map_err(|e| failed(path, &e))?.is_some() {
            return Err(failed(path, &ErrorKind::AlreadyExists.into()));
        }
        let partial = partial(path);
        let empty = OpenHow { create: Create::New, write: true, ..OpenHow::default() };
        drop(disk.open(&partial, &empty).map_err(|e| failed(&partial, &e))?);
        let written = self.write(disk, &partial).and_then(|()| {
            disk.rename_new(&partial, path).and_then(|()| disk.sync_dir(&dir)).map_err(|e| failed(path, &e))
        });
        if written.is_err()
            && let Err(e) = disk.remove(&partial)
            && e.kind() != ErrorKind::NotFound
        {
            tracing::warn!("cannot remove {}: {e}", partial.display());
        }
        written
    }

    fn write(&self, disk: &dyn Disk, partial: &Path) -> SqlResult<()> {
        let volume = self.state().volume();
        let sqlite = |e: String| SqlError::new(SqlState::IO_ERROR, format!("VACUUM INTO failed: {e}"));
        let mut reader = volume.open_reader().map_err(|e| sqlite(e.to_string()))?;
        let copied = reader.exec(&format!("vacuum into '{}'", sqlite_uri(partial, "vfs=unix")));
        copied.map_err(|e| sqlite(e.message))?;
        let file = disk.open(partial, &OpenHow { write: true, ..OpenHow::default() });
        file.and_then(|file| file.sync_all()).map_err(|e| failed(partial, &e))
    }
}

fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// As PostgreSQL reports a file that it cannot write.
fn failed(path: &Path, error: &io::Error) -> SqlError {
    let (state, hint) = match error.kind() {
        ErrorKind::NotFound => (UNDEFINED_FILE, "The directory does not exist on the server's machine."),
        ErrorKind::AlreadyExists => {
            (DUPLICATE_FILE, "VACUUM INTO overwrites nothing: remove the file, or name another.")
        }
        ErrorKind::PermissionDenied => (INSUFFICIENT_PRIVILEGE, "The server writes the file as its own user."),
        ErrorKind::StorageFull => (SqlState::DISK_FULL, "Make room, or name another file system."),
        _ => (SqlState::IO_ERROR, "The server writes the file on its own machine."),
    };
    SqlError::new(state, format!("could not write file \"{}\": {error}", path.display())).with_hint(hint)
}
