//! Base copies: read from the engine on the master's side, written to files on the standby's side.
//!
//! The link decides which pages are sent ([`holdfast_standby::base_copy`]), the engine which state they have
//! ([`holdfast_engine::BaseCopy`]). The engine's plan is sent as JSON inside the link's plan.
//!
//! On the standby's side pages are written to `volumes/NAME.db.new`, in any order, over what an interrupted copy has left
//! there. When all pages are written and verified, the engine checks each page again and makes the directory a standby's.
//!
//! Failure: an interrupted copy leaves its files; the command continues with them when it is run again.

use crate::certificates::{self, Certificates};
use crate::clear;
use crate::dialer::Dialer;
use crate::settings::SettingsFile;
use crate::standby_file::{StandbyFile, StandbyFileError};
use holdfast_engine::{BaseReceiver, CopyPlan as EnginePlan, Engine};
use holdfast_seams::{AlignedBuf, Create, Disk, DiskFile, OpenHow, RealDisk};
use holdfast_standby::base_copy::{BaseCopy, Copied, CopyInto, CopyProgress, copy};
use holdfast_standby::identity::Tip;
use holdfast_standby::message::{CopyPlan, CopyVolume};
use holdfast_standby::receive::Connect;
use holdfast_standby::tls::TlsError;
use holdfast_standby::{Identity, LinkError, LinkOptions};
use holdfast_trail::TrailError;
use holdfast_types::{Lsn, SqlError, SqlResult, SqlState};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a page.
const PAGE_BYTES: usize = 4096;

/// How often to check whether the trail's end is durable.
const DURABLE_PAUSE: Duration = Duration::from_millis(1);

/// A copy that is being sent.
struct Outgoing {
    copy: holdfast_engine::BaseCopy,
    plan: CopyPlan,
    volumes: Vec<CopyVolume>,
}

/// Begins to send a copy of all databases.
pub fn begin_copy(engine: &Engine) -> SqlResult<Box<dyn BaseCopy>> {
    let copy = engine.base_copy()?;
    let manifest = serde_json::to_string(copy.plan()).map_err(|e| failed(e.to_string()))?;
    send_copy(engine, copy, manifest)
}

fn failed(why: String) -> SqlError {
    SqlError::new(SqlState::IO_ERROR, why)
}

/// A copy to be sent, with what its receiver needs to know of it.
pub fn send_copy(engine: &Engine, copy: holdfast_engine::BaseCopy, manifest: String) -> SqlResult<Box<dyn BaseCopy>> {
    let plan = copy.plan();
    // Everything in the copy is below this end of the trail; wait until the end is durable.
    let (lsn, checksum) = engine.trail().tip();
    while engine.trail().durable() < lsn {
        std::thread::sleep(DURABLE_PAUSE);
    }
    let file = |place: usize| {
        let name = copy.file(place).and_then(|file| Path::new(file).file_name());
        name.map(|name| name.to_string_lossy().into_owned()).ok_or_else(|| failed(format!("place {place} has no file")))
    };
    let volumes = plan
        .volumes
        .iter()
        .enumerate()
        .map(|(place, v)| Ok(CopyVolume { volume: v.volume, file: file(place)?, pages: v.pages }))
        .collect::<SqlResult<Vec<_>>>()?;
    let start = Lsn(u64::from(plan.first_segment) * plan.segment_bytes + PAGE_BYTES as u64);
    let plan = CopyPlan {
        manifest,
        start,
        anchor: Tip { lsn, checksum },
        volumes: u32::try_from(volumes.len()).map_err(|e| failed(e.to_string()))?,
    };
    Ok(Box::new(Outgoing { copy, plan, volumes }))
}

impl BaseCopy for Outgoing {
    fn plan(&self) -> &CopyPlan {
        &self.plan
    }

    fn volumes(&self) -> &[CopyVolume] {
        &self.volumes
    }

    fn read(&mut self, volume: usize, first_page: u32, pages: u32, into: &mut Vec<u8>) -> io::Result<()> {
        let mut bytes = [0; PAGE_BYTES];
        for page in first_page + 1..=first_page + pages {
            self.copy.page(volume, page, &mut bytes).map_err(io::Error::other)?;
            into.extend_from_slice(&bytes);
        }
        Ok(())
    }
}

/// The target of a copy.
#[derive(Clone, Copy, Debug)]
pub struct CopyTo<'a> {
    /// The data directory; created when it does not exist.
    pub dir: &'a Path,
    /// The standby's name.
    pub name: &'a str,
}

#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("cannot start: {0}")]
    Runtime(#[source] io::Error),
    #[error("{0} is a data directory already; choose another directory for the copy")]
    InUse(PathBuf),
    #[error("{0:?} is not a valid standby name: use letters, digits, \"_\", \"-\" and \".\"; choose one with --name")]
    Name(String),
    #[error("cannot create the data directory {dir}: {source}", dir = .dir.display())]
    Directory { dir: PathBuf, source: io::Error },
    #[error("the copy from {from} failed: {error}; run the command again: it continues where it stopped")]
    Link { from: String, error: LinkError },
    #[error(transparent)]
    Trail(#[from] TrailError),
    #[error(transparent)]
    Certificates(#[from] TlsError),
    #[error(transparent)]
    StandbyFile(#[from] StandbyFileError),
    #[error("the certificates cannot be copied: {0}")]
    Install(#[source] io::Error),
}

/// Checks whether a copy may be written to a directory under this name; changes nothing.
pub fn check_target(to: CopyTo<'_>) -> Result<(), CopyError> {
    // A copy writes standby.toml first. A list of databases without that file belongs to a server whose trail is on a disk
    // that is not mounted.
    let is_masters = to.dir.join("databases.toml").exists() && StandbyFile::read(to.dir)?.is_none();
    if is_masters || BaseReceiver::is_in_use(&RealDisk::new(), to.dir)? {
        return Err(CopyError::InUse(to.dir.to_owned()));
    }
    holdfast_standby::link::check_name(to.name).map_err(|_| CopyError::Name(to.name.to_owned()))
}

/// Copies the server at HOST:PORT into a directory, which becomes a standby's. The node's files in `certificates`, if they are
/// given, are copied into it. Blocks; `progress` is called often.
pub fn copy_from(
    from: &str,
    to: CopyTo<'_>,
    certificates: Option<&Path>,
    settings: &dyn SettingsFile,
    progress: &(dyn Fn(CopyProgress) + Send + Sync),
) -> Result<Copied, CopyError> {
    check_target(to)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CopyError::Runtime)?;
    let announce = |anchor: Tip| {
        let (anchor_lsn, anchor_checksum) = (anchor.lsn.0, anchor.checksum);
        let file = StandbyFile { anchor_lsn, anchor_checksum, ..StandbyFile::of(from, to.name) };
        file.write(to.dir).map_err(io::Error::other)
    };
    // Before the master is reached: an attempt that ends here must not leave a directory that a start would serve as a new
    // master's.
    let made = MadeBefore::of(to.dir);
    mark_as_standby(from, to, settings)?;
    let connected = connect(&runtime, from, to.dir, certificates);
    if connected.is_err() {
        made.into_iter().for_each(MadeBefore::undo);
    }
    let connect = connected?;
    let copied = runtime.block_on(copy_over(&connect, to, &announce, progress));
    copied.map_err(|error| CopyError::Link { from: from.to_owned(), error })
}

/// Marks a directory as a standby's whose pages come from a dump, before the first of them: what it has is of the history in
/// which the boxcar that ends at `anchor` has that checksum. The master is not reached.
pub fn mark_for_dump(
    from: &str,
    to: CopyTo<'_>,
    anchor: Tip,
    given: Option<&Path>,
    settings: &dyn SettingsFile,
) -> Result<(), CopyError> {
    mark_as_standby(from, to, settings)?;
    let (anchor_lsn, anchor_checksum) = (anchor.lsn.0, anchor.checksum);
    StandbyFile { anchor_lsn, anchor_checksum, ..StandbyFile::of(from, to.name) }.write(to.dir)?;
    if let Some(given) = given {
        Certificates::read(given)?;
        certificates::install(given, to.dir).map_err(CopyError::Install)?;
    }
    Ok(())
}

/// Copies the certificates into the directory, and connects to the master once.
fn connect(
    runtime: &tokio::runtime::Runtime,
    from: &str,
    dir: &Path,
    given: Option<&Path>,
) -> Result<Dialer, CopyError> {
    if let Some(given) = given {
        Certificates::read(given)?;
        certificates::install(given, dir).map_err(CopyError::Install)?;
    }
    let connect = Dialer { address: from.to_owned(), certificates: Certificates::of(dir)? };
    let reached = runtime.block_on(connect.connect());
    reached.map_err(|error| CopyError::Link { from: from.to_owned(), error: LinkError::Io(error) })?;
    Ok(connect)
}

/// A directory in which there was nothing before the copy, so that a copy whose master is not reached leaves nothing.
struct MadeBefore<'a> {
    dir: &'a Path,
    existed: bool,
}

impl MadeBefore<'_> {
    /// `None`: there is something in the directory, which stays.
    fn of(dir: &Path) -> Option<MadeBefore<'_>> {
        match std::fs::read_dir(dir) {
            Ok(mut entries) => entries.next().is_none().then_some(MadeBefore { dir, existed: true }),
            Err(_) => Some(MadeBefore { dir, existed: false }),
        }
    }

    /// Removes what was made. What cannot be removed stays, and is still marked as a standby's.
    fn undo(self) {
        let certificates = self.dir.join(certificates::DIR_NAME);
        let removed = certificates::FILES.iter().try_for_each(|file| clear::remove(&certificates.join(file)));
        let removed = removed
            .and_then(|()| if certificates.is_dir() { std::fs::remove_dir(&certificates) } else { Ok(()) })
            .and_then(|()| clear::remove(&self.dir.join(crate::settings::FILE_NAME)))
            .and_then(|()| clear::remove(&self.dir.join(crate::standby_file::FILE_NAME)))
            .and_then(|()| if self.existed { Ok(()) } else { std::fs::remove_dir(self.dir) });
        if let Err(error) = removed {
            tracing::warn!("cannot remove what was begun in {}: {error}", self.dir.display());
        }
    }
}

/// Marks the directory as a standby's, before the first page and before the master keeps anything for it: if an interrupted
/// copy was served, it would look like an empty directory and become a new master.
fn mark_as_standby(from: &str, to: CopyTo<'_>, settings: &dyn SettingsFile) -> Result<(), CopyError> {
    let failed = |source| CopyError::Directory { dir: to.dir.to_owned(), source };
    RealDisk::new().create_dir(to.dir).map_err(failed)?;
    // Before the settings: a directory with settings only would be served as a new master's. A repeated copy has the file
    // already, with the position of the copy before.
    if StandbyFile::read(to.dir)?.is_none() {
        StandbyFile::of(from, to.name).write(to.dir)?;
    }
    settings.create(to.dir, to.name).map_err(failed)
}

/// Records that a directory is a standby's, and the end of the trail at which its copy was taken.
pub type Announce<'a> = &'a (dyn Fn(Tip) -> io::Result<()> + Send + Sync);

/// Copies over any link. `announce` is called before the directory looks like a data directory.
pub async fn copy_over<C: Connect>(
    connect: &C,
    to: CopyTo<'_>,
    announce: Announce<'_>,
    progress: &(dyn Fn(CopyProgress) + Send + Sync),
) -> Result<Copied, LinkError> {
    let disk = Arc::new(RealDisk::new());
    let mut into = Incoming { to, announce, progress, disk, plan: None, files: Vec::new(), synced: Vec::new() };
    copy(connect, to.name, 0, &mut into, &LinkOptions::default()).await
}

/// A copy that is being received.
struct Incoming<'a> {
    to: CopyTo<'a>,
    announce: Announce<'a>,
    progress: &'a (dyn Fn(CopyProgress) + Send + Sync),
    disk: Arc<dyn Disk>,
    plan: Option<(EnginePlan, Tip)>,
    files: Vec<(PathBuf, Box<dyn DiskFile>)>,
    /// The copied files, opened past the page cache after everything was synced: so the disk itself is verified.
    synced: Vec<Box<dyn DiskFile>>,
}

impl Incoming<'_> {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(path, &OpenHow { create: Create::IfMissing, write: true, ..OpenHow::default() })
    }
}

impl CopyInto for Incoming<'_> {
    fn begin(&mut self, _: &Identity, plan: &CopyPlan, volumes: &[CopyVolume]) -> io::Result<()> {
        let parsed: EnginePlan = serde_json::from_str(&plan.manifest).map_err(io::Error::other)?;
        let names = parsed.volumes.iter().map(|v| (v.volume, v.pages));
        if !names.eq(volumes.iter().map(|v| (v.volume, v.pages))) {
            return Err(io::Error::other("the two lists of databases in the plan differ"));
        }
        let dir = self.to.dir.join("volumes");
        self.disk.create_dir(self.to.dir)?;
        self.disk.create_dir(&dir)?;
        self.files.clear();
        self.synced.clear();
        for volume in volumes {
            let path = dir.join(format!("{}.new", volume.file));
            let file = self.open(&path)?;
            let (bytes, wanted) = (file.len_bytes()?, u64::from(volume.pages) * PAGE_BYTES as u64);
            if bytes > wanted {
                file.set_len(wanted)?;
            }
            self.files.push((path, file));
        }
        self.plan = Some((parsed, plan.anchor));
        Ok(())
    }

    fn read(&mut self, volume: usize, first_page: u32, pages: u32, into: &mut Vec<u8>) -> io::Result<()> {
        let mut bytes = AlignedBuf::zeroed(pages as usize * PAGE_BYTES);
        let file = self.synced.get(volume).unwrap_or(&self.files[volume].1);
        let n = file.read_at(bytes.as_mut_slice(), u64::from(first_page) * PAGE_BYTES as u64)?;
        into.extend_from_slice(&bytes.as_slice()[..n]);
        Ok(())
    }

    fn write(&mut self, volume: usize, first_page: u32, pages: &[u8]) -> io::Result<()> {
        self.files[volume].1.write_at(&[IoSlice::new(pages)], u64::from(first_page) * PAGE_BYTES as u64)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.synced.clear();
        for (path, file) in &self.files {
            file.sync_all()?;
            self.synced.push(self.disk.open(path, &OpenHow::READ_DIRECT)?);
        }
        self.disk.sync_dir(&self.to.dir.join("volumes"))
    }

    fn finish(&mut self) -> io::Result<()> {
        let Some((plan, anchor)) = self.plan.take() else { return Err(io::Error::other("the copy has no plan")) };
        self.files.clear();
        self.synced.clear();
        // standby.toml first: without it a directory that looks complete could be served as a master's.
        (self.announce)(anchor)?;
        let volumes = plan.volumes.len();
        let mut receiver = BaseReceiver::begin(self.disk.clone(), self.to.dir, plan).map_err(io::Error::other)?;
        for _ in 0..volumes {
            receiver.adopt().map_err(io::Error::other)?;
        }
        receiver.finish().map_err(io::Error::other)
    }

    fn progress(&mut self, done: CopyProgress) {
        (self.progress)(done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(dir: &Path) -> Result<(), CopyError> {
        check_target(CopyTo { dir, name: "b" })
    }

    #[test]
    fn a_copy_goes_only_where_no_server_is() {
        let dir = tempfile::tempdir().unwrap();
        target(&dir.path().join("absent")).unwrap();
        target(dir.path()).unwrap();
        assert!(matches!(check_target(CopyTo { dir: dir.path(), name: "a/b" }), Err(CopyError::Name(_))));
        std::fs::write(dir.path().join("databases.toml"), "").unwrap();
        assert!(
            matches!(target(dir.path()), Err(CopyError::InUse(_))),
            "its trail may be on a disk that is not mounted"
        );
        StandbyFile::of("h:1", "b").write(dir.path()).unwrap();
        // What a standby writes before its list of databases.
        std::fs::write(dir.path().join("checkpoints"), "").unwrap();
        target(dir.path()).unwrap();
    }

    #[test]
    fn a_copy_whose_master_is_not_reached_leaves_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let begin = |dir: &Path| {
            let made = MadeBefore::of(dir);
            std::fs::create_dir_all(dir.join(certificates::DIR_NAME)).unwrap();
            std::fs::write(dir.join(certificates::DIR_NAME).join(certificates::FILES[0]), "").unwrap();
            StandbyFile::of("h:1", "b").write(dir).unwrap();
            std::fs::write(dir.join(crate::settings::FILE_NAME), "").unwrap();
            made.into_iter().for_each(MadeBefore::undo);
        };
        let absent = dir.path().join("absent");
        begin(&absent);
        assert!(!absent.exists());
        let empty = dir.path().join("empty");
        std::fs::create_dir(&empty).unwrap();
        begin(&empty);
        assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0);
        let used = dir.path().join("used");
        std::fs::create_dir(&used).unwrap();
        std::fs::write(used.join("mine"), "").unwrap();
        begin(&used);
        assert!(used.join("mine").exists() && StandbyFile::read(&used).unwrap().is_some(), "nothing of it is removed");
    }
}
