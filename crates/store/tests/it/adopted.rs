//! A private copy of a volume that becomes the volume, while the writer has continued: every page that is used afterwards fits the others.
//!
//! `HOLDFAST_SEED=n` repeats a seed, `HOLDFAST_SEEDS=n` runs more.

use holdfast_seams::testing::Seeded;
use holdfast_seams::{Disk, RealDisk};
use holdfast_store::checkpoint;
use holdfast_store::pages::{ChangeWatch, Limits};
use holdfast_store::sqlite::{Conn, OpenFlags};
use holdfast_store::volume::{self, Volume};
use holdfast_types::{Value, VolumeId};

const SCHEMA: &str = "create table t(id integer primary key, x blob); create index t_x on t(length(x), x);
                      create table s(id integer primary key, x blob)";
/// The copy changes rows below this id only, and the writer those above.
const SMALL: i64 = 1_000_000;

struct Bed {
    dir: tempfile::TempDir,
    disk: RealDisk,
    volume: Volume,
    main: Conn,
}

impl Bed {
    fn new(memory_bytes_max: u64) -> Bed {
        let (dir, disk) = (tempfile::tempdir().unwrap(), RealDisk::default());
        let path = dir.path().join("v.db");
        volume::create(&disk, &path, VolumeId(1), |c| c.exec(SCHEMA)).unwrap();
        let limits = Limits { memory_bytes_max, scratch_bytes_max: 1 << 30 };
        let volume = Volume::open(&disk, &path, dir.path(), VolumeId(1), limits).unwrap();
        let main = volume.open_writer().unwrap();
        Bed { dir, disk, volume, main }
    }

    fn make_visible(&self) {
        self.volume.store().set_visible(self.volume.store().newest());
    }

    fn checkpoint(&self) {
        self.make_visible();
        checkpoint::run(&self.disk as &dyn Disk, self.volume.store(), |_| {}).unwrap();
    }

    /// Begins a copy, runs `large` on it and `small` in the writer, repeats that on the copy, and adopts it.
    fn adopt(&mut self, large: &[String], small: &[String]) {
        let store = self.volume.store().clone();
        let watch = ChangeWatch::begin(&store);
        // Of other copies.
        let _other = ChangeWatch::begin(&store);
        drop(ChangeWatch::begin(&store));
        let mut copy = self.volume.open_side_copy().unwrap();
        let (newest, _) = store.acquire_newest();
        copy.choose_snapshot(newest);
        copy.exec("begin immediate").unwrap();
        store.release(newest);
        large.iter().for_each(|sql| copy.exec(sql).unwrap());
        small.iter().for_each(|sql| self.main.exec(sql).unwrap());
        self.make_visible();
        small.iter().for_each(|sql| copy.exec(sql).unwrap());
        let content = content(&mut copy);
        copy.keep_pages();
        copy.exec("commit").unwrap();
        let pages = copy.take_pages().unwrap();
        self.main.exec("pragma locking_mode=normal; select count(*) from t").unwrap();
        store.adopt(pages, &watch).unwrap();
        self.main.exec("pragma locking_mode=exclusive").unwrap();
        self.is_whole(&content);
    }

    fn is_whole(&mut self, content_before: &Content) {
        self.make_visible();
        let mut reader = self.volume.open_reader().unwrap();
        for conn in [&mut self.main, &mut reader] {
            assert_eq!(&content(conn), content_before);
            assert_eq!(conn.query_value("pragma integrity_check").unwrap(), Value::Text("ok".into()));
        }
    }
}

type Content = Vec<Vec<Value>>;

fn content(conn: &mut Conn) -> Content {
    let mut rows = conn.query_rows("select 't', id, length(x), hex(substr(x, 1, 8)) from t order by id").unwrap();
    rows.extend(conn.query_rows("select 's', id, length(x), '' from s order by id").unwrap());
    rows.extend(conn.query_rows("select 'i', count(*), sum(id), length(x) from t group by length(x)").unwrap());
    rows
}

fn rows(table: &str, from: i64, count: i64, bytes: i64) -> String {
    format!(
        "with recursive n(i) as (select {from} union all select i + 1 from n where i < {from} + {count} - 1) \
         insert or replace into {table} select i, zeroblob({bytes} - i % 7) from n"
    )
}

/// Neither the size nor the list of free pages changes: only the counters of page 1 show the writer that its cache is out of date.
#[test]
fn rows_that_are_only_rewritten_are_read_again() {
    let mut bed = Bed::new(64 << 20);
    bed.main.exec(&rows("s", 1, 300, 400)).unwrap();
    for round in 1..4 {
        bed.adopt(&[format!("update s set x = zeroblob(length(x) - {round}) where id = 200")], &[]);
    }
}

/// The writer has rolled back more than its cache holds, and wrote what its pages were before.
#[test]
fn what_main_has_rolled_back_is_not_published() {
    let mut bed = Bed::new(64 << 20);
    bed.main.exec(&rows("t", 1, 20_000, 1000)).unwrap();
    bed.make_visible();
    bed.main.exec("begin; update t set x = zeroblob(1000); rollback").unwrap();
    assert!(bed.main.staged_pages() > 0, "the cache holds all of it");
    bed.main.exec("pragma locking_mode=normal; select 1 from t; pragma locking_mode=exclusive").unwrap();
    assert_eq!(bed.main.staged_pages(), 0);
}

/// One statement on rows from `first` to `last`.
fn any(random: &mut Seeded, first: i64, last: i64) -> String {
    let table = if random.one_in(3) { "s" } else { "t" };
    let at = first + random.below((last - first) as u64) as i64;
    let below = if random.one_in(4) { 20_000 } else { 300 };
    let bytes = random.below(below) + 10;
    match random.below(4) {
        0 => format!("insert or replace into {table} values({at}, zeroblob({bytes}))"),
        1 => format!("delete from {table} where id between {at} and {last}"),
        2 => format!("update {table} set x = zeroblob({bytes}) where id between {at} and {at} + 20 and id < {last}"),
        _ => format!("delete from {table} where id between {first} and {at}"),
    }
}

#[test]
fn a_copy_with_any_changes_next_to_any_others() {
    let asked = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let first = asked("HOLDFAST_SEED").unwrap_or(1);
    for seed in first..first + asked("HOLDFAST_SEEDS").unwrap_or(12) {
        println!("seed {seed}");
        let mut random = Seeded::new(seed);
        let mut bed = Bed::new(if random.one_in(2) { 256 << 10 } else { 64 << 20 });
        for round in 0..3 {
            for table in ["s", "t"] {
                let (count, bytes) = (random.below(400) as i64 + 20, random.below(3000) as i64 + 10);
                bed.main.exec(&rows(table, 1000 * (3 * round + 1), count, bytes)).unwrap();
                bed.main.exec(&rows(table, SMALL + 1000 * (3 * round + 1), count, bytes)).unwrap();
            }
            if random.one_in(2) {
                bed.checkpoint();
            }
            let mut large: Vec<_> = (0..random.below(12)).map(|_| any(&mut random, 1, 10_000)).collect();
            let (from, count) = (10_000 * (round + 2), random.below(600) as i64);
            large.push(rows("t", from, count + 1, random.below(900) as i64 + 10));
            let small: Vec<_> = (0..random.below(25)).map(|_| any(&mut random, SMALL, SMALL + 10_000)).collect();
            bed.adopt(&large, &small);
        }
        bed.checkpoint();
        let content_before = content(&mut bed.main);
        let Bed { dir, volume, main, .. } = bed;
        drop((main, volume));
        let path = dir.path().join("v.db");
        let mut stock = Conn::open(path.to_str().unwrap(), OpenFlags { write: false, create: false }, None).unwrap();
        assert_eq!(stock.query_value("pragma integrity_check").unwrap(), Value::Text("ok".into()), "seed {seed}");
        assert_eq!(content(&mut stock), content_before, "seed {seed}");
    }
}
