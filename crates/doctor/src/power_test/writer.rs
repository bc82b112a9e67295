//! The writer: one record, one sync, one message to the recorder, until the plug is pulled.

use std::io::IoSlice;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use holdfast_seams::{AlignedBuf, BLOCK_BYTES, Create, Disk as _, OpenHow, RealDisk, SyncMethod};

use super::conversation::Conversation;
use super::{FILE_NAME, record};

pub struct WriterOptions {
    pub directory: PathBuf,
    /// `HOST:PORT`
    pub recorder: String,
    pub sync_method: SyncMethod,
    /// Ends by itself after this; none writes until the power goes.
    pub time_max: Option<Duration>,
}

/// Writes; returns the last number, if it ends at all. `tell` hears once a second how far it is.
pub fn write(options: &WriterOptions, tell: impl Fn(u64)) -> anyhow::Result<u64> {
    let mut recorder = Conversation::begin(&options.recorder)?;
    let path = options.directory.join(FILE_NAME);
    let disk = RealDisk::new();
    let about = || format!("writing {}", path.display());
    let made = disk.open(&path, &OpenHow { create: Create::IfMissing, write: true, ..OpenHow::default() });
    let made = made.with_context(about)?;
    // Zeros over all of it: what an earlier run left must not be taken for this one's.
    let zeros = AlignedBuf::zeroed((record::BLOCKS as usize) * BLOCK_BYTES);
    made.write_at(&[IoSlice::new(zeros.as_slice())], 0).and_then(|()| made.sync_all()).with_context(about)?;
    disk.sync_dir(&options.directory).with_context(about)?;
    drop(made);
    let file = disk.open(&path, &options.sync_method.open_how()).with_context(about)?;

    let run = fresh_run();
    recorder.say(&format!("run {run}"))?;
    let mut block = AlignedBuf::zeroed(BLOCK_BYTES);
    let (began, mut reported) = (Instant::now(), Instant::now());
    let mut number = 0;
    while options.time_max.is_none_or(|time_max| began.elapsed() < time_max) {
        number += 1;
        record::write(&mut block, run, number);
        file.write_at(&[IoSlice::new(block.as_slice())], record::offset_of(number)).with_context(about)?;
        options.sync_method.sync(&*file).with_context(about)?;
        recorder.say(&format!("synced {number}"))?;
        if reported.elapsed() >= Duration::from_secs(1) {
            reported = Instant::now();
            tell(number);
        }
    }
    Ok(number)
}

/// An id that no other run has: the time, and the process.
fn fresh_run() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    (now.as_micros() as u64) << 8 | u64::from(std::process::id() & 0xff)
}
