//! The standby's side of a base copy: writes the directory. Nothing that arrives is believed before it is checked.
//!
//! Failure: a copy that does not come to its end leaves a directory without a list of databases and a trail, which no server
//! opens; the copy is begun again there.

use super::{CopyPlan, PageBytes, VolumePlan};
use crate::state::checkpoint_file::{CheckpointFile, LocalCheckpoint};
use crate::state::clock_file;
use crate::state::error::OpenError;
use crate::state::manifest::{Entry, Manifest};
use holdfast_seams::{Create, Disk, DiskFile, OpenHow};
use holdfast_store::pages::{PAGE_BYTES, checksum, offset_of};
use holdfast_store::volume::{LOCK_BYTE_PAGE, VolumeError, stamp_of};
use holdfast_trail::{FollowFrom, Inspection, Trail, TrailError, TrailId};
use holdfast_types::record::Checkpoint;
use holdfast_types::{Hlc, Lsn, VolumeId};
use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Databases in one copy: more than a directory ever has.
const VOLUMES_MAX: usize = 1_000_000;

/// Why a base copy was not taken. The directory is no standby's.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("{dir} is a data directory already; take the base copy into another one")]
    NotEmpty { dir: String },
    #[error("the master's plan of the base copy is not sound: {0}")]
    Plan(String),
    #[error("page {page} of database {name} arrived damaged; take the base copy again")]
    Page { name: String, page: u32 },
    #[error("the base copy has {missing} pages of database {name} too few")]
    Missing { name: String, missing: u32 },
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: String, source: io::Error },
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    Trail(#[from] TrailError),
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// A base copy on its way into a directory.
pub struct BaseReceiver {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    plan: CopyPlan,
    manifest: Manifest,
    /// The file at work: the place of its volume in the plan, and the next page.
    file: Option<(usize, u32, Box<dyn DiskFile>)>,
    /// Volumes whose file is complete.
    done: Vec<LocalCheckpoint>,
}

fn io_error<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> CopyError + 'a {
    move |source| CopyError::Io { what, path: path.display().to_string(), source }
}

impl BaseReceiver {
    /// Begins a copy into `dir`, which is made when it does not exist.
    pub fn begin(disk: Arc<dyn Disk>, dir: &Path, plan: CopyPlan) -> Result<BaseReceiver, CopyError> {
        let manifest = check(&plan)?;
        if BaseReceiver::is_in_use(&*disk, dir)? {
            return Err(CopyError::NotEmpty { dir: dir.display().to_string() });
        }
        for sub in ["", "volumes", "scratch"] {
            let sub = dir.join(sub);
            disk.create_dir(&sub).map_err(io_error("create", &sub))?;
        }
        // What a copy has left that was interrupted at its end; the second one shows that it was one.
        for path in [crate::state::manifest::path(dir), crate::state::checkpoint_file::path(dir)] {
            match disk.remove(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(io_error("remove", &path)(e)),
                _ => disk.sync_dir(dir).map_err(io_error("sync", dir))?,
            }
        }
        Ok(BaseReceiver { disk, dir: dir.to_owned(), plan, manifest, file: None, done: Vec::new() })
    }

    /// Whether a plan can be a copy's: positions, and names of files in the data directory. Nothing of it is used before.
    pub fn check_plan(plan: &CopyPlan) -> Result<(), CopyError> {
        check(plan).map(drop)
    }

    /// Whether a directory is a master's or a standby's. One that is not may hold what an interrupted copy has left, and a
    /// copy replaces that: its trail was never founded.
    ///
    /// An error says that it was one's, and is damaged.
    pub fn is_in_use(disk: &dyn Disk, dir: &Path) -> Result<bool, TrailError> {
        let is_there = |path: PathBuf| match disk.metadata(&path) {
            Ok(found) => Ok(found.is_some()),
            Err(source) => Err(TrailError::Io { what: "look at", path, source }),
        };
        let trail = dir.join("trail");
        match Inspection::of(disk, &trail) {
            Ok(None) => {}
            Err(TrailError::Io { path, source, .. }) if path == trail && source.kind() == io::ErrorKind::NotFound => {}
            found => return found.map(|_| true),
        }
        // A copy writes the list of databases last: by itself it is that of a master whose trail is away.
        Ok(is_there(crate::state::manifest::path(dir))? && !is_there(crate::state::checkpoint_file::path(dir))?)
    }

    pub fn plan(&self) -> &CopyPlan {
        &self.plan
    }

    fn entry(&self, place: usize) -> &Entry {
        &self.manifest.databases[place]
    }

    fn path(&self, place: usize) -> PathBuf {
        self.dir.join(&self.entry(place).file)
    }

    /// The next page: all of the first volume of the plan, then all of the next.
    pub fn page(&mut self, bytes: &PageBytes) -> Result<(), CopyError> {
        let place = self.done.len();
        let Some(volume) = self.plan.volumes.get(place).copied() else {
            return Err(CopyError::Plan("more pages arrived than it has".to_owned()));
        };
        let (at, page, file) = match self.file.take() {
            Some(file) => file,
            None => (place, 1, self.create(place)?),
        };
        // SQLite never uses the page of its lock bytes.
        if page != LOCK_BYTE_PAGE && !checksum::holds(bytes, page, volume.volume) {
            return Err(CopyError::Page { name: self.entry(place).name.clone(), page });
        }
        let path = self.path(place);
        file.write_at(&[IoSlice::new(bytes)], offset_of(page)).map_err(io_error("write", &path))?;
        if page < volume.pages {
            self.file = Some((at, page + 1, file));
            return Ok(());
        }
        self.finish_volume(place, volume, &*file)
    }

    /// The next volume of the plan, whose pages are already in `NAME.db.new`: checks each, and takes it.
    pub fn adopt(&mut self) -> Result<(), CopyError> {
        let place = self.done.len();
        let Some(volume) = self.plan.volumes.get(place).copied() else {
            return Err(CopyError::Plan("more databases arrived than it has".to_owned()));
        };
        let new = self.new_path(place);
        let how = OpenHow { write: true, ..OpenHow::default() };
        let file = self.disk.open(&new, &how).map_err(io_error("open", &new))?;
        let mut bytes = [0; PAGE_BYTES];
        for page in 1..=volume.pages {
            let n = file.read_at(&mut bytes, offset_of(page)).map_err(io_error("read", &new))?;
            if page != LOCK_BYTE_PAGE && (n < PAGE_BYTES || !checksum::holds(&bytes, page, volume.volume)) {
                return Err(CopyError::Page { name: self.entry(place).name.clone(), page });
            }
        }
        self.finish_volume(place, volume, &*file)
    }

    /// The next volume of the plan, whose file `NAME.db.new` has its pages when they are read: takes it as it is. Its disk checks
    /// each page that it provides.
    pub fn adopt_unread(&mut self) -> Result<(), CopyError> {
        let place = self.done.len();
        let Some(volume) = self.plan.volumes.get(place).copied() else {
            return Err(CopyError::Plan("more databases arrived than it has".to_owned()));
        };
        let new = self.new_path(place);
        let how = OpenHow { write: true, ..OpenHow::default() };
        let file = self.disk.open(&new, &how).map_err(io_error("open", &new))?;
        self.finish_volume(place, volume, &*file)
    }

    fn new_path(&self, place: usize) -> PathBuf {
        self.path(place).with_extension("db.new")
    }

    fn create(&self, place: usize) -> Result<Box<dyn DiskFile>, CopyError> {
        let new = self.new_path(place);
        let how = OpenHow { create: Create::IfMissing, write: true, ..OpenHow::default() };
        let file = self.disk.open(&new, &how).map_err(io_error("create", &new))?;
        file.set_len(0).map_err(io_error("create", &new))?;
        Ok(file)
    }

    fn finish_volume(&mut self, place: usize, volume: VolumePlan, file: &dyn DiskFile) -> Result<(), CopyError> {
        let (new, path) = (self.new_path(place), self.path(place));
        file.sync_all().map_err(io_error("sync", &new))?;
        self.disk.rename(&new, &path).map_err(io_error("rename", &new))?;
        let dir = self.dir.join("volumes");
        self.disk.sync_dir(&dir).map_err(io_error("sync", &dir))?;
        let stamp = stamp_of(&*self.disk, &path)?;
        let checkpoint = Checkpoint {
            volume: VolumeId(volume.volume),
            number: volume.number,
            redo_start: Lsn(volume.redo_start),
            file_size_bytes: stamp.bytes,
            file_mtime_ns: stamp.modified_unix_ns as i64,
        };
        self.done.push(LocalCheckpoint { checkpoint, end: Lsn(0) });
        Ok(())
    }

    /// All pages have come: makes the directory a standby's.
    pub fn finish(self) -> Result<(), CopyError> {
        let place = self.done.len();
        if let Some(volume) = self.plan.volumes.get(place) {
            let came = self.file.as_ref().map_or(0, |(_, next, _)| next - 1);
            return Err(CopyError::Missing { name: self.entry(place).name.clone(), missing: volume.pages - came });
        }
        let local = CheckpointFile {
            own_from: None,
            listed_to: Lsn(self.plan.listed_to),
            whole_from: Lsn(self.plan.whole_from),
            list_end: Lsn(0),
            volumes: self.done.iter().map(|v| (v.checkpoint.volume, *v)).collect(),
        };
        let path = crate::state::checkpoint_file::path(&self.dir);
        local.write(&*self.disk, &self.dir).map_err(io_error("write", &path))?;
        if self.plan.clock > 0 {
            let path = clock_file::path(&self.dir);
            clock_file::write(&*self.disk, &self.dir, Hlc(self.plan.clock)).map_err(io_error("write", &path))?;
        }
        let path = crate::state::manifest::path(&self.dir);
        self.manifest.write(&*self.disk, &self.dir).map_err(io_error("write", &path))?;
        let from = FollowFrom {
            trail_id: TrailId(self.plan.trail_id),
            segment_bytes: self.plan.segment_bytes,
            first_segment: self.plan.first_segment,
            epoch: self.plan.epoch(),
        };
        Ok(Trail::found(&*self.disk, &self.dir.join("trail"), &from)?)
    }
}

/// Everything about a plan that can be checked without its pages.
fn check(plan: &CopyPlan) -> Result<Manifest, CopyError> {
    let refuse = |why: &str| Err(CopyError::Plan(why.to_owned()));
    let manifest = Manifest::parse(&plan.manifest).map_err(CopyError::Plan)?;
    if plan.clock > i64::MAX as u64 {
        return refuse("its clock reads a time that is not possible");
    }
    if manifest.unfinished {
        return refuse("its list of databases is not finished");
    }
    if manifest.databases.len() != plan.volumes.len() || plan.volumes.len() > VOLUMES_MAX {
        return refuse("its volumes are not those of its list of databases");
    }
    for (entry, volume) in manifest.databases.iter().zip(&plan.volumes) {
        if entry.id != volume.volume || entry.id == 0 || entry.id >= manifest.next_id {
            return refuse("its volumes are not those of its list of databases");
        }
        let name = entry.file.strip_prefix("volumes/").filter(|name| !name.contains(['/', '\\', '\0']));
        if !name.is_some_and(|name| name.starts_with(&format!("{:06}-", entry.id)) && name.ends_with(".db")) {
            return refuse("the file of a database has another name than such a file has");
        }
        if volume.pages == 0 {
            return refuse("a database has no pages");
        }
    }
    let ids: BTreeSet<u32> = manifest.databases.iter().map(|e| e.id).collect();
    let names: BTreeSet<&str> = manifest.databases.iter().map(|e| e.name.as_str()).collect();
    if ids.len().min(names.len()) < manifest.databases.len() {
        return refuse("two databases have the same name or number");
    }
    Ok(manifest)
}
