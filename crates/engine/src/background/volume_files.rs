//! Creates and removes the files of volumes.

use crate::state::engine::EngineState;
use crate::state::manifest::Entry;
use holdfast_seams::Disk;
use holdfast_store::schema_map::create_internal_tables;
use holdfast_store::sqlite::{SqliteError, ffi};
use holdfast_store::volume::{self, VolumeError};
use holdfast_types::{SqlError, SqlResult, SqlState, VolumeId};
use std::path::Path;

/// Creates the file of an empty volume.
pub fn create_empty(disk: &dyn Disk, path: &Path, id: VolumeId) -> Result<(), VolumeError> {
    volume::create(disk, path, id, |conn| {
        create_internal_tables(conn, id).map(drop).map_err(|e| SqliteError {
            code: ffi::SQLITE_ERROR,
            message: e.to_string(),
            offset: None,
        })
    })
}

/// Removes the files of a volume that is no longer listed.
pub fn remove_files(engine: &EngineState, entry: &Entry) {
    let path = engine.dir.join(&entry.file);
    for file in [path.clone(), holdfast_store::checkpoint::wal_path(&path)] {
        if let Err(e) = engine.options.disk.remove(&file)
            && e.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(file = %file.display(), "cannot remove the file, the next start will: {e}");
        }
    }
}

/// PostgreSQL's limit on names.
const NAME_BYTES_MAX: usize = 63;

pub fn check_name(name: &str) -> SqlResult<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
        let message = format!(
            "the database name has {} bytes; the limit is {NAME_BYTES_MAX}, and it cannot be empty",
            name.len()
        );
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(())
}
