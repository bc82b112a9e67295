//! Recovery: a sound trail with some bytes changed opens with a beginning of what was appended, or is refused.
//!
//! Input: seven bytes a change: which file, where in it (4, little-endian), and two that replace what is there. Bytes
//! that are written into the file without its checksum are noticed; forged checksums are not what this is about.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use holdfast_seams::testing::{FaultDisk, StepClock};
use holdfast_seams::{Create, Disk, OpenHow};
use holdfast_trail::{BoxcarKind, Dump, Inspection, Trail, TrailOptions};

const DIR: &str = "/trail";
const RECORDS: u64 = 20;
const CHANGE_BYTES: usize = 7;

type Files = Vec<(PathBuf, Vec<u8>)>;

fn options() -> TrailOptions {
    TrailOptions {
        segment_bytes: 64 << 10,
        boxcar_bytes_max: 12 << 10,
        kept_back_bytes: 8192,
        on_failure: Arc::new(|_| {}),
        ..TrailOptions::new(DIR)
    }
}

fn open(disk: &FaultDisk) -> Option<Trail> {
    let clock = Arc::new(StepClock::starting_at(1));
    Trail::open(Arc::new(disk.clone()), clock, options()).ok().map(|(trail, _)| trail)
}

/// A trail of twenty records, cleanly closed.
fn sound() -> &'static Files {
    static FILES: OnceLock<Files> = OnceLock::new();
    FILES.get_or_init(|| {
        let disk = FaultDisk::new(1);
        let trail = open(&disk).expect("a new trail");
        for number in 0..RECORDS {
            let (done, wait) = std::sync::mpsc::channel();
            let body = vec![number as u8; 3000];
            let reservation = trail.reserve(body.len() as u64).expect("room");
            let told = Box::new(move |_| done.send(()).unwrap_or_default());
            trail.append(reservation, body, told).expect("open");
            wait.recv().expect("durable");
        }
        trail.close().expect("closed");
        drop(trail);
        let names = disk.list(Path::new(DIR)).expect("the directory");
        let file = |name: String| {
            let path = Path::new(DIR).join(name);
            disk.contents(&path).map(|bytes| (path, bytes))
        };
        names.into_iter().filter_map(file).collect()
    })
}

fn disk_of(files: &Files) -> FaultDisk {
    let disk = FaultDisk::new(2);
    for (path, bytes) in files {
        let how = OpenHow { create: Create::New, write: true, ..OpenHow::default() };
        let file = disk.open(path, &how).expect("a new file");
        file.write_at(&[std::io::IoSlice::new(bytes)], 0).expect("written");
        file.sync_all().expect("synced");
    }
    disk.sync_dir(Path::new(DIR)).expect("synced");
    disk
}

pub fn run(data: &[u8]) {
    let mut files = sound().clone();
    for change in data.chunks_exact(CHANGE_BYTES).take(64) {
        let count = files.len();
        let bytes = &mut files[usize::from(change[0]) % count].1;
        let at = u32::from_le_bytes([change[1], change[2], change[3], change[4]]) as usize;
        if bytes.len() >= 2 {
            let at = at % (bytes.len() - 1);
            bytes[at..at + 2].copy_from_slice(&change[5..7]);
        }
    }
    let disk = disk_of(&files);
    let looked = Inspection::of(&disk, Path::new(DIR));
    if let Ok(dump) = Dump::open(&disk, Path::new(DIR)) {
        // Walked for its own sake.
        let _ = dump.take(1000).count();
    }
    let Some(trail) = open(&disk) else { return };
    let first = looked.expect("what opens was sound to look at").map(|inspection| inspection.first);
    let Some(first) = first else { return };
    let Ok(boxcars) = trail.read(first) else { return };
    let bodies =
        boxcars.map_while(Result::ok).filter(|boxcar| boxcar.kind == BoxcarKind::Data).map(|boxcar| boxcar.body);
    for (number, body) in bodies.enumerate() {
        assert!(body == vec![number as u8; 3000], "record {number} is not what was appended");
    }
}
