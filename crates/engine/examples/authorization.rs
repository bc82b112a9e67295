//! The authorization transaction in process, by many writers: how fast the writer and the trail go without a network.
//!
//! `cargo run --release --example authorization -p holdfast-engine -- [WRITERS] [SECONDS] [DIR]`
//!
//! Prints transactions per second, transactions per boxcar, and CPU time by thread, first with the trail on disk as
//! served, then with syncs left out (method `fdatasync` on a disk whose sync does nothing): the second is what the writer
//! alone can do, and the ratio of the two is what durability costs.

use holdfast_engine::{Collect, Database, Engine, Options, Report, Statement, Step, Submission};
use holdfast_types::Value;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TERMINALS: i64 = 10_000;

struct Statements {
    select: Arc<Statement>,
    update: Arc<Statement>,
    insert: Arc<Statement>,
}

fn run(db: &Database, sql: &str) {
    let stmt = db.prepare(sql, Report::default()).expect(sql);
    let batch = Submission::new(vec![Step { stmt, params: vec![] }], Box::new(Collect::new()));
    db.submit(batch).expect("open").wait().expect("open").result.expect(sql);
}

fn load(db: &Database) -> Statements {
    for sql in [
        "create table terminal(id integer primary key, term_no text unique, site text, state integer, filler text)",
        "create index terminal_site on terminal(site)",
        "create table txn_log(id integer primary key, card text, term_no text, auth_code text, ts integer, body text)",
        "create index l1 on txn_log(card)",
        "create index l2 on txn_log(term_no)",
        "create index l3 on txn_log(auth_code)",
        "create index l4 on txn_log(ts)",
    ] {
        run(db, sql);
    }
    run(
        db,
        &format!(
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < {TERMINALS}) \
             insert into terminal select i, printf('T%07d', i), printf('S%04d', i % 500), 0, printf('%3900d', i) from n"
        ),
    );
    let prepare = |sql| db.prepare(sql, Report::default()).expect(sql);
    Statements {
        select: prepare("select state from terminal where term_no = ?"),
        update: prepare("update terminal set state = state + 1 where term_no = ?"),
        insert: prepare("insert into txn_log(card, term_no, auth_code, ts, body) values(?, ?, ?, ?, ?)"),
    }
}

fn authorization(s: &Statements, random: u64, body: &str) -> Vec<Step> {
    let term = Value::Text(format!("T{:07}", 1 + random % TERMINALS as u64));
    let insert = vec![
        Value::Text(format!("C{:015}", (random >> 20) % 1_000_000_000)),
        term.clone(),
        Value::Text(format!("A{:06}", (random >> 40) % 1_000_000)),
        Value::Int((random & 0xff_ffff) as i64),
        Value::Text(body.to_owned()),
    ];
    vec![
        Step { stmt: s.select.clone(), params: vec![term.clone()] },
        Step { stmt: s.update.clone(), params: vec![term] },
        Step { stmt: s.insert.clone(), params: insert },
    ]
}

/// CPU time of this process's threads by name, in microseconds.
fn thread_cpu() -> Vec<(String, f64)> {
    let mut all: Vec<(String, f64)> = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default().trim().to_owned();
        let stat = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let ns: f64 = stat.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0.0);
        match all.iter_mut().find(|(n, _)| *n == name) {
            Some((_, us)) => *us += ns / 1000.0,
            None => all.push((name, ns / 1000.0)),
        }
    }
    all
}

fn measure(name: &str, dir: &Path, options: Options, writers: usize, seconds: u64) -> f64 {
    let engine = Engine::open(dir, options).expect("open");
    let db = engine.database("holdfast").expect("there");
    let statements = Arc::new(load(&db));
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let threads: Vec<_> = (0..writers as u64)
        .map(|w| {
            let (db, statements, stop, count) = (db.clone(), statements.clone(), stop.clone(), count.clone());
            std::thread::spawn(move || {
                let body = "b".repeat(900);
                let mut x = 88_172_645_463_325_252u64 ^ ((w + 1) << 17);
                while !stop.load(Ordering::Relaxed) {
                    x ^= x << 13;
                    x ^= x >> 7;
                    x ^= x << 17;
                    let steps = authorization(&statements, x.wrapping_mul(0x2545_F491_4F6C_DD1D), &body);
                    let batch = Submission::new(steps, Box::new(Collect::new()));
                    db.submit(batch).expect("open").wait().expect("open").result.expect("authorization");
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let before: Vec<_> = engine.stats();
    let cpu_before = thread_cpu();
    let started = Instant::now();
    let n0 = count.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_secs(seconds));
    let (n, elapsed) = (count.load(Ordering::Relaxed) - n0, started.elapsed().as_secs_f64());
    let after = engine.stats();
    let cpu = thread_cpu();
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|t| t.join().expect("writer"));
    let per_second = n as f64 / elapsed;
    let delta = |k: &str| {
        let get = |s: &[(&'static str, u64)]| s.iter().find(|(n, _)| *n == k).map_or(0, |(_, v)| *v);
        get(&after).saturating_sub(get(&before)) as f64
    };
    println!(
        "{name}: {per_second:.0} tx/s, {:.0} boxcars/s, {:.1} tx/boxcar, {} checkpoints, {:.0} checkpoint pages/s",
        delta("boxcars") / elapsed,
        n as f64 / delta("batches").max(1.0),
        delta("checkpoints"),
        delta("checkpoint_pages") / elapsed
    );
    for (thread, us) in cpu {
        let was = cpu_before.iter().find(|(t, _)| *t == thread).map_or(0.0, |(_, us)| *us);
        println!("    {thread}: {:.2} us of CPU a transaction", (us - was) / n as f64);
    }
    engine.close().expect("close");
    per_second
}

fn main() {
    let mut args = std::env::args().skip(1);
    let writers = args.next().and_then(|a| a.parse().ok()).unwrap_or(40);
    let seconds = args.next().and_then(|a| a.parse().ok()).unwrap_or(5);
    let base = args.next().unwrap_or_else(|| "bench-data".to_owned());
    let dir = Path::new(&base);
    let durable = measure("durable", &dir.join("durable"), Options::default(), writers, seconds);
    let shm = Path::new("/dev/shm/holdfast-bench");
    let alone = measure("without syncs (on /dev/shm)", shm, Options::default(), writers, seconds);
    println!("durable / without syncs: {:.2}", durable / alone);
    for dir in [dir, shm] {
        if let Err(e) = std::fs::remove_dir_all(dir) {
            eprintln!("cannot remove {}: {e}", dir.display());
        }
    }
}
