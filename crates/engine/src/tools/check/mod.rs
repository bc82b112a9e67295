//! `holdfast check`: is everything in a stopped data directory as it must be? Nothing is changed, not a byte.
//!
//! | looked at | proof |
//! |---|---|
//! | trail | the recovery table ([`holdfast_trail::recovery`]): every boxcar's checksum, chain and durability proof |
//! | a standby's file `checkpoints` | readable; no file ahead of the trail |
//! | list of databases | readable; every volume in the trail known; every file listed there, none besides |
//! | each volume's file | header; every page's checksum; position against checkpoint records and boxcars |
//! | each volume after redo | as the next start would have it, redone in memory: integrity_check, every table's id |
//!
//! A pending checkpoint is read in place, a redo lives in memory and unlinked scratch files in the temporary
//! directory. A process that holds the directory open prevents the check, and the error says so.
//!
//! What is found is a *problem* when a start would refuse or acknowledged changes are missing, and a *note* when a start
//! puts it right by itself or it is the user's own affair.

mod volume;

use crate::api::new_history::RESTORING;
use crate::background::recovery::{self, Boxcars, Survey};
use crate::state::checkpoint_file::CheckpointFile;
use crate::state::manifest::{self, Entry, Manifest};
use crate::state::options::Options;
use holdfast_seams::Disk;
use holdfast_store::volume::Volume;
use holdfast_trail::{Boxcar, Dump, DumpItem, Inspection, TrailError, lock_without_opening};
use holdfast_types::{Lsn, VolumeId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Everything that was looked at and found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckReport {
    pub dir: String,
    /// `None` when the trail cannot be read or was never begun.
    pub trail: Option<TrailFound>,
    pub databases: Vec<DatabaseFound>,
    pub problems: Vec<String>,
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct TrailFound {
    pub trail_id: String,
    pub epoch: u32,
    pub segments: usize,
    /// The oldest position that can be read, and where the trail ends.
    pub first_lsn: u64,
    pub end_lsn: u64,
    pub boxcars: u64,
    pub bytes: u64,
    pub torn_bytes: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct DatabaseFound {
    pub name: String,
    pub file: String,
    /// Pages whose checksum was checked.
    pub pages: u64,
    /// A whole checkpoint waits in the `-wal` to be copied.
    pub checkpoint_pending: bool,
    /// The batch number of the file, including its `-wal`.
    pub number: Option<u64>,
    /// The number after redo.
    pub number_redone: Option<u64>,
    pub tables: usize,
    pub problems: Vec<String>,
    pub notes: Vec<String>,
}

impl CheckReport {
    /// No problem anywhere.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty() && self.databases.iter().all(|d| d.problems.is_empty())
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error("not a data directory: {dir} (it has neither databases.toml nor a trail)")]
    NotADirectory { dir: String },
    #[error("the directory {dir} does not exist; name a data directory with --data")]
    NoDirectory { dir: String },
    #[error(
        "the directory {dir} holds a restore that did not complete; run `holdfast restore` again, or remove the directory and \
         restore into another one"
    )]
    Restoring { dir: String },
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: String, source: std::io::Error },
    #[error(transparent)]
    InUse(TrailError),
}

/// A trail that is looked at, as far as recovery accepts it.
struct Looked<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    end: Lsn,
}

impl Boxcars for Looked<'_> {
    fn read_from(&self, from: Lsn) -> Result<impl Iterator<Item = Result<Boxcar, TrailError>>, TrailError> {
        let within = move |boxcar: &Boxcar| from <= boxcar.lsn && boxcar.lsn < self.end;
        Ok(Dump::open(self.disk, self.dir)?.filter_map(move |item| match item {
            Ok(DumpItem::Boxcar(boxcar)) => within(&boxcar).then_some(Ok(boxcar)),
            Ok(_) => None,
            Err(e) => Some(Err(e)),
        }))
    }
}

/// Checks a data directory that no server uses.
pub fn check(dir: &Path, options: &Options) -> Result<CheckReport, CheckError> {
    let disk = &*options.disk;
    let mut report = CheckReport { dir: dir.display().to_string(), ..CheckReport::default() };
    let trail_dir = dir.join("trail");
    let path = manifest::path(dir);
    // A directory that this user may not read is not an empty one.
    let has_manifest = match disk.metadata(&path) {
        Ok(found) => found.is_some(),
        Err(source) => return Err(CheckError::Io { what: "read", path: path.display().to_string(), source }),
    };
    if !dir.exists() {
        return Err(CheckError::NoDirectory { dir: report.dir });
    }
    if !options.restoring && dir.join(RESTORING).exists() {
        return Err(CheckError::Restoring { dir: report.dir });
    }
    if !trail_dir.is_dir() && !has_manifest {
        return Err(CheckError::NotADirectory { dir: report.dir });
    }
    let _lock = lock_without_opening(disk, &trail_dir).map_err(CheckError::InUse)?;
    let trail = check_trail(disk, &trail_dir, &mut report);
    let holds_records = report.trail.as_ref().is_some_and(|found| found.bytes > 0);
    let manifest = check_manifest(disk, dir, holds_records, &mut report);
    let local = check_local(disk, dir, &mut report);
    let survey = survey(trail.as_ref(), &manifest, local.as_ref(), &mut report);
    for entry in &manifest.databases {
        let known = trail.as_ref().map(|(looked, _)| looked).zip(survey.as_ref());
        report.databases.push(volume::check(dir, entry, options, known));
    }
    check_files(disk, dir, &manifest, &mut report)?;
    Ok(report)
}

/// The volumes as the next start would make them, in memory; one of which that cannot be said is absent.
pub(crate) fn as_started(dir: &Path, options: &Options, manifest: &Manifest) -> BTreeMap<VolumeId, Arc<Volume>> {
    let (disk, trail_dir, mut unheard) = (&*options.disk, dir.join("trail"), CheckReport::default());
    let trail = check_trail(disk, &trail_dir, &mut unheard);
    let local = check_local(disk, dir, &mut unheard);
    let survey = survey(trail.as_ref(), manifest, local.as_ref(), &mut unheard);
    let Some((looked, survey)) = trail.as_ref().map(|(looked, _)| looked).zip(survey.as_ref()) else {
        return BTreeMap::new();
    };
    let started = |entry: &Entry| Some((entry.volume(), volume::started(dir, entry, options, looked, survey)?));
    manifest.databases.iter().filter_map(started).collect()
}

fn check_trail<'a>(disk: &'a dyn Disk, dir: &'a Path, report: &mut CheckReport) -> Option<(Looked<'a>, Lsn)> {
    let inspection = match Inspection::of(disk, dir) {
        Ok(Some(inspection)) => inspection,
        Ok(None) => {
            report.notes.push("the trail was never begun; the next start makes it".to_owned());
            return None;
        }
        Err(e) => {
            report.problems.push(format!("trail: {e}"));
            return None;
        }
    };
    if inspection.torn_bytes > 0 {
        report.notes.push(format!(
            "trail: {} bytes behind LSN {} are torn and were never acknowledged; the next start saves them and cuts them off",
            inspection.torn_bytes, inspection.end
        ));
    }
    let looked = Looked { disk, dir, end: inspection.end };
    let (mut boxcars, mut bytes) = (0, 0);
    let read = looked.read_from(inspection.first).and_then(|mut all| {
        all.try_for_each(|boxcar| {
            bytes += boxcar?.body.len() as u64;
            boxcars += 1;
            Ok(())
        })
    });
    if let Err(e) = read {
        report.problems.push(format!("trail: {e}"));
    }
    report.trail = Some(TrailFound {
        trail_id: inspection.trail_id.to_string(),
        epoch: inspection.epoch.0,
        segments: inspection.segments.len(),
        first_lsn: inspection.first.0,
        end_lsn: inspection.end.0,
        boxcars,
        bytes,
        torn_bytes: inspection.torn_bytes,
    });
    Some((looked, inspection.first))
}

fn check_manifest(disk: &dyn Disk, dir: &Path, holds_records: bool, report: &mut CheckReport) -> Manifest {
    let unfinished = "the first start was interrupted; the next one completes it";
    match Manifest::read(disk, dir) {
        Ok(Some(manifest)) => {
            report.notes.extend(manifest.unfinished.then(|| unfinished.to_owned()));
            manifest
        }
        Ok(None) => {
            let path = manifest::path(dir).display().to_string();
            if !holds_records {
                report.notes.push(unfinished.to_owned());
            } else {
                report
                    .problems
                    .push(format!("{path} is missing, but the directory has a trail; put back a copy of it"));
            }
            Manifest::empty()
        }
        Err(e) => {
            report.problems.push(e.to_string());
            Manifest::empty()
        }
    }
}

/// What a standby knows of its own files, held against its trail.
fn check_local(disk: &dyn Disk, dir: &Path, report: &mut CheckReport) -> Option<CheckpointFile> {
    let local = match CheckpointFile::read(disk, dir) {
        Ok(local) => local?,
        Err(e) => {
            report.problems.push(e.to_string());
            return None;
        }
    };
    let end = Lsn(report.trail.as_ref().map_or(0, |trail| trail.end_lsn));
    report.problems.extend(local.refuse_ahead(dir, end).err().map(|e| e.to_string()));
    if local.is_standby() {
        report.notes.push("this is a standby's directory".to_owned());
        report.notes.extend(local.refuse_not_whole(dir, end).err().map(|e| e.to_string()));
    }
    Some(local)
}

/// What the trail says of each volume.
fn survey(
    trail: Option<&(Looked<'_>, Lsn)>,
    manifest: &Manifest,
    local: Option<&CheckpointFile>,
    report: &mut CheckReport,
) -> Option<Survey> {
    let (looked, first) = trail?;
    match recovery::survey(looked, *first, manifest, local) {
        Ok(survey) => Some(survey),
        Err(e) => {
            report.problems.push(e.to_string());
            None
        }
    }
}

/// Files that belong to no database.
fn check_files(disk: &dyn Disk, dir: &Path, manifest: &Manifest, report: &mut CheckReport) -> Result<(), CheckError> {
    let list = |sub: &str| {
        let dir = dir.join(sub);
        let listed = if dir.is_dir() { disk.list(&dir) } else { Ok(Vec::new()) };
        listed.map_err(|source| CheckError::Io { what: "list", path: dir.display().to_string(), source })
    };
    for name in list("volumes")? {
        let note = match manifest.owner(&name) {
            manifest::Owner::Listed => continue,
            manifest::Owner::Orphan => "belongs to no database; the next start removes it",
            manifest::Owner::Foreign => "was not made by Holdfast; it stays where it is",
        };
        report.notes.push(format!("volumes/{name} {note}"));
    }
    for name in list("trail")?.iter().filter(|name| name.ends_with(".tail")) {
        report
            .notes
            .push(format!("trail/{name} was cut off by an earlier start; remove it when it is no longer needed"));
    }
    Ok(())
}
