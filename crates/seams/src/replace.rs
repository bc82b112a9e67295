//! Replaces a file as a whole: a crash leaves the old content or the new one, never a mixture.
//!
//! The new content is written to `NAME.new` and synced, that file is renamed to `NAME`, and the directory is synced. A
//! `NAME.new` that a crash has left is removed, not written into: it may have other permissions, or be open elsewhere.
//! Files are made with the mode of [`Disk::open`], 0600 on a real disk.
//!
//! Failure: [`ReplaceError`] names the step and the file. Before the rename the old content is in place; when the rename
//! or the sync of the directory fails, either may be there after a crash.

use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};

use crate::disk::{Create, Disk, DiskFile, OpenHow};

/// A step that failed.
#[derive(Debug)]
pub struct ReplaceError {
    /// The verb: create, write, sync, rename, sync the directory.
    pub what: &'static str,
    /// The file or the directory of the step.
    pub path: PathBuf,
    pub source: io::Error,
}

impl ReplaceError {
    fn at<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> ReplaceError + 'a {
        move |source| ReplaceError { what, path: path.to_path_buf(), source }
    }
}

impl std::fmt::Display for ReplaceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot {} {}: {}", self.what, self.path.display(), self.source)
    }
}

impl std::error::Error for ReplaceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// For callers that name the file themselves: the cause alone.
impl From<ReplaceError> for io::Error {
    fn from(error: ReplaceError) -> io::Error {
        error.source
    }
}

/// Replaces a file, or creates it. Durable when it returns.
pub fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), ReplaceError> {
    let replacement = Replacement::begin(disk, path)?;
    replacement.write(bytes)?;
    replacement.finish()
}

/// A file that is being written and will replace another. Dropped before [`Replacement::finish`], it changes nothing.
pub struct Replacement<'a> {
    disk: &'a dyn Disk,
    file: Box<dyn DiskFile>,
    new: PathBuf,
    path: PathBuf,
}

impl<'a> Replacement<'a> {
    /// Creates the new file, empty, next to the one that it will replace.
    pub fn begin(disk: &'a dyn Disk, path: &Path) -> Result<Self, ReplaceError> {
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        let how = OpenHow { create: Create::New, write: true, ..OpenHow::default() };
        let opened = match disk.open(&new, &how) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                disk.remove(&new).map_err(ReplaceError::at("remove", &new))?;
                disk.open(&new, &how)
            }
            opened => opened,
        };
        let file = opened.map_err(ReplaceError::at("create", &new))?;
        Ok(Self { disk, file, new, path: path.to_path_buf() })
    }

    /// The new file, for writing.
    pub fn file(&self) -> &dyn DiskFile {
        &*self.file
    }

    /// Its path until it is renamed, for messages.
    pub fn new_path(&self) -> &Path {
        &self.new
    }

    /// Writes the whole content.
    pub fn write(&self, bytes: &[u8]) -> Result<(), ReplaceError> {
        self.file.write_at(&[IoSlice::new(bytes)], 0).map_err(ReplaceError::at("write", &self.new))
    }

    /// Syncs the new file, renames it, and syncs the directory.
    pub fn finish(self) -> Result<(), ReplaceError> {
        let Self { disk, file, new, path } = self;
        file.sync_all().map_err(ReplaceError::at("sync", &new))?;
        disk.rename(&new, &path).map_err(ReplaceError::at("rename", &new))?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        disk.sync_dir(dir).map_err(ReplaceError::at("sync the directory", dir))
    }
}

/// The whole of a file of at most `bytes_max`; `None` when there is none.
pub fn read_whole(disk: &dyn Disk, path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(metadata) = disk.metadata(path)? else { return Ok(None) };
    if metadata.len_bytes > bytes_max {
        let message = format!("it has {} bytes, more than {bytes_max}", metadata.len_bytes);
        return Err(io::Error::new(ErrorKind::InvalidData, message));
    }
    let mut bytes = vec![0; metadata.len_bytes as usize];
    let read = disk.open(path, &OpenHow::default())?.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RealDisk;
    use crate::testing::FaultDisk;

    const PATH: &str = "/data/settings";

    #[test]
    fn a_power_cut_leaves_the_old_or_the_new_content() {
        let (old, new) = (vec![1; 9000], vec![2; 5000]);
        let mut found = [0, 0];
        for seed in 0..40 {
            for operation in 1..6 {
                let disk = FaultDisk::new(seed);
                replace(&disk, Path::new(PATH), &old).unwrap();
                disk.cut_power_after(operation);
                let replaced = replace(&disk, Path::new(PATH), &new).is_ok();
                disk.restore_power();
                let content = disk.contents(Path::new(PATH)).expect("one of the two");
                assert!(content == old || content == new, "seed {seed}, operation {operation}");
                assert!(!replaced || content == new, "seed {seed}, operation {operation}: it was durable");
                found[usize::from(content == new)] += 1;
                // What the cut has left does not hinder the next one.
                replace(&disk, Path::new(PATH), &new).unwrap();
                assert_eq!(disk.contents(Path::new(PATH)).as_deref(), Some(&*new));
            }
        }
        assert!(found[0] > 10 && found[1] > 10, "{found:?}");
    }

    #[test]
    fn a_file_that_a_crash_has_left_is_not_written_into() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (path, new) = (dir.path().join("a"), dir.path().join("a.new"));
        std::fs::write(&new, "half").unwrap();
        std::fs::set_permissions(&new, PermissionsExt::from_mode(0o644)).unwrap();
        replace(&RealDisk::new(), &path, b"whole").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!new.exists());
    }

    #[test]
    fn an_error_names_the_step_and_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("missing").join("a");
        let error = replace(&RealDisk::new(), &path, b"").unwrap_err();
        assert_eq!((error.what, error.source.kind()), ("create", ErrorKind::NotFound));
        assert!(error.to_string().starts_with(&format!("cannot create {}.new: ", path.display())), "{error}");
        assert_eq!(io::Error::from(error).kind(), ErrorKind::NotFound);
    }
}
