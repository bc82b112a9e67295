//! `holdfast rejoin`: a deposed master comes back as a standby of the server that took its place.
//!
//! | the deposed master's trail | then |
//! |---|---|
//! | the new master has all of it | it follows from its end |
//! | it has an end that the new master does not have | that end is saved as SQL, then cut off and kept aside |
//! | that end created or dropped tables or databases | it is saved as SQL; the databases are copied again, only pages that differ are sent |
//! | after the cut the files are newer than the trail | the databases are copied again |
//! | it ends before the position that its base copy needs | the databases are copied again |
//! | the new master no longer keeps the part to compare with | everything in this trail is saved as SQL, because some of it may be lost; the databases are copied again |
//! | they have nothing in common | likewise |
//!
//! The server must be stopped, and the other server a master. Every step can be repeated: after a failure the command is run
//! again. The order is: save as SQL and sync; write `standby.toml`; cut. A directory that is cut and not yet marked as a
//! standby's could be served as a master without what was acknowledged.
//!
//! Nothing is dropped silently: the SQL file is complete and synced before anything is cut, and is never overwritten.

use crate::base_copy::{CopyError, CopyTo, copy_from};
use crate::by_itself::{self, NotByItself};
use crate::certificates::Certificates;
use crate::clear::{clear_for_copy, remove};
use crate::dialer::Dialer;
use crate::node_client::{NodeClient, NodeClientError};
use crate::settings::SettingsFile;
use crate::standby_file::{StandbyFile, StandbyFileError};
use holdfast_engine::trail_dump::{self, Script};
use holdfast_engine::{BaseReceiver, Engine, OpenError, Options};
use holdfast_seams::{RealClock, RealDisk, points};
use holdfast_standby::base_copy::CopyProgress;
use holdfast_standby::pairing::Finding;
use holdfast_standby::receive::compare;
use holdfast_standby::tls::TlsError;
use holdfast_standby::{Identity, LinkError};
use holdfast_trail::boxcar::FORMAT_VERSION;
use holdfast_trail::{Trail, TrailError, TrailOptions};
use holdfast_types::{Epoch, Lsn};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long the old trail's end may take to be applied.
const APPLY_MAX: Duration = Duration::from_secs(600);

#[derive(Debug, thiserror::Error)]
pub enum RejoinError {
    #[error("{0} is not a data directory")]
    NoDirectory(PathBuf),
    #[error("{from} cannot be rejoined, {why}: promote it first, or name the server that was promoted")]
    NoMaster { from: String, why: String },
    #[error(transparent)]
    Ask(#[from] NodeClientError),
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
    #[error("cannot clear the directory for a new copy: {0}")]
    MakeWay(#[source] io::Error),
    #[error(transparent)]
    Certificates(#[from] TlsError),
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error(transparent)]
    StandbyFile(#[from] StandbyFileError),
    #[error(transparent)]
    NotByItself(#[from] NotByItself),
    #[error("cannot {what} in {dir}: {source}")]
    Mark { what: &'static str, dir: PathBuf, source: io::Error },
}

/// What the return has cost.
#[derive(Clone, Debug, Default)]
pub struct Rejoined {
    /// Where this trail diverges from the new master's, and the file with the number of transactions after that.
    pub lost: Option<(Lsn, PathBuf, u64)>,
    /// The new master no longer has the part to compare with: everything from this LSN on is in the file, and some of it may be
    /// lost.
    pub unsure: Option<(Lsn, PathBuf, u64)>,
    /// Files with such transactions from earlier runs.
    pub earlier: Vec<PathBuf>,
    /// Bytes of pages that came over the link, where the databases had to be copied.
    pub copied_bytes: Option<u64>,
}

/// Makes the stopped server's directory a standby of the server at HOST:PORT. Blocks.
pub fn rejoin(
    from: &str,
    to: CopyTo<'_>,
    settings: &dyn SettingsFile,
    progress: &(dyn Fn(CopyProgress) + Send + Sync),
) -> Result<Rejoined, RejoinError> {
    let rejoined = rejoin_if(from, to, settings, progress, &|_| Ok(()))?;
    by_itself::is_done(to.dir)?;
    Ok(rejoined)
}

/// As [`rejoin`], where `may` permits it: it sees what was found before anything is changed.
pub(super) fn rejoin_if(
    from: &str,
    to: CopyTo<'_>,
    settings: &dyn SettingsFile,
    progress: &(dyn Fn(CopyProgress) + Send + Sync),
    may: &dyn Fn(&Found) -> Result<(), RejoinError>,
) -> Result<Rejoined, RejoinError> {
    check_master(from, to.dir)?;
    let mut rejoined = Rejoined { earlier: saved_files(to.dir), ..Rejoined::default() };
    let before = StandbyFile::read(to.dir)?;
    let mut cut = None;
    let mut fits = false;
    // The pages of a base copy may be newer than a trail that has not reached this position.
    let anchor = before.as_ref().map_or((0, 0), |file| (file.anchor_lsn, file.anchor_checksum));
    // Without the file an earlier run has cleared the directory for a copy.
    let was_cleared = before.is_some() && !to.dir.join("trail").join("control").exists();
    if !was_cleared && BaseReceiver::is_in_use(&RealDisk::new(), to.dir)? {
        let found = find(from, to, settings)?;
        may(&found)?;
        let Found { finding, first, end, .. } = found;
        match finding {
            Finding::Continues | Finding::Copied { .. } => fits = true,
            Finding::Gone | Finding::Forked { common: None } => {
                rejoined.unsure = write_lost(to.dir, first, "unsure")?;
            }
            Finding::Forked { common: Some(common) } => {
                let saved = script(to.dir, common.lsn, |_| {})?;
                if saved.changes_schema {
                    apply_all(to.dir)?;
                }
                rejoined.lost = write_lost(to.dir, common.lsn, "lost")?;
                fits = !saved.changes_schema;
                cut = fits.then_some(common.lsn);
            }
        }
        points::reached("a return has saved the end");
        fits &= Lsn(anchor.0) <= cut.unwrap_or(end);
    } else if before.is_none() {
        return Err(RejoinError::NoDirectory(to.dir.to_owned()));
    }
    // Keeps the position of the base copy: if this run ends before a new copy is complete, the next one needs it.
    let (anchor_lsn, anchor_checksum) = anchor;
    StandbyFile { anchor_lsn, anchor_checksum, ..StandbyFile::of(from, to.name) }.write(to.dir)?;
    // Its former standbys are forgotten; they register again.
    remove(&to.dir.join("standbys")).map_err(RejoinError::MakeWay)?;
    points::reached("a return has a standby's file");
    if fits {
        if let Some(common) = cut {
            Trail::cut_back(&RealDisk::new(), &to.dir.join("trail"), common)?;
            points::reached("a return has cut the trail");
        }
        Trail::forget_epochs(&RealDisk::new(), &to.dir.join("trail"))?;
        if files_fit(to.dir)? {
            return Ok(rejoined);
        }
    }
    clear_for_copy(to.dir).map_err(RejoinError::MakeWay)?;
    points::reached("a return has made way for a copy");
    rejoined.copied_bytes = Some(copy_from(from, to, None, settings, progress)?.sent_bytes);
    Ok(rejoined)
}

/// Checks that the other server is a master: a standby may lack what this directory has, so nothing may be cut off by its
/// answers.
fn check_master(from: &str, dir: &Path) -> Result<(), RejoinError> {
    let asked = NodeClient { at: from.to_owned(), certificates: Certificates::of(dir)? }.status()?;
    let status: serde_json::Value = serde_json::from_str(&asked).unwrap_or_default();
    if status["role"] == "master" && status["held"].is_null() {
        return Ok(());
    }
    let why = match status["held"].as_str() {
        Some(held) => format!("it acknowledges nothing ({held})"),
        None => "it is a standby".to_owned(),
    };
    Err(RejoinError::NoMaster { from: from.to_owned(), why })
}

/// Applies the whole trail to the databases' files, so that the SQL has the names of all tables. Where that fails only names
/// are missing.
fn apply_all(dir: &Path) -> Result<(), RejoinError> {
    let engine = match Engine::open(dir, Options { standby: true, ..Options::default() }) {
        Ok(engine) => engine,
        Err(error @ OpenError::Trail(_)) => return Err(error.into()),
        Err(error) => {
            tracing::warn!("the SQL names tables by number where their names are not known: {error}");
            return Ok(());
        }
    };
    let end = engine.trail().durable();
    engine.allow_apply(end);
    if !engine.wait_applied(end, APPLY_MAX) {
        let why = engine.apply_failure().unwrap_or_else(|| format!("it takes longer than {APPLY_MAX:?}"));
        tracing::warn!("the SQL names tables by number where their names are not known: {why}");
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
    /// In which the last boxcar was written.
    pub end_epoch: Epoch,
}

/// Compares the trail with the new master's.
pub(super) fn find(from: &str, to: CopyTo<'_>, settings: &dyn SettingsFile) -> Result<Found, RejoinError> {
    let options = TrailOptions { follow: true, ..TrailOptions::new(to.dir.join("trail")) };
    let (trail, _) = Trail::open(Arc::new(RealDisk::new()), Arc::new(RealClock), options)?;
    let identity = Identity {
        trail_id: trail.trail_id(),
        format: FORMAT_VERSION,
        segment_bytes: trail.segment_bytes(),
        epoch: trail.epoch(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RejoinError::Runtime)?;
    let connect = Dialer { address: from.to_owned(), certificates: Certificates::of(to.dir)? };
    let found = runtime.block_on(compare(&connect, to.name, &trail, identity, &settings.link_options(to.dir)));
    let (first, end, end_epoch) = (trail.first(), trail.tip().0, trail.end().2);
    trail.close()?;
    let finding = found.map_err(|error| RejoinError::Link { from: from.to_owned(), error })?;
    Ok(Found { finding, first, end, end_epoch })
}

/// What the SQL of a part of the trail contains.
#[derive(Clone, Copy)]
struct ScriptSummary {
    transactions: u64,
    /// It changes more than rows: tables or databases.
    changes_schema: bool,
}

/// Passes the SQL of everything from `from` on to `write`, piece by piece.
fn script(dir: &Path, from: Lsn, mut write: impl FnMut(&str)) -> Result<ScriptSummary, RejoinError> {
    let options = Options::default();
    let mut script = Script::new(dir, &options, &mut write);
    trail_dump::dump(dir, &options, trail_dump::Filter { from: Some(from), volume: None }, |item| {
        script.add(item);
        true
    })?;
    Ok(ScriptSummary { transactions: script.transactions, changes_schema: script.reshapes })
}

/// It holds rows: no other user may read it.
fn create_private(path: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Saves everything from `from` on as SQL; `None`: there is nothing. Files of earlier calls are kept.
fn write_lost(dir: &Path, from: Lsn, name: &str) -> Result<Option<(Lsn, PathBuf, u64)>, RejoinError> {
    let new = dir.join(format!("{name}.sql.new"));
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| RejoinError::Lost { path, source }
    };
    let mut out = BufWriter::new(create_private(&new).map_err(failed(&new))?);
    let (mut written, mut bytes) = (Ok(()), 0);
    let saved = script(dir, from, |sql| {
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
    Ok(Some((from, path, saved.transactions)))
}

/// The files that [`write_lost`] has written to the directory so far.
fn saved_files(dir: &Path) -> Vec<PathBuf> {
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        (name.starts_with("lost-") || name.starts_with("unsure-")) && name.ends_with(".sql")
    };
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_one).collect();
    found.sort();
    found
}

/// `STEM.sql`, or `STEM-N.sql` where that exists.
fn free_name(dir: &Path, stem: &str) -> PathBuf {
    let first = dir.join(format!("{stem}.sql"));
    let others = (2u32..).map(|number| dir.join(format!("{stem}-{number}.sql")));
    std::iter::once(first.clone()).chain(others).find(|path| !path.exists()).unwrap_or(first)
}

/// Whether the databases' files hold nothing that is not in the trail as it is now.
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
