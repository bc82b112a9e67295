//! Large transactions whose pages the writer takes over from a private copy: nothing of the others' is lost or doubled, neither in the
//! running server nor in what a crash leaves.

use super::bench::*;
use holdfast_engine::{Database, Engine, Options, WriteIsolation, check};
use holdfast_seams::testing::{Patience, Seeded};
use holdfast_types::{SqlState, Value};
use std::sync::atomic::{AtomicBool, Ordering};

const TABLES: &str = "create table t(id integer primary key, v integer);
                      insert into t values(1, 10), (2, 20);
                      create table big(id integer primary key, k text unique, body text);
                      create table words(k text primary key, n integer) without rowid;
                      create table notes(id integer primary key, body blob);
                      create index by_length on notes(length(body));
                      create table counted(id integer primary key autoincrement, v text);
                      create table up(id integer primary key, v integer);
                      create table down(id integer primary key, up integer references up(id) on update cascade);
                      insert into up values(1, 0), (2, 0);
                      with recursive i(n) as (values(1) union all select n + 1 from i where n < 500)
                      insert into down select n, 1 from i";

fn few_bytes() -> Options {
    Options { side_copy_bytes_min: 4 << 10, prewrite_bytes_min: 64 << 10, ..options() }
}

/// Rows of `big` from `first` on.
fn rows(first: i64, count: i64) -> String {
    format!(
        "with recursive i(n) as (values({first}) union all select n + 1 from i where n < {first} + {count} - 1) \
         insert into big select n, 'key ' || n, 'body ' || n from i"
    )
}

fn large(db: &Database, sql: &str) {
    let mut txn = begin(db, RC);
    run(&mut txn, sql).unwrap();
    commit(txn).unwrap();
}

fn copies(engine: &Engine) -> u64 {
    engine.stats().into_iter().find(|(name, _)| *name == "side_copies").map_or(0, |(_, n)| n)
}

/// Everything that the tables and their indexes have.
fn content(db: &Database) -> Vec<Vec<Vec<Value>>> {
    let all = ["t", "big", "words", "notes", "counted", "up", "down", "sqlite_sequence"];
    let mut content: Vec<_> =
        all.iter().map(|table| at_once(db, &format!("select * from {table} order by 1")).unwrap()).collect();
    content.push(at_once(db, "select length(body), count(*) from notes group by 1 order by 1").unwrap());
    content.push(at_once(db, "select k from big order by k").unwrap());
    content
}

/// The same is there after a crash, where redo applies the trail, and the files are sound.
fn same_after_a_crash(o: Opened) {
    let before = content(&o.db);
    let Opened { engine, db, dir } = o;
    assert_eq!(at_once(&db, "pragma integrity_check").unwrap(), [[Value::Text("ok".into())]]);
    // Without a checkpoint.
    drop((db, engine));
    let engine = Engine::open(dir.path(), few_bytes()).unwrap();
    let db = engine.database("one").unwrap();
    assert_eq!(content(&db), before);
    db.checkpoint().unwrap();
    drop(db);
    engine.close().unwrap();
    let found = check::check(dir.path(), &few_bytes()).unwrap();
    assert!(found.is_sound(), "{found:?}");
}

#[test]
fn the_writer_continues_with_the_pages_of_a_copy() {
    let o = open_with(TABLES, few_bytes());
    for round in 0..4 {
        large(&o.db, &rows(round * 1000, 1000));
        assert_eq!(copies(&o.engine), round as u64 + 1);
        assert_eq!(int(&o.db, "select count(*) from big"), (round + 1) * 1000);
        at_once(&o.db, "update t set v = v + 1 where id = 1").unwrap();
        at_once(&o.db, &format!("insert into big values({}, 'key {}', 'refused')", -1 - round, round * 1000 + 5))
            .unwrap_err();
        at_once(&o.db, &format!("delete from big where id = {}", round * 1000)).unwrap();
        at_once(&o.db, &format!("insert into big values({}, 'again', 'small')", round * 1000)).unwrap();
        at_once(&o.db, &format!("update big set k = 'small {round}' where id = {}", round * 1000)).unwrap();
    }
    large(&o.db, "update big set body = body || k");
    large(&o.db, "delete from big where id % 3 = 0");
    assert_eq!(copies(&o.engine), 6);
    same_after_a_crash(o);
}

/// Small transactions of one thread: they grow, shrink and move what the large ones have next to it in the file.
fn small(db: &Database, seed: u64, ends: &AtomicBool) {
    let mut random = Seeded::new(seed);
    let first = 1_000_000 * seed as i64;
    let mut last = first;
    while !ends.load(Ordering::Acquire) {
        last += 1;
        let some = first + random.below((last - first) as u64) as i64;
        let sql = match random.below(6) {
            0 | 1 => format!("insert into notes values({last}, zeroblob({}))", random.below(9000)),
            2 => format!("insert into words values('{:x}-{last}', {last})", random.below(1 << 40)),
            3 => format!("delete from notes where id = {some}"),
            4 => format!("insert into big values({last}, 'small {last}', hex(zeroblob({})))", random.below(3000)),
            _ => format!("update notes set body = zeroblob({}) where id = {some}", random.below(9000)),
        };
        at_once(db, &sql).unwrap();
        if random.below(20) == 0 {
            at_once(db, "insert into counted(v) values('x')").unwrap();
        }
    }
}

/// Large transactions of other threads, each on rows of its own.
fn larger(db: &Database, seed: u64, ends: &AtomicBool) {
    let first = 1_000_000 * seed as i64;
    let mut round = 0;
    while !ends.load(Ordering::Acquire) {
        round += 1;
        let id = first + round * 100;
        let mut txn = begin(db, RC);
        for i in 0..20 {
            run(&mut txn, &format!("insert into notes values({}, zeroblob({}))", id + i, 300 * (i + seed as i64)))
                .unwrap();
        }
        run(&mut txn, &format!("delete from notes where id between {first} and {}", id - 1000)).unwrap();
        commit(txn).unwrap();
    }
}

/// Ends the threads, also after a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn others_write_next_to_many_copies() {
    let options = Options { memory_bytes_max: 4 << 20, ..few_bytes() };
    let o = open_with(TABLES, options);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&ends);
        for seed in 1..=3 {
            let (db, ends) = (&o.db, &ends);
            scope.spawn(move || small(db, seed, ends));
        }
        scope.spawn(|| {
            while !ends.load(Ordering::Acquire) {
                o.db.checkpoint().unwrap();
            }
        });
        for seed in 4..=5 {
            let (db, ends) = (&o.db, &ends);
            scope.spawn(move || larger(db, seed, ends));
        }
        let mut patience = Patience::new();
        let mut round = 0;
        while copies(&o.engine) < 60 {
            patience.sees(format!("{} copies", copies(&o.engine)));
            patience.look("copies");
            round += 1;
            large(&o.db, &rows(round * 10_000, 400 + round));
            large(
                &o.db,
                &format!("update big set body = body || 'x', k = k || 'y' where id >= {}", round * 10_000 - 5000),
            );
            if round % 4 == 0 {
                large(&o.db, &format!("delete from big where id < {}", round * 10_000));
            }
        }
    });
    same_after_a_crash(o);
}

#[test]
fn a_transaction_on_an_older_snapshot_does_not_overwrite_what_a_copy_brought() {
    let o = open_with(TABLES, few_bytes());
    large(&o.db, &rows(0, 1000));
    let mut older = begin(&o.db, RR);
    run(&mut older, "select count(*) from big").unwrap();
    large(&o.db, "update big set body = body || '+' where id < 500");
    large(&o.db, "insert into big select id + 5000, k || '-', body from big where id < 500");
    assert_eq!(copies(&o.engine), 3);
    assert_eq!(run(&mut older, "select body from big where id = 7").unwrap(), [[Value::Text("body 7".into())]]);
    run(&mut older, "update big set body = 'free' where id = 700").unwrap();
    assert_eq!(state(run(&mut older, "update big set body = 'lost' where id = 7")), SqlState::SERIALIZATION_FAILURE);
    drop(older);
    let mut newer = begin(&o.db, RR);
    run(&mut newer, "update big set body = 'newer' where id = 7").unwrap();
    commit(newer).unwrap();
    assert_eq!(int(&o.db, "select count(*) from big where body = 'newer'"), 1);
}

/// The writer does what a copy cannot.
/// More than the cache of the writer's connection holds.
const NOTES: &str = "with recursive i(n) as (values(1) union all select n + 1 from i where n < 20000) \
                     insert into notes select n, cast(printf('%01000d', n) as blob) from i";

/// A rollback of the writer's own writes the pages again that have left its cache. The next commit must not publish them over those
/// that a copy has brought since.
#[test]
fn what_the_writer_has_rolled_back_is_not_published_over_a_copy() {
    for rolled_back in [
        "update notes set body = cast(printf('%01000d', -id) as blob)",
        "update notes set body = body || zeroblob(500)",
        "delete from notes where id > 3",
        "insert into notes select id + 30000, body || body from notes",
    ] {
        let o = open_with(TABLES, few_bytes());
        large(&o.db, NOTES);
        o.db.checkpoint().unwrap();
        let mut txn = begin(&o.db, WriteIsolation::Exclusive);
        run(&mut txn, rolled_back).unwrap();
        drop(txn);
        large(&o.db, "update notes set body = cast(printf('%01000d', id + 1) as blob)");
        at_once(&o.db, "insert into notes values(-1, 'small')").unwrap();
        let changed =
            "select count(*) from notes where length(body) = 1000 and cast(cast(body as text) as int) = id + 1";
        assert_eq!(int(&o.db, changed), 20000, "{rolled_back}");
        assert_eq!(copies(&o.engine), 2);
        same_after_a_crash(o);
    }
}

#[test]
fn what_has_other_effects_than_its_images_is_merged() {
    let o = open_with(TABLES, few_bytes());
    large(&o.db, &rows(0, 1000));
    let copied = copies(&o.engine);
    // A cascade, which the writer records.
    let mut txn = begin(&o.db, RC);
    run(&mut txn, "update up set id = 9 where id = 1").unwrap();
    run(&mut txn, "update big set body = body || 'x'").unwrap();
    commit(txn).unwrap();
    assert_eq!(int(&o.db, "select count(*) from down where up = 9"), 500);
    // A counter.
    large(&o.db, "insert into counted(v) select body from big");
    at_once(&o.db, "delete from counted").unwrap();
    at_once(&o.db, "insert into counted(v) values('after')").unwrap();
    assert_eq!(int(&o.db, "select id from counted"), 1001);
    // Rows that are written as they were.
    large(&o.db, "update big set body = body");
    assert_eq!(copies(&o.engine), copied);
    // Children of rows that are there, and parents without children, change nothing else.
    large(&o.db, "insert into down select id + 10000, 2 from big");
    large(&o.db, "insert into up select id + 10000, 0 from big");
    assert_eq!(copies(&o.engine), copied + 2);
    same_after_a_crash(o);
}
