//! The unsafe disk under a power-cut test: mounted in a scratch directory, its backing kept when a cut did damage.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use holdfast_unsafe_disk::{Command, Disk, Options, Power, UnsafeDisk, lying_drive, remove_dead_mount};

use super::{Plan, kept};
use crate::paths;

/// Field order: the disk is unmounted before its directory is removed.
pub struct Bed {
    disk: UnsafeDisk,
    scratch: tempfile::TempDir,
}

impl Bed {
    pub fn new(plan: &Plan) -> anyhow::Result<Bed> {
        let scratch = paths::scratch("power-cut")?;
        remove_left_behind(scratch.path(), &["mount"])?;
        // A database that does not run as root has to get through; the name cannot be guessed.
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o711))?;
        let (mount, backing) = (scratch.path().join("mount"), scratch.path().join("backing"));
        fs::create_dir(&mount)?;
        fs::create_dir(&backing)?;
        let mut options = Options::new(backing);
        options.sync_us = plan.sync_us;
        options.garbage_percent = plan.garbage_percent;
        options.names = plan.names;
        options.seed = plan.seed;
        // PostgreSQL runs as another user when this is root.
        options.allow_other = rustix::process::geteuid().is_root();
        Ok(Bed { disk: UnsafeDisk::mount(&mount, options)?, scratch })
    }

    pub fn mount(&self) -> &Path {
        self.disk.mountpoint()
    }

    pub fn disk(&self) -> &Disk {
        self.disk.disk()
    }

    pub fn power_is_off(&self) -> bool {
        self.disk.status().power == Power::Off
    }

    /// New rules and random choices for the next cut. Rules are in the words of the control file.
    pub fn arm(&self, seed: u64, rules: &[String], lie: bool) -> anyhow::Result<()> {
        let run = |command| self.disk().command(command).map_err(anyhow::Error::msg);
        run(Command::Clear)?;
        run(Command::Seed(seed))?;
        if lie {
            run(Command::Rule(lying_drive()))?;
        }
        self.disk().command_text(&rules.join("\n")).map_err(anyhow::Error::msg)
    }

    /// Removes everything on the disk, durably.
    pub fn clear(&self) -> anyhow::Result<()> {
        self.disk().command(Command::Clear).map_err(anyhow::Error::msg)?;
        for entry in fs::read_dir(self.mount())? {
            let path = entry?.path();
            if path.is_dir() { fs::remove_dir_all(&path)? } else { fs::remove_file(&path)? }
        }
        self.disk().sync_all().context("syncing the empty disk")?;
        Ok(())
    }

    /// Copies what the cut left, over what was kept of the cut before.
    pub fn keep(&self) -> anyhow::Result<()> {
        let copy = self.copy();
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        copy_tree(&self.scratch.path().join("backing"), &copy)
    }

    fn copy(&self) -> PathBuf {
        self.scratch.path().join("as-the-cut-left-it")
    }

    /// Puts the copy where it stays; `None` when there is none.
    pub fn preserve(&self, seed: u64, cut: u32) -> anyhow::Result<Option<PathBuf>> {
        let copy = self.copy();
        if !copy.exists() {
            return Ok(None);
        }
        fs::create_dir_all(kept())?;
        let place = kept().join(format!("seed-{seed}-cut-{cut}"));
        if place.exists() {
            fs::remove_dir_all(&place)?;
        }
        fs::rename(copy, &place)?;
        Ok(Some(place))
    }
}

/// Mounts and directories of runs that were killed, beside this one's. The mounts have these names.
pub fn remove_left_behind(scratch: &Path, mounts: &[&str]) -> anyhow::Result<()> {
    for entry in fs::read_dir(scratch.parent().unwrap_or(scratch))? {
        let path = entry?.path();
        if mounts.iter().filter(|mount| remove_dead_mount(&path.join(mount))).count() > 0 {
            fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir(to).with_context(|| format!("making {}", to.display()))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else if entry.file_type()?.is_file() {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
