//! A volume end to end on a real disk: publish, read, checkpoint, open with stock SQLite.

use holdfast_seams::{Disk, RealDisk};
use holdfast_store::checkpoint;
use holdfast_store::pages::Limits;
use holdfast_store::sqlite::{Conn, OpenFlags};
use holdfast_store::volume::{self, Volume};
use holdfast_types::{Value, VolumeId};
use std::path::{Path, PathBuf};

const LIMITS: Limits = Limits { memory_bytes_max: 64 << 20, scratch_bytes_max: 1 << 30 };

struct Fixture {
    dir: tempfile::TempDir,
    disk: RealDisk,
}

impl Fixture {
    fn new() -> Fixture {
        let f = Fixture { dir: tempfile::tempdir().unwrap(), disk: RealDisk::default() };
        volume::create(&f.disk, &f.path(), VolumeId(1), |c| c.exec("create table t(id integer primary key, x)"))
            .unwrap();
        f
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("v.db")
    }

    fn open(&self, limits: Limits) -> Volume {
        Volume::open(&self.disk, &self.path(), self.dir.path(), VolumeId(1), limits).unwrap()
    }

    fn stock(&self) -> Conn {
        Conn::open(self.path().to_str().unwrap(), OpenFlags { write: true, create: false }, None).unwrap()
    }
}

fn int(c: &mut Conn, sql: &str) -> i64 {
    match c.query_value(sql).unwrap() {
        Value::Int(i) => i,
        other => panic!("{sql}: {other:?}"),
    }
}

fn checkpoint(f: &Fixture, v: &Volume) -> Option<checkpoint::Checkpointed> {
    checkpoint::run(&f.disk as &dyn Disk, v.store(), |_| {}).unwrap()
}

#[test]
fn readers_see_visible_snapshots_only() {
    let f = Fixture::new();
    let v = f.open(LIMITS);
    let mut main = v.open_writer().unwrap();
    let mut reader = v.open_reader().unwrap();
    main.exec("insert into t values(1, 'a')").unwrap();
    assert_eq!(int(&mut reader, "select count(*) from t"), 0, "published, not durable");
    v.store().set_visible(v.store().newest());
    assert_eq!(int(&mut reader, "select count(*) from t"), 1);
    reader.exec("begin").unwrap();
    assert_eq!(int(&mut reader, "select count(*) from t"), 1);
    main.exec("insert into t values(2, 'b')").unwrap();
    v.store().set_visible(v.store().newest());
    assert_eq!(int(&mut reader, "select count(*) from t"), 1, "the snapshot stays");
    reader.exec("commit").unwrap();
    assert_eq!(int(&mut reader, "select count(*) from t"), 2);
    assert!(reader.exec("insert into t values(3, 'c')").is_err());
    main.exec("begin; insert into t values(9, 'x'); rollback").unwrap();
    assert_eq!(int(&mut main, "select count(*) from t"), 2);
}

#[test]
fn checkpoint_leaves_a_plain_database_and_old_snapshots_alone() {
    let f = Fixture::new();
    let v = f.open(LIMITS);
    let mut main = v.open_writer().unwrap();
    main.exec("with recursive n(i) as (select 1 union all select i+1 from n where i<5000) insert into t select i, hex(randomblob(200)) from n").unwrap();
    v.store().set_visible(v.store().newest());
    assert!(checkpoint(&f, &v).is_some());
    assert!(checkpoint(&f, &v).is_none(), "nothing new");
    let mut old = v.open_reader().unwrap();
    old.exec("begin").unwrap();
    let before = old.query_value("select sum(length(x)) + sum(id) from t").unwrap();
    main.exec("update t set x = 'short'; delete from t where id % 2").unwrap();
    v.store().set_visible(v.store().newest());
    assert!(checkpoint(&f, &v).is_some());
    main.exec("delete from t where id < 1000").unwrap();
    v.store().set_visible(v.store().newest());
    assert!(checkpoint(&f, &v).is_some());
    assert_eq!(old.query_value("select sum(length(x)) + sum(id) from t").unwrap(), before);
    assert_eq!(old.query_value("pragma integrity_check").unwrap(), Value::Text("ok".into()));
    let rows = int(&mut main, "select count(*) from t");
    drop((old, main));
    assert!(f.stock().query_value("select count(*) from t").is_err(), "locked while it is served");
    v.verify().unwrap();
    drop(v);
    let mut stock = f.stock();
    assert_eq!(stock.query_value("pragma integrity_check").unwrap(), Value::Text("ok".into()));
    assert_eq!(int(&mut stock, "select count(*) from t"), rows);
}

#[test]
fn a_database_larger_than_memory_with_an_old_reader() {
    let f = Fixture::new();
    let small = Limits { memory_bytes_max: 1 << 20, scratch_bytes_max: 1 << 30 };
    let v = f.open(small);
    let mut main = v.open_writer().unwrap();
    let fill = "with recursive n(i) as (select 1 union all select i+1 from n where i<20000) \
                insert or replace into t select i, hex(randomblob(200)) from n";
    main.exec(fill).unwrap();
    v.store().set_visible(v.store().newest());
    let mut old = v.open_reader().unwrap();
    old.exec("begin").unwrap();
    let before = old.query_value("select group_concat(substr(x, 1, 2)) from t").unwrap();
    for _ in 0..4 {
        main.exec(fill).unwrap();
        v.store().set_visible(v.store().newest());
        checkpoint(&f, &v);
    }
    (0..4).for_each(|_| v.store().tend(1 << 20));
    let stats = v.store().stats();
    assert!(stats.memory_pages * 4096 <= small.memory_bytes_max + (256 << 10), "{stats:?}");
    assert!(stats.scratch_bytes > 0, "{stats:?}");
    assert_eq!(old.query_value("select group_concat(substr(x, 1, 2)) from t").unwrap(), before);
    old.exec("commit").unwrap();
    (0..4).for_each(|_| v.store().tend(1 << 20));
    assert!(v.store().stats().scratch_bytes < 1 << 20, "{:?}", v.store().stats());
    assert_eq!(main.query_value("pragma integrity_check").unwrap(), Value::Text("ok".into()));
}

#[test]
fn the_oldest_snapshot_fails_when_scratch_is_full() {
    let f = Fixture::new();
    let v = f.open(Limits { memory_bytes_max: 1 << 20, scratch_bytes_max: 2 << 20 });
    let mut main = v.open_writer().unwrap();
    let fill = "with recursive n(i) as (select 1 union all select i+1 from n where i<20000) \
                insert or replace into t select i, hex(randomblob(200)) from n";
    main.exec(fill).unwrap();
    v.store().set_visible(v.store().newest());
    checkpoint(&f, &v);
    let mut old = v.open_reader().unwrap();
    old.exec("begin").unwrap();
    assert_eq!(int(&mut old, "select count(*) from t where id < 10"), 9);
    for _ in 0..3 {
        main.exec(fill).unwrap();
        v.store().set_visible(v.store().newest());
        checkpoint(&f, &v);
        v.store().tend(1 << 20);
    }
    assert!(old.query_value("select sum(length(x)) from t").is_err());
    let cause = holdfast_store::sqlite::take_cause().unwrap();
    assert!(cause.to_string().contains("too old"), "{cause}");
    assert_eq!(int(&mut main, "select count(*) from t"), 20000);
}

#[test]
fn an_interrupted_copy_is_repeated_and_a_foreign_page_is_seen() {
    let f = Fixture::new();
    {
        let v = f.open(LIMITS);
        let mut main = v.open_writer().unwrap();
        main.exec("insert into t select value, 'v' from generate_series(1, 10)").unwrap_or_else(|_| {
            main.exec("with recursive n(i) as (select 1 union all select i+1 from n where i<10) insert into t select i, 'v' from n").unwrap()
        });
        v.store().set_visible(v.store().newest());
        // The power fails after the -wal is whole: keep a copy of it from the time when the trail record is written.
        let wal = checkpoint::wal_path(&f.path());
        checkpoint::run(&f.disk, v.store(), |_| {
            std::fs::copy(&wal, wal.with_extension("kept")).unwrap();
        })
        .unwrap();
        std::fs::rename(wal.with_extension("kept"), &wal).unwrap();
    }
    // Half of the copy never reached the disk.
    let mut bytes = std::fs::read(f.path()).unwrap();
    bytes[4096..8192].fill(0xaa);
    std::fs::write(f.path(), &bytes).unwrap();
    let v = f.open(LIMITS);
    v.verify().unwrap();
    assert_eq!(int(&mut v.open_reader().unwrap(), "select count(*) from t"), 10);
    drop(v);
    f.stock().exec("update t set x = 'other' where id = 3").unwrap();
    let v = f.open(LIMITS);
    let error = v.verify().unwrap_err().to_string();
    assert!(error.contains("holdfast import") && error.contains("page"), "{error}");
}

#[test]
fn a_file_that_is_no_volume_is_refused() {
    let f = Fixture::new();
    std::fs::write(f.path(), b"hello").unwrap();
    let e = Volume::open(&f.disk, Path::new(&f.path()), f.dir.path(), VolumeId(1), LIMITS).err().unwrap();
    assert!(e.to_string().contains("not a volume file"), "{e}");
}

/// Guarantee 3: the file is never ahead of the durable trail.
#[test]
fn a_checkpoint_takes_only_what_is_durable() {
    let f = Fixture::new();
    let v = f.open(LIMITS);
    let mut main = v.open_writer().unwrap();
    main.exec("insert into t values(1, 'durable')").unwrap();
    v.store().set_visible(v.store().newest());
    main.exec("insert into t values(2, 'published')").unwrap();
    assert_eq!(checkpoint(&f, &v).unwrap().number, v.store().visible());
    assert!(checkpoint(&f, &v).is_none(), "the rest has to wait");
    drop((main, v));
    assert_eq!(int(&mut f.stock(), "select count(*) from t"), 1);
}

/// RULE 14: SQLite's change counter does not move in exclusive mode; the checkpoint sets it for other programs.
#[test]
fn a_checkpoint_moves_the_change_counter() {
    let f = Fixture::new();
    let v = f.open(LIMITS);
    let mut main = v.open_writer().unwrap();
    for id in 1..4 {
        main.exec(&format!("insert into t values({id}, 'x')")).unwrap();
        v.store().set_visible(v.store().newest());
    }
    let number = checkpoint(&f, &v).unwrap().number as u32;
    let bytes = std::fs::read(f.path()).unwrap();
    assert_eq!(bytes[24..28], number.to_be_bytes());
    assert_eq!(bytes[92..96], number.to_be_bytes());
}

#[test]
fn a_redo_connection_that_fails_publishes_nothing() {
    let f = Fixture::new();
    // With little memory, staged pages go to scratch.
    let v = f.open(Limits { memory_bytes_max: 256 << 10, ..LIMITS });
    let mut redo = v.open_redo().unwrap();
    redo.exec("begin; create unique index t_x on t (x); insert into t values(0, 'kept'); commit").unwrap();
    let newest = v.store().newest();
    redo.exec("begin immediate; with recursive n(i) as (select 1 union all select i+1 from n where i<5000) insert into t select i, hex(randomblob(200)) from n").unwrap();
    // The third row has the key of the first: the statement stops halfway, and no journal can undo it.
    let half = redo.exec("insert into t select 6000 + id, x from t where id in (4998, 4999, 0)");
    assert!(half.unwrap_err().to_string().contains("UNIQUE"));
    drop(redo);
    assert_eq!(v.store().newest(), newest);
    let mut main = v.open_writer().unwrap();
    assert_eq!(int(&mut main, "select count(*) from t"), 1);
    assert_eq!(main.query_value("pragma integrity_check").unwrap(), Value::Text("ok".into()));
    main.exec("insert into t values(1, 'goes on')").unwrap();
    v.store().set_visible(v.store().newest());
    assert!(checkpoint(&f, &v).is_some());
    drop((main, v));
    let mut stock = f.stock();
    assert_eq!(stock.query_value("pragma integrity_check").unwrap(), Value::Text("ok".into()));
    assert_eq!(int(&mut stock, "select count(*) from t"), 2);
}

/// SQLite does not write a page that a transaction takes and frees, and reads it when the same transaction takes it again. Of a plain
/// file it gets zeros.
#[test]
fn pages_that_were_taken_and_freed_in_one_transaction_are_read_as_zeros() {
    const LARGE: &str = "with recursive n(i) as (select 1 union all select i+1 from n where i<5000) \
                         insert into t select i, hex(randomblob(1000)) from n;";
    for open in [Volume::open_writer, Volume::open_redo, Volume::open_branch, Volume::open_side_copy] {
        let f = Fixture::new();
        let v = f.open(LIMITS);
        let mut conn = open(&v).unwrap();
        conn.exec("begin").unwrap();
        for _ in 0..3 {
            conn.exec(LARGE).unwrap();
            conn.exec("delete from t where id <> 5000; update t set id = -id").unwrap();
        }
        assert_eq!(int(&mut conn, "select count(*) from t"), 1);
        assert_eq!(conn.query_value("pragma integrity_check").unwrap(), Value::Text("ok".into()));
    }
}

/// Also those that are beyond the end of the file until a checkpoint makes it longer.
#[test]
fn a_file_with_pages_that_were_never_written_is_whole_after_a_checkpoint() {
    let f = Fixture::new();
    let v = f.open(LIMITS);
    let mut conn = v.open_redo().unwrap();
    conn.exec("begin; create table large(x); create table last(x)").unwrap();
    conn.exec("with recursive n(i) as (select 1 union all select i+1 from n where i<200) insert into large select zeroblob(3000) from n")
        .unwrap();
    conn.exec("insert into last select zeroblob(3000); delete from large; commit").unwrap();
    let (snapshot, pages) = v.store().acquire_newest();
    let mut holes = 0;
    for page in 1..=pages {
        let mut bytes = [1; 4096];
        v.store().read(page, snapshot, 0, &mut bytes).unwrap();
        holes += u32::from(bytes == [0; 4096]);
    }
    assert!(holes > 0, "SQLite has written every page");
    v.store().release(snapshot);
    v.store().set_visible(v.store().newest());
    assert!(checkpoint(&f, &v).is_some());
    conn.exec("insert into large select zeroblob(900000)").unwrap();
    assert_eq!(conn.query_value("pragma integrity_check").unwrap(), Value::Text("ok".into()));
    v.store().set_visible(v.store().newest());
    assert!(checkpoint(&f, &v).is_some());
    v.verify().unwrap();
    drop((conn, v));
    assert_eq!(f.stock().query_value("pragma integrity_check").unwrap(), Value::Text("ok".into()));
}
