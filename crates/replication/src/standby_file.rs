//! `standby.toml` in the data directory: while it exists, the server is a standby.
//!
//! ```toml
//! from = "10.0.0.1:5433"   # the master
//! name = "b"               # the standby's name at the master
//! # The master at the end of the chain, if `from` is a standby: it must be stopped before a promotion.
//! root = "10.0.0.3:5433"   # "": not known
//! master = "a"              # the name of the master that wrote the end of this trail; none while `from` is a standby
//! grouped = true            # the master belongs to a control plane: only its members are promoted
//! # Until the trail reaches this position, the files are a base copy that is not consistent yet:
//! anchor_lsn = 69632
//! anchor_checksum = 305419896
//! ```
//!
//! `holdfast standby create` and `holdfast rejoin` write it; a promotion removes it. It is replaced atomically.
//!
//! Failure: with a file that cannot be read the server does not start: as a master it would be the second one.

use holdfast_seams::{Disk, RealDisk, replace};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The file's name.
pub const FILE_NAME: &str = "standby.toml";

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandbyFile {
    /// Host and port of the master.
    pub from: String,
    pub name: String,
    /// Host and port of the master that `from` follows, directly or indirectly; `None`: `from` is a master; empty: not known
    /// yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// The name of the master that was followed last, if `from` is one: it has to have what it wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
    /// The master belongs to a control plane, which alone decides which node is promoted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub grouped: bool,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub anchor_lsn: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub anchor_checksum: u32,
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[derive(Debug, thiserror::Error)]
pub enum StandbyFileError {
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: String, source: io::Error },
    #[error("{path}: {message}; correct it, or create the standby again with: holdfast standby create")]
    Content { path: String, message: String },
}

fn path(dir: &Path) -> PathBuf {
    dir.join(FILE_NAME)
}

fn failed(what: &'static str, dir: &Path) -> impl FnOnce(io::Error) -> StandbyFileError {
    let path = path(dir).display().to_string();
    move |source| StandbyFileError::Io { what, path, source }
}

impl StandbyFile {
    /// A standby of the master at `from`.
    pub fn of(from: &str, name: &str) -> StandbyFile {
        let (from, name) = (from.to_owned(), name.to_owned());
        StandbyFile { from, name, root: None, master: None, grouped: false, anchor_lsn: 0, anchor_checksum: 0 }
    }

    /// Reads the file; `None`: the server is not a standby.
    pub fn read(dir: &Path) -> Result<Option<StandbyFile>, StandbyFileError> {
        let text = match std::fs::read_to_string(path(dir)) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed("read", dir)(e)),
        };
        let content = |message: String| StandbyFileError::Content { path: path(dir).display().to_string(), message };
        let file: StandbyFile = toml::from_str(&text).map_err(|e| content(e.to_string().trim_end().to_owned()))?;
        file.check().map_err(content)?;
        Ok(Some(file))
    }

    /// Checks the values; the error says which one is wrong.
    pub fn check(&self) -> Result<(), String> {
        holdfast_standby::link::check_name(&self.name).map_err(|e| e.to_string())?;
        match self.from.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(()),
            _ => Err(format!("from = {:?} is not HOST:PORT", self.from)),
        }
    }

    pub fn write(&self, dir: &Path) -> Result<(), StandbyFileError> {
        let text = toml::to_string(self).map_err(io::Error::other).map_err(failed("write", dir))?;
        replace(&RealDisk::new(), &path(dir), text.as_bytes()).map_err(io::Error::from).map_err(failed("write", dir))
    }

    /// Removes the file: the server is no longer a standby. Durable when it returns.
    pub fn remove(dir: &Path) -> Result<(), StandbyFileError> {
        let disk = RealDisk::new();
        let removed = match disk.remove(&path(dir)) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        removed.and_then(|()| disk.sync_dir(dir)).map_err(failed("remove", dir))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_what_is_wrong_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(StandbyFile::read(dir.path()).unwrap(), None);
        let file = StandbyFile::of("h:1", "b");
        file.write(dir.path()).unwrap();
        let text = std::fs::read_to_string(path(dir.path())).unwrap();
        assert_eq!(text, "from = \"h:1\"\nname = \"b\"\n");
        assert_eq!(StandbyFile::read(dir.path()).unwrap(), Some(file.clone()));
        StandbyFile { anchor_lsn: 7, anchor_checksum: 9, ..file }.write(dir.path()).unwrap();
        assert_eq!(StandbyFile::read(dir.path()).unwrap().unwrap().anchor_checksum, 9);
        StandbyFile::remove(dir.path()).unwrap();
        StandbyFile::remove(dir.path()).unwrap();
        assert_eq!(StandbyFile::read(dir.path()).unwrap(), None);
        for bad in
            ["", "from = \"h\"\nname = \"b\"", "from = \"h:1\"\nname = \"a/b\"", "from = \"h:1\"\nname = \"b\"\nx = 1"]
        {
            std::fs::write(path(dir.path()), bad).unwrap();
            assert!(StandbyFile::read(dir.path()).is_err(), "{bad}");
        }
    }
}
