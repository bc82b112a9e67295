//! The file `starts` of the control directory: which start of this node's directory this is, and the last start of each
//! other member's that this node has met. It detects a directory that was put back from an older copy.
//!
//! Such a directory has forgotten its votes, and log entries that it had confirmed; Raft assumes that this never happens.
//! So each start of a directory gets a number, one more than the start before, and a random mark. Both are durable before
//! any other member sees them, and a member that meets a start writes it down, durably, before it exchanges anything else
//! with that node. So whoever has a vote or a confirmation of a start also remembers the start:
//!
//! | the other member shows | known of it | result |
//! |---|---|---|
//! | no start: an older program | any | met |
//! | a start of another disk than the known one | any | met; Raft does not count a new disk before the group admits it |
//! | a higher number | any | met |
//! | the known number with the known mark | | met |
//! | the known number with another mark, or a lower number | | refused: the directory is older than it was |
//!
//! What it does not detect: a copy that is put back under a running start, before any later start of the same directory was
//! met (a snapshot of a running machine). The positions in the record do that ([`crate::record::Record::positions`]).
//!
//! The file is one record of [`crate::frames`] with JSON:
//!
//! ```text
//! {"version":1,"own":{"disk":7,"number":2,"mark":9},"met":{"b":{"disk":8,"number":1,"mark":5}}}
//! ```
//!
//! Failure: a damaged file refuses to open. If it cannot be written, the connection at hand fails; the next attempt writes
//! the whole file again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_seams::Disk;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::id::{DiskId, NodeId};
use crate::{files, frames};

/// The file's name.
const NAME: &str = "starts";
const FORMAT_VERSION: u16 = 1;

/// One start of one member's directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Start {
    pub disk: DiskId,
    /// Counts the starts of this directory, from 1.
    pub number: u64,
    /// Random: tells this start from another one with its number.
    pub mark: u64,
}

#[derive(Clone, Serialize, Deserialize)]
struct Saved {
    version: u16,
    own: Start,
    met: BTreeMap<NodeId, Start>,
}

/// The starts that this node knows. Shared by all who greet other members.
pub struct Starts {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    saved: Mutex<Saved>,
}

/// Why a start is not met.
#[derive(Debug, thiserror::Error)]
pub enum NotMet {
    #[error("start {} of its directory is known here, and this is start {}", known.number, shown.number)]
    Older { known: Start, shown: Start },
    #[error(transparent)]
    File(#[from] ControlError),
}

impl Starts {
    /// Begins the next start of the directory, durably.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, disk_id: DiskId, mark: u64) -> Result<Starts, ControlError> {
        let before = read(&*disk, dir)?;
        let last = before.as_ref().filter(|saved| saved.own.disk == disk_id).map_or(0, |saved| saved.own.number);
        let own = Start { disk: disk_id, number: last + 1, mark };
        let met = before.map(|saved| saved.met).unwrap_or_default();
        let saved = Saved { version: FORMAT_VERSION, own, met };
        write(&*disk, dir, &saved)?;
        Ok(Starts { disk, dir: dir.to_path_buf(), saved: Mutex::new(saved) })
    }

    /// This node's start.
    pub fn own(&self) -> Start {
        self.saved.lock().own
    }

    /// Meets the start of another member by the module's table; it is durable here when this returns `Ok`.
    pub fn meet(&self, node: NodeId, shown: Option<Start>) -> Result<(), NotMet> {
        let Some(shown) = shown else { return Ok(()) };
        let mut saved = self.saved.lock();
        match saved.met.get(&node).copied() {
            Some(known) if known == shown => return Ok(()),
            Some(known) if known.disk == shown.disk && shown.number <= known.number => {
                return Err(NotMet::Older { known, shown });
            }
            _ => {}
        }
        let mut next = saved.clone();
        next.met.insert(node, shown);
        write(&*self.disk, &self.dir, &next)?;
        *saved = next;
        Ok(())
    }
}

fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Saved>, ControlError> {
    let path = dir.join(NAME);
    if disk.metadata(&path).map_err(ControlError::io("look at", &path))?.is_none() {
        return Ok(None);
    }
    let bytes = files::read(disk, &path)?;
    let damage = |what: String| ControlError::Damage { file: path.clone(), offset: 0, what };
    let frame = frames::get(&bytes, 0).ok_or_else(|| damage("its checksum does not match its bytes".to_owned()))?;
    let saved: Saved = serde_json::from_slice(frame.text).map_err(|error| damage(error.to_string()))?;
    if saved.version > FORMAT_VERSION {
        return Err(ControlError::Newer { file: path.clone(), found: saved.version, known: FORMAT_VERSION });
    }
    Ok(Some(saved))
}

fn write(disk: &dyn Disk, dir: &Path, saved: &Saved) -> Result<(), ControlError> {
    let text = serde_json::to_vec(saved).map_err(|error| ControlError::Stopped(format!("encoding: {error}")))?;
    let mut bytes = Vec::new();
    frames::put(&mut bytes, 1, 0, &text);
    files::replace(disk, dir, NAME, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_seams::testing::FaultDisk;

    fn node(name: &str) -> NodeId {
        name.parse().unwrap()
    }

    fn open(disk: &FaultDisk, mark: u64) -> Starts {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        disk.create_dir(Path::new("/c")).unwrap();
        Starts::open(disk, Path::new("/c"), DiskId(7), mark).unwrap()
    }

    #[test]
    fn every_start_has_a_number_of_its_own_that_survives_a_power_cut() {
        let disk = FaultDisk::new(1);
        for number in 1..4 {
            assert_eq!(open(&disk, number * 10).own(), Start { disk: DiskId(7), number, mark: number * 10 });
            disk.cut_power();
            disk.restore_power();
        }
    }

    #[test]
    fn the_table_of_meetings() {
        let disk = FaultDisk::new(2);
        let starts = open(&disk, 1);
        let shown = |disk, number, mark| Some(Start { disk: DiskId(disk), number, mark });
        let meets = |starts: &Starts, shown| starts.meet(node("b"), shown).is_ok();
        assert!(meets(&starts, None) && meets(&starts, shown(8, 3, 5)) && meets(&starts, shown(8, 3, 5)));
        assert!(!meets(&starts, shown(8, 3, 6)), "the same number, another start");
        assert!(!meets(&starts, shown(8, 2, 5)), "a lower number");
        assert!(meets(&starts, shown(8, 4, 1)) && meets(&starts, shown(9, 1, 1)), "later, and on another disk");
        // What was met is durable at once.
        disk.cut_power();
        disk.restore_power();
        let starts = open(&disk, 2);
        assert!(!meets(&starts, shown(9, 1, 2)) && meets(&starts, shown(9, 1, 1)));
    }

    #[test]
    fn golden_file() {
        let disk = FaultDisk::new(3);
        let starts = open(&disk, 9);
        starts.meet(node("b"), Some(Start { disk: DiskId(8), number: 1, mark: 5 })).unwrap();
        let bytes = files::read(&disk, Path::new("/c/starts")).unwrap();
        let text = r#"{"version":1,"own":{"disk":7,"number":1,"mark":9},"met":{"b":{"disk":8,"number":1,"mark":5}}}"#;
        assert_eq!(frames::get(&bytes, 0).unwrap().text, text.as_bytes());
    }
}
