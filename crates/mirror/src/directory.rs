//! Inspects the directory that is to be the mirror, before anything is opened or written.
//!
//! | the directory | action |
//! |---|---|
//! | does not exist, and never did | created, copied into |
//! | does not exist, though it did | away: its disk may not be mounted |
//! | empty (except `lost+found` and `holdfast.toml`) | copied into |
//! | the mirror of this directory, complete; or made from a dump | followed |
//! | a mirror that is being made from a dump, or was not completed | refused |
//! | the mirror of this directory, but its copy is not finished, is another copy, or is distrusted because its disk failed | copied again; pages that are correct are not sent |
//! | cannot be read | away |
//! | was promoted, or has a newer epoch | refused: this server has a successor |
//! | a standby named `mirror` of this server (after `holdfast rejoin`) | becomes the mirror |
//! | belongs to another server, is an independent data directory, anything else | refused, and left unchanged |
//! | a mirror with databases, while this directory is new | refused: the mirror may be all that is left, and is to be promoted |
//!
//! Away: the server continues or waits, as configured, and inspects the directory again. Refused: the server does not start.

use crate::records::{CopyState, MIRROR_OF, MirrorOf, Record};
use holdfast_engine::RESTORING;
use holdfast_replication::settings::{Away, FILE_NAME};
use holdfast_replication::{StandbyFile, StandbyFileError};
use holdfast_seams::RealDisk;
use holdfast_trail::{Dump, TrailError, TrailId};
use holdfast_types::Epoch;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The name of a mirror among standbys.
pub const NAME: &str = "mirror";

/// Why a directory is refused as a mirror, or a server with this mirror does not start.
#[derive(Debug, thiserror::Error)]
pub enum MirrorRefused {
    #[error(
        "the mirror {} was promoted (epoch {epoch}) and has replaced this server. To make this directory its standby: holdfast \
         rejoin --from HOST:PORT --data {}. To swap the two directories: run that command with --name mirror, stop both \
         servers, then: holdfast serve --data {} --mirror {}",
        mirror.display(), main.display(), mirror.display(), main.display()
    )]
    Promoted { main: PathBuf, mirror: PathBuf, epoch: Epoch },
    #[error(
        "{} is the mirror of {} and cannot be served. If that directory is lost: holdfast mirror promote --data {}",
        dir.display(), main.display(), dir.display()
    )]
    IsAMirror { dir: PathBuf, main: PathBuf },
    #[error(
        "{} has no databases yet, but its mirror {} has: it may be all that is left of them. To use them: holdfast mirror \
         promote --data {}. To start with an empty server: empty the mirror's directory",
        main.display(), mirror.display(), mirror.display()
    )]
    MainIsNew { main: PathBuf, mirror: PathBuf },
    #[error(
        "the mirror {} is of another server (its trail is {found}, this server's is {expected}): choose another directory, or \
         empty it",
        mirror.display()
    )]
    OtherServer { mirror: PathBuf, found: TrailId, expected: TrailId },
    #[error(
        "{} is a data directory and not a mirror: choose another directory, or move its content away. If it was this server's \
         main directory before: holdfast rejoin --from HOST:PORT --data {} --name mirror",
        mirror.display(), mirror.display()
    )]
    DataDirectory { mirror: PathBuf },
    #[error("{} is the directory of the standby {name}: choose another directory for the mirror", mirror.display())]
    Standby { mirror: PathBuf, name: String },
    #[error(
        "the mirror {} is not complete: it is being made from a dump, or that was interrupted. Run holdfast mirror create \
         --from-dump again, or empty the directory",
        mirror.display()
    )]
    Restoring { mirror: PathBuf },
    #[error("the directory {} is neither empty nor a mirror: it contains {found:?}; choose an empty directory", mirror.display())]
    NotEmpty { mirror: PathBuf, found: String },
    #[error("the mirror and the data directory are the same: {}", mirror.display())]
    Same { mirror: PathBuf },
    #[error(
        "the mirror {} has data that this directory does not have: {why}. To serve the mirror instead: holdfast mirror promote \
         --data {}. To keep this directory: empty the mirror's directory",
        mirror.display(), mirror.display()
    )]
    Parted { mirror: PathBuf, why: String },
    /// The supervisor's reason.
    #[error("{0}")]
    Supervisor(String),
    #[error("{0}; correct the file, or move it away: the mirror is copied again then")]
    Files(#[source] io::Error),
    #[error(transparent)]
    StandbyFile(#[from] StandbyFileError),
    #[error(transparent)]
    Trail(#[from] TrailError),
}

/// What the supervisor does with the directory.
#[derive(Debug)]
pub enum Action {
    /// Make a base copy, for this reason.
    Copy(&'static str),
    Follow(MirrorOf),
    /// Nothing can be done now, for this reason.
    Away(String),
}

/// What the inspection needs of the main directory.
pub struct MainDirectory<'a> {
    pub dir: &'a Path,
    /// `None`: it has no trail yet.
    pub trail: Option<(TrailId, Epoch)>,
    pub record: Option<&'a Record>,
}

/// The trail of a data directory and its last epoch, read without opening the trail.
pub fn trail_of(dir: &Path) -> Result<Option<(TrailId, Epoch)>, TrailError> {
    let (disk, trail) = (RealDisk::new(), dir.join("trail"));
    if !trail.join("control").exists() {
        return Ok(None);
    }
    Dump::open(&disk, &trail).map(|dump| Some((dump.trail_id, dump.epoch)))
}

/// Inspects the directory, see the table above.
pub fn inspect(main: &MainDirectory<'_>, mirror: &Path) -> Result<Action, MirrorRefused> {
    let path = mirror.to_owned();
    // A record without a copy was never written: the mirror is new.
    let known = main.record.filter(|record| record.mirror == mirror && !record.copy.is_empty());
    if mirror.canonicalize().is_ok_and(|m| main.dir.canonicalize().is_ok_and(|main| main == m)) {
        return Err(MirrorRefused::Same { mirror: path });
    }
    let names = match names(mirror) {
        Ok(names) => names,
        Err(e) if e.kind() == ErrorKind::NotFound && known.is_none() => return Ok(Action::Copy("it is new")),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let what = "does not exist; mount the disk, or create the directory if the disk is new";
            return Ok(Action::Away(format!("{} {what}", mirror.display())));
        }
        Err(e) => return Ok(Action::Away(format!("{} cannot be read: {e}", mirror.display()))),
    };
    if names.iter().any(|name| name == RESTORING) {
        return Err(MirrorRefused::Restoring { mirror: path });
    }
    let of = match MirrorOf::read(mirror) {
        Ok(of) => of,
        Err(e) if e.kind() == ErrorKind::InvalidData => return Err(MirrorRefused::Files(e)),
        Err(e) => return Ok(Action::Away(e.to_string())),
    };
    let trail = match trail_of(mirror) {
        Ok(trail) => trail,
        Err(TrailError::Io { source, .. }) => return Ok(Action::Away(source.to_string())),
        // A damaged mirror of this directory is copied again.
        Err(_) if of.as_ref().is_some_and(|of| is_at_work(of.state)) => {
            return Ok(Action::Copy("its trail is damaged"));
        }
        Err(error) => return Err(error.into()),
    };
    let standby = StandbyFile::read(mirror)?;
    match (of, standby, trail) {
        (_, Some(file), Some(_)) if file.name != NAME => Err(MirrorRefused::Standby { mirror: path, name: file.name }),
        (_, Some(file), Some(found)) => {
            check_trail(main, mirror, found)?;
            let mut of = MirrorOf::begin(main.dir, "", Away::Wait);
            (of.state, of.anchor_lsn, of.anchor_checksum) =
                (CopyState::Following, file.anchor_lsn, file.anchor_checksum);
            Ok(Action::Follow(of))
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
            None if known.is_some() => Ok(Action::Copy("it is empty, though the mirror was there")),
            None => Ok(Action::Copy("it is empty")),
            Some(name) => Err(MirrorRefused::NotEmpty { mirror: path, found: name.clone() }),
        },
    }
}

/// Whether it is a mirror whose promotion has not begun.
fn is_at_work(state: CopyState) -> bool {
    matches!(state, CopyState::Copying | CopyState::Following | CopyState::LeftBehind)
}

/// What to do with a mirror of this trail.
fn judge(known: Option<&Record>, of: MirrorOf, has_trail: bool) -> Action {
    if of.state == CopyState::Copying || !has_trail {
        return Action::Copy("its copy was not finished");
    }
    match known {
        // Made from a dump, and not followed yet.
        _ if of.copy.is_empty() => Action::Follow(of),
        Some(record) if record.distrusted.is_some() => Action::Copy("its disk has failed"),
        Some(record) if record.copy != of.copy => Action::Copy("it is a different copy from the one that was followed"),
        _ => Action::Follow(of),
    }
}

/// Checks that the mirror's trail is an earlier state of this one, as far as possible without opening it.
fn check_trail(main: &MainDirectory<'_>, mirror: &Path, (found, epoch): (TrailId, Epoch)) -> Result<(), MirrorRefused> {
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

/// The names in a directory, sorted.
fn names(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // A new file system has `lost+found`; a server that was started there once has written the settings; a start that was killed
        // while it wrote the first of these files has left it as NAME.new ([`holdfast_seams::replace`]).
        let is_left = name.strip_suffix(".new").is_some_and(|of| of == MIRROR_OF || of == FILE_NAME);
        if name != "lost+found" && name != FILE_NAME && !is_left {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Whether two directories, which need not exist yet, are on the same device: one dead disk would lose both.
pub fn same_device(one: &Path, other: &Path) -> Option<bool> {
    Some(device(one)? == device(other)?)
}

fn device(path: &Path) -> Option<u64> {
    let path = std::path::absolute(path).ok()?;
    path.ancestors().find_map(|dir| std::fs::metadata(dir).ok()).map(|metadata| metadata.dev())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::RecordState;
    use std::fs;

    const ID: TrailId = TrailId([7; 16]);

    fn main(dir: &Path) -> MainDirectory<'_> {
        MainDirectory { dir, trail: Some((ID, Epoch(3))), record: None }
    }

    #[test]
    fn directories_without_a_trail() {
        let scratch = tempfile::tempdir().unwrap();
        let (a, b) = (scratch.path().join("a"), scratch.path().join("b"));
        fs::create_dir(&a).unwrap();
        assert!(matches!(inspect(&main(&a), &b), Ok(Action::Copy("it is new"))));
        let record = Record::begin(&b, "1");
        let known = MainDirectory { record: Some(&record), ..main(&a) };
        assert!(matches!(inspect(&known, &b), Ok(Action::Away(why)) if why.contains("mount the disk")));
        fs::create_dir_all(b.join("lost+found")).unwrap();
        assert!(matches!(inspect(&main(&a), &b), Ok(Action::Copy("it is empty"))));
        fs::write(b.join("mirror_of.toml.new"), "").unwrap();
        assert!(matches!(inspect(&main(&a), &b), Ok(Action::Copy("it is empty"))), "left by a kill");
        fs::write(b.join("photo.jpg"), "").unwrap();
        let refused = inspect(&main(&a), &b).unwrap_err().to_string();
        assert!(refused.contains("photo.jpg"), "{refused}");
        assert!(matches!(inspect(&main(&a), &a), Err(MirrorRefused::Same { .. })));
        MirrorOf::begin(&a, "1", Away::Wait).write(&b).unwrap();
        assert!(matches!(inspect(&known, &b), Ok(Action::Copy("its copy was not finished"))));
        fs::write(b.join("mirror_of.toml"), "state = 5").unwrap();
        assert!(matches!(inspect(&main(&a), &b), Err(MirrorRefused::Files(_))));
    }

    #[test]
    fn a_whole_mirror_is_followed_unless_it_is_not_trusted() {
        let of = MirrorOf { state: CopyState::Following, ..MirrorOf::begin("/a".as_ref(), "1", Away::Wait) };
        let mut record = Record::begin("/b".as_ref(), "1");
        record.state = RecordState::InService;
        let judged = |record: &Record| judge(Some(record), of.clone(), true);
        assert!(matches!(judged(&record), Action::Follow(_)));
        assert!(matches!(judge(None, of.clone(), true), Action::Follow(_)));
        assert!(matches!(judge(None, of.clone(), false), Action::Copy(_)));
        record.distrusted = Some("EIO".into());
        assert!(matches!(judged(&record), Action::Copy("its disk has failed")));
        (record.distrusted, record.copy) = (None, "2".into());
        assert!(matches!(judged(&record), Action::Copy(_)));
    }

    #[test]
    fn trails_that_do_not_fit_are_refused() {
        let (a, b) = (Path::new("/a"), Path::new("/nowhere/b"));
        let check = |trail, found| check_trail(&MainDirectory { dir: a, trail, record: None }, b, found);
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
