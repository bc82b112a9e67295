//! A dump rolled forward to a chosen moment before its pages are fetched: for reading, see [`super::lazy`].
//!
//! | step | reads of the dump |
//! |---|---|
//! | dump, target and the archive's objects are looked up | the manifest |
//! | sparse files are made, and the directory becomes that of a standby at the dump's moment | none |
//! | the archive's trail is applied up to the target, as for a restore | pages that the changes touch |
//! | the caller serves the directory for reading, and calls [`LazyDisk::fetch_ahead`] | what is read, then the rest |
//!
//! The directory keeps its mark `restoring`: only a caller that has the disk opens it, as its files have holes. It is removed by
//! the caller.
//!
//! Failure: as of a restore; later an object that is missing or damaged is an error of each read that needs it.

use super::error::RestoreError;
use super::lazy::LazyDisk;
use super::mark::AtWork;
use super::options::{RestoreOptions, Step, VOLUMES, io_error};
use super::{look_up, roll, write_files};
use crate::error::DumpError;
use crate::repository::Repository;
use holdfast_engine::{BaseReceiver, Manifest as DatabaseList, Options};
use holdfast_replication::StandbyFile;
use holdfast_seams::{Create, Disk, OpenHow, RealDisk};
use std::sync::Arc;
use std::time::Instant;

/// A moment that can be read.
pub struct Look {
    pub disk: Arc<LazyDisk>,
    pub dump: String,
    pub lsn: u64,
    pub clock_unix_ms: u64,
    pub databases: usize,
    pub bytes: u64,
    pub trail_bytes: u64,
    pub seconds: f64,
}

/// Files of the dump that say which clients may connect.
const RULES: [&str; 2] = ["pg_hba.conf", "pg_ident.conf"];
/// The standby that is served follows no master: the server that serves it does not connect to this.
const NO_MASTER: &str = "127.0.0.1:1";

/// Prepares the directory `options.dir`, which must be empty or not exist, for reading.
pub fn look(
    repository: &Arc<Repository>,
    options: &RestoreOptions<'_>,
    progress: &(dyn Fn(Step) + Sync),
) -> Result<Look, DumpError> {
    let began = Instant::now();
    let real = Arc::new(RealDisk::new());
    let at_work = AtWork::begin(&*real, options.dir)?;
    let looked_up = look_up(repository, options).and_then(|(choice, manifest, chain)| {
        // Files are made by the names in it.
        BaseReceiver::check_plan(&manifest.head.plan)?;
        Ok((choice, manifest, chain))
    });
    let (choice, mut manifest, chain) = at_work.keep_if(&*real, looked_up)?;
    let chain = chain.filter(|chain| !chain.objects.is_empty());
    if chain.is_none() {
        // A dump is of one moment, and its list of databases is: without a trail, nothing has to be applied before it is whole.
        (manifest.head.plan.whole_from, manifest.head.plan.listed_to) = (0, 0);
    }
    at_work.clear(&*real)?;
    let volumes = options.dir.join(VOLUMES);
    real.create_dir(&volumes).map_err(io_error("create", &volumes))?;
    let list = DatabaseList::parse(&manifest.head.plan.manifest).map_err(RestoreError::Settings)?;
    let how = OpenHow { create: Create::IfMissing, write: true, ..OpenHow::default() };
    let mut files = Vec::new();
    for entry in &list.databases {
        let path = options.dir.join(&entry.file).with_extension("db.new");
        let file = real.open(&path, &how).map_err(io_error("create", &path))?;
        file.set_len(0).map_err(io_error("create", &path))?;
        files.push((path, file));
    }
    let head = manifest.head.clone();
    let dump = (choice.dump.clone(), manifest);
    let disk =
        Arc::new(LazyDisk::new(real.clone(), repository.clone(), dump, files, roll::fetch_threads(options.threads))?);
    let mut receiver = BaseReceiver::begin(disk.clone(), options.dir, head.plan.clone())?;
    for _ in &head.plan.volumes {
        receiver.adopt_unread()?;
    }
    receiver.finish()?;
    let mut reached = roll::Reached { lsn: head.lsn(), clock_unix_ms: head.clock_unix_ms(), bytes: 0 };
    if let (Some(chain), Some(store)) = (&chain, &choice.archive) {
        let segment_bytes = head.plan.segment_bytes;
        let engine = Options { disk: disk.clone(), segment_bytes, restoring: true, ..Options::default() };
        reached = roll::roll_forward(
            &**store,
            chain,
            (&choice.dump, &head),
            options,
            &engine,
            (roll::Reads::Fetched, progress),
        )?;
    }
    write_files(&*real, options.dir, head.files.iter().filter(|(name, _)| RULES.contains(&name.as_str())))?;
    let standby = StandbyFile::of(NO_MASTER, "restored");
    standby.write(options.dir).map_err(|e| RestoreError::Settings(e.to_string()))?;
    Ok(Look {
        disk,
        dump: choice.dump,
        lsn: reached.lsn,
        clock_unix_ms: reached.clock_unix_ms,
        databases: head.plan.volumes.len(),
        bytes: head.bytes,
        trail_bytes: reached.bytes,
        seconds: began.elapsed().as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::tests::manifest;
    use crate::restore::Target;

    /// A manifest is anyone's where a place is not encrypted: its names make no file elsewhere.
    #[test]
    fn names_in_a_manifest_lead_nowhere_else() {
        let scratch = tempfile::TempDir::new().unwrap();
        let (place, victim) = (scratch.path().join("dumps"), scratch.path().join("victim.db.new"));
        std::fs::create_dir(&place).unwrap();
        std::fs::write(&victim, "precious").unwrap();
        let repository = Arc::new(Repository::open(place.to_str().unwrap()).unwrap());
        for file in [victim.with_extension("").display().to_string(), "../../victim.db".to_owned()] {
            let mut forged = manifest();
            let entry = |id: u32, file: &str| {
                format!("[[databases]]\nname = \"n{id}\"\ndialect = \"postgres\"\nid = {id}\nfile = {file:?}\n")
            };
            forged.head.plan.manifest =
                format!("format = 1\nnext_id = 3\n{}{}", entry(1, &file), entry(2, "volumes/000002-n2.db"));
            forged.head.files.clear();
            let (name, object) = forged.encode().unwrap();
            repository.put(&name, object).unwrap();
            let dir = scratch.path().join("look");
            let options = RestoreOptions {
                dir: &dir,
                target: Target::End,
                archive: Some(""),
                dump: Some(&name),
                trail: None,
                threads: 1,
            };
            let error = look(&repository, &options, &|_| {}).map(|look| look.dump).unwrap_err().to_string();
            assert!(error.contains("is not sound"), "{error}");
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious", "{file}");
        }
    }

    /// Files that would decide what the next server does with the directory are not a dump's.
    #[test]
    fn only_settings_of_a_dump_are_written() {
        let dir = tempfile::TempDir::new().unwrap();
        for name in ["standby.toml", "mirror.toml", "authentication_secret", "../x", "", ".s", "restoring"] {
            let file = (name.to_owned(), "x".to_owned());
            let refused = write_files(&RealDisk::new(), dir.path(), std::iter::once((&file.0, &file.1)));
            assert!(refused.unwrap_err().to_string().contains("is not the name of a settings file"), "{name}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
