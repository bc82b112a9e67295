//! The mark of a directory on which a restore is at work: the file `restoring`, locked while the restore runs.
//!
//! It is durable before anything else is done, also before dumps are looked for, which may take long at an object store: a
//! restore that is killed leaves a directory that no server opens, and not one that looks like a new server's.
//!
//! | the restore ends | it leaves |
//! |---|---|
//! | what it was asked for cannot be reached | what was there before: no directory, an empty one, or an interrupted restore's |
//! | killed, or by an error later on | the mark |
//! | complete | no mark: removing it is the last step |

use super::error::RestoreError;
use super::options::{VOLUMES, io_error};
use holdfast_engine::RESTORING;
use holdfast_seams::Disk;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A directory that is empty, or does not exist, or holds what an interrupted restore has left.
fn check_empty(dir: &Path) -> Result<(), RestoreError> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(io_error("look at", dir))?,
    };
    let mut others = 0;
    for entry in entries {
        let name = entry.map_err(io_error("look at", dir))?.file_name();
        if name == RESTORING {
            return Ok(());
        }
        // Of a file system's root.
        others += u32::from(name != "lost+found");
    }
    if others == 0 { Ok(()) } else { Err(RestoreError::NotEmpty { dir: dir.display().to_string() }) }
}

/// See the module. The lock is held until this is dropped.
pub(super) struct AtWork {
    dir: PathBuf,
    /// This restore has made it: no earlier one was interrupted here.
    is_new: bool,
    /// The directories that it has made, the innermost first.
    made: Vec<PathBuf>,
    _mark: File,
}

impl AtWork {
    /// Marks an empty or new directory, or takes the mark that an interrupted restore has left.
    pub(super) fn begin(disk: &dyn Disk, dir: &Path) -> Result<AtWork, RestoreError> {
        check_empty(dir)?;
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let made: Vec<PathBuf> = dir.ancestors().take_while(is_missing).map(PathBuf::from).collect();
        disk.create_dir(dir).map_err(io_error("create", dir))?;
        let (mark, is_new) = take(dir)?;
        disk.sync_dir(dir).map_err(io_error("sync", dir))?;
        Ok(AtWork { dir: dir.to_owned(), is_new, made, _mark: mark })
    }

    /// Passes a result on. Of an error, which is the user's to fix before anything is restored, it leaves no trace.
    pub(super) fn keep_if<T, E>(&self, disk: &dyn Disk, result: Result<T, E>) -> Result<T, E> {
        if result.is_err() && self.is_new {
            // What cannot be removed stays a marked directory, which names its next step.
            let removed = disk.remove(&self.dir.join(RESTORING)).and_then(|()| disk.sync_dir(&self.dir));
            if removed.is_ok() {
                self.made.iter().map_while(|dir| std::fs::remove_dir(dir).ok()).for_each(drop);
            }
        }
        result
    }

    /// Removes what an interrupted restore has left, except for the databases' files: pages in them that are still those of
    /// the dump are not fetched again ([`super::lay`]).
    pub(super) fn clear(&self, disk: &dyn Disk) -> Result<(), RestoreError> {
        let dir = &*self.dir;
        for entry in std::fs::read_dir(dir).map_err(io_error("list", dir))? {
            let entry = entry.map_err(io_error("list", dir))?;
            let (name, path) = (entry.file_name(), entry.path());
            if name == RESTORING || name == "lost+found" {
                continue;
            }
            if name == VOLUMES {
                keep_pages(disk, &path)?;
                continue;
            }
            let is_dir = entry.file_type().map_err(io_error("look at", &path))?.is_dir();
            let removed = if is_dir { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.map_err(io_error("remove", &path))?;
        }
        disk.sync_dir(dir).map_err(io_error("sync", dir))
    }
}

/// Takes the lock of the mark, and makes the mark where there is none; whether it was made.
fn take(dir: &Path) -> Result<(File, bool), RestoreError> {
    let path = dir.join(RESTORING);
    loop {
        let (mark, is_new) = match OpenOptions::new().write(true).open(&path) {
            Ok(mark) => (mark, false),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                check_empty(dir)?;
                match OpenOptions::new().write(true).create_new(true).open(&path) {
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                    made => (made.map_err(io_error("create", &path))?, true),
                }
            }
            Err(error) => return Err(io_error("open", &path)(error)),
        };
        match mark.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(RestoreError::AtWork { dir: dir.display().to_string() }),
            Err(TryLockError::Error(error)) => return Err(io_error("lock", &path)(error)),
        }
        // The restore that held it may have ended meanwhile, and removed it.
        let own = mark.metadata().map_err(io_error("look at", &path))?;
        match std::fs::metadata(&path) {
            Ok(found) if (found.dev(), found.ino()) == (own.dev(), own.ino()) => return Ok((mark, is_new)),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(io_error("look at", &path)(error)),
            _ => {}
        }
    }
}

/// Gives the databases' files the names under which they are laid again.
fn keep_pages(disk: &dyn Disk, volumes: &Path) -> Result<(), RestoreError> {
    for entry in std::fs::read_dir(volumes).map_err(io_error("list", volumes))? {
        let path = entry.map_err(io_error("list", volumes))?.path();
        let kept = match path.extension().and_then(|extension| extension.to_str()) {
            Some("new") => Ok(()),
            Some("db") => disk.rename(&path, &path.with_extension("db.new")),
            // What belongs to a file that has moved on.
            _ => std::fs::remove_file(&path),
        };
        kept.map_err(io_error("remove or rename", &path))?;
    }
    disk.sync_dir(volumes).map_err(io_error("sync", volumes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_seams::RealDisk;

    #[test]
    fn a_refused_restore_leaves_what_was_there_before() {
        let scratch = tempfile::TempDir::new().unwrap();
        let (disk, new) = (RealDisk::new(), scratch.path().join("a/b"));
        let refused = |dir: &Path| {
            let at_work = AtWork::begin(&disk, dir).unwrap();
            assert!(dir.join(RESTORING).exists());
            at_work.keep_if(&disk, Err::<(), _>("no dump")).unwrap_err();
        };
        refused(&new);
        assert!(!scratch.path().join("a").exists());
        std::fs::create_dir_all(&new).unwrap();
        refused(&new);
        assert_eq!(std::fs::read_dir(&new).unwrap().count(), 0);
        // An interrupted restore's.
        drop(AtWork::begin(&disk, &new).unwrap());
        std::fs::write(new.join("databases.toml"), "").unwrap();
        refused(&new);
        assert!(new.join(RESTORING).exists() && new.join("databases.toml").exists());
    }

    #[test]
    fn one_restore_at_a_time() {
        let scratch = tempfile::TempDir::new().unwrap();
        let at_work = AtWork::begin(&RealDisk::new(), scratch.path()).unwrap();
        let second = AtWork::begin(&RealDisk::new(), scratch.path());
        assert!(matches!(second, Err(RestoreError::AtWork { .. })));
        at_work.clear(&RealDisk::new()).unwrap();
        assert!(scratch.path().join(RESTORING).exists());
    }
}
