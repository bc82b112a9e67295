//! A directory that goes with this process.
//!
//! Failure: after kill -9 it is left; the next restore of this user on this machine removes it.

use anyhow::Context;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const PREFIX: &str = "holdfast-restore-";

/// See the module.
pub struct Scratch {
    pub dir: PathBuf,
}

impl Scratch {
    /// `ends_at_ctrl_c`: the program ends there, and removes the directory.
    pub fn make(parent: Option<&Path>, ends_at_ctrl_c: bool) -> anyhow::Result<Scratch> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        remove_left(&parent);
        let dir = parent.join(format!("{PREFIX}{}", std::process::id()));
        let made = fs::DirBuilder::new().mode(0o700).create(&dir);
        made.with_context(|| format!("cannot make the scratch directory {}", dir.display()))?;
        if !ends_at_ctrl_c {
            return Ok(Scratch { dir });
        }
        static REMOVED_AT_CTRL_C: OnceLock<PathBuf> = OnceLock::new();
        let at_end = REMOVED_AT_CTRL_C.get_or_init(|| dir.clone());
        // Without the handler Ctrl-C leaves the directory to the next restore.
        let _ = ctrlc::set_handler(move || {
            let _ = fs::remove_dir_all(at_end);
            std::process::exit(130);
        });
        Ok(Scratch { dir })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("holdfast: the scratch directory {} is left: {error}", self.dir.display());
        }
    }
}

/// Removes this user's scratch directories of processes that have ended.
fn remove_left(parent: &Path) {
    let own = fs::metadata("/proc/self").map(|process| process.uid()).ok();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|pid| pid.parse::<u32>().ok());
        let is_own = entry.metadata().is_ok_and(|found| found.is_dir() && Some(found.uid()) == own);
        if let Some(pid) = pid.filter(|_| is_own)
            && !Path::new(&format!("/proc/{pid}")).exists()
        {
            // What cannot be removed is not in the way.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
