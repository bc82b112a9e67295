//! What commits do with a mirror that is there, away, or slow: a real engine, and a mirror that is only reported to the state.

use super::*;
use holdfast_engine::{Collect, Database, Options, Report, Step, Submission, Ticket};
use std::path::Path;
use tempfile::TempDir;

/// Far more than any of it takes: reached only by what never happens.
const PATIENCE: Duration = Duration::from_secs(60);

struct Bench {
    dir: TempDir,
    engine: Engine,
    db: Database,
    state: Arc<MirrorState>,
}

/// Waits for progress.
fn until(reached: impl Fn() -> bool) {
    let began = Instant::now();
    while !reached() {
        assert!(began.elapsed() < PATIENCE, "it never happened");
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Bench {
    /// A server whose record of its mirror says this.
    fn new(away: Away, record: RecordState) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let (main, mirror) = (dir.path().join("main"), dir.path().join("mirror"));
        std::fs::create_dir_all(&mirror).unwrap();
        let engine = Engine::open(&main, Options { segment_bytes: 1 << 20, ..Options::default() }).unwrap();
        let db = engine.database("holdfast").unwrap();
        let record = Record { state: record, ..Record::begin(&mirror, "1") };
        record.write(&main).unwrap();
        let (silence_max, notify) = (PATIENCE * 10, Notify::default());
        let setup = Setup { main: engine.clone(), dir: main, mirror, away, silence_max, notify };
        let state = MirrorState::new(setup, record);
        Bench { dir, engine, db, state }
    }

    fn main(&self) -> std::path::PathBuf {
        self.dir.path().join("main")
    }

    fn send(&self, sql: &str) -> Ticket {
        let step = Step { stmt: self.db.prepare(sql, Report::default()).unwrap(), params: Vec::new() };
        self.db.submit(Submission::new(vec![step], Box::new(Collect::new()))).unwrap()
    }

    /// Sends a commit, and waits until the gate holds it back.
    fn send_and_hold(&self, sql: &str) -> Ticket {
        let ticket = self.send(sql);
        until(|| self.engine.gate().batches == 1);
        ticket
    }

    /// The mirror follows and has everything.
    fn bring_into_service(&self) {
        let end = self.engine.trail().durable();
        self.state.follows(end);
        self.state.applied(end);
        self.state.check();
        assert_eq!(self.state.phase(), Phase::InService);
    }
}

fn recorded(main: &Path) -> Record {
    Record::read(main).unwrap().unwrap()
}

fn is_committed(ticket: Ticket) -> bool {
    ticket.wait().is_some_and(|done| done.result.is_ok())
}

#[test]
fn it_is_in_service_when_it_has_received_and_applied_everything() {
    let bench = Bench::new(Away::Wait, RecordState::Copying);
    let ticket = bench.send_and_hold("create table t(a)");
    let (state, end) = (&bench.state, bench.engine.trail().durable());
    state.follows(Lsn(0));
    state.check();
    state.received(end);
    state.check();
    assert_eq!(state.phase(), Phase::CatchingUp, "it has applied nothing");
    assert_eq!(recorded(&bench.main()).state, RecordState::Copying);
    assert_eq!(bench.engine.gate().batches, 1, "the commit waits");
    state.applied(end);
    state.check();
    assert_eq!(state.phase(), Phase::InService);
    assert_eq!(recorded(&bench.main()).state, RecordState::InService);
    assert!(is_committed(ticket));
}

#[test]
fn commits_wait_for_a_mirror_in_service_and_for_one_that_is_away() {
    let bench = Bench::new(Away::Wait, RecordState::InService);
    bench.bring_into_service();
    let first = bench.send_and_hold("create table t(a)");
    bench.state.received(bench.engine.trail().durable());
    assert!(is_committed(first));
    bench.state.lost("its disk failed", true);
    let second = bench.send_and_hold("insert into t values(1)");
    bench.state.check();
    let record = recorded(&bench.main());
    assert_eq!((record.state, record.distrusted.as_deref()), (RecordState::InService, Some("its disk failed")));
    assert_eq!(bench.engine.gate().batches, 1, "nothing passes without the mirror");
    bench.bring_into_service();
    assert!(is_committed(second));
    assert_eq!(recorded(&bench.main()).distrusted, None, "it has everything again");
}

#[test]
fn the_record_says_that_it_is_left_behind_before_commits_continue() {
    let bench = Bench::new(Away::GoOn, RecordState::InService);
    bench.bring_into_service();
    let had = bench.state.has();
    // The record cannot be replaced: a directory is in its place.
    let path = bench.main().join("mirror.toml");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir_all(path.join("full")).unwrap();
    let ticket = bench.send_and_hold("create table t(a)");
    bench.state.lost("it is gone", false);
    bench.state.check();
    assert!(bench.state.waits());
    assert_eq!(bench.engine.gate().batches, 1, "no record, no commit");
    std::fs::remove_dir_all(&path).unwrap();
    until(|| {
        bench.state.check();
        !bench.state.waits()
    });
    let record = recorded(&bench.main());
    assert_eq!((record.state, Lsn(record.lsn)), (RecordState::LeftBehind, had));
    assert!(is_committed(ticket));
}

#[test]
fn clients_are_admitted_when_it_is_known_what_commits_do() {
    let bench = Bench::new(Away::GoOn, RecordState::LeftBehind);
    bench.state.follows(Lsn(0));
    assert_eq!(bench.state.until_settled(PATIENCE), Ok(()), "commits continue while it catches up");
    bench.state.refused("it was promoted");
    assert_eq!(bench.state.until_settled(PATIENCE), Err("it was promoted".to_owned()));
    let held = bench.engine.gate().held;
    assert!(held.is_some(), "nothing is acknowledged");
}
