//! A first start that the power cuts short at any of its disk operations: the next one completes it.

use holdfast_engine::{Engine, Options};
use holdfast_seams::testing::FaultDisk;
use std::path::Path;
use std::sync::Arc;

fn open(disk: &FaultDisk, dir: &Path) -> Result<Engine, String> {
    let options = Options {
        disk: Arc::new(disk.clone()),
        segment_bytes: 256 << 10,
        memory_bytes_max: 64 << 12,
        on_failure: Arc::new(|_| {}),
        ..Options::default()
    };
    Engine::open(dir, options).map_err(|e| e.to_string())
}

fn names(engine: &Engine) -> Vec<String> {
    let mut names: Vec<String> = engine.databases().into_iter().map(|database| database.name).collect();
    names.sort();
    names
}

#[test]
fn an_interrupted_first_start_is_completed() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("scratch")).unwrap();
    let (mut interrupted, mut completed) = (0, 0);
    for operation in 1..120 {
        let disk = FaultDisk::new(operation);
        disk.cut_power_after(operation);
        match open(&disk, dir.path()) {
            Ok(engine) => drop(engine),
            Err(_) => interrupted += 1,
        }
        disk.restore_power();
        disk.do_not_cut();
        let engine = open(&disk, dir.path()).unwrap_or_else(|e| panic!("cut at operation {operation}: {e}"));
        assert_eq!(names(&engine), ["holdfast", "postgres"], "cut at operation {operation}");
        completed += 1;
    }
    assert!(interrupted > 20 && completed == 119, "{interrupted} interrupted, {completed} completed");
}

#[test]
fn a_list_lost_later_is_still_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("scratch")).unwrap();
    let disk = FaultDisk::new(1);
    drop(open(&disk, dir.path()).unwrap());
    holdfast_seams::Disk::remove(&disk, &dir.path().join("databases.toml")).unwrap();
    let refused = open(&disk, dir.path()).err().unwrap();
    assert!(refused.contains("missing, but the directory has a trail"), "{refused}");
}
