//! What a disk does without a server: a block written and made durable, again and again, by each method, as
//! pg_test_fsync does.
//!
//! Failure: a method that the file system refuses is an error of that method alone.

use super::plan::METHODS;
use holdfast_seams::{AlignedBuf, Create, Disk, OpenHow, RealDisk, SyncMethod};
use std::io::{self, IoSlice};
use std::path::Path;
use std::time::{Duration, Instant};

/// What the trail's smallest boxcar takes.
pub const BLOCK_BYTES: usize = 4096;
/// Bytes of the file, whose blocks are overwritten one after the other, as the trail's segments are.
const FILE_BYTES: usize = 1 << 20;

/// Durable writes a second by each method, each measured for `span`.
pub fn measure(dir: &Path, span: Duration) -> Vec<(SyncMethod, io::Result<f64>)> {
    let path = dir.join("sync-rate");
    let rates = METHODS.into_iter().map(|method| (method, rate(&path, method, BLOCK_BYTES, span))).collect();
    // Missing when none could be written.
    let _ = std::fs::remove_file(&path);
    rates
}

/// Durable writes of `bytes` each, a multiple of [`BLOCK_BYTES`], a second; at least one is made. The file stays.
pub fn rate(path: &Path, method: SyncMethod, bytes: usize, span: Duration) -> io::Result<f64> {
    let disk = RealDisk::new();
    let made = disk.open(path, &OpenHow { create: Create::IfMissing, write: true, ..OpenHow::default() })?;
    let blocks = (FILE_BYTES / bytes).max(1);
    made.write_at(&[IoSlice::new(AlignedBuf::zeroed(blocks * bytes).as_slice())], 0)?;
    made.sync_all()?;
    let file = disk.open(path, &method.open_how())?;
    let block = AlignedBuf::zeroed(bytes);
    let (start, mut count) = (Instant::now(), 0);
    while count == 0 || start.elapsed() < span {
        file.write_at(&[IoSlice::new(block.as_slice())], ((count % blocks) * bytes) as u64)?;
        method.sync(&*file)?;
        count += 1;
    }
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_measured_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let rates = measure(dir.path(), Duration::from_millis(5));
        assert_eq!(rates.len(), METHODS.len());
        assert!(rates.iter().all(|(_, rate)| rate.as_ref().is_ok_and(|rate| *rate > 0.0)));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
