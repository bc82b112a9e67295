//! An engine with two databases on a simulated disk, and what they must hold. One thread sends to both by turns, several
//! transactions under way at a time, so that a seed decides nearly everything; what the engine's threads do is its own.

use crate::support::client::{Sent, is_of_the_disk, query, send};
use crate::support::model::{Answer, Model, Refusal};
use crate::support::plain::dump;
use crate::support::workload::{Transaction, transaction};
use holdfast_engine::{Engine, OpenError, Options};
use holdfast_seams::SyncMethod;
use holdfast_seams::testing::{FaultDisk, Fired, Seeded};
use holdfast_types::schema::Dialect;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub const NAMES: [&str; 2] = ["one", "two"];
const UNDER_WAY_MAX: u64 = 6;

/// What a run of transactions came to.
#[derive(Clone, Copy, Default, Debug)]
pub struct Worked {
    pub acknowledged: u64,
    /// Answered with an error that the fault explains.
    pub failed: u64,
    pub checkpoints: u64,
    pub failed_checkpoints: u64,
}

/// How a process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Closed,
    Killed,
    PowerCut,
}

pub struct Bed {
    pub seed: u64,
    pub disk: FaultDisk,
    pub random: Seeded,
    pub models: Vec<Model>,
    dir: tempfile::TempDir,
    method: SyncMethod,
    /// The engine has ended its process.
    ended: Arc<AtomicBool>,
}

impl Bed {
    /// A directory with two databases on which some transactions have run, and its engine. Scratch files are real ones.
    pub fn new(seed: u64) -> (Bed, Engine) {
        let mut random = Seeded::new(seed);
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("scratch")).unwrap();
        let methods = [SyncMethod::OpenDirectDsync, SyncMethod::Fdatasync, SyncMethod::OpenSync, SyncMethod::Fsync];
        let method = methods[random.below(4) as usize];
        let disk = FaultDisk::new(seed);
        let mut bed = Bed { seed, disk, random, models: Vec::new(), dir, method, ended: Arc::default() };
        let engine = bed.open().unwrap();
        for name in NAMES {
            let db = engine.database(name).unwrap();
            bed.models.push(Model::begin(&db, seed ^ u64::from(db.oid()) << 32));
        }
        let some = 5 + bed.random.below(25);
        bed.work_in_peace(&engine, some);
        (bed, engine)
    }

    fn options(&self) -> Options {
        let (disk, ended) = (self.disk.clone(), self.ended.clone());
        Options {
            disk: Arc::new(self.disk.clone()),
            sync_method: self.method,
            segment_bytes: 256 << 10,
            memory_bytes_max: 64 << 12,
            // Nearly everything that a branch commits.
            prewrite_bytes_min: 200,
            side_copy_bytes_min: 200,
            initial_databases: NAMES.iter().map(|n| ((*n).to_owned(), Dialect::Sqlite)).collect(),
            on_failure: Arc::new(move |_| {
                ended.store(true, Ordering::Release);
                disk.end_process();
            }),
            ..Options::default()
        }
    }

    pub fn open(&self) -> Result<Engine, OpenError> {
        Engine::open(self.dir.path(), self.options())
    }

    /// The data directory; its files are on the simulated disk.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The engine has ended its process because of a fault.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub fn fired(&self) -> Fired {
        self.disk.fired()
    }

    /// Files of that ending that hold something, but those that are still being made.
    pub fn files(&self, ending: &str) -> Vec<(PathBuf, u64)> {
        let named = |path: &PathBuf| path.to_string_lossy().ends_with(ending);
        self.disk.files().into_iter().filter(|(path, bytes)| named(path) && *bytes > 0).collect()
    }

    /// Ends the process in one of the three ways; one that has ended already cannot close. A clean stop must succeed.
    pub fn end(&mut self, engine: Engine, how: End) {
        match how {
            _ if self.has_ended() => {}
            End::Closed => engine.close().unwrap_or_else(|e| panic!("seed {}: {e}", self.seed)),
            End::Killed => self.disk.end_process(),
            End::PowerCut => self.disk.cut_power(),
        }
        drop(engine);
        self.begin_again(how);
    }

    /// After the end of a process, or an open that was refused, which has ended its process as well.
    pub fn begin_again(&mut self, how: End) {
        match how {
            End::PowerCut => self.disk.restore_power(),
            End::Killed | End::Closed => self.disk.end_process(),
        }
        self.disk.begin_process();
        self.ended.store(false, Ordering::Release);
    }

    pub fn draw_end(&mut self) -> End {
        [End::Closed, End::Killed, End::PowerCut][self.random.below(3) as usize]
    }

    /// Opens, with nothing wrong any more: nothing may be missing or differ. Ends cleanly.
    pub fn must_be_whole(&mut self) {
        let engine = self.open().unwrap_or_else(|e| panic!("seed {}: refused: {e}", self.seed));
        let there = self.read(&engine).unwrap_or_else(|e| panic!("seed {}: {e}", self.seed));
        self.compare(&there).unwrap_or_else(|e| panic!("seed {}: {e}", self.seed));
        self.work_in_peace(&engine, 3);
        self.end(engine, End::Closed);
    }

    /// Everything that is there; an error is what a reader is told.
    pub fn read(&self, engine: &Engine) -> Result<Vec<String>, String> {
        NAMES.iter().map(|name| Model::read(&engine.database(name).map_err(|e| e.to_string())?)).collect()
    }

    /// What is there must be what was acknowledged and a beginning of what was not answered.
    pub fn compare(&mut self, there: &[String]) -> Result<(), String> {
        let mut pairs = NAMES.iter().zip(&mut self.models).zip(there);
        pairs.try_for_each(|((name, model), there)| model.compare(there).map(drop).map_err(|e| format!("{name}: {e}")))
    }

    /// Sends transactions while nothing is wrong.
    pub fn work_in_peace(&mut self, engine: &Engine, transactions: u64) {
        let seed = self.seed;
        self.work(engine, transactions, |refusal| match refusal {
            Refusal::Lost => panic!("seed {seed}: lost while nothing is wrong"),
            Refusal::Error(e) if is_of_the_disk(e) => panic!("seed {seed}: {e}"),
            Refusal::Error(_) => false,
        });
    }

    /// Sends transactions to a disk with a fault, until the process has ended: errors of the disk are excused.
    pub fn work_with_fault(&mut self, engine: &Engine, transactions: u64) -> Worked {
        let (disk, ended) = (self.disk.clone(), self.ended.clone());
        self.work(engine, transactions, move |refusal| {
            let gone = ended.load(Ordering::Acquire) || disk.power_is_off();
            gone || match refusal {
                Refusal::Lost => true,
                Refusal::Error(e) => is_of_the_disk(e),
            }
        })
    }

    fn work(&mut self, engine: &Engine, transactions: u64, excused: impl Fn(Refusal<'_>) -> bool) -> Worked {
        let mut worked = Worked::default();
        let Ok(dbs) = NAMES.iter().map(|name| engine.database(name)).collect::<Result<Vec<_>, _>>() else {
            return worked;
        };
        let mut under_way: [VecDeque<(Transaction, Sent)>; 2] = Default::default();
        for _ in 0..transactions {
            if self.has_ended() || self.disk.power_is_off() {
                break;
            }
            let which = self.random.below(2) as usize;
            let (db, queue, model) = (&dbs[which], &mut under_way[which], &mut self.models[which]);
            let next = transaction(&mut model.random);
            let sent = send(db, &next);
            let keep = if next.changes_schema() { 0 } else { model.random.below(UNDER_WAY_MAX) as usize };
            queue.push_back((next, sent));
            while queue.len() > keep {
                worked.take(queue, model, &excused);
            }
            if self.random.one_in(10) {
                match db.checkpoint() {
                    Ok(()) => worked.checkpoints += 1,
                    Err(_) => worked.failed_checkpoints += 1,
                }
            }
            if queue.is_empty() && self.random.one_in(10) && model.unanswered.is_empty() {
                // A read that a fault reaches is an error; it is never another answer.
                if let Ok(there) = dump(|sql| query(db, sql)) {
                    assert_eq!(there, model.plain.dump(), "seed {}, {} while it runs", self.seed, NAMES[which]);
                }
            }
        }
        for (queue, model) in under_way.iter_mut().zip(&mut self.models) {
            while !queue.is_empty() {
                worked.take(queue, model, &excused);
            }
        }
        worked
    }
}

impl Worked {
    /// Takes the oldest answer.
    fn take(
        &mut self,
        queue: &mut VecDeque<(Transaction, Sent)>,
        model: &mut Model,
        excused: impl Fn(Refusal<'_>) -> bool,
    ) {
        let Some((transaction, sent)) = queue.pop_front() else { return };
        match model.answered(transaction, sent, excused) {
            Answer::Acknowledged => self.acknowledged += 1,
            Answer::Failed => self.failed += 1,
            Answer::Refused | Answer::None => {}
        }
    }
}
