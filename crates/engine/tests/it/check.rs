//! `holdfast check` on directories that are sound, crashed and damaged; it never changes a byte.

use crate::support::report_of;
use holdfast_engine::check::{CheckError, CheckReport, check};
use holdfast_engine::{Collect, Database, Engine, Options, Step, Submission};
use holdfast_seams::{Create, Disk, OpenHow, RealDisk};
use holdfast_store::wal_file::WalWriter;
use holdfast_types::schema::Dialect;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn options() -> Options {
    Options {
        segment_bytes: 4 << 20,
        initial_databases: vec![("shop".to_owned(), Dialect::Sqlite)],
        ..Options::default()
    }
}

fn change(db: &Database, sql: &str) {
    let step = Step { stmt: db.prepare(sql, report_of(sql)).unwrap(), params: Vec::new() };
    let batch = Submission::new(vec![step], Box::new(Collect::new()));
    db.submit(batch).unwrap().wait().unwrap().result.unwrap();
}

/// A directory with one database of a few hundred rows, cleanly stopped.
fn stopped() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), options()).unwrap();
    let db = engine.database("shop").unwrap();
    change(&db, "create table t(id integer primary key, x)");
    change(
        &db,
        "insert into t with recursive n(i) as (select 1 union all select i+1 from n where i<500) select i, hex(randomblob(50)) from n",
    );
    engine.close().unwrap();
    dir
}

fn copy_of(dir: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    let copied = std::process::Command::new("cp").arg("-a").arg(dir.join(".")).arg(to.path()).status().unwrap();
    assert!(copied.success());
    to
}

fn files(dir: &Path, all: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.insert(path.clone(), Vec::new());
            files(&path, all);
        } else {
            all.insert(path.clone(), std::fs::read(path).unwrap());
        }
    }
}

/// Checks, and sees to it that nothing has changed.
fn checked(dir: &Path) -> CheckReport {
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    files(dir, &mut before);
    let report = check(dir, &options()).unwrap();
    files(dir, &mut after);
    assert!(before == after, "the directory was changed");
    report
}

fn volume(dir: &Path) -> PathBuf {
    dir.join("volumes/000001-shop.db")
}

fn flip(path: &Path, offset: u64) {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], offset).unwrap();
}

#[test]
fn a_stopped_directory_is_sound() {
    let dir = stopped();
    let report = checked(dir.path());
    assert!(report.is_sound() && report.notes.is_empty(), "{report:?}");
    let shop = &report.databases[0];
    assert_eq!((shop.number, shop.number_redone), (Some(2), Some(2)));
    assert!(shop.pages > 10 && shop.tables == 1 && !shop.checkpoint_pending, "{shop:?}");
    assert!(report.trail.unwrap().boxcars > 3);
}

#[test]
fn a_crashed_directory_is_sound_after_redo_in_memory() {
    let dir = stopped();
    let engine = Engine::open(dir.path(), options()).unwrap();
    let db = engine.database("shop").unwrap();
    change(&db, "delete from t where id % 2 = 0");
    change(&db, "create index tx on t(x)");
    let crashed = copy_of(dir.path());
    assert!(matches!(check(dir.path(), &options()), Err(CheckError::InUse(_))));
    engine.close().unwrap();
    let report = checked(crashed.path());
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.databases[0].number, report.databases[0].number_redone), (Some(2), Some(4)));
}

/// The file of before and a `-wal` that holds a whole checkpoint, as a power cut in the middle of copying leaves them.
#[test]
fn a_pending_checkpoint_is_read_where_it_stands() {
    let dir = stopped();
    let old = std::fs::read(volume(dir.path())).unwrap();
    let engine = Engine::open(dir.path(), options()).unwrap();
    change(&engine.database("shop").unwrap(), "update t set x = 'new'");
    engine.close().unwrap();
    let new = std::fs::read(volume(dir.path())).unwrap();
    std::fs::write(volume(dir.path()), &old).unwrap();
    let report = checked(dir.path());
    assert!(report.databases[0].problems[0].contains("older file"), "{report:?}");

    let how = OpenHow { create: Create::IfMissing, write: true, ..OpenHow::default() };
    let wal = RealDisk::default().open(&volume(dir.path()).with_extension("db-wal"), &how).unwrap();
    let pages = (new.len() / 4096) as u32;
    let mut writer = WalWriter::new(&*wal, 1, 3, pages, pages);
    for (i, page) in new.chunks_exact(4096).enumerate() {
        writer.frame(i as u32 + 1, page.try_into().unwrap()).unwrap();
    }
    let report = checked(dir.path());
    assert!(report.is_sound(), "{report:?}");
    assert!(report.databases[0].checkpoint_pending);
    assert_eq!(report.databases[0].number, Some(3));
}

#[test]
fn damage_is_found() {
    let dir = stopped();
    let page = copy_of(dir.path());
    flip(&volume(page.path()), 3 * 4096 + 200);
    let report = checked(page.path());
    assert!(!report.is_sound());
    assert!(report.databases[0].problems[0].contains("page 4 at offset 12288"), "{report:?}");

    let trail = copy_of(dir.path());
    let segment = trail.path().join("trail/00000001-00000001.segment");
    flip(&segment, 4096 + 100);
    let report = checked(trail.path());
    assert!(!report.is_sound());
    assert!(report.problems[0].contains("at byte 4096"), "{report:?}");

    let list = copy_of(dir.path());
    std::fs::remove_file(list.path().join("databases.toml")).unwrap();
    assert!(checked(list.path()).problems[0].contains("databases.toml is missing"));

    let gone = copy_of(dir.path());
    std::fs::remove_file(volume(gone.path())).unwrap();
    assert!(!checked(gone.path()).is_sound());

    let extra = copy_of(dir.path());
    std::fs::write(extra.path().join("volumes/000009-left.db"), "").unwrap();
    let report = checked(extra.path());
    assert!(report.is_sound() && report.notes[0].contains("000009-left.db"), "{report:?}");

    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(check(empty.path(), &options()), Err(CheckError::NotADirectory { .. })));
}
