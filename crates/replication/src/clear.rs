//! Clears a data directory for a new base copy.

use holdfast_seams::{Disk, RealDisk};
use std::fs::File;
use std::io;
use std::path::Path;

/// Clears the directory for a new copy; only the databases' pages are kept, which the copy can use. May be repeated.
pub fn clear_for_copy(dir: &Path) -> io::Result<()> {
    // First, so that an interrupted attempt is recognized.
    let (trail, volumes) = (dir.join("trail"), dir.join("volumes"));
    for sub in [&trail, &volumes] {
        RealDisk::new().create_dir(sub)?;
    }
    remove(&trail.join("control"))?;
    File::open(&trail)?.sync_all()?;
    for entry in std::fs::read_dir(&volumes)? {
        let path = entry?.path();
        match path.extension().and_then(|e| e.to_str()) {
            Some("db") => std::fs::rename(&path, path.with_extension("db.new"))?,
            Some("new") => {}
            _ => std::fs::remove_file(&path)?,
        }
    }
    // The position in the archive belongs to the trail that is replaced.
    for file in ["databases.toml", "checkpoints", "archived"] {
        remove(&dir.join(file))?;
    }
    // What was cut off is kept in the data directory.
    for entry in std::fs::read_dir(&trail)? {
        let path = entry?.path();
        match path.extension().and_then(|e| e.to_str()) {
            Some("tail") => std::fs::rename(&path, dir.join(path.file_name().unwrap_or_default()))?,
            _ => std::fs::remove_file(&path)?,
        }
    }
    File::open(dir)?.sync_all()
}

/// Removes a file, if it exists.
pub fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
