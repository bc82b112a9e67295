//! `holdfast rejoin`: a server that was deposed comes back as a standby of the one that took its place.
//!
//! | its trail | then |
//! |---|---|
//! | the new master has all of it | it follows from where it ends |
//! | it has an end that the new master has not | that is written down as SQL, cut off and saved aside |
//! | after that its files hold more than its trail | the databases are copied anew; only what differs travels |
//! | the new master no longer keeps what follows, or there is nothing in common | the same |
//!
//! The server must be stopped. Every step can be done again: after a failure the command is run once more.
//!
//! Nothing is dropped silently: the SQL file is complete and synced before anything is cut.

use super::following::Tcp;
use super::{CopyError, CopyTo, StandbyFile, StandbyFileError, copy_from};
use holdfast_engine::{Engine, OpenError, Options, trail_dump};
use holdfast_seams::{RealClock, RealDisk};
use holdfast_standby::base_copy::Progress;
use holdfast_standby::pairing::Finding;
use holdfast_standby::receive::compare;
use holdfast_standby::{Identity, LinkError, LinkOptions};
use holdfast_trail::boxcar::FORMAT_VERSION;
use holdfast_trail::{Trail, TrailError, TrailOptions};
use holdfast_types::Lsn;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    if !to.dir.join("trail").join("control").exists() {
        return Err(RejoinError::NoDirectory(to.dir.to_owned()));
    }
    let finding = find(from, to)?;
    let mut rejoined = Rejoined::default();
    let fits = match finding {
        Finding::Continues | Finding::Copied { .. } => true,
        Finding::Gone => false,
        Finding::Forked { common } => {
            let lsn = common.map_or(Lsn(0), |tip| tip.lsn);
            rejoined.lost = write_lost(to.dir, lsn)?;
            if let Some(common) = common {
                Trail::cut_back(&RealDisk::new(), &to.dir.join("trail"), common.lsn)?;
            }
            common.is_some()
        }
    };
    let file = StandbyFile { from: from.to_owned(), name: to.name.to_owned(), anchor_lsn: 0, anchor_checksum: 0 };
    file.write(to.dir)?;
    if fits && files_fit(to.dir)? {
        return Ok(rejoined);
    }
    make_way(to.dir).map_err(RejoinError::MakeWay)?;
    rejoined.copied_bytes = Some(copy_from(from, to, progress)?.sent_bytes);
    Ok(rejoined)
}

/// What the new master has of this trail.
fn find(from: &str, to: CopyTo<'_>) -> Result<Finding, RejoinError> {
    let options = TrailOptions { follow: true, ..TrailOptions::new(to.dir.join("trail")) };
    let (trail, _) = Trail::open(Arc::new(RealDisk::new()), Arc::new(RealClock), options)?;
    let identity = Identity {
        trail_id: trail.trail_id(),
        format: FORMAT_VERSION,
        segment_bytes: trail.segment_bytes(),
        epoch: trail.epoch(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RejoinError::Runtime)?;
    let connect = Tcp { address: from.to_owned() };
    let found = runtime.block_on(compare(&connect, to.name, &trail, identity, &LinkOptions::default()));
    trail.close()?;
    found.map_err(|error| RejoinError::Link { from: from.to_owned(), error })
}

/// Writes the transactions from `from` on as SQL; `None`: there are none.
fn write_lost(dir: &Path, from: Lsn) -> Result<Option<(Lsn, PathBuf, u64)>, RejoinError> {
    let path = dir.join(format!("lost-{:016x}.sql", from.0));
    let failed = |source| RejoinError::Lost { path: path.clone(), source };
    let mut out = BufWriter::new(File::create(&path).map_err(failed)?);
    let (mut transactions, mut written) = (0, Ok(()));
    trail_dump::dump(dir, &Options::default(), trail_dump::Filter { from: Some(from), volume: None }, |item| {
        let sql = trail_dump::statements(item);
        transactions += sql.lines().filter(|line| *line == "BEGIN;").count() as u64;
        written = out.write_all(sql.as_bytes());
        written.is_ok()
    })?;
    let synced = written.and_then(|()| out.flush()).and_then(|()| out.get_ref().sync_all());
    synced.and_then(|()| File::open(dir)?.sync_all()).map_err(failed)?;
    if transactions == 0 {
        std::fs::remove_file(&path).map_err(failed)?;
        return Ok(None);
    }
    Ok(Some((from, path, transactions)))
}

/// Whether the databases' files hold nothing that the trail, as it is now, does not.
fn files_fit(dir: &Path) -> Result<bool, RejoinError> {
    match Engine::open(dir, Options { standby: true, ..Options::default() }) {
        Ok(engine) => {
            drop(engine.close());
            Ok(true)
        }
        Err(OpenError::AheadOfTrail { .. } | OpenError::OlderFile { .. } | OpenError::Redo { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Leaves of the directory only what a copy can use again: the databases' pages.
fn make_way(dir: &Path) -> io::Result<()> {
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
        match std::fs::remove_file(dir.join(file)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    // What was cut off stays beside.
    let trail = dir.join("trail");
    for entry in std::fs::read_dir(&trail)? {
        let path = entry?.path();
        match path.extension().and_then(|e| e.to_str()) {
            Some("tail") => std::fs::rename(&path, dir.join(path.file_name().unwrap_or_default()))?,
            _ => std::fs::remove_file(&path)?,
        }
    }
    File::open(dir)?.sync_all()
}
