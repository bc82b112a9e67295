//! Random histories against a model: what a subscriber has after every message of a feed is what is published.
//!
//! Two databases, each with its publications and its subscriber, which reads after a while, so that it lags behind changes of
//! schema and publications, and whose connection ends at any message. Transactions are single messages, interactive ones with
//! savepoints, several open at a time, prepared ones, such as go over both databases, and large ones in several pieces.
//!
//! Where a publication or a table is changed the model takes a copy of that table as it was at that place of the trail, as a
//! new subscriber does. Without that, rows that were never sent would count as missing.
//!
//! `HOLDFAST_SEED=n cargo test -p holdfast-engine --test it feeds` repeats one seed, `HOLDFAST_SEEDS=n` runs more, from
//! `HOLDFAST_SEED_FIRST` on.

mod model;
mod site;
mod workload;

use crate::support::client::{block_on, step};
use crate::support::model::{each_seed, seeds};
use crate::support::report_of;
use holdfast_engine::{
    Collect, Database, Engine, Options, Report, Step, Submission, Ticket, WriteOptions, WriteTxn, multi_database_commit,
};
use holdfast_seams::testing::{FaultDisk, Seeded};
use holdfast_types::schema::Dialect;
use holdfast_types::{Level, SqlError, SqlResult};
use site::Site;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use workload::{SCHEMA, TABLES, large, statement, watched};

const SEEDS: u64 = 40;
const STEPS: u64 = 120;
const NAMES: [&str; 2] = ["one", "two"];

/// What has happened, by name.
const HAPPENED: [&str; 16] = [
    "transactions sent",
    "of several pieces",
    "connections that ended on the way",
    "inserts",
    "updates",
    "of a key",
    "with an unchanged value",
    "deletes",
    "single messages",
    "interactive",
    "savepoints taken back",
    "prepared and committed",
    "prepared and rolled back",
    "over both databases",
    "publications changed",
    "tables changed",
];

type Counts = [u64; HAPPENED.len()];

/// One history under way.
struct History {
    engine: Engine,
    sites: Vec<Site>,
    random: Seeded,
    /// Interactive transactions, with the database of each.
    open: Vec<(usize, WriteTxn)>,
    prepared: Vec<(usize, String)>,
    /// Commits that were sent, and not waited for.
    sent: Vec<Ticket>,
    /// The columns that were added, by database and table.
    added: Vec<(usize, usize, String)>,
    counts: Counts,
}

fn options(disk: &FaultDisk) -> Options {
    Options {
        disk: Arc::new(disk.clone()),
        segment_bytes: 256 << 10,
        // Nearly everything that a branch commits.
        prewrite_bytes_min: 200,
        side_copy_bytes_min: 200,
        initial_databases: NAMES.iter().map(|n| ((*n).to_owned(), Dialect::Sqlite)).collect(),
        ..Options::default()
    }
}

#[test]
fn a_subscriber_has_what_is_published() {
    let seeds = seeds(SEEDS);
    let (outcomes, failed) = each_seed(&seeds, run);
    let mut counts = Counts::default();
    outcomes.iter().flat_map(|happened| happened.iter().enumerate()).for_each(|(at, count)| counts[at] += count);
    let happened: Vec<String> = HAPPENED.iter().zip(counts).map(|(what, count)| format!("{what} {count}")).collect();
    println!("seeds {seeds:?}: {} failed; {}", failed.len(), happened.join(", "));
    assert!(failed.is_empty(), "repeat with HOLDFAST_SEED: {failed:?}");
    if seeds.end - seeds.start >= SEEDS {
        assert!(counts.iter().all(|count| *count > 10), "something never happened: {happened:?}");
    }
}

fn run(seed: u64) -> Counts {
    let disk = FaultDisk::new(seed);
    // Scratch files are real.
    let dir = tempfile::tempdir().unwrap();
    let scratch = dir.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let engine = Engine::open(dir.path(), options(&disk)).unwrap();
    let sites = NAMES.iter().map(|name| Site::new(&engine, engine.database(name).unwrap())).collect();
    let (random, counts) = (Seeded::new(seed), Counts::default());
    let mut history = History {
        engine,
        sites,
        random,
        open: Vec::new(),
        prepared: Vec::new(),
        sent: Vec::new(),
        added: Vec::new(),
        counts,
    };
    history.begin();
    for number in 0..STEPS {
        history.step(number);
        if history.random.one_in(12) {
            history.read(&scratch);
        }
    }
    history.end(&scratch);
    history.counts
}

impl History {
    fn begin(&mut self) {
        for at in 0..NAMES.len() {
            let all: Vec<(String, Report)> = SCHEMA.iter().map(|sql| ((*sql).to_owned(), report_of(sql))).collect();
            assert!(self.sites[at].change_schema(&all));
            assert!(self.publish(at, 0..TABLES.len()));
        }
    }

    fn publish(&mut self, at: usize, tables: std::ops::Range<usize>) -> bool {
        self.settle();
        self.sites[at].publish(&self.engine, tables, &mut self.random)
    }

    /// Waits for what was sent.
    fn settle(&mut self) {
        for ticket in self.sent.drain(..) {
            if let Err(error) = ticket.wait().expect("answered").result {
                excused(&error, "commit");
            }
        }
    }

    fn read(&mut self, scratch: &Path) {
        self.settle();
        for site in &mut self.sites {
            site.read(&self.engine, scratch, &mut self.random);
        }
    }

    fn step(&mut self, number: u64) {
        let at = self.random.below(NAMES.len() as u64) as usize;
        match self.random.below(20) {
            0..=5 => self.message(at),
            6..=11 if !self.open.is_empty() => self.go_on(number),
            12 => self.over_both(),
            13 => self.end_prepared(),
            14 => self.change_publication(at),
            15 => self.change_table(at, number),
            _ if self.open.len() < 3 => self.open.extend(begin(&self.sites[at].db).map(|txn| (at, txn)).ok()),
            _ => self.go_on(number),
        }
    }

    /// Statements that are a transaction together.
    fn message(&mut self, at: usize) {
        let mut statements: Vec<String> = (0..1 + self.random.below(3)).map(|_| self.statement()).collect();
        if self.random.one_in(8) {
            statements.push(watched(&mut self.random));
        }
        let db = &self.sites[at].db;
        let steps: SqlResult<Vec<Step>> = statements.iter().map(|sql| step(db, sql)).collect();
        let submission = Submission::new(steps.expect("they can be prepared"), Box::new(Collect::new()));
        let submission = Submission { lock_timeout: Duration::from_millis(2), ..submission };
        self.sent.push(db.submit(submission).expect("it is taken"));
        self.counts[8] += 1;
        if self.random.one_in(2) {
            self.settle();
        }
    }

    fn statement(&mut self) -> String {
        if self.random.one_in(10) { large(&mut self.random) } else { statement(&mut self.random) }
    }

    /// The next statement of an open transaction, or its end.
    fn go_on(&mut self, number: u64) {
        let place = self.random.below(self.open.len() as u64) as usize;
        let (at, mut txn) = self.open.swap_remove(place);
        match self.random.below(6) {
            0 | 1 => {
                self.counts[9] += 1;
                match self.random.below(4) {
                    0 => _ = block_on(txn.rollback()),
                    1 => self.prepare(at, txn, number),
                    _ => self.sent.extend(txn.commit(Box::new(Collect::new())).ok()),
                }
            }
            2 => {
                let undone = self.statement();
                let back = block_on(txn.savepoint("s")).and_then(|()| {
                    // It may have failed for a lock.
                    _ = run_in(&mut txn, &undone);
                    block_on(txn.rollback_to("s"))
                });
                if let Err(error) = back {
                    return excused(&error, "back to a savepoint");
                }
                self.counts[10] += 1;
                self.open.push((at, txn));
            }
            _ => {
                let sql = self.statement();
                match run_in(&mut txn, &sql) {
                    Err(error) if !error.state().0.starts_with("23") => excused(&error, &sql),
                    _ => self.open.push((at, txn)),
                }
            }
        }
    }

    fn prepare(&mut self, at: usize, txn: WriteTxn, number: u64) {
        let name = format!("g{number}");
        let prepared = txn.prepare_transaction(&name, "me").and_then(|ticket| ticket.wait().expect("answered").result);
        match prepared {
            Ok(()) => self.prepared.push((at, name)),
            Err(error) => excused(&error, "prepare"),
        }
    }

    fn end_prepared(&mut self) {
        let Some((at, name)) = self.prepared.pop() else { return };
        let commit = !self.random.one_in(3);
        let ticket = self.sites[at].db.finish_prepared(&name, commit, Level::Local).expect("it is there");
        ticket.wait().expect("answered").result.expect("what was prepared ends as it was asked to");
        self.counts[if commit { 11 } else { 12 }] += 1;
    }

    fn over_both(&mut self) {
        let mut txns: Vec<WriteTxn> = Vec::new();
        for at in 0..NAMES.len() {
            let part_of = txns.first().map(WriteTxn::whole);
            let options = WriteOptions { part_of, lock_timeout: Duration::from_millis(2), ..WriteOptions::default() };
            let Ok(mut txn) = self.sites[at].db.begin_write_blocking(options) else { return };
            let sql = self.statement();
            if run_in(&mut txn, &sql).is_err() {
                return;
            }
            txns.push(txn);
        }
        let done = multi_database_commit(txns, Box::new(Collect::new())).expect("it is sent").wait().expect("answered");
        match done.result {
            Ok(()) => self.counts[13] += 1,
            Err(error) => excused(&error, "commit of both"),
        }
    }

    fn change_publication(&mut self, at: usize) {
        let table = self.random.below(TABLES.len() as u64) as usize;
        if self.is_quiet() && self.publish(at, table..table + 1) {
            self.counts[14] += 1;
        }
    }

    /// A schema change waits for open transactions: at times all of them end for it.
    fn is_quiet(&mut self) -> bool {
        if self.random.one_in(2) {
            self.end_open();
        }
        self.open.is_empty() && self.prepared.is_empty()
    }

    fn end_open(&mut self) {
        for (_, txn) in std::mem::take(&mut self.open) {
            self.sent.extend(txn.commit(Box::new(Collect::new())).ok());
        }
        while !self.prepared.is_empty() {
            self.end_prepared();
        }
    }

    fn change_table(&mut self, at: usize, number: u64) {
        if !self.is_quiet() {
            return;
        }
        self.settle();
        let table = self.random.below(TABLES.len() as u64) as usize;
        let found = self.added.iter().position(|(of, on, _)| (*of, *on) == (at, table));
        let (name, column) = (TABLES[table].name, format!("c{number}"));
        let sql = match (self.random.below(4), found) {
            (0, _) => format!("create index i{number} on {name}({})", TABLES[table].key[0]),
            (1, Some(place)) => format!("alter table {name} drop column {}", self.added.remove(place).2),
            (2, Some(place)) => {
                let before = std::mem::replace(&mut self.added[place].2, column.clone());
                format!("alter table {name} rename column {before} to {column}")
            }
            (how, _) => {
                self.added.push((at, table, column.clone()));
                let default = if how == 3 { " default 7" } else { "" };
                format!("alter table {name} add column {column} integer{default}")
            }
        };
        let report = report_of(&sql);
        assert!(self.sites[at].change_schema(&[(sql.clone(), report)]), "{sql}");
        self.sites[at].copy(&self.engine, table);
        self.counts[15] += 1;
    }

    /// Ends what is open, reads the rest.
    fn end(&mut self, scratch: &Path) {
        self.end_open();
        self.read(scratch);
        for site in &self.sites {
            let kinds = site.model.kinds;
            let of = [site.transactions, site.fragmented, site.cuts, kinds.inserts, kinds.updates, kinds.moves];
            let of = of.into_iter().chain([kinds.unchanged, kinds.deletes]);
            self.counts.iter_mut().zip(of).for_each(|(all, one)| *all += one);
        }
    }
}

fn begin(db: &Database) -> SqlResult<WriteTxn> {
    // Where it has become the only writer it ends soon: this thread waits for the others.
    let (lock_timeout, idle_timeout) = (Duration::from_millis(2), Duration::from_millis(50));
    db.begin_write_blocking(WriteOptions { lock_timeout, idle_timeout, ..WriteOptions::default() })
}

fn run_in(txn: &mut WriteTxn, sql: &str) -> SqlResult<()> {
    let stmt = block_on(txn.prepare(sql, report_of(sql)))?;
    txn.execute_blocking(Step { stmt, params: Vec::new() }, Box::new(Collect::new()))?.result
}

/// A key that is there, a row that another transaction holds, an only writer that let others wait, a transaction that cannot be prepared, or is too large for that.
fn excused(error: &SqlError, what: &str) {
    let code = error.state().0.to_owned();
    let is = code.starts_with("23") || ["40001", "40P01", "55P03", "0A000", "54000", "25P03"].contains(&&*code);
    assert!(is, "{what}: {code} {error}");
}
