//! The files of certificates and keys: readable by their owner only, whole or absent.

use anyhow::{Context, bail};
use holdfast_seams::RealDisk;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

pub fn make_dir(path: &Path) -> anyhow::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("cannot make {}", path.display()))
}

/// Overwrites nothing: a lost key cannot be made again.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => file.write_all(text.as_bytes()).and_then(|()| file.sync_all()),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{} exists and is not overwritten; name another directory", path.display())
        }
        Err(e) => Err(e),
    }
    .with_context(|| format!("cannot write {}", path.display()))
}

/// Replaces a file as a whole.
pub fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    Ok(holdfast_seams::replace(&RealDisk::new(), path, text.as_bytes())?)
}

pub fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
