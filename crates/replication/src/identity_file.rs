//! `DIR.identity`, next to the data directory DIR: that the node in it is more than a server by itself.
//!
//! When the disk with DIR is not mounted, or DIR was moved away, a start would find no directory, or an empty mount point, and
//! would make an empty master under the address of a standby, of a member of a control plane, or of a master with standbys.
//! This file is outside of DIR, so it is still there, and the start is refused ([`IdentityFile::read`]).
//!
//! ```toml
//! format = 1
//! name = "b"
//! standby_of = "10.0.0.1:5433"                            # only for a standby
//! control_members = "a=10.0.0.1:7101, b=10.0.0.2:7101, w=10.0.0.3:7101"   # only for a member of a control plane
//! standbys = ["c"]                                        # those for which a master keeps its trail
//! ```
//!
//! A mirror does not count: a server that is started with its mirror finds the databases there.
//!
//! It is written when the directory is opened in a role and when a standby is registered or forgotten. A server that was never
//! more than a server by itself has none. It is not removed: a promoted standby is still no new server.
//!
//! Failure: where the file cannot be written, because the directory above DIR belongs to another user, the server warns and
//! continues. A file that cannot be parsed still refuses: that it exists is what counts. If the directory above DIR is on the
//! disk that is not mounted, the file is away as well; the start then relies on /etc/fstab (`node/data_dir/unmounted.rs`).

use holdfast_seams::{RealDisk, replace};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Raised when an older program must not ignore a field; none reads it yet, because every format refuses.
const FORMAT: u32 = 1;

/// What the node in a data directory is to other nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IdentityFile {
    pub format: u32,
    pub name: String,
    /// Host and port of the master, if it is a standby.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub standby_of: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub control_members: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub standbys: Vec<String>,
}

/// The file's path; `None` for a directory without a name, such as `/`.
pub fn path_of(dir: &Path) -> Option<PathBuf> {
    // Links are not followed: the link may be on another disk than the directory.
    let absolute = std::path::absolute(dir).ok()?;
    let mut name = absolute.file_name()?.to_owned();
    name.push(".identity");
    Some(absolute.with_file_name(name))
}

impl IdentityFile {
    /// Reads the file next to a data directory; `None`: there is none.
    pub fn read(dir: &Path) -> io::Result<Option<(PathBuf, IdentityFile)>> {
        let Some(path) = path_of(dir) else { return Ok(None) };
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some((path, toml::from_str(&text).unwrap_or_default()))),
            // Not UTF-8: it exists, and that is what counts.
            Err(error) if error.kind() == ErrorKind::InvalidData => Ok(Some((path, IdentityFile::default()))),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether it says that another node knows this one.
    fn is_of_a_server_by_itself(&self) -> bool {
        self.standby_of.is_empty() && self.control_members.is_empty() && self.standbys.is_empty()
    }

    /// What the node was, in words.
    pub fn what(&self) -> String {
        let of_group = match self.control_members.is_empty() {
            true => String::new(),
            false => format!(" and a member of the control plane {}", self.control_members),
        };
        let name = &self.name;
        if !self.standby_of.is_empty() {
            return format!("was {name}, the standby of {}{of_group}", self.standby_of);
        }
        match (self.standbys.is_empty(), name.is_empty()) {
            (_, true) => "had another identity".to_owned(),
            (true, _) => format!("was the server {name}{of_group}"),
            (false, _) => format!("was {name}, the master of {}{of_group}", self.standbys.join(", ")),
        }
    }

    /// What to do when the data is lost, in words.
    pub fn when_lost(&self, dir: &Path) -> String {
        let (dir, name) = (dir.display(), &self.name);
        let name = if name.is_empty() { "NAME" } else { name };
        if self.standby_of.is_empty() || !self.control_members.is_empty() {
            return format!(
                "promote a server that has the data, and make its standby here with: holdfast standby create --from HOST:PORT \
                 --data {dir} --name {name}"
            );
        }
        let from = &self.standby_of;
        format!("make the standby again with: holdfast standby create --from {from} --data {dir} --name {name}")
    }

    /// Brings the file next to the directory up to date, with the standbys that are registered now. It is not written again
    /// when nothing has changed.
    pub fn keep(&self, dir: &Path, standbys: Vec<String>) {
        let now = IdentityFile { format: FORMAT, standbys, ..self.clone() };
        if let Err(error) = now.replace(dir) {
            let path = path_of(dir).unwrap_or_default();
            tracing::warn!(
                "cannot write {}: {error}. If the disk with {} is not mounted at a later start, only /etc/fstab may show that \
                 this server is not a new one",
                path.display(),
                dir.display()
            );
        }
    }

    fn replace(&self, dir: &Path) -> io::Result<()> {
        let Some(path) = path_of(dir) else { return Ok(()) };
        let before = IdentityFile::read(dir)?.map(|(_, before)| before);
        if before.as_ref() == Some(self) || (before.is_none() && self.is_of_a_server_by_itself()) {
            return Ok(());
        }
        let text = toml::to_string(self).map_err(io::Error::other)?;
        Ok(replace(&RealDisk::new(), &path, text.as_bytes())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_says_what_was_there() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("a");
        assert_eq!(IdentityFile::read(&dir).unwrap(), None);
        let server = IdentityFile { format: FORMAT, name: "a".into(), ..IdentityFile::default() };
        server.replace(&dir).unwrap();
        assert_eq!(IdentityFile::read(&dir).unwrap(), None, "a server by itself has none");
        let cases = [
            (IdentityFile { standby_of: "h:1".into(), ..server.clone() }, "the standby of h:1", "--from h:1"),
            (IdentityFile { standbys: vec!["b".into()], ..server.clone() }, "the master of b", "promote a server"),
            (
                IdentityFile { control_members: "a=h:2".into(), ..server.clone() },
                "control plane a=h:2",
                "promote a server",
            ),
        ];
        for (file, what, next) in cases {
            file.replace(&dir).unwrap();
            let (path, found) = IdentityFile::read(&dir).unwrap().unwrap();
            assert_eq!((path, &found), (scratch.path().join("a.identity"), &file));
            assert!(found.what().contains(what) && found.when_lost(&dir).contains(next), "{found:?}");
        }
        server.replace(&dir).unwrap();
        let (_, promoted) = IdentityFile::read(&dir).unwrap().unwrap();
        assert!(promoted.what() == "was the server a" && promoted.when_lost(&dir).contains("promote a server"));
        std::fs::write(scratch.path().join("a.identity"), b"\xff").unwrap();
        let (_, damaged) = IdentityFile::read(&dir).unwrap().unwrap();
        assert!(damaged.what().contains("another identity") && damaged.when_lost(&dir).contains("--name NAME"));
    }
}
