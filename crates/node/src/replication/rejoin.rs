//! `holdfast rejoin`: a server that was deposed comes back as a standby of the one that took its place.
//!
//! | its trail | then |
//! |---|---|
//! | the new master has all of it | it follows from where it ends |
//! | it has an end that the new master has not | that is written down as SQL, cut off and saved aside |
//! | that end made or dropped tables or databases | it is written down; the databases are copied anew, only what differs travels |
//! | after the cut its files hold more than its trail | the databases are copied anew |
//! | the new master no longer keeps what follows, or there is nothing in common | the same |
//!
//! The server must be stopped. Every step can be done again: after a failure the command is run once more.
//!
//! Nothing is dropped silently: the SQL file is complete and synced before anything is cut.

use super::reach::Reach;
use super::{Certificates, CopyError, CopyTo, StandbyFile, StandbyFileError, copy_from};
use holdfast_engine::trail_dump::{self, Script};
use holdfast_engine::{Engine, OpenError, Options};
use holdfast_seams::{RealClock, RealDisk};
use holdfast_standby::base_copy::Progress;
use holdfast_standby::pairing::Finding;
use holdfast_standby::receive::compare;
use holdfast_standby::tls::TlsError;
use holdfast_standby::{Identity, LinkError, LinkOptions};
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
    /// Bytes of pages that came over the link, where the databases had to be copied.
    pub copied_bytes: Option<u64>,
}

/// Makes the stopped server's directory a standby of the server at HOST:PORT. Blocks.
pub fn rejoin(
    from: &str,
    to: CopyTo<'_>,
    progress: &(dyn Fn(Progress) + Send + Sync),
) -> Result<Rejoined, RejoinError> {
    let mut rejoined = Rejoined::default();
    let fits = if to.dir.join("trail").join("control").exists() {
        match find(from, to)? {
            Finding::Continues | Finding::Copied { .. } => true,
            Finding::Gone => false,
            Finding::Forked { common } => give_up_end(to.dir, common.map(|tip| tip.lsn), &mut rejoined)?,
        }
    } else if StandbyFile::read(to.dir)?.is_some() {
        // It was begun before, and made way for a copy.
        false
    } else {
        return Err(RejoinError::NoDirectory(to.dir.to_owned()));
    };
    let file = StandbyFile { from: from.to_owned(), name: to.name.to_owned(), anchor_lsn: 0, anchor_checksum: 0 };
    file.write(to.dir)?;
    if fits {
        Trail::forget_epochs(&RealDisk::new(), &to.dir.join("trail"))?;
        if files_fit(to.dir)? {
            return Ok(rejoined);
        }
    }
    make_way(to.dir).map_err(RejoinError::MakeWay)?;
    rejoined.copied_bytes = Some(copy_from(from, to, progress)?.sent_bytes);
    Ok(rejoined)
}

/// Writes down what stands behind `common`, and cuts it off. False: what is left of the trail cannot be followed on from.
///
/// An end that changes tables or databases is not cut off: the list of databases would keep what only that end says. It
/// is applied, so that its tables have names to write down, and then the databases are copied.
fn give_up_end(dir: &Path, common: Option<Lsn>, rejoined: &mut Rejoined) -> Result<bool, RejoinError> {
    let from = common.unwrap_or(Lsn(0));
    let reshapes = script(dir, from, |_| {})?.reshapes;
    if reshapes {
        apply_all(dir)?;
    }
    rejoined.lost = write_lost(dir, from)?;
    match common {
        Some(common) if !reshapes => {
            Trail::cut_back(&RealDisk::new(), &dir.join("trail"), common)?;
            Ok(true)
        }
        _ => Ok(false),
    }
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

/// What the new master has of this trail.
pub(super) fn find(from: &str, to: CopyTo<'_>) -> Result<Finding, RejoinError> {
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
    let found = runtime.block_on(compare(&connect, to.name, &trail, identity, &LinkOptions::default()));
    trail.close()?;
    found.map_err(|error| RejoinError::Link { from: from.to_owned(), error })
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

/// Writes what stands from `from` on as SQL; `None`: there is nothing.
fn write_lost(dir: &Path, from: Lsn) -> Result<Option<(Lsn, PathBuf, u64)>, RejoinError> {
    let path = dir.join(format!("lost-{:016x}.sql", from.0));
    let failed = |source| RejoinError::Lost { path: path.clone(), source };
    let mut out = BufWriter::new(File::create(&path).map_err(failed)?);
    let (mut written, mut bytes) = (Ok(()), 0);
    let told = script(dir, from, |sql| {
        bytes += sql.len();
        if written.is_ok() {
            written = out.write_all(sql.as_bytes());
        }
    })?;
    let synced = written.and_then(|()| out.flush()).and_then(|()| out.get_ref().sync_all());
    synced.and_then(|()| File::open(dir)?.sync_all()).map_err(failed)?;
    if bytes == 0 {
        std::fs::remove_file(&path).map_err(failed)?;
        return Ok(None);
    }
    Ok(Some((from, path, told.transactions)))
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

/// Leaves of the directory only what a copy can use again: the databases' pages.
fn make_way(dir: &Path) -> io::Result<()> {
    // First, so that an attempt that ends halfway is known for one.
    let trail = dir.join("trail");
    remove(&trail.join("control"))?;
    File::open(&trail)?.sync_all()?;
    let volumes = dir.join("volumes");
    for entry in std::fs::read_dir(&volumes)? {
        let path = entry?.path();
        match path.extension().and_then(|e| e.to_str()) {
            Some("db") => std::fs::rename(&path, path.with_extension("db.new"))?,
            Some("new") => {}
            _ => std::fs::remove_file(&path)?,
        }
    }
    for file in ["databases.toml", "checkpoints"] {
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
