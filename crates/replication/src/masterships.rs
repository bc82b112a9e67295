//! The file `masterships` of the data directory: the masterships of this directory's history, the latest first
//! ([`holdfast_standby::mastership`]).
//!
//! ```text
//! 9f00c1d2e3a4b5c6 - a
//! 0123456789abcdef accepted b
//! ```
//! A line has the mark, whether a loss was accepted, and the name of the node.
//! Each opening as a master puts a line of its own in front, durably, before any standby is answered. A standby takes over the
//! list of the node that it follows, durably, before it takes anything else of it. So a directory that was put back from an older
//! copy lacks the masterships that were met since, whatever it begins.
//!
//! Failure: a file that cannot be read or has a line of another form refuses to open; one that cannot be written does not let
//! the server be master. A standby that cannot write it follows nevertheless: it then decides by the list that it had.

use holdfast_seams::{RealDisk, replace};
use holdfast_standby::Mastership;
use holdfast_standby::mastership::MASTERSHIPS_MAX;
use parking_lot::Mutex;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The file's name.
pub const FILE_NAME: &str = "masterships";

/// The masterships of a directory's history.
pub struct Masterships {
    dir: PathBuf,
    list: Mutex<Vec<Mastership>>,
}

impl Masterships {
    /// Those that the directory knows; none if it has no file.
    pub fn read(dir: &Path) -> io::Result<Masterships> {
        let list = match std::fs::read_to_string(dir.join(FILE_NAME)) {
            Ok(text) => parse(&text).ok_or_else(|| {
                let why = format!("{} has a line that is not a mark, \"-\" or \"accepted\", and a name", path(dir));
                io::Error::new(ErrorKind::InvalidData, why)
            })?,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(io::Error::new(error.kind(), format!("cannot read {}: {error}", path(dir)))),
        };
        Ok(Masterships { dir: dir.to_owned(), list: Mutex::new(list) })
    }

    /// Begins the next mastership of the node `name`, durably. `accepted`: the operator has accepted that commits may be lost.
    pub fn begin(&self, name: &str, mark: u64, accepted: bool) -> io::Result<()> {
        let mut list = self.list();
        list.insert(0, Mastership { node: name.to_owned(), mark, accepted });
        list.truncate(MASTERSHIPS_MAX);
        self.write(list)
    }

    /// Takes over the list of the node that is followed, durably.
    pub fn learn(&self, shown: &[Mastership]) -> io::Result<()> {
        // A program that shows none is older.
        if shown.is_empty() || *self.list.lock() == shown {
            return Ok(());
        }
        self.write(shown.iter().take(MASTERSHIPS_MAX).cloned().collect())
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The latest first.
    pub fn list(&self) -> Vec<Mastership> {
        self.list.lock().clone()
    }

    fn write(&self, list: Vec<Mastership>) -> io::Result<()> {
        let text: String = list.iter().map(line).collect();
        let replaced = replace(&RealDisk::new(), &self.dir.join(FILE_NAME), text.as_bytes()).map_err(io::Error::from);
        replaced.map_err(|error| io::Error::new(error.kind(), format!("cannot write {}: {error}", path(&self.dir))))?;
        *self.list.lock() = list;
        Ok(())
    }
}

fn path(dir: &Path) -> String {
    dir.join(FILE_NAME).display().to_string()
}

fn line(one: &Mastership) -> String {
    format!("{:016x} {} {}\n", one.mark, if one.accepted { "accepted" } else { "-" }, one.node)
}

fn parse(text: &str) -> Option<Vec<Mastership>> {
    let one = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let mark = u64::from_str_radix(words.next()?, 16).ok()?;
        let accepted = match words.next()? {
            "-" => false,
            "accepted" => true,
            _ => return None,
        };
        let node = words.next().filter(|node| !node.is_empty())?.to_owned();
        Some(Mastership { node, mark, accepted })
    };
    text.lines().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_with_the_latest_first_and_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Masterships::read(dir.path()).unwrap().list().is_empty());
        let list = Masterships::read(dir.path()).unwrap();
        list.begin("b", 0x0123_4567_89ab_cdef, true).unwrap();
        list.begin("a", 0x9f00_c1d2_e3a4_b5c6, false).unwrap();
        let text = std::fs::read_to_string(dir.path().join(FILE_NAME)).unwrap();
        assert_eq!(text, "9f00c1d2e3a4b5c6 - a\n0123456789abcdef accepted b\n");
        let again = Masterships::read(dir.path()).unwrap();
        assert_eq!(again.list(), list.list());
        // A standby takes over another list, and keeps its own where none is shown.
        let other = [Mastership { node: "c".to_owned(), mark: 7, accepted: false }];
        again.learn(&[]).unwrap();
        assert_eq!(again.list(), list.list());
        again.learn(&other).unwrap();
        assert_eq!(Masterships::read(dir.path()).unwrap().list(), other);
        (0..100).for_each(|mark| again.begin("a", mark, false).unwrap());
        assert_eq!(Masterships::read(dir.path()).unwrap().list().len(), MASTERSHIPS_MAX);
        for bad in ["5", "5 -", "x - a", "5 x a", "5 - "] {
            std::fs::write(dir.path().join(FILE_NAME), bad).unwrap();
            assert!(Masterships::read(dir.path()).is_err(), "{bad}");
        }
    }
}
