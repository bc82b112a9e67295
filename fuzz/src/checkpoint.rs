//! A database file and the `-wal` of a checkpoint that was cut short, with some bytes changed: opened with every page sound,
//! or refused.
//!
//! Input: six bytes a change: which file and where in it (little-endian; the highest bit says which), and two that replace
//! what is there.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use holdfast_seams::testing::FaultDisk;
use holdfast_seams::{Create, Disk, OpenHow};
use holdfast_store::checkpoint;
use holdfast_store::pages::Limits;
use holdfast_store::volume::{self, Volume};
use holdfast_types::VolumeId;

const DIR: &str = "/volumes";
const LIMITS: Limits = Limits { memory_bytes_max: 8 << 20, scratch_bytes_max: 64 << 20 };
const CHANGE_BYTES: usize = 6;

/// Contents of the database file and of its `-wal`.
type Files = [Vec<u8>; 2];

fn paths() -> [PathBuf; 2] {
    ["v.db", "v.db-wal"].map(|name| Path::new(DIR).join(name))
}

fn scratch() -> &'static Path {
    static SCRATCH: OnceLock<tempfile::TempDir> = OnceLock::new();
    SCRATCH.get_or_init(|| tempfile::tempdir().expect("a directory")).path()
}

fn open(disk: &FaultDisk) -> Option<Volume> {
    Volume::open(disk, &paths()[0], scratch(), VolumeId(1), LIMITS).ok()
}

/// What a checkpoint leaves whose power fails at its `cut`th operation on the disk.
fn cut_short(cut: u64) -> Option<Files> {
    let disk = FaultDisk::new(1);
    disk.create_dir(Path::new(DIR)).expect("a directory");
    let [path, wal] = paths();
    volume::create(&disk, &path, VolumeId(1), |c| c.exec("create table t(id integer primary key, x)")).ok()?;
    let volume = open(&disk)?;
    let mut main = volume.open_writer().ok()?;
    for row in 0..40 {
        main.exec(&format!("insert into t values({row}, '{}')", "x".repeat(700))).ok()?;
    }
    volume.store().set_visible(volume.store().newest());
    disk.cut_power_after(cut);
    let finished = checkpoint::run(&disk, volume.store(), |_| ()).is_ok();
    drop(main);
    drop(volume);
    disk.restore_power();
    let files = [disk.contents(&path)?, disk.contents(&wal).unwrap_or_default()];
    (!finished && !files[1].is_empty()).then_some(files)
}

/// The last cut that leaves a whole `-wal`: the database file is half copied then.
fn sound() -> &'static Files {
    static FILES: OnceLock<Files> = OnceLock::new();
    FILES.get_or_init(|| {
        let whole = |files: &Files| open(&disk_of(files)).is_some_and(|v| v.checkpoint_finished());
        (1..200).rev().filter_map(cut_short).find(whole).expect("a checkpoint that was cut short")
    })
}

fn disk_of(files: &Files) -> FaultDisk {
    let disk = FaultDisk::new(2);
    disk.create_dir(Path::new(DIR)).expect("a directory");
    for (path, bytes) in paths().iter().zip(files) {
        let how = OpenHow { create: Create::New, write: true, ..OpenHow::default() };
        let file = disk.open(path, &how).expect("a new file");
        file.write_at(&[IoSlice::new(bytes)], 0).expect("written");
        file.sync_all().expect("synced");
    }
    disk.sync_dir(Path::new(DIR)).expect("synced");
    disk
}

pub fn run(data: &[u8]) {
    let mut files = sound().clone();
    for change in data.chunks_exact(CHANGE_BYTES).take(64) {
        let place = u32::from_le_bytes([change[0], change[1], change[2], change[3]]);
        let bytes = &mut files[(place >> 31) as usize];
        if bytes.len() >= 2 {
            let at = (place & 0x7fff_ffff) as usize % (bytes.len() - 1);
            bytes[at..at + 2].copy_from_slice(&change[4..6]);
        }
    }
    let Some(volume) = open(&disk_of(&files)) else { return };
    // Opening does not read every page; a page that is not what it was says so when it is read.
    drop(volume.verify());
}
