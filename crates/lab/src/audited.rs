//! The audited configuration in process: Holdfast as a library, one transaction for each authorization, answered
//! when it is durable. This is the only module of the lab that knows the engine.
//!
//! Failure: the engine's error with its SQLSTATE; answers that do not add up (a terminal not found, a row not
//! changed) are found when the run is settled.

use crate::drive::{Outcome, Target};
use crate::interrupt;
use crate::prefill;
use crate::results::Fact;
use crate::text;
use crate::workload::{self, Request};
use anyhow::Context;
use holdfast_engine::{Database, Engine, Options, Report, Statement, Step, Submission, Ticket};
use holdfast_seams::RealDisk;
use holdfast_types::schema::Dialect;
use holdfast_types::{Level, Row, SessionContext, Sink, SqlError, StatementDesc, Tag, Value};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const DATABASE: &str = "lab";
/// Rows in one loading transaction.
const LOAD_ROWS: u64 = 500;
/// Loading transactions under way at a time.
const LOADS_IN_FLIGHT: usize = 8;

/// A data directory opened by this process.
pub struct Audited {
    engine: Engine,
    database: Database,
    select: Arc<Statement>,
    update: Arc<Statement>,
    insert: Arc<Statement>,
    answered: AtomicU64,
    seen: Arc<Seen>,
}

/// Rows that the answers reported.
#[derive(Default)]
struct Seen {
    read: AtomicU64,
    changed: AtomicU64,
}

impl Audited {
    /// Makes a data directory at `dir`, fills it, and opens it with syncs that take `sync_delay` longer.
    pub fn open(dir: &Path, log_rows: u64, sync_delay: Duration, progress: &dyn Fn(u64)) -> anyhow::Result<Audited> {
        let engine = Engine::open(dir, Options::default()).context("cannot create the data directory")?;
        engine.create_database(DATABASE, Dialect::Sqlite, Level::Local)?;
        load(&engine.database(DATABASE)?, log_rows, progress).context("cannot fill the database")?;
        engine.close().context("cannot close the filled database")?;
        let engine = Engine::open(dir, options(sync_delay)).context("cannot open the data directory")?;
        let database = engine.database(DATABASE)?;
        let counted = || Report { counts: true, ..Report::default() };
        Ok(Audited {
            select: database.prepare(&workload::select_sql("?1", false), Report::default())?,
            update: database.prepare(&workload::update_sql("?1", "?2"), counted())?,
            insert: database.prepare(&workload::insert_sql(["?1", "?2", "?3", "?4", "?5"]), counted())?,
            engine,
            database,
            answered: AtomicU64::new(0),
            seen: Arc::default(),
        })
    }

    /// What it runs with, for the report.
    pub fn settings() -> Vec<Fact> {
        let o = Options::default();
        vec![
            Fact::new("sync_method", o.sync_method.name()),
            Fact::new("segment size", text::bytes(o.segment_bytes)),
            Fact::new("memory limit", text::bytes(o.memory_bytes_max)),
            Fact::new("redo bound", format!("{} ms, {}", o.redo_time_max.as_millis(), text::bytes(o.redo_bytes_max))),
            Fact::new("transactions in a batch, at most", o.batch_requests_max.to_string()),
        ]
    }

    fn steps(&self, r: &Request) -> Vec<Step> {
        let text = |s: &str| Value::Text(s.to_owned());
        let step = |stmt: &Arc<Statement>, params| Step { stmt: stmt.clone(), params };
        vec![
            step(&self.select, vec![text(&r.term_no)]),
            step(&self.update, vec![Value::Int(r.at), text(&r.term_no)]),
            step(
                &self.insert,
                vec![text(&r.card), text(&r.term_no), text(&r.auth_code), Value::Int(r.at), text(&r.body)],
            ),
        ]
    }
}

fn options(sync_delay: Duration) -> Options {
    Options { disk: Arc::new(RealDisk::with_sync_delay(sync_delay)), ..Options::default() }
}

impl Target for Audited {
    /// Never gives up: the engine takes requests together, so no queue of clients forms in front of it.
    fn authorize(&self, request: &Request, _: Instant) -> anyhow::Result<Outcome> {
        let sink = Box::new(CountingSink(self.seen.clone()));
        finish(self.database.submit(Submission::new(self.steps(request), sink))?)?;
        self.answered.fetch_add(1, Ordering::Relaxed);
        Ok(Outcome::Answered)
    }

    fn syncs(&self) -> Option<u64> {
        self.engine.stats().into_iter().find(|(name, _)| *name == "syncs").map(|(_, value)| value)
    }

    fn settle(&self) -> anyhow::Result<()> {
        let answered = self.answered.load(Ordering::Relaxed);
        let (read, changed) = (self.seen.read.load(Ordering::Relaxed), self.seen.changed.load(Ordering::Relaxed));
        anyhow::ensure!(
            read == answered && changed == 2 * answered,
            "{answered} authorizations were answered, but {read} terminals were read and {changed} rows changed"
        );
        Ok(())
    }

    fn log_rows(&self) -> anyhow::Result<u64> {
        let count = self.database.prepare("select count(*) from txn_log", Report::default())?;
        let mut reader = self.database.reader()?;
        let mut sink = FirstInt(None);
        reader.run(&SessionContext::NONE, 0, &Step { stmt: count, params: Vec::new() }, &mut sink)?;
        sink.0.map(|rows| rows as u64).context("count(*) returned no row")
    }
}

impl Drop for Audited {
    fn drop(&mut self) {
        if let Err(e) = self.engine.close() {
            eprintln!("warning: closing the audited database: {e}");
        }
    }
}

/// Waits for a transaction's answer.
fn finish(ticket: Ticket) -> anyhow::Result<()> {
    let done = ticket.wait().context("the engine was closed while a transaction was under way")?;
    done.result.with_context(|| format!("statement {} of the transaction", done.failed_step + 1))
}

/// Makes the schema and loads the same rows as everywhere.
fn load(database: &Database, log_rows: u64, progress: &dyn Fn(u64)) -> anyhow::Result<()> {
    for sql in workload::SCHEMA_SQLITE.split_inclusive(';') {
        let stmt = database.prepare(sql.trim_end_matches(';').trim(), Report::default())?;
        run(database, vec![Step { stmt, params: Vec::new() }]).and_then(finish).with_context(|| sql.to_string())?;
    }
    let terminal = database.prepare(workload::LOAD_TERMINAL_SQLITE, Report::default())?;
    load_rows(database, &terminal, workload::TERMINALS, |n| prefill::terminal_row(n).to_vec(), &|_| ())?;
    let log = database.prepare(workload::LOAD_LOG_SQLITE, Report::default())?;
    let mut requests = prefill::log_requests();
    load_rows(database, &log, log_rows, |n| prefill::log_row(n as i64, &mut requests).to_vec(), progress)
}

fn load_rows(
    database: &Database,
    stmt: &Arc<Statement>,
    count: u64,
    mut row: impl FnMut(u64) -> Vec<Value>,
    progress: &dyn Fn(u64),
) -> anyhow::Result<()> {
    let mut in_flight = VecDeque::new();
    for first in (1..=count).step_by(LOAD_ROWS as usize) {
        interrupt::check()?;
        progress(first);
        let last = count.min(first + LOAD_ROWS - 1);
        let steps = (first..=last).map(|n| Step { stmt: stmt.clone(), params: row(n) }).collect();
        in_flight.push_back(run(database, steps)?);
        if in_flight.len() >= LOADS_IN_FLIGHT {
            in_flight.pop_front().map_or(Ok(()), finish)?;
        }
    }
    in_flight.into_iter().try_for_each(finish)
}

fn run(database: &Database, steps: Vec<Step>) -> anyhow::Result<Ticket> {
    Ok(database.submit(Submission::new(steps, Box::new(CountingSink(Arc::default()))))?)
}

/// Counts rows read and rows changed.
struct CountingSink(Arc<Seen>);

impl Sink for CountingSink {
    fn begin(&mut self, _: usize, _: &Arc<StatementDesc>) {}

    fn row(&mut self, _: &dyn Row) -> Result<(), SqlError> {
        self.0.read.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn end(&mut self, tag: &Tag) {
        self.0.changed.fetch_add(tag.rows.unwrap_or(0), Ordering::Relaxed);
    }

    fn keep(&mut self) {}

    fn reset(&mut self) {}
}

/// Keeps the first column of the last row.
struct FirstInt(Option<i64>);

impl Sink for FirstInt {
    fn begin(&mut self, _: usize, _: &Arc<StatementDesc>) {}

    fn row(&mut self, row: &dyn Row) -> Result<(), SqlError> {
        if let holdfast_types::ValueRef::Int(value) = row.get(0) {
            self.0 = Some(value);
        }
        Ok(())
    }

    fn end(&mut self, _: &Tag) {}

    fn keep(&mut self) {}

    fn reset(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Requests;

    #[test]
    fn authorizations_go_through_the_trail_and_add_up() {
        let dir = tempfile::tempdir().unwrap();
        let audited = Audited::open(dir.path(), 700, Duration::ZERO, &|_| ()).unwrap();
        assert_eq!(audited.log_rows().unwrap(), 700);
        let before = audited.syncs().unwrap();
        let mut requests = Requests::new(0, 1, 1);
        for _ in 0..20 {
            assert_eq!(audited.authorize(&requests.next_request(), Instant::now()).unwrap(), Outcome::Answered);
        }
        assert!(audited.syncs().unwrap() >= before + 20, "one client: each answer waits for its own sync");
        audited.settle().unwrap();
        assert_eq!(audited.log_rows().unwrap(), 720);
    }

    #[test]
    fn a_terminal_that_is_not_there_is_found_out() {
        let dir = tempfile::tempdir().unwrap();
        let audited = Audited::open(dir.path(), 0, Duration::ZERO, &|_| ()).unwrap();
        let mut request = Requests::new(0, 1, 1).next_request();
        request.term_no = "00000000".into();
        audited.authorize(&request, Instant::now()).unwrap();
        assert!(audited.settle().unwrap_err().to_string().contains("0 terminals were read"));
    }
}
