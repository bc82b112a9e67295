//! What stands in the directory that shall be the mirror, judged before anything is opened or written.
//!
//! | the directory | then |
//! |---|---|
//! | not there, and never was | made, copied into |
//! | not there, though it was | away: its disk is not mounted, perhaps |
//! | empty (`lost+found` and `holdfast.toml` aside) | copied into |
//! | the mirror of this directory, whole | followed |
//! | the same, its copy not finished, or of another copy, or distrusted because its disk failed | copied anew; what is right there is not copied again |
//! | it cannot be read | away |
//! | it was promoted, or is of a newer epoch | refused: this server has a successor |
//! | a standby named `mirror` of this server (after `holdfast rejoin`) | becomes the mirror |
//! | another server's, a data directory of its own, anything else | refused, and left as it is |
//! | a mirror with databases, while this directory is new | refused: the mirror is what is left, and is to be promoted |
//!
//! Away means that the server goes on or waits, as configured, and looks again. Refused means that it does not start.

use super::files::{CopyState, MirrorOf, Record};
use crate::config::FILE_NAME;
use crate::replication::{StandbyFile, StandbyFileError};
use holdfast_seams::RealDisk;
use holdfast_trail::{Dump, TrailError, TrailId};
use holdfast_types::Epoch;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The name of a mirror among standbys.
pub const NAME: &str = "mirror";

/// Why a directory is not taken as a mirror, or a server with that mirror does not start.
#[derive(Debug, thiserror::Error)]
pub enum MirrorRefused {
    #[error(
        "the mirror {} was promoted, it is at epoch {epoch}: it has taken this server's place. To make this directory the \
         standby of it: holdfast rejoin --from HOST:PORT --data {}. To let the two change places: the same with \
         --name mirror, then stop both and start: holdfast serve --data {} --mirror {}",
        mirror.display(), main.display(), mirror.display(), main.display()
    )]
    Promoted { main: PathBuf, mirror: PathBuf, epoch: Epoch },
    #[error(
        "{} is the mirror of {}: nobody serves it as it is. When that directory is lost: holdfast mirror promote --data {}",
        dir.display(), main.display(), dir.display()
    )]
    IsAMirror { dir: PathBuf, main: PathBuf },
    #[error(
        "{} has no databases yet, and the mirror {} has: it may be all that is left of them. To use them: holdfast mirror \
         promote --data {}. To begin anew: empty the mirror's directory",
        main.display(), mirror.display(), mirror.display()
    )]
    MainIsNew { main: PathBuf, mirror: PathBuf },
    #[error(
        "the mirror {} is of another server (trail {found}, this one's is {expected}): give another directory, or empty it",
        mirror.display()
    )]
    OtherServer { mirror: PathBuf, found: TrailId, expected: TrailId },
    #[error(
        "{} is a data directory of its own and no mirror: give another directory, or move what is in it away. If it was \
         this server's main directory before: holdfast rejoin --from HOST:PORT --data {} --name mirror",
        mirror.display(), mirror.display()
    )]
    DataDirectory { mirror: PathBuf },
    #[error("{} is the directory of the standby {name}: give another directory for the mirror", mirror.display())]
    Standby { mirror: PathBuf, name: String },
    #[error("the mirror {} is not empty and no mirror: it holds {found:?}; give an empty directory", mirror.display())]
    NotEmpty { mirror: PathBuf, found: String },
    #[error("the mirror and the data directory are the same: {}", mirror.display())]
    Same { mirror: PathBuf },
    #[error(
        "the mirror {} has what this directory has lost or never had: {why}. Serve the mirror instead, after: holdfast \
         mirror promote --data {}. If this directory is the right one, empty the mirror's",
        mirror.display(), mirror.display()
    )]
    Parted { mirror: PathBuf, why: String },
    /// In the words of whoever refused.
    #[error("{0}")]
    Told(String),
    #[error("{0}; correct the file, or move it away: then the mirror is copied anew")]
    Files(#[source] io::Error),
    #[error(transparent)]
    StandbyFile(#[from] StandbyFileError),
    #[error(transparent)]
    Trail(#[from] TrailError),
}

/// What is to be done with the directory.
#[derive(Debug)]
pub enum Found {
    /// A base copy, for this reason.
    Copy(&'static str),
    Follow(MirrorOf),
    /// Nothing can be done with it now.
    Away(String),
}

/// The main directory, as the judgement needs it.
pub struct Main<'a> {
    pub dir: &'a Path,
    /// `None`: it has no trail yet.
    pub trail: Option<(TrailId, Epoch)>,
    pub record: Option<&'a Record>,
}

/// The trail of a data directory and the epoch of its last open, without opening it.
pub fn trail_of(dir: &Path) -> Result<Option<(TrailId, Epoch)>, TrailError> {
    let (disk, trail) = (RealDisk::new(), dir.join("trail"));
    if !trail.join("control").exists() {
        return Ok(None);
    }
    Dump::open(&disk, &trail).map(|dump| Some((dump.trail_id, dump.epoch)))
}

/// See the module.
pub fn look(main: &Main<'_>, mirror: &Path) -> Result<Found, MirrorRefused> {
    let path = mirror.to_owned();
    // One without a copy was never written: the mirror is new.
    let known = main.record.filter(|record| record.mirror == mirror && !record.copy.is_empty());
    if mirror.canonicalize().is_ok_and(|m| main.dir.canonicalize().is_ok_and(|main| main == m)) {
        return Err(MirrorRefused::Same { mirror: path });
    }
    let names = match names(mirror) {
        Ok(names) => names,
        Err(e) if e.kind() == ErrorKind::NotFound && known.is_none() => return Ok(Found::Copy("it is new")),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let what = "is not there; if its disk is new, make the directory, else mount the disk";
            return Ok(Found::Away(format!("{} {what}", mirror.display())));
        }
        Err(e) => return Ok(Found::Away(format!("{} cannot be read: {e}", mirror.display()))),
    };
    let of = match MirrorOf::read(mirror) {
        Ok(of) => of,
        Err(e) if e.kind() == ErrorKind::InvalidData => return Err(MirrorRefused::Files(e)),
        Err(e) => return Ok(Found::Away(e.to_string())),
    };
    let trail = match trail_of(mirror) {
        Ok(trail) => trail,
        Err(TrailError::Io { source, .. }) => return Ok(Found::Away(source.to_string())),
        // Its own mirror that is damaged is copied anew.
        Err(_) if of.as_ref().is_some_and(|of| is_at_work(of.state)) => return Ok(Found::Copy("its trail is damaged")),
        Err(error) => return Err(error.into()),
    };
    let standby = StandbyFile::read(mirror)?;
    match (of, standby, trail) {
        (_, Some(file), Some(_)) if file.name != NAME => Err(MirrorRefused::Standby { mirror: path, name: file.name }),
        (_, Some(file), Some(found)) => {
            check_trail(main, mirror, found)?;
            let mut of = MirrorOf::begin(main.dir, "", crate::config::Away::Wait);
            (of.state, of.anchor_lsn, of.anchor_checksum) =
                (CopyState::Following, file.anchor_lsn, file.anchor_checksum);
            Ok(Found::Follow(of))
        }
        (Some(of), None, trail) if is_at_work(of.state) => {
            if let Some(found) = trail {
                check_trail(main, mirror, found)?;
            }
            Ok(judge(known, of, trail.is_some()))
        }
        (_, _, Some(found)) => {
            check_trail(main, mirror, found)?;
            Err(MirrorRefused::DataDirectory { mirror: path })
        }
        (_, _, None) => match names.first() {
            None if known.is_some() => Ok(Found::Copy("it is empty, though the mirror was there")),
            None => Ok(Found::Copy("it is empty")),
            Some(name) => Err(MirrorRefused::NotEmpty { mirror: path, found: name.clone() }),
        },
    }
}

/// Whether it is a mirror that nobody has begun to promote.
fn is_at_work(state: CopyState) -> bool {
    matches!(state, CopyState::Copying | CopyState::Following | CopyState::LeftBehind)
}

/// A mirror of this trail.
fn judge(known: Option<&Record>, of: MirrorOf, has_trail: bool) -> Found {
    if of.state == CopyState::Copying || !has_trail {
        return Found::Copy("its copy was not finished");
    }
    match known {
        Some(record) if record.distrusted.is_some() => Found::Copy("its disk has failed"),
        Some(record) if record.copy != of.copy => Found::Copy("it is another copy than the one that was followed"),
        _ => Found::Follow(of),
    }
}

/// Whether the mirror's trail is an earlier state of this one, as far as can be told without opening it.
fn check_trail(main: &Main<'_>, mirror: &Path, (found, epoch): (TrailId, Epoch)) -> Result<(), MirrorRefused> {
    let path = mirror.to_owned();
    match main.trail {
        None => Err(MirrorRefused::MainIsNew { main: main.dir.to_owned(), mirror: path }),
        Some((expected, _)) if expected != found => Err(MirrorRefused::OtherServer { mirror: path, found, expected }),
        Some((_, own)) if epoch > own => {
            Err(MirrorRefused::Promoted { main: main.dir.to_owned(), mirror: path, epoch })
        }
        Some((_, own)) => match MirrorOf::read(mirror) {
            Ok(Some(of)) if !is_at_work(of.state) && StandbyFile::read(mirror)?.is_none() => {
                Err(MirrorRefused::Promoted { main: main.dir.to_owned(), mirror: path, epoch: epoch.max(own) })
            }
            _ => Ok(()),
        },
    }
}

/// What lies in a directory, sorted.
fn names(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // A new file system has the one; a server that was started there once has written the other.
        if name != "lost+found" && name != FILE_NAME {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Whether two directories, or where they will be, lie on one device: one dead disk would take both.
pub fn same_device(one: &Path, other: &Path) -> Option<bool> {
    Some(device(one)? == device(other)?)
}

fn device(path: &Path) -> Option<u64> {
    let path = std::path::absolute(path).ok()?;
    path.ancestors().find_map(|dir| std::fs::metadata(dir).ok()).map(|metadata| metadata.dev())
}

#[cfg(test)]
mod tests {
    use super::super::files::RecordState;
    use super::*;
    use crate::config::Away;
    use std::fs;

    const ID: TrailId = TrailId([7; 16]);

    fn main(dir: &Path) -> Main<'_> {
        Main { dir, trail: Some((ID, Epoch(3))), record: None }
    }

    #[test]
    fn directories_without_a_trail() {
        let scratch = tempfile::tempdir().unwrap();
        let (a, b) = (scratch.path().join("a"), scratch.path().join("b"));
        fs::create_dir(&a).unwrap();
        assert!(matches!(look(&main(&a), &b), Ok(Found::Copy("it is new"))));
        let record = Record::begin(&b, "1");
        let known = Main { record: Some(&record), ..main(&a) };
        assert!(matches!(look(&known, &b), Ok(Found::Away(why)) if why.contains("mount the disk")));
        fs::create_dir_all(b.join("lost+found")).unwrap();
        assert!(matches!(look(&main(&a), &b), Ok(Found::Copy("it is empty"))));
        fs::write(b.join("photo.jpg"), "").unwrap();
        let refused = look(&main(&a), &b).unwrap_err().to_string();
        assert!(refused.contains("photo.jpg"), "{refused}");
        assert!(matches!(look(&main(&a), &a), Err(MirrorRefused::Same { .. })));
        MirrorOf::begin(&a, "1", Away::Wait).write(&b).unwrap();
        assert!(matches!(look(&known, &b), Ok(Found::Copy("its copy was not finished"))));
        fs::write(b.join("mirror_of.toml"), "state = 5").unwrap();
        assert!(matches!(look(&main(&a), &b), Err(MirrorRefused::Files(_))));
    }

    #[test]
    fn a_whole_mirror_is_followed_unless_it_is_not_trusted() {
        let of = MirrorOf { state: CopyState::Following, ..MirrorOf::begin("/a".as_ref(), "1", Away::Wait) };
        let mut record = Record::begin("/b".as_ref(), "1");
        record.state = RecordState::InService;
        let judged = |record: &Record| judge(Some(record), of.clone(), true);
        assert!(matches!(judged(&record), Found::Follow(_)));
        assert!(matches!(judge(None, of.clone(), true), Found::Follow(_)));
        assert!(matches!(judge(None, of.clone(), false), Found::Copy(_)));
        record.distrusted = Some("EIO".into());
        assert!(matches!(judged(&record), Found::Copy("its disk has failed")));
        (record.distrusted, record.copy) = (None, "2".into());
        assert!(matches!(judged(&record), Found::Copy(_)));
    }

    #[test]
    fn trails_that_do_not_fit_are_refused() {
        let (a, b) = (Path::new("/a"), Path::new("/nowhere/b"));
        let check = |trail, found| check_trail(&Main { dir: a, trail, record: None }, b, found);
        let own = Some((ID, Epoch(3)));
        assert!(check(own, (ID, Epoch(3))).is_ok());
        assert!(matches!(check(own, (ID, Epoch(4))), Err(MirrorRefused::Promoted { .. })));
        let other = (TrailId([8; 16]), Epoch(1));
        assert!(matches!(check(own, other), Err(MirrorRefused::OtherServer { .. })));
        assert!(matches!(check(None, (ID, Epoch(1))), Err(MirrorRefused::MainIsNew { .. })));
    }

    #[test]
    fn directories_on_one_device() {
        let scratch = tempfile::tempdir().unwrap();
        assert_eq!(same_device(scratch.path(), &scratch.path().join("not/there/yet")), Some(true));
        assert_eq!(same_device(scratch.path(), Path::new("/proc")), Some(false));
    }
}
