//! One database of a dump, rolled forward, in a scratch directory: what a part of it is copied from.
//!
//! Only the pages of that database are fetched and only its changes are applied. The directory does not become a server's: it
//! keeps its mark, begins no history, and the caller removes it. Its file is a plain SQLite database.
//!
//! Failure: as of a restore; in addition, a database that does not exist at the chosen moment is named.

use super::error::RestoreError;
use super::mark::AtWork;
use super::options::{RestoreOptions, Step};
use super::{lay, look_up, roll};
use crate::error::DumpError;
use crate::manifest::Manifest;
use crate::repository::Repository;
use holdfast_engine::{BaseReceiver, DialectName, Manifest as DatabaseList, Options};
use holdfast_seams::RealDisk;
use holdfast_standby::limits::PAGE_BYTES;
use holdfast_types::schema::Dialect;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// A database as of the chosen moment.
#[derive(Debug)]
pub struct Part {
    /// Its file, in the scratch directory.
    pub file: PathBuf,
    pub dialect: Dialect,
    pub dump: String,
    /// The place in the trail at which the restore ended, and the commit clock there.
    pub lsn: u64,
    pub clock_unix_ms: u64,
    /// Bytes of the database in the dump, and of trail that was read.
    pub bytes: u64,
    pub trail_bytes: u64,
    pub seconds: f64,
}

/// Restores one database into the scratch directory `options.dir`, which must be empty or not exist.
pub fn restore_part(
    repository: &Repository,
    options: &RestoreOptions<'_>,
    database: &str,
    progress: &(dyn Fn(Step) + Sync),
) -> Result<Part, DumpError> {
    let began = Instant::now();
    let disk = Arc::new(RealDisk::new());
    let at_work = AtWork::begin(&*disk, options.dir)?;
    let looked_up =
        look_up(repository, options).and_then(|(choice, whole, chain)| Ok((choice, only(whole, database)?, chain)));
    let (choice, manifest, chain) = at_work.keep_if(&*disk, looked_up)?;
    let chain = chain.filter(|chain| !chain.objects.is_empty());
    at_work.clear(&*disk)?;
    let receiver = BaseReceiver::begin(disk.clone(), options.dir, manifest.head.plan.clone())?;
    let laid = lay::lay(repository, &manifest, &choice.dump, &*disk, options, progress)?;
    lay::adopt(receiver, laid)?;
    let head = &manifest.head;
    let mut reached = roll::Reached { lsn: head.lsn(), clock_unix_ms: head.clock_unix_ms(), bytes: 0 };
    if let (Some(chain), Some(store)) = (&chain, &choice.archive) {
        let engine = Options { segment_bytes: head.plan.segment_bytes, restoring: true, ..Options::default() };
        reached =
            roll::roll_forward(&**store, chain, (&choice.dump, head), options, &engine, (roll::Reads::Fast, progress))?;
    }
    let list = DatabaseList::read(&*disk, options.dir)?.unwrap_or_else(DatabaseList::begun);
    let entry = list.databases.iter().find(|entry| entry.name == database);
    let entry = entry.ok_or_else(|| RestoreError::NoDatabase {
        database: database.to_owned(),
        lsn: reached.lsn,
        moment: crate::moment::show_moment(reached.clock_unix_ms),
    })?;
    Ok(Part {
        file: options.dir.join(&entry.file),
        dialect: match entry.dialect {
            DialectName::Sqlite => Dialect::Sqlite,
            DialectName::Postgres => Dialect::Postgres,
        },
        dump: choice.dump,
        lsn: reached.lsn,
        clock_unix_ms: reached.clock_unix_ms,
        bytes: head.bytes,
        trail_bytes: reached.bytes,
        seconds: began.elapsed().as_secs_f64(),
    })
}

/// The manifest with this database only; with none where the trail creates it later.
fn only(mut manifest: Manifest, database: &str) -> Result<Manifest, DumpError> {
    let plan = &mut manifest.head.plan;
    let mut list = DatabaseList::parse(&plan.manifest).map_err(RestoreError::Settings)?;
    let place = list.databases.iter().position(|entry| entry.name == database);
    list.databases = place.map(|place| list.databases.swap_remove(place)).into_iter().collect();
    plan.volumes = place.and_then(|place| plan.volumes.get(place)).copied().into_iter().collect();
    plan.manifest = toml::to_string(&list).map_err(|e| RestoreError::Settings(e.to_string()))?;
    manifest.head.bytes = plan.volumes.iter().map(|volume| u64::from(volume.pages) * PAGE_BYTES as u64).sum();
    manifest.volumes = match place.filter(|place| *place < manifest.volumes.len()) {
        Some(place) => vec![manifest.volumes.swap_remove(place)],
        None => Vec::new(),
    };
    Ok(manifest)
}
