//! VACUUM: a compacted copy takes the file's place.
//!
//! SQLite's own VACUUM renumbers hidden rowids; VACUUM INTO keeps them (RULE 16). So MAIN, alone, brings the file up to
//! date, writes a copy beside it, seals and syncs it, renames it over the old file, and opens it. Readers that began
//! before go on reading the old file, which has lost its name.
//!
//! | the power fails | the next open finds |
//! |---|---|
//! | before the rename | the old file; the copy is removed |
//! | after it | the new file at the same boxcar number, other size and time: every checksum is verified |

use crate::branch::Presence;
use crate::checkpointer;
use crate::database::{Database, Inner};
use crate::main_thread::{Main, Message};
use crate::sqlite_uri::sqlite_uri;
use holdfast_store::checkpoint::remove_wal;
use holdfast_store::volume::seal;
use holdfast_types::record::Checkpoint;
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Database {
    /// Compacts the database's file. Blocks until it is done; writers wait, readers do not.
    pub fn vacuum(&self) -> SqlResult<()> {
        self.0.shared.refuse_on_standby("VACUUM")?;
        let (sender, receiver) = crossbeam_channel::bounded(1);
        let inner = self.0.clone();
        // Branches work on the old file.
        let _alone = crate::rerun::wait_until_alone(&inner, Presence::new(&inner, None, None))?;
        let task = Box::new(move |main: &mut Main| drop(sender.send(vacuum(main, &inner))));
        let sent = self.0.main.read().as_ref().is_some_and(|main| main.send(Message::Task(task)).is_ok());
        let closed = || SqlError::new(SqlState::ADMIN_SHUTDOWN, format!("database {} is being closed", self.name()));
        if !sent {
            return Err(closed());
        }
        receiver.recv().map_err(|_| closed())?
    }
}

fn io(e: impl std::fmt::Display) -> SqlError {
    SqlError::new(SqlState::IO_ERROR, format!("VACUUM failed, nothing has changed: {e}"))
}

fn vacuum(main: &mut Main, inner: &Arc<Inner>) -> SqlResult<()> {
    if !main.wait_until_durable() {
        return Err(crate::database::closed(&inner.name));
    }
    checkpointer::checkpoint(inner).map_err(io)?;
    let one_at_a_time = inner.checkpointing.lock();
    let old = inner.volume();
    let path = PathBuf::from(old.store().path());
    let new = path.with_extension("db.new");
    let disk = &inner.shared.options.disk;
    if disk.metadata(&new).map_err(io)?.is_some() {
        disk.remove(&new).map_err(io)?;
    }
    copy_into(&old, &new)?;
    let number = old.store().newest();
    seal(&**disk, &new, inner.id, number).map_err(io)?;
    // A power cut must not bring the old file's last checkpoint back beside the new file: it would be copied into it.
    remove_wal(&**disk, &path).map_err(io)?;
    path.parent().map_or(Ok(()), |dir| disk.sync_dir(dir)).map_err(io)?;
    disk.rename(&new, &path).map_err(io)?;
    if let Err(e) = path.parent().map_or(Ok(()), |dir| disk.sync_dir(dir)) {
        // Which of the two files a start would find is not known: nothing more may be written to either.
        main.break_off(format!("the directory of {} cannot be synced: {e}", path.display()));
        return Err(io(e));
    }
    drop(one_at_a_time);
    // From here on the new file is the database: an error leaves only a restart.
    let swapped = swap(main, inner, number);
    if let Err(e) = &swapped {
        main.break_off(format!("the compacted file cannot be opened: {e}"));
    }
    swapped
}

fn copy_into(volume: &holdfast_store::volume::Volume, new: &Path) -> SqlResult<()> {
    let mut conn = volume.open_reader().map_err(io)?;
    conn.exec(&format!("vacuum into '{}'", sqlite_uri(new, "vfs=unix"))).map_err(io)
}

fn swap(main: &mut Main, inner: &Arc<Inner>, number: u64) -> SqlResult<()> {
    let volume = inner.shared.reopen_volume(inner.id)?;
    volume.store().set_position(number, volume.store().durable_pages());
    let stamp = volume.stamp();
    *inner.volume.write() = Arc::new(volume);
    inner.drop_readers();
    main.reopen()?;
    let redo_start = inner.redo.start().unwrap_or(inner.shared.trail.durable());
    checkpointer::log(
        &inner.shared,
        &[Checkpoint {
            volume: inner.id,
            number,
            redo_start,
            file_size_bytes: stamp.bytes,
            file_mtime_ns: stamp.modified_unix_ns as i64,
        }],
    );
    Ok(())
}
