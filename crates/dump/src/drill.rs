//! Drills: is a server restored from the newest dump and the archive what it was dumped from?
//!
//! | step | shows |
//! |---|---|
//! | with a live server: its databases are copied to scratch at one LSN, as a dump is, and summed row by row | what must come out |
//! | the archive is waited for, until it has that LSN; the copy has asked the server to archive it | that the archive works |
//! | the newest dump is restored to scratch, and the archive's trail applied up to that LSN; without a live server: up to the archive's end | that every object that a restore needs is there and whole |
//! | `holdfast check` of the restored directory | that its databases and its trail are sound |
//! | its rows are summed and compared | that dump and trail are complete and of that server |
//!
//! What is compared goes two ways that have nothing in common but the server: its pages now, and an older dump's pages with
//! the changes since.
//!
//! Failure: what is wrong is listed in the report; a restore that fails names the object. The scratch directory is emptied at
//! the end and at the next drill. It holds two copies of the databases at most, one after the other where they are compared.

use crate::error::DumpError;
use crate::fetch::fetch;
use crate::moment::show_moment;
use crate::pace::Rate;
use crate::repository::Repository;
use crate::restore::{RestoreError, RestoreOptions, Restored, Step, Target, restore};
use crate::running::random;
use crate::send::DumpPlan;
use crate::sums::{Sums, differences, sums};
use holdfast_engine::check::{CheckReport, check};
use holdfast_engine::{CopyPlan as EnginePlan, Manifest as DatabaseList, Options};
use holdfast_replication::Certificates;
use holdfast_standby::Identity;
use holdfast_standby::base_copy::{CopyInto, CopyProgress};
use holdfast_standby::limits::PAGE_BYTES;
use holdfast_standby::message::{CopyPlan, CopyVolume};
use holdfast_trail::TrailId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A directory with this file in it is a drill's: its content may be removed.
const MARK: &str = "drill";
/// How often to look whether the archive has come as far as the live server was.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How a drill is done.
pub struct DrillOptions<'a> {
    /// HOST:PORT of the live server to compare with.
    pub at: Option<&'a str>,
    pub certificates: Option<Certificates>,
    /// The archive's URL; `None`: the one in the dump's settings.
    pub archive: Option<&'a str>,
    /// Only dumps of this trail, where no live server names it.
    pub trail: Option<&'a str>,
    /// An empty directory, or one that does not exist.
    pub scratch: &'a Path,
    pub threads: usize,
    /// At most as many bytes of pages a second are taken from the live server.
    pub rate_bytes: Option<u64>,
    /// How long the archive is waited for.
    pub wait_max: Duration,
}

/// What a drill has found.
#[derive(Serialize, Debug, Default)]
pub struct Drilled {
    pub place: String,
    pub ok: bool,
    /// The report in one line, for people.
    pub text: String,
    /// One text for each thing that is wrong.
    pub problems: Vec<String>,
    pub dump: Option<String>,
    pub dump_lsn: Option<u64>,
    /// What was restored.
    pub lsn: Option<u64>,
    pub clock_unix_ms: Option<u64>,
    pub databases: usize,
    pub bytes: u64,
    pub trail_bytes: u64,
    /// The live server that was compared with.
    pub compared_with: Option<String>,
    pub compared_tables: u64,
    pub compared_rows: u64,
    /// Why nothing was compared.
    pub not_compared: Option<String>,
    pub restore_seconds: f64,
    pub seconds: f64,
}

impl Drilled {
    fn describe(&self) -> String {
        if !self.ok {
            return format!("the drill of the dumps in {} FAILED: {}", self.place, self.problems.join("; "));
        }
        let moment = self.clock_unix_ms.filter(|ms| *ms > 0).map_or_else(|| "no commit".to_owned(), show_moment);
        let compared = match (&self.compared_with, &self.not_compared) {
            (Some(node), _) => format!(
                "{} tables with {} rows are equal to those of {node} at that LSN",
                self.compared_tables, self.compared_rows
            ),
            (None, why) => format!("not compared: {}", why.as_deref().unwrap_or("no live server was named")),
        };
        format!(
            "the drill of the dumps in {} succeeded: {} and {} bytes of trail were restored to LSN {}, {moment}, in {:.1} s \
             and checked; {compared}",
            self.place,
            self.dump.as_deref().unwrap_or_default(),
            self.trail_bytes,
            self.lsn.unwrap_or_default(),
            self.restore_seconds
        )
    }
}

/// Does a drill. Blocks. An error is one of the drill itself, such as a scratch directory that is not empty; what is wrong with
/// the dumps is in the report.
pub fn drill(
    repository: &Repository,
    options: &DrillOptions<'_>,
    progress: &(dyn Fn(Step) + Sync),
) -> Result<Drilled, DumpError> {
    let began = Instant::now();
    let scratch = Scratch::begin(options.scratch)?;
    let mut report = Drilled { place: repository.place().to_owned(), ..Drilled::default() };
    if let Err(error) = steps(repository, options, &scratch, &mut report, progress) {
        report.problems.push(error.to_string());
    }
    report.ok = report.problems.is_empty();
    report.seconds = began.elapsed().as_secs_f64();
    report.text = report.describe();
    scratch.end()?;
    Ok(report)
}

fn steps(
    repository: &Repository,
    options: &DrillOptions<'_>,
    scratch: &Scratch,
    report: &mut Drilled,
    progress: &(dyn Fn(Step) + Sync),
) -> Result<(), DumpError> {
    let live = options.at.map(|at| Live::take(at, options, &scratch.path("live"))).transpose()?;
    let began = Instant::now();
    let restored = restore_for(repository, options, live.as_ref(), scratch, report, progress)?;
    report.restore_seconds = began.elapsed().as_secs_f64();
    report.problems.extend(problems(&scratch.path("restored"))?);
    report.dump = Some(restored.dump);
    report.dump_lsn = Some(restored.dump_lsn);
    report.lsn = Some(restored.lsn);
    report.clock_unix_ms = Some(restored.clock_unix_ms);
    (report.databases, report.bytes, report.trail_bytes) = (restored.databases, restored.bytes, restored.trail_bytes);
    if let Some(live) = live.filter(|_| report.not_compared.is_none()) {
        compare(&live, &scratch.path("restored"), report)?;
    }
    Ok(())
}

/// What `holdfast check` finds in a directory.
fn problems(dir: &Path) -> Result<Vec<String>, DumpError> {
    let report: CheckReport = check(dir, &Options::default()).map_err(|e| DumpError::Check(e.to_string()))?;
    let of_databases =
        report.databases.iter().flat_map(|d| d.problems.iter().map(|p| format!("database {}: {p}", d.name)));
    Ok(report.problems.iter().cloned().chain(of_databases).collect())
}

fn restore_for(
    repository: &Repository,
    options: &DrillOptions<'_>,
    live: Option<&Live>,
    scratch: &Scratch,
    report: &mut Drilled,
    progress: &(dyn Fn(Step) + Sync),
) -> Result<Restored, DumpError> {
    let trail = live.map(|live| TrailId(live.plan.trail_id).to_string());
    let dir = scratch.path("restored");
    let to = |target| {
        let restoring = RestoreOptions {
            dir: &dir,
            target,
            archive: options.archive,
            dump: None,
            trail: trail.as_deref().or(options.trail),
            threads: options.threads,
        };
        let restored = restore(repository, &restoring, progress)?;
        match &restored.unreadable_dump {
            Some(why) => Err(DumpError::Check(format!("a newer dump cannot be read: {why}"))),
            None => Ok(restored),
        }
    };
    let Some(live) = live else { return to(Target::End) };
    let until = Instant::now() + options.wait_max;
    loop {
        let error = match to(Target::Lsn(live.plan.shown)) {
            Err(DumpError::Restore(error @ (RestoreError::Beyond { .. } | RestoreError::NoArchive { .. }))) => error,
            other => return other,
        };
        let has_archive = !matches!(error, RestoreError::NoArchive { .. });
        if has_archive && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
            continue;
        }
        if has_archive {
            let waited = options.wait_max.as_secs();
            report.problems.push(format!("the archive was waited for {waited} s: {error}"));
        }
        report.not_compared = Some(error.to_string());
        return to(Target::End);
    }
}

fn compare(live: &Live, restored: &Path, report: &mut Drilled) -> Result<(), DumpError> {
    let path = restored.join("databases.toml");
    let read = std::fs::read_to_string(&path);
    let text = read.map_err(|source| DumpError::Io { what: "read", path: path.display().to_string(), source })?;
    let list = DatabaseList::parse(&text).map_err(DumpError::Check)?;
    let mut others = live.sums.clone();
    for entry in &list.databases {
        let found = sums(&restored.join(&entry.file)).map_err(DumpError::Check)?;
        report.compared_tables += found.len() as u64;
        report.compared_rows += found.values().map(|sum| sum.rows).sum::<u64>();
        match others.remove(&entry.name) {
            Some(other) => report.problems.extend(differences(&entry.name, &found, &other)),
            None => {
                report.problems.push(format!("database {} is restored, and {} does not have it", entry.name, live.node))
            }
        }
    }
    report.problems.extend(others.into_keys().map(|name| format!("database {name} of {} was not restored", live.node)));
    report.compared_with = Some(live.node.clone());
    Ok(())
}

/// A live server at one LSN.
struct Live {
    node: String,
    plan: EnginePlan,
    /// By database.
    sums: BTreeMap<String, Sums>,
}

impl Live {
    /// Copies its databases, sums them, and removes the copy.
    fn take(at: &str, options: &DrillOptions<'_>, dir: &Path) -> Result<Live, DumpError> {
        let io = |what, path: &Path| {
            let path = path.display().to_string();
            move |source| DumpError::Io { what, path, source }
        };
        std::fs::create_dir(dir).map_err(io("create", dir))?;
        let mut files = Files { dir, rate: options.rate_bytes.map(Rate::new), plan: None, files: Vec::new() };
        let name = random().map_err(io("read random bytes for", dir))?;
        fetch(at, &format!("drill-{name:016x}"), options.certificates.clone(), &mut files)?;
        let plan = files.plan.ok_or_else(|| DumpError::Plan("none has arrived".to_owned()))?;
        let list = DatabaseList::parse(&plan.plan.manifest).map_err(DumpError::Plan)?;
        let mut all = BTreeMap::new();
        for (entry, (path, _)) in list.databases.iter().zip(&files.files) {
            all.insert(entry.name.clone(), sums(path).map_err(DumpError::Check)?);
        }
        drop(files.files);
        std::fs::remove_dir_all(dir).map_err(io("remove", dir))?;
        Ok(Live { node: plan.node, plan: plan.plan, sums: all })
    }
}

/// Writes a copy's pages to plain files.
struct Files<'a> {
    dir: &'a Path,
    rate: Option<Rate>,
    plan: Option<DumpPlan>,
    /// In the order of the plan's volumes.
    files: Vec<(PathBuf, File)>,
}

impl CopyInto for Files<'_> {
    fn begin(&mut self, _: &Identity, plan: &CopyPlan, volumes: &[CopyVolume]) -> io::Result<()> {
        self.plan = Some(serde_json::from_str(&plan.manifest).map_err(io::Error::other)?);
        self.files.clear();
        for place in 0..volumes.len() {
            // Named by their place: the server's names are not trusted.
            let path = self.dir.join(format!("{place}.db"));
            let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
            self.files.push((path, file));
        }
        Ok(())
    }

    fn read(&mut self, _: usize, _: u32, _: u32, _: &mut Vec<u8>) -> io::Result<()> {
        Ok(())
    }

    fn write(&mut self, volume: usize, first_page: u32, pages: &[u8]) -> io::Result<()> {
        if let Some(rate) = &mut self.rate {
            rate.take(pages.len() as u64);
        }
        let (_, file) = self.files.get(volume).ok_or_else(|| io::Error::other("a page of no volume has arrived"))?;
        file.write_all_at(pages, u64::from(first_page) * PAGE_BYTES as u64)
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn progress(&mut self, _: CopyProgress) {}
}

/// The directory that a drill works in.
struct Scratch {
    dir: PathBuf,
    /// Locked: another drill there waits for nothing and is refused.
    _mark: File,
}

impl Scratch {
    /// Takes an empty directory, or one that an interrupted drill has left.
    fn begin(dir: &Path) -> Result<Scratch, DumpError> {
        let io = |what| move |source| DumpError::Io { what, path: dir.display().to_string(), source };
        match std::fs::create_dir(dir) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.map_err(io("create"))?,
        }
        let is_ours = dir.join(MARK).is_file();
        let names = std::fs::read_dir(dir).map_err(io("list"))?.map(|entry| entry.map(|entry| entry.file_name()));
        let names = names.collect::<io::Result<Vec<_>>>().map_err(io("list"))?;
        if !is_ours && names.iter().any(|name| name != "lost+found") {
            return Err(RestoreError::NotEmpty { dir: dir.display().to_string() }.into());
        }
        let mark = File::create(dir.join(MARK)).map_err(io("write to"))?;
        if mark.try_lock().is_err() {
            return Err(DumpError::Running(format!("another drill is at work in {}", dir.display())));
        }
        let scratch = Scratch { dir: dir.to_owned(), _mark: mark };
        scratch.empty()?;
        Ok(scratch)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn empty(&self) -> Result<(), DumpError> {
        for name in ["live", "restored"] {
            let path = self.path(name);
            match std::fs::remove_dir_all(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                removed => removed.map_err(|source| DumpError::Io {
                    what: "remove",
                    path: path.display().to_string(),
                    source,
                })?,
            }
        }
        Ok(())
    }

    /// Leaves the directory empty.
    fn end(self) -> Result<(), DumpError> {
        self.empty()?;
        let mark = self.path(MARK);
        std::fs::remove_file(&mark).map_err(|source| DumpError::Io {
            what: "remove",
            path: mark.display().to_string(),
            source,
        })
    }
}
