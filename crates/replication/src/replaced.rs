//! The file `old_master` in the data directory of a server that was promoted without a control plane: the master that it
//! replaced, which [`crate::old_master`] watches.
//!
//! Two lines: the address, HOST:PORT, and the name, which is empty if it is not known.
//!
//! Failure: a file that cannot be written or read means that no server is watched; the former is logged.

use crate::clear::remove;
use holdfast_seams::{RealDisk, replace};
use std::io;
use std::path::Path;

/// The file's name.
const FILE_NAME: &str = "old_master";

/// The master that a promotion replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// Host and port.
    pub address: String,
    /// Empty: not known.
    pub name: String,
}

impl Replaced {
    /// Records it in the data directory, so that it is watched after a restart, too.
    pub fn write(&self, dir: &Path) {
        let text = format!("{}\n{}\n", self.address, self.name);
        if let Err(error) = replace(&RealDisk::new(), &dir.join(FILE_NAME), text.as_bytes()) {
            tracing::warn!("the old master at {} is not watched: {error}", self.address);
        }
    }

    /// Reads what is recorded; `None`: this server replaced no master, or that one was brought back.
    pub fn read(dir: &Path) -> Option<Replaced> {
        let text = std::fs::read_to_string(dir.join(FILE_NAME)).ok()?;
        let mut lines = text.lines();
        let (address, name) = (lines.next()?.to_owned(), lines.next().unwrap_or_default().to_owned());
        Some(Replaced { address, name })
    }

    /// Removes the record: the old master was brought back.
    pub fn remove(dir: &Path) -> io::Result<()> {
        remove(&dir.join(FILE_NAME))
    }
}

#[cfg(test)]
mod tests {
    use super::Replaced;

    #[test]
    fn what_was_recorded_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Replaced::read(dir.path()), None);
        for name in ["a", ""] {
            let replaced = Replaced { address: "h:1".to_owned(), name: name.to_owned() };
            replaced.write(dir.path());
            assert_eq!(Replaced::read(dir.path()), Some(replaced));
        }
    }
}
