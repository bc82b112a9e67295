//! A data directory from a dump, with the archive's trail applied to it up to a chosen moment.
//!
//! | step | a kill after it leaves |
//! |---|---|
//! | the file `restoring` is written ([`mark`]) | a directory that no server opens; the command begins again there |
//! | dump, target and the archive's objects are looked up; what cannot be reached is refused here, and the file removed | the same |
//! | chunks are fetched, checked, and written to the databases' files ([`lay`]) | the same; the next run fetches what is missing |
//! | the directory follows the archive's trail as a standby does, up to the target ([`roll`]) | the same |
//! | the directory begins a history of its own: another trail id, the next epoch | the same |
//! | settings are written, `restoring` is removed | a master's directory |
//!
//! Which commits are in: those in front of one place in the trail's order, and no others. A commit over several databases is
//! in with all its parts or with none.
//!
//! | target | the place |
//! |---|---|
//! | none | the archive's end |
//! | `--to-lsn L` | behind the last boxcar that ends at or before L |
//! | `--to-time T` | in front of the first commit whose clock reading is later than T. The commit clock is in the trail and never goes back in a database, whatever the machine's clock does |
//! | `--to-transaction ID` | behind that commit |
//! | `--before-transaction ID` | in front of that commit |
//!
//! Failure: an object that is missing or damaged is named with the moment that can be reached without it.

mod chain;
mod dropped;
mod error;
mod follow;
mod lay;
mod lazy;
mod look;
mod mark;
mod options;
mod pages;
mod part;
mod roll;
mod target;
mod trails;

use crate::archive_settings::ConfiguredArchive;
use crate::error::DumpError;
use crate::manifest::{Head, Manifest};
use crate::moment::show_moment;
use crate::repository::Repository;
use crate::running::random;
use crate::send::FILES;
use chain::Chain;
pub use dropped::{DroppedBy, find_drop};
pub use error::RestoreError;
pub use follow::{FollowerMade, NewFollower, NewStandby, follower_from_dump};
use holdfast_archive::{ArchiveLocation, Store};
use holdfast_engine::{BaseReceiver, Options, RESTORING, begin_new_history};
use holdfast_seams::{Disk, RealDisk, replace};
use holdfast_trail::TrailId;
pub use lazy::LazyDisk;
pub use look::{Look, look};
use mark::AtWork;
use options::io_error;
pub use options::{RestoreOptions, Step};
pub use part::{Part, restore_part};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
pub use target::Target;

/// A directory that is restored.
#[derive(Serialize, Debug)]
pub struct Restored {
    pub dir: String,
    pub dump: String,
    pub dump_lsn: u64,
    /// The place in the old trail at which the restore ends.
    pub lsn: u64,
    /// The commit clock there, milliseconds since 1970-01-01 UTC: nothing in it is later.
    pub clock_unix_ms: u64,
    pub old_trail: String,
    pub new_trail: String,
    /// Where the new trail begins.
    pub new_lsn: u64,
    pub databases: usize,
    /// Why a dump that is newer than the one that was used cannot be read.
    pub unreadable_dump: Option<String>,
    /// Bytes of the databases in the dump, and of trail that was applied.
    pub bytes: u64,
    pub trail_bytes: u64,
    pub dump_seconds: f64,
    pub trail_seconds: f64,
}

/// Restores. Blocks; `progress` is called often.
pub fn restore(
    repository: &Repository,
    options: &RestoreOptions<'_>,
    progress: &(dyn Fn(Step) + Sync),
) -> Result<Restored, DumpError> {
    let disk = Arc::new(RealDisk::new());
    let at_work = AtWork::begin(&*disk, options.dir)?;
    let looked_up = look_up(repository, options);
    let (choice, manifest, chain) = at_work.keep_if(&*disk, looked_up)?;
    let began = Instant::now();
    at_work.clear(&*disk)?;
    let receiver = BaseReceiver::begin(disk.clone(), options.dir, manifest.head.plan.clone())?;
    let laid = lay::lay(repository, &manifest, &choice.dump, &*disk, options, progress)?;
    lay::adopt(receiver, laid)?;
    let dump_seconds = began.elapsed().as_secs_f64();
    let began = Instant::now();
    let plan = &manifest.head.plan;
    let engine_options = Options { segment_bytes: plan.segment_bytes, restoring: true, ..Options::default() };
    let mut reached =
        roll::Reached { lsn: manifest.head.lsn(), clock_unix_ms: manifest.head.clock_unix_ms(), bytes: 0 };
    if let (Some(chain), Some(store)) = (&chain, &choice.archive) {
        reached = roll::roll_forward(
            &**store,
            chain,
            (&choice.dump, &manifest.head),
            options,
            &engine_options,
            (roll::Reads::Fast, progress),
        )?;
    }
    let trail_seconds = began.elapsed().as_secs_f64();
    let (new_trail, new_lsn) = begin_new_history(options.dir, engine_options, new_trail_id(options.dir)?)?;
    end(&*disk, options.dir, &manifest.head)?;
    Ok(Restored {
        dir: options.dir.display().to_string(),
        dump: choice.dump,
        dump_lsn: manifest.head.lsn(),
        lsn: reached.lsn,
        clock_unix_ms: reached.clock_unix_ms,
        old_trail: manifest.head.trail_id(),
        new_trail: new_trail.to_string(),
        new_lsn: new_lsn.0,
        databases: plan.volumes.len(),
        unreadable_dump: choice.unreadable.map(|error| error.to_string()),
        bytes: manifest.head.bytes,
        trail_bytes: reached.bytes,
        dump_seconds,
        trail_seconds,
    })
}

/// What is restored: the dump, its manifest, and the archive's objects behind it.
fn look_up(
    repository: &Repository,
    options: &RestoreOptions<'_>,
) -> Result<(Choice, Manifest, Option<Chain>), DumpError> {
    let mut choice = choose(repository, options)?;
    let manifest = repository.manifest(&choice.dump)?;
    let chain = choice.chain(&manifest, options)?;
    Ok((choice, manifest, chain))
}

/// The dump, and the archive.
struct Choice {
    dump: String,
    /// Of a dump that is newer than that one.
    unreadable: Option<DumpError>,
    archive: Option<Arc<dyn Store>>,
}

impl Choice {
    /// The archive's objects up to the target; `None`: the dump alone is what is wanted.
    fn chain(&mut self, manifest: &Manifest, options: &RestoreOptions<'_>) -> Result<Option<Chain>, DumpError> {
        let head = &manifest.head;
        let alone = matches!(options.target, Target::Lsn(lsn) if lsn == head.lsn());
        let chain = match &self.archive {
            Some(store) if !alone => chain::find(&**store, head, &self.dump, options)?,
            Some(_) => None,
            None if alone || options.target == Target::End => None,
            None => return Err(RestoreError::NoArchive { target: options.target }.into()),
        };
        let place = || self.archive.as_ref().map_or_else(String::new, |store| store.place().to_owned());
        match (&chain, options.target) {
            // What is newer in that dump is nowhere else.
            (None, Target::End) => match self.unreadable.take() {
                Some(error) => Err(error),
                None => Ok(chain),
            },
            // The archive has nothing behind the dump.
            (None, target) if !alone => Err(RestoreError::Beyond {
                place: place(),
                target,
                reached: head.lsn(),
                moment: show_moment(head.clock_unix_ms()),
            }
            .into()),
            _ => Ok(chain),
        }
    }
}

/// Dumps of one trail.
struct Dumps {
    /// The oldest first; at least one.
    readable: Vec<(String, Head)>,
    /// The newest one that cannot be read, and why.
    unreadable: Option<(String, DumpError)>,
}

/// The dumps that may be begun with.
fn matching_dumps(repository: &Repository, options: &RestoreOptions<'_>) -> Result<Dumps, DumpError> {
    let place = repository.place().to_owned();
    let mut dumps: Vec<(String, Head)> = Vec::new();
    let mut unreadable = None;
    for listing in repository.dumps()? {
        match listing.head {
            Ok(head) => dumps.push((listing.name, head)),
            Err(error) if options.dump == Some(&listing.name) => return Err(error),
            Err(error) => unreadable = Some((listing.name, error)),
        }
    }
    dumps.retain(|(name, head)| {
        options.dump.is_none_or(|only| only == name) && options.trail.is_none_or(|trail| trail == head.trail_id())
    });
    if dumps.is_empty() {
        let which = options.dump.or(options.trail).map_or_else(String::new, |which| format!(" {which}"));
        return Err(unreadable.map_or(DumpError::NoDump { place, which }, |(_, error)| error));
    }
    let trails = trails::describe(&dumps);
    if trails.len() > 1 {
        return Err(RestoreError::SeveralTrails { place, trails }.into());
    }
    dumps.sort_by_key(|(_, head)| (head.lsn(), head.taken_unix_ms));
    Ok(Dumps { readable: dumps, unreadable: unreadable.filter(|_| options.dump.is_none()) })
}

/// Chooses the dump by the target.
fn choose(repository: &Repository, options: &RestoreOptions<'_>) -> Result<Choice, DumpError> {
    let place = repository.place().to_owned();
    let Dumps { readable: dumps, unreadable } = matching_dumps(repository, options)?;
    let archive = open_archive(repository, options, dumps.last().map(|(_, head)| head))?;
    let bound = match options.target {
        Target::Transaction { id, .. } => match &archive {
            None => return Err(RestoreError::NoArchive { target: options.target }.into()),
            Some(store) => {
                let trail_id = dumps[0].1.plan.trail_id;
                let found = chain::find_transaction(&**store, TrailId(trail_id), id, options.threads)?;
                let missing =
                    || RestoreError::NoTransaction { place: store.place().to_owned(), target: options.target };
                Target::Lsn(found.ok_or_else(missing)?.0)
            }
        },
        target => target,
    };
    let fits = |head: &Head| match bound {
        Target::Lsn(lsn) => head.lsn() == lsn || chain::bound(head).0 <= lsn,
        // A dump of changes without a reading of the clock may have later ones: earlier builds lost it at a restart.
        Target::Time(unix_ms) => {
            let is_known = head.clock_unix_ms() > 0 || head.plan.volumes.iter().all(|volume| volume.number == 0);
            is_known && head.clock_unix_ms() <= unix_ms
        }
        Target::End | Target::Transaction { .. } => true,
    };
    if let Some((name, _)) = dumps.iter().rev().find(|(_, head)| fits(head)) {
        // A name begins with the time.
        let unreadable = unreadable.filter(|(newer, _)| newer > name).map(|(_, error)| error);
        if let Some(error) = &unreadable {
            tracing::warn!("a newer dump cannot be read: {error}");
        }
        return Ok(Choice { dump: name.clone(), unreadable, archive });
    }
    let (name, oldest) = &dumps[0];
    let (target, lsn) = (options.target, oldest.lsn());
    Err(match options.dump {
        Some(_) => RestoreError::BeforeDump { dump: name.clone(), lsn, target },
        None => {
            let oldest = show_moment(oldest.clock_unix_ms());
            RestoreError::BeforeAllDumps { place, target, oldest_lsn: lsn, oldest }
        }
    }
    .into())
}

/// The archive that is named, or the one in the newest dump's settings.
fn open_archive(
    repository: &Repository,
    options: &RestoreOptions<'_>,
    newest: Option<&Head>,
) -> Result<Option<Arc<dyn Store>>, DumpError> {
    let configured = newest.map(ConfiguredArchive::of).transpose();
    // Settings that cannot be read are not needed where the archive is named.
    let configured = match options.archive {
        Some(_) => configured.unwrap_or_default(),
        None => configured?,
    };
    let configured = configured.unwrap_or_default();
    let place = options.archive.unwrap_or(&configured.place);
    let keys = repository.archive_keys(configured.is_encrypted && place == configured.place);
    Ok(match ArchiveLocation::parse(place)? {
        Some(location) => Some(location.open_with(Arc::new(RealDisk::new()), "restore", keys)?),
        None => None,
    })
}

/// Writes settings of the dump that are not there.
fn write_files<'a>(
    disk: &dyn Disk,
    dir: &Path,
    files: impl Iterator<Item = (&'a String, &'a String)>,
) -> Result<(), RestoreError> {
    for (name, text) in files {
        // The names come from outside: others would decide what the server does with the directory.
        if !FILES.contains(&name.as_str()) {
            return Err(RestoreError::Settings(format!("{name:?} is not the name of a settings file")));
        }
        let path = dir.join(name);
        if disk.metadata(&path).map_err(io_error("look at", &path))?.is_none() {
            replace(disk, &path, text.as_bytes()).map_err(|e| io_error("write", &path)(e.into()))?;
        }
    }
    Ok(())
}

/// Writes the settings; the last step makes the directory one that servers open.
fn end(disk: &dyn Disk, dir: &Path, head: &Head) -> Result<(), RestoreError> {
    write_files(disk, dir, head.files.iter())?;
    let mark = dir.join(RESTORING);
    disk.remove(&mark).map_err(io_error("remove", &mark))?;
    disk.sync_dir(dir).map_err(io_error("sync", dir))
}

fn new_trail_id(dir: &Path) -> Result<TrailId, RestoreError> {
    let random = || random().map_err(io_error("find a trail id for", dir));
    let (first, second) = (random()?.to_le_bytes(), random()?.to_le_bytes());
    let mut id = [0; 16];
    id[..8].copy_from_slice(&first);
    id[8..].copy_from_slice(&second);
    Ok(TrailId(id))
}
