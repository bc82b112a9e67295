//! The engine in a process of its own, killed at random points, against plain SQLite.
//!
//! The child runs transactions that follow from the seed, one database, several under way at a time, with checkpoints
//! and VACUUM, and says on its output which have been answered. The parent kills it, opens the directory and compares:
//! what was acknowledged is there, and of what was under way a beginning. Meanwhile readers in the child check the sum
//! over a table of accounts in every snapshot.
//!
//! `HOLDFAST_SEED=n cargo test -p holdfast-engine --test it oracle` repeats a seed, `HOLDFAST_SEEDS=n` runs more.

use crate::support::client::{Sent, query, send, step};
use crate::support::plain::{Plain, dump};
use crate::support::workload::{SCHEMA, Step, Transaction, transaction};
use holdfast_engine::{Collect, Database, Engine, Options};
use holdfast_seams::testing::Seeded;
use holdfast_types::schema::Dialect;
use holdfast_types::{SessionContext, Value};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SEEDS: u64 = 12;
const KILLS_PER_SEED: u64 = 4;
const UNDER_WAY_MAX: u64 = 6;
const ACCOUNTS: u64 = 20;
/// Set for the child: the directory, the seed, and how many transactions are done already.
const CHILD: &str = "HOLDFAST_ORACLE_CHILD";

fn options() -> Options {
    Options {
        initial_databases: vec![("one".to_owned(), Dialect::Sqlite)],
        segment_bytes: 2 << 20,
        memory_bytes_max: 1 << 20,
        // Nearly everything that a branch commits, VACUUM in between.
        side_copy_bytes_min: 200,
        ..Options::default()
    }
}

/// Transaction `number` of a seed, whoever asks.
fn nth(seed: u64, number: u64) -> Transaction {
    let mut r = Seeded::new(seed << 32 | number);
    if number == 0 {
        let accounts = format!(
            "create table acc as with recursive n(i) as (select 1 union all select i + 1 from n where i < {ACCOUNTS}) \
             select i, 100 as balance from n"
        );
        let steps = SCHEMA.iter().map(|sql| Step::Run((*sql).to_owned())).chain([Step::Run(accounts)]);
        return Transaction::Interactive(steps.collect());
    }
    match r.below(3) {
        0 => {
            let (from, to, amount) = (1 + r.below(ACCOUNTS), 1 + r.below(ACCOUNTS), r.below(50));
            let change =
                |sign, rowid| format!("update acc set balance = balance {sign} {amount} where rowid = {rowid}");
            Transaction::Message(vec![change('-', from), change('+', to)])
        }
        _ => transaction(&mut r),
    }
}

#[test]
fn killed_at_random_points() {
    if let Ok(child) = std::env::var(CHILD) {
        return serve(&child);
    }
    let number = |name| std::env::var(name).ok().and_then(|n: String| n.parse::<u64>().ok());
    let seeds = match number("HOLDFAST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("HOLDFAST_SEEDS").unwrap_or(SEEDS),
    };
    let acknowledged: u64 = seeds.map(run).sum();
    println!("{acknowledged} transactions acknowledged");
    assert!(acknowledged > 0);
}

fn run(seed: u64) -> u64 {
    let mut random = Seeded::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut plain = Plain::new();
    let (mut next, mut acknowledged) = (0, 0);
    for _ in 0..KILLS_PER_SEED {
        let answers = until_killed(dir.path(), seed, next, Duration::from_millis(300 + random.below(900)));
        for (number, committed) in &answers {
            assert_eq!(*number, next, "seed {seed}: answers in order");
            let ran = plain.run(&nth(seed, next));
            assert_eq!(ran, *committed, "seed {seed}: transaction {next} {:?}", nth(seed, next));
            acknowledged += u64::from(ran);
            next += 1;
        }
        let engine = Engine::open(dir.path(), options()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let db = engine.database("one").unwrap();
        assert_eq!(query(&db, "pragma integrity_check").unwrap(), [[Value::Text("ok".into())]], "seed {seed}");
        let there = dump(|sql| query(&db, sql)).unwrap();
        let under_way = next + UNDER_WAY_MAX + 1;
        while plain.dump() != there {
            assert!(next < under_way, "seed {seed}: neither what was acknowledged nor with what was under way");
            plain.run(&nth(seed, next));
            next += 1;
        }
        // Without a checkpoint, sometimes: the next child then has twice as much to redo.
        if random.one_in(2) {
            engine.close().unwrap();
        }
    }
    acknowledged
}

/// Runs a child for a while and kills it; returns its answers: transaction and whether it committed.
fn until_killed(dir: &Path, seed: u64, next: u64, time: Duration) -> Vec<(u64, bool)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "oracle::killed_at_random_points", "--nocapture"])
        .env(CHILD, format!("{seed} {next} {}", dir.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let reading = std::thread::spawn(move || output.lines().map_while(Result::ok).collect::<Vec<String>>());
    std::thread::sleep(time);
    assert_eq!(child.try_wait().unwrap(), None, "seed {seed}: the child ended by itself");
    child.kill().unwrap();
    child.wait().unwrap();
    let lines = reading.join().unwrap();
    let answers = lines.iter().filter_map(|line| line.strip_prefix("answer "));
    answers
        .map(|line| {
            let (number, committed) = line.split_once(' ').unwrap();
            (number.parse().unwrap(), committed == "true")
        })
        .collect()
}

/// The child: works until it is killed.
fn serve(child: &str) {
    let mut parts = child.splitn(3, ' ');
    let mut part = || parts.next().unwrap();
    let (seed, mut next) = (part().parse::<u64>().unwrap(), part().parse::<u64>().unwrap());
    let engine = Engine::open(Path::new(part()), options()).unwrap();
    let db = engine.database("one").unwrap();
    let ready = Arc::new(AtomicBool::new(next > 0));
    for _ in 0..2 {
        let (db, ready) = (db.clone(), ready.clone());
        std::thread::spawn(move || watch(&db, &ready));
    }
    // A line of its own: the test harness has begun one.
    println!();
    let mut random = Seeded::new(seed ^ next);
    let mut under_way: VecDeque<(u64, Sent)> = VecDeque::new();
    loop {
        let transaction = nth(seed, next);
        under_way.push_back((next, send(&db, &transaction)));
        let keep = if transaction.changes_schema() { 0 } else { random.below(UNDER_WAY_MAX) as usize };
        while under_way.len() > keep {
            let (number, sent) = under_way.pop_front().unwrap();
            let committed = sent.answer().expect("answered").is_ok();
            // One write, so that a kill does not leave half a line.
            std::io::stdout().write_all(format!("answer {number} {committed}\n").as_bytes()).unwrap();
            ready.store(true, Ordering::Relaxed);
        }
        next += 1;
        if random.one_in(30) {
            db.checkpoint().unwrap();
        }
        if random.one_in(150) {
            db.vacuum().unwrap();
        }
    }
}

/// Reads the sum again and again, twice in each snapshot.
fn watch(db: &Database, ready: &AtomicBool) {
    while !ready.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    let sum = step(db, "select sum(balance) from acc").unwrap();
    let mut turn = 0;
    loop {
        let mut reader = db.reader().unwrap();
        reader.begin().unwrap();
        for _ in 0..2 {
            let rows = Collect::new();
            reader.run(&SessionContext::NONE, 0, &sum, &mut rows.clone()).unwrap();
            if rows.outcomes()[0].rows != [[Value::Int(100 * ACCOUNTS as i64)]] {
                eprintln!("a reader saw a wrong sum in snapshot {}", reader.snapshot());
                std::process::abort();
            }
            turn += 1;
            if turn % 50 == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        reader.end().unwrap();
    }
}
