//! The file `starts` of the control directory: which start of this node's directory this is, and the last start of each
//! other member's that this node has met. It detects a directory that was put back from an older copy.
//!
//! Such a directory has forgotten its votes, and log entries that it had confirmed; Raft assumes that this never happens.
//! So each start of a directory gets a number, one more than the start before, and a random mark. Both are durable before
//! any other member sees them, and a member that meets a start writes it down, durably, before it exchanges anything else
//! with that node. So a member that has a vote or a confirmation of a start also remembers that start. A start shows the marks
//! of the starts before it as well, and the known one has to be among them:
//!
//! | the other member shows | known of it | result |
//! |---|---|---|
//! | no start: an older program | any | met |
//! | a start of another disk than the known one | any | met; Raft does not count a new disk before the group admits it |
//! | the known number with the known mark | | met |
//! | a higher number, and the known mark at the known number; its log is as long as it was | | met |
//! | the same, and its log lacks a committed entry that it had | | refused: the directory is older than it was |
//! | the same, and its log lacks an entry that it had and that may not be committed | | not met for now |
//! | a higher number, more than 64 starts later: the known number is not shown any more | | met |
//! | a higher number, and another mark at the known number | | refused: the directory is older than it was |
//! | the known number with another mark, or a lower number | | refused: the directory is older than it was |
//!
//! A copy that was made while a start ran has that start, and its next one follows it. So each start also shows where its log
//! ends when it is met first, and that has to be at or behind the last entry that the meeting member knows it had: a committed
//! entry of a term in which that node led Raft, or one that it confirmed to this member as the leader. Where the missing entry is
//! not known to be committed the start is not met for now: a newer leader may have removed it.
//!
//! A connection that an earlier start of a directory has made ends when a later one is met: of a machine that was copied while it ran
//! only the copy that was started last takes part. The same holds for the pulses of its supervisor ([`crate::grant::EndedRuns`]), which
//! name their run by the mark of the start.
//!
//! A directory that was refused stays refused: that is written down in it, so that starting it again and again does not help.
//!
//! What it does not detect: a copy that was made while a start ran, and whose log lacks nothing that the others know of. The
//! positions in the record may ([`crate::record::Record::positions`]).
//!
//! The file is one record of [`crate::frames`] with JSON:
//!
//! ```text
//! {"version":1,"own":{"disk":7,"number":2,"mark":9,"before":[4]},"met":{"b":{"disk":8,"number":1,"mark":5}}}
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
use crate::raft::LogId;
use crate::{files, frames};

/// The file's name.
const NAME: &str = "starts";
const FORMAT_VERSION: u16 = 1;
/// The largest number of marks of earlier starts that a start shows.
const BEFORE_MAX: usize = 64;

/// One start of one member's directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Start {
    pub disk: DiskId,
    /// Counts the starts of this directory, from 1.
    pub number: u64,
    /// Random: tells this start from another one with its number.
    pub mark: u64,
    /// The marks of the starts before this one, the latest first; at most [`BEFORE_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<u64>,
}

impl Start {
    /// The start after this one.
    fn next(mut self, mark: u64) -> Start {
        self.before.insert(0, self.mark);
        self.before.truncate(BEFORE_MAX);
        Start { number: self.number + 1, mark, ..self }
    }

    /// Whether this may come after `known` of the same disk, by the table of the module.
    fn may_follow(&self, known: &Start) -> bool {
        match self.number.checked_sub(known.number) {
            None => false,
            Some(0) => self.mark == known.mark,
            Some(later) => usize::try_from(later - 1)
                .ok()
                .and_then(|index| self.before.get(index))
                .is_none_or(|mark| *mark == known.mark),
        }
    }
}

#[derive(Clone, Serialize, Deserialize)]
struct Saved {
    version: u16,
    own: Start,
    met: BTreeMap<NodeId, Start>,
    /// Why another member has refused this directory, for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

/// Where a member's log ends; a log may be empty.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct LogEnd {
    pub last: Option<LogId>,
}

/// What this node knows that another one had in its log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Had {
    /// The disk that this is about: the one that the log speaks of.
    pub disk: Option<DiskId>,
    /// Up to here, and no leader removes it.
    pub committed: Option<LogId>,
    /// Up to here it has confirmed it to this node, as the leader.
    pub confirmed: Option<LogId>,
}

/// What another member shows of itself when a connection begins.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Shown {
    pub start: Option<Start>,
    /// `None`: an older program.
    pub log: Option<LogEnd>,
}

/// The starts that this node knows. Shared by what greets other members.
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
    #[error("its log ended at {had} before, and ends at {} in start {} of its directory", shown_log(*log), shown.number)]
    Shorter { had: LogId, log: LogEnd, shown: Start },
    #[error("its log ended at {had} before, and ends at {}; that entry may not be committed", shown_log(*log))]
    Unsure { had: LogId, log: LogEnd },
    #[error(transparent)]
    File(#[from] ControlError),
}

fn shown_log(log: LogEnd) -> String {
    log.last.map_or_else(|| "the beginning".to_owned(), |last| last.to_string())
}

/// Whether a log that ends there lacks what this node knows of it.
fn lacks(log: LogEnd, had: Had, shown: &Start) -> Result<(), NotMet> {
    let missing = |known: Option<LogId>| known.filter(|known| log.last < Some(*known));
    match (missing(had.committed), missing(had.confirmed)) {
        (Some(had), _) => Err(NotMet::Shorter { had, log, shown: shown.clone() }),
        (None, Some(had)) => Err(NotMet::Unsure { had, log }),
        (None, None) => Ok(()),
    }
}

impl Starts {
    /// Begins the next start of the directory, durably. A directory that was refused is refused here.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, disk_id: DiskId, mark: u64) -> Result<Starts, ControlError> {
        let before = read(&*disk, dir)?;
        if let Some(why) = before.as_ref().and_then(|saved| saved.refused.clone()) {
            return Err(ControlError::RolledBack { dir: dir.to_path_buf(), why });
        }
        let met = before.as_ref().map(|saved| saved.met.clone()).unwrap_or_default();
        let own = match before.map(|saved| saved.own).filter(|own| own.disk == disk_id) {
            Some(last) => last.next(mark),
            None => Start { disk: disk_id, number: 1, mark, before: Vec::new() },
        };
        let saved = Saved { version: FORMAT_VERSION, own, met, refused: None };
        write(&*disk, dir, &saved)?;
        Ok(Starts { disk, dir: dir.to_path_buf(), saved: Mutex::new(saved) })
    }

    /// This node's start.
    pub fn own(&self) -> Start {
        self.saved.lock().own.clone()
    }

    /// The starts of other members that were met.
    pub fn met(&self) -> BTreeMap<NodeId, Start> {
        self.saved.lock().met.clone()
    }

    /// Whether this is the newest start of that member, as far as it was met; `None`: an older program, which shows none.
    pub fn is_newest(&self, node: NodeId, start: Option<&Start>) -> bool {
        start.is_none_or(|start| self.saved.lock().met.get(&node).is_none_or(|met| met.mark == start.mark))
    }

    /// Records, durably, that another member has refused this directory.
    pub fn refused(&self, why: &str) -> Result<(), ControlError> {
        let mut saved = self.saved.lock();
        saved.refused = Some(why.to_owned());
        write(&*self.disk, &self.dir, &saved)
    }

    /// Meets the start of another member by the module's table; it is durable here when this returns `Ok`.
    pub fn meet(&self, node: NodeId, Shown { start, log }: Shown, had: Had) -> Result<(), NotMet> {
        let Some(shown) = start else { return Ok(()) };
        let mut saved = self.saved.lock();
        match saved.met.get(&node) {
            Some(known) if *known == shown => return Ok(()),
            Some(known) if known.disk == shown.disk && !shown.may_follow(known) => {
                return Err(NotMet::Older { known: known.clone(), shown });
            }
            Some(known) if known.disk == shown.disk && had.disk == Some(shown.disk) => {
                log.map_or(Ok(()), |log| lacks(log, had, &shown))?
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
            let before = (1..number).rev().map(|number| number * 10).collect();
            assert_eq!(open(&disk, number * 10).own(), Start { disk: DiskId(7), number, mark: number * 10, before });
            disk.cut_power();
            disk.restore_power();
        }
    }

    #[test]
    fn the_table_of_meetings() {
        let disk = FaultDisk::new(2);
        let starts = open(&disk, 1);
        let after = |disk, number, mark, before: &[u64]| {
            Some(Start { disk: DiskId(disk), number, mark, before: before.to_vec() })
        };
        let shown = |disk, number, mark| after(disk, number, mark, &[5, 5, 5]);
        let meets = |starts: &Starts, start| starts.meet(node("b"), Shown { start, log: None }, Had::default()).is_ok();
        assert!(meets(&starts, None) && meets(&starts, shown(8, 3, 5)) && meets(&starts, shown(8, 3, 5)));
        assert!(!meets(&starts, shown(8, 3, 6)), "the same number, another start");
        assert!(!meets(&starts, shown(8, 2, 5)), "a lower number");
        assert!(!meets(&starts, after(8, 4, 7, &[6, 5])), "later, but not after the known one");
        assert!(!meets(&starts, after(8, 6, 7, &[7, 7, 6, 5])), "however often it is started");
        assert!(meets(&starts, after(8, 6, 7, &[7, 7, 5, 5])), "three starts later");
        assert!(meets(&starts, after(8, 100, 7, &[7; BEFORE_MAX])), "so much later that it cannot be judged");
        assert!(meets(&starts, shown(9, 1, 1)), "on another disk");
        // What was met is durable at once.
        disk.cut_power();
        disk.restore_power();
        let starts = open(&disk, 2);
        assert!(!meets(&starts, shown(9, 1, 2)) && meets(&starts, shown(9, 1, 1)));
    }

    #[test]
    fn a_later_start_has_the_log_that_its_directory_had() {
        let disk = FaultDisk::new(5);
        let starts = open(&disk, 1);
        let id = |term, index| LogId::new(openraft::CommittedLeaderId::new(term, node("b")), index);
        let later = |number: u64| Start { disk: DiskId(8), number, mark: number, before: (1..number).rev().collect() };
        let meets = |number, log: Option<Option<LogId>>, committed, confirmed| {
            let shown = Shown { start: Some(later(number)), log: log.map(|last| LogEnd { last }) };
            starts.meet(node("b"), shown, Had { disk: Some(DiskId(8)), committed, confirmed })
        };
        let (had, more) = (Some(id(2, 50)), Some(id(2, 60)));
        meets(1, Some(None), None, None).unwrap();
        for shorter in [None, Some(id(2, 49)), Some(id(1, 90))] {
            let refused = meets(2, Some(shorter), had, more).unwrap_err();
            assert!(matches!(&refused, NotMet::Shorter { .. }), "{refused}");
        }
        let unsure = meets(2, Some(had), had, more).unwrap_err();
        assert!(matches!(&unsure, NotMet::Unsure { .. }), "{unsure}");
        // A newer leader has removed the end, and written less.
        meets(2, Some(Some(id(3, 40))), had, more).unwrap();
        // The start is known by now: what it has had since then says nothing about it.
        meets(2, Some(had), more, more).unwrap();
        meets(3, None, had, more).expect("an older program does not say");
        // What was known is about a disk that was lost.
        let shown = Shown { start: Some(later(4)), log: Some(LogEnd::default()) };
        starts.meet(node("b"), shown, Had { disk: Some(DiskId(7)), committed: had, confirmed: had }).unwrap();
    }

    #[test]
    fn a_directory_that_was_refused_stays_refused() {
        let disk = FaultDisk::new(4);
        open(&disk, 1).refused("b has met start 2").unwrap();
        disk.cut_power();
        disk.restore_power();
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let refused = Starts::open(disk, Path::new("/c"), DiskId(7), 2).err().unwrap();
        assert!(matches!(&refused, ControlError::RolledBack { why, .. } if why == "b has met start 2"), "{refused}");
    }

    #[test]
    fn golden_file() {
        let disk = FaultDisk::new(3);
        let starts = open(&disk, 9);
        let start = Some(Start { disk: DiskId(8), number: 1, mark: 5, before: Vec::new() });
        starts.meet(node("b"), Shown { start, log: None }, Had::default()).unwrap();
        let bytes = files::read(&disk, Path::new("/c/starts")).unwrap();
        let text = r#"{"version":1,"own":{"disk":7,"number":1,"mark":9},"met":{"b":{"disk":8,"number":1,"mark":5}}}"#;
        assert_eq!(frames::get(&bytes, 0).unwrap().text, text.as_bytes());
    }
}
