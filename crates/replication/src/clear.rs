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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_and_what_was_cut_off_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(path("trail")).unwrap();
        std::fs::create_dir_all(path("volumes")).unwrap();
        let files = [
            "trail/control",
            "trail/000001.segment",
            "trail/4096.tail",
            "volumes/000001-a.db",
            "volumes/000001-a.db-wal",
            "volumes/000002-b.db.new",
            "databases.toml",
            "checkpoints",
            "archived",
            "holdfast.toml",
        ];
        files.iter().for_each(|name| std::fs::write(path(name), name).unwrap());
        clear_for_copy(dir.path()).unwrap();
        clear_for_copy(dir.path()).unwrap();
        let list = |name: &str| {
            let mut names: Vec<_> = std::fs::read_dir(path(name))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        assert_eq!(list("volumes"), ["000001-a.db.new", "000002-b.db.new"]);
        assert_eq!(list("trail"), [""; 0]);
        assert_eq!(list(""), ["4096.tail", "holdfast.toml", "trail", "volumes"]);
        assert_eq!(std::fs::read_to_string(path("volumes/000001-a.db.new")).unwrap(), "volumes/000001-a.db");
    }
}
