//! VACUUM: a compacted copy replaces the file.
//!
//! SQLite's own VACUUM renumbers hidden rowids; VACUUM INTO keeps them (RULE 16). So the writer, between two batches, brings the file up to
//! date, writes a copy next to it, seals and syncs it, renames it over the old file, and opens it. Readers that began
//! before continue to read the old file, which has lost its name.
//!
//! | the power fails | the next open finds |
//! |---|---|
//! | before the rename | the old file; the copy is removed |
//! | after it | the new file at the same batch number, other size and time: every checksum is verified |

use super::connection::Writer;
use crate::background::checkpointer;
use crate::state::database::DatabaseState;
use crate::state::sqlite_uri::sqlite_uri;
use holdfast_seams::{Create, OpenHow};
use holdfast_store::checkpoint::remove_wal;
use holdfast_store::volume::seal;
use holdfast_types::record::Checkpoint;
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn io(e: impl std::fmt::Display) -> SqlError {
    SqlError::new(SqlState::IO_ERROR, format!("VACUUM failed, nothing has changed: {e}"))
}

impl Writer {
    /// Compacts the database's file while no branch is active.
    pub(super) fn vacuum(&mut self) -> SqlResult<()> {
        let database = self.database.clone();
        vacuum(self, &database)
    }
}

fn vacuum(writer: &mut Writer, database: &Arc<DatabaseState>) -> SqlResult<()> {
    if !writer.wait_until_visible() {
        return Err(crate::state::database::closed(&database.name));
    }
    checkpointer::checkpoint(database).map_err(io)?;
    let one_at_a_time = database.checkpointing.lock();
    let old = database.volume();
    let path = PathBuf::from(old.store().path());
    let new = path.with_extension("db.new");
    let disk = &database.engine.options.disk;
    if disk.metadata(&new).map_err(io)?.is_some() {
        disk.remove(&new).map_err(io)?;
    }
    // Before SQLite, which would let other users read it.
    let empty = OpenHow { create: Create::New, write: true, ..OpenHow::default() };
    disk.open(&new, &empty).map_err(io)?;
    copy_into(&old, &new)?;
    let number = old.store().newest();
    seal(&**disk, &new, database.id, number).map_err(io)?;
    // A power cut must not bring the old file's last checkpoint back next to the new file: it would be copied into it.
    remove_wal(&**disk, &path).map_err(io)?;
    path.parent().map_or(Ok(()), |dir| disk.sync_dir(dir)).map_err(io)?;
    disk.rename(&new, &path).map_err(io)?;
    if let Err(e) = path.parent().map_or(Ok(()), |dir| disk.sync_dir(dir)) {
        // It is unknown which of the two files a start would find: nothing more may be written to either.
        writer.break_off(format!("the directory of {} cannot be synced: {e}", path.display()));
        return Err(io(e));
    }
    drop(one_at_a_time);
    // From here on the new file is the database: after an error only a restart helps.
    let swapped = swap(writer, database, number);
    if let Err(e) = &swapped {
        writer.break_off(format!("the compacted file cannot be opened: {e}"));
    }
    swapped
}

fn copy_into(volume: &holdfast_store::volume::Volume, new: &Path) -> SqlResult<()> {
    let mut conn = volume.open_reader().map_err(io)?;
    conn.exec(&format!("vacuum into '{}'", sqlite_uri(new, "vfs=unix"))).map_err(io)
}

fn swap(writer: &mut Writer, database: &Arc<DatabaseState>, number: u64) -> SqlResult<()> {
    let volume = database.engine.reopen_volume(database.id)?;
    volume.store().set_position(number, volume.store().visible_pages());
    let stamp = volume.stamp();
    *database.volume.write() = Arc::new(volume);
    database.drop_readers();
    writer.reopen()?;
    let redo_start = database.redo.start().unwrap_or(database.engine.trail.durable());
    checkpointer::log(
        &database.engine,
        &[Checkpoint {
            volume: database.id,
            number,
            redo_start,
            file_size_bytes: stamp.bytes,
            file_mtime_ns: stamp.modified_unix_ns as i64,
        }],
    );
    Ok(())
}
