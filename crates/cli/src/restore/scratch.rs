//! A directory that goes with this process.
//!
//! It is locked while the process lives. Failure: after kill -9 it is left; the next restore of this user removes it.

use anyhow::Context;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const PREFIX: &str = "holdfast-restore-";

/// See the module.
pub struct Scratch {
    pub dir: PathBuf,
    _lock: fs::File,
}

impl Scratch {
    /// `ends_at_ctrl_c`: the program ends there, and removes the directory.
    pub fn make(parent: Option<&Path>, ends_at_ctrl_c: bool) -> anyhow::Result<Scratch> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        remove_left(&parent);
        let (dir, _lock) = make_locked(&parent)?;
        if !ends_at_ctrl_c {
            return Ok(Scratch { dir, _lock });
        }
        static REMOVED_AT_CTRL_C: OnceLock<PathBuf> = OnceLock::new();
        let at_end = REMOVED_AT_CTRL_C.get_or_init(|| dir.clone());
        // Without the handler Ctrl-C leaves the directory to the next restore.
        let _ = ctrlc::set_handler(move || {
            let _ = fs::remove_dir_all(at_end);
            std::process::exit(130);
        });
        Ok(Scratch { dir, _lock })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("holdfast: the scratch directory {} is left: {error}", self.dir.display());
        }
    }
}

/// A directory with a new name, and its lock.
fn make_locked(parent: &Path) -> anyhow::Result<(PathBuf, fs::File)> {
    loop {
        let unique = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let dir = parent.join(format!("{PREFIX}{}-{unique:x}", std::process::id()));
        let failed = || format!("cannot make the scratch directory {}", dir.display());
        match fs::DirBuilder::new().mode(0o700).create(&dir) {
            // Of a process in another container.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
            made => made.with_context(failed)?,
        }
        // Another process that removes what is left may have been here in between.
        let Ok(lock) = fs::File::open(&dir) else { continue };
        if lock.try_lock().is_ok() && dir.exists() {
            return Ok((dir, lock));
        }
    }
}

/// Removes this user's scratch directories of processes that have ended.
fn remove_left(parent: &Path) {
    let own = fs::metadata("/proc/self").map(|process| process.uid()).ok();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        // Earlier builds named it by the process only, and did not lock it.
        if rest.parse::<u32>().is_ok() && Path::new(&format!("/proc/{rest}")).exists() {
            continue;
        }
        let is_own = entry.metadata().is_ok_and(|found| found.is_dir() && Some(found.uid()) == own);
        if is_own && fs::File::open(entry.path()).is_ok_and(|dir| dir.try_lock().is_ok()) {
            // What cannot be removed is not in the way.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
