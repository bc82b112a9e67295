//! `holdfast rejoin`: a server that was deposed comes back as a standby of the one that took its place.
//!
//! | its trail | then |
//! |---|---|
//! | the new master has all of it | it follows from where it ends |
//! | it has an end that the new master has not | that is written down as SQL, cut off and saved aside |
//! | that end made or dropped tables or databases | it is written down; the databases are copied anew, only what differs travels |
//! | after the cut its files hold more than its trail | the databases are copied anew |
//! | it ends before what its base copy needs | the same |
//! | the new master no longer keeps what it would be compared with | all that it keeps itself is written down, because some of it may be lost; the databases are copied anew |
//! | there is nothing in common | the same |
//!
//! The server must be stopped, and the other one a master. Every step can be done again: after a failure the command is
//! run once more. The order is: written down and synced; `standby.toml`; cut. A directory that is cut and not yet a
//! standby's could be served as a master without what was acknowledged.
//!
//! Nothing is dropped silently: the SQL file is complete and synced before anything is cut, and never overwritten.

use super::reach::Reach;
use super::{AskError, Asking, Certificates, CopyError, CopyTo, StandbyFile, StandbyFileError, copy_from, options_of};
use holdfast_engine::trail_dump::{self, Script};
use holdfast_engine::{BaseReceiver, Engine, OpenError, Options};
use holdfast_seams::{RealClock, RealDisk};
use holdfast_standby::base_copy::Progress;
use holdfast_standby::pairing::Finding;
use holdfast_standby::receive::compare;
use holdfast_standby::tls::TlsError;
use holdfast_standby::{Identity, LinkError};
use holdfast_trail::boxcar::FORMAT_VERSION;
use holdfast_trail::{Trail, TrailError, TrailOptions};
use holdfast_types::Lsn;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long the old trail's end may take to be applied.
const APPLY_MAX: Duration = Duration::from_secs(600);

#[derive(Debug, thiserror::Error)]
pub enum RejoinError {
    #[error("{0} is no data directory")]
    NoDirectory(PathBuf),
    #[error("{from} is not the master to come back to: {why}; promote it first, or name the server that was promoted")]
    NoMaster { from: String, why: String },
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("cannot start: {0}")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    Trail(#[from] TrailError),
    #[error("{from}: {error}")]
    Link { from: String, error: LinkError },
    #[error("cannot write {path}: {source}; nothing was cut")]
    Lost { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("cannot make way for a new copy: {0}")]
    MakeWay(#[source] io::Error),
    #[error(transparent)]
    Certificates(#[from] TlsError),
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error(transparent)]
    StandbyFile(#[from] StandbyFileError),
}

/// What coming back has cost.
#[derive(Clone, Debug, Default)]
pub struct Rejoined {
    /// Where the new master's trail and this one part, and the file with the transactions behind it.
    pub lost: Option<(Lsn, PathBuf, u64)>,
    /// The new master could not be asked about them any more: everything from here on is in the file, and some of it
    /// may be lost.
    pub unsure: Option<(Lsn, PathBuf, u64)>,
    /// Files that an earlier attempt, or an earlier return, has written down such transactions in.
    pub earlier: Vec<PathBuf>,
    /// Bytes of pages that came over the link, where the databases had to be copied.
    pub copied_bytes: Option<u64>,
}

/// Makes the stopped server's directory a standby of the server at HOST:PORT. Blocks.
pub fn rejoin(
    from: &str,
    to: CopyTo<'_>,
    progress: &(dyn Fn(Progress) + Send + Sync),
) -> Result<Rejoined, RejoinError> {
    must_be_master(from, to.dir)?;
    let mut rejoined = Rejoined { earlier: written_down(to.dir), ..Rejoined::default() };
    let before = StandbyFile::read(to.dir)?;
    let mut cut = None;
    let mut fits = false;
    // The pages of a base copy may be newer than a trail that has not come to here.
    let anchor = before.as_ref().map_or((0, 0), |file| (file.anchor_lsn, file.anchor_checksum));
    // Without the file it has made way for a copy before.
    let made_way = before.is_some() && !to.dir.join("trail").join("control").exists();
    if !made_way && BaseReceiver::is_in_use(&RealDisk::new(), to.dir)? {
        let Found { finding, first, end } = find(from, to)?;
        match finding {
            Finding::Continues | Finding::Copied { .. } => fits = true,
            Finding::Gone | Finding::Forked { common: None } => {
                rejoined.unsure = write_lost(to.dir, first, "unsure")?;
            }
            Finding::Forked { common: Some(common) } => {
                let told = script(to.dir, common.lsn, |_| {})?;
                if told.reshapes {
                    apply_all(to.dir)?;
                }
                rejoined.lost = write_lost(to.dir, common.lsn, "lost")?;
                fits = !told.reshapes;
                cut = fits.then_some(common.lsn);
            }
        }
        fits &= Lsn(anchor.0) <= cut.unwrap_or(end);
    } else if before.is_none() {
        return Err(RejoinError::NoDirectory(to.dir.to_owned()));
    }
    // With what a copy was taken at: if this ends before there is a new one, it is asked for again.
    let (anchor_lsn, anchor_checksum) = anchor;
    StandbyFile { anchor_lsn, anchor_checksum, ..StandbyFile::of(from, to.name) }.write(to.dir)?;
    // Those that followed it then; they come again.
    remove(&to.dir.join("standbys")).map_err(RejoinError::MakeWay)?;
    if fits {
        if let Some(common) = cut {
            Trail::cut_back(&RealDisk::new(), &to.dir.join("trail"), common)?;
        }
        Trail::forget_epochs(&RealDisk::new(), &to.dir.join("trail"))?;
        if files_fit(to.dir)? {
            return Ok(rejoined);
        }
    }
    make_way(to.dir).map_err(RejoinError::MakeWay)?;
    rejoined.copied_bytes = Some(copy_from(from, to, progress)?.sent_bytes);
    Ok(rejoined)
}

/// A standby may lack what this directory holds: nothing must be cut off on its word.
fn must_be_master(from: &str, dir: &Path) -> Result<(), RejoinError> {
    let asked = Asking { at: from.to_owned(), certificates: Certificates::of(dir)? }.status()?;
    let status: serde_json::Value = serde_json::from_str(&asked).unwrap_or_default();
    if status["role"] == "master" && status["held"].is_null() {
        return Ok(());
    }
    let why = match status["held"].as_str() {
        Some(held) => format!("it acknowledges nothing: {held}"),
        None => "it is a standby".to_owned(),
    };
    Err(RejoinError::NoMaster { from: from.to_owned(), why })
}

/// Brings the databases' files to the end of the trail, which stays as it is. Where that fails names are missing in
/// what is written down, nothing else.
fn apply_all(dir: &Path) -> Result<(), RejoinError> {
    let engine = match Engine::open(dir, Options { standby: true, ..Options::default() }) {
        Ok(engine) => engine,
        Err(error @ OpenError::Trail(_)) => return Err(error.into()),
        Err(error) => {
            tracing::warn!("tables are written down by number where they are not known: {error}");
            return Ok(());
        }
    };
    let end = engine.trail().durable();
    engine.allow_apply(end);
    if !engine.wait_applied(end, APPLY_MAX) {
        let why = engine.apply_failure().unwrap_or_else(|| format!("it takes longer than {APPLY_MAX:?}"));
        tracing::warn!("tables are written down by number where they are not known: {why}");
    }
    if let Err(error) = engine.close() {
        tracing::warn!("the databases were not closed cleanly: {error}");
    }
    Ok(())
}

/// What the new master has of this trail, and where the trail begins and ends.
pub(super) struct Found {
    pub finding: Finding,
    pub first: Lsn,
    pub end: Lsn,
}

/// Asks the new master.
pub(super) fn find(from: &str, to: CopyTo<'_>) -> Result<Found, RejoinError> {
    let options = TrailOptions { follow: true, ..TrailOptions::new(to.dir.join("trail")) };
    let (trail, _) = Trail::open(Arc::new(RealDisk::new()), Arc::new(RealClock), options)?;
    let identity = Identity {
        trail_id: trail.trail_id(),
        format: FORMAT_VERSION,
        segment_bytes: trail.segment_bytes(),
        epoch: trail.epoch(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RejoinError::Runtime)?;
    let connect = Reach { address: from.to_owned(), certificates: Certificates::of(to.dir)? };
    let found = runtime.block_on(compare(&connect, to.name, &trail, identity, &options_of(to.dir)));
    let (first, end) = (trail.first(), trail.tip().0);
    trail.close()?;
    let finding = found.map_err(|error| RejoinError::Link { from: from.to_owned(), error })?;
    Ok(Found { finding, first, end })
}

/// What stands from `from` on, as SQL.
#[derive(Clone, Copy)]
struct Told {
    transactions: u64,
    /// Something was changed besides rows.
    reshapes: bool,
}

/// Hands the SQL of everything from `from` on to `write`, piece by piece.
fn script(dir: &Path, from: Lsn, mut write: impl FnMut(&str)) -> Result<Told, RejoinError> {
    let options = Options::default();
    let mut script = Script::new(dir, &options, &mut write);
    trail_dump::dump(dir, &options, trail_dump::Filter { from: Some(from), volume: None }, |item| {
        script.add(item);
        true
    })?;
    Ok(Told { transactions: script.transactions, reshapes: script.reshapes })
}

/// Writes what stands from `from` on as SQL; `None`: there is nothing. What an earlier call has written stays.
fn write_lost(dir: &Path, from: Lsn, name: &str) -> Result<Option<(Lsn, PathBuf, u64)>, RejoinError> {
    let new = dir.join(format!("{name}.sql.new"));
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| RejoinError::Lost { path, source }
    };
    let mut out = BufWriter::new(File::create(&new).map_err(failed(&new))?);
    let (mut written, mut bytes) = (Ok(()), 0);
    let told = script(dir, from, |sql| {
        bytes += sql.len();
        if written.is_ok() {
            written = out.write_all(sql.as_bytes());
        }
    })?;
    let synced = written.and_then(|()| out.flush()).and_then(|()| out.get_ref().sync_all());
    synced.map_err(failed(&new))?;
    if bytes == 0 {
        std::fs::remove_file(&new).map_err(failed(&new))?;
        return Ok(None);
    }
    let path = free_name(dir, &format!("{name}-{:016x}", from.0));
    std::fs::rename(&new, &path).and_then(|()| File::open(dir)?.sync_all()).map_err(failed(&path))?;
    Ok(Some((from, path, told.transactions)))
}

/// What [`write_lost`] has left in the directory so far.
fn written_down(dir: &Path) -> Vec<PathBuf> {
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        (name.starts_with("lost-") || name.starts_with("unsure-")) && name.ends_with(".sql")
    };
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_one).collect();
    found.sort();
    found
}

/// `STEM.sql`, or with a number behind where that is taken.
fn free_name(dir: &Path, stem: &str) -> PathBuf {
    let first = dir.join(format!("{stem}.sql"));
    let others = (2u32..).map(|number| dir.join(format!("{stem}-{number}.sql")));
    std::iter::once(first.clone()).chain(others).find(|path| !path.exists()).unwrap_or(first)
}

/// Whether the databases' files hold nothing that the trail, as it is now, does not.
fn files_fit(dir: &Path) -> Result<bool, RejoinError> {
    match Engine::open(dir, Options { standby: true, ..Options::default() }) {
        Ok(engine) => {
            drop(engine.close());
            Ok(true)
        }
        Err(
            OpenError::AheadOfTrail { .. }
            | OpenError::OlderFile { .. }
            | OpenError::Redo { .. }
            | OpenError::NotInTheTrail { .. }
            | OpenError::UnknownVolume(_),
        ) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Leaves of the directory only what a copy can use again: the databases' pages. It may be done already, or in part.
pub fn make_way(dir: &Path) -> io::Result<()> {
    // First, so that an attempt that ends halfway is known for one.
    let (trail, volumes) = (dir.join("trail"), dir.join("volumes"));
    for sub in [&trail, &volumes] {
        std::fs::create_dir_all(sub)?;
    }
    remove(&trail.join("control"))?;
    File::open(&trail)?.sync_all()?;
    for entry in std::fs::read_dir(&volumes)? {
        let path = entry?.path();
        match path.extension().and_then(|e| e.to_str()) {
            Some("db") => std::fs::rename(&path, path.with_extension("db.new"))?,
            Some("new") => {}
            _ => std::fs::remove_file(&path)?,
        }
    }
    // With what the archive has of a trail that is copied no more.
    for file in ["databases.toml", "checkpoints", "archived"] {
        remove(&dir.join(file))?;
    }
    // What was cut off stays beside.
    for entry in std::fs::read_dir(&trail)? {
        let path = entry?.path();
        match path.extension().and_then(|e| e.to_str()) {
            Some("tail") => std::fs::rename(&path, dir.join(path.file_name().unwrap_or_default()))?,
            _ => std::fs::remove_file(&path)?,
        }
    }
    File::open(dir)?.sync_all()
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
