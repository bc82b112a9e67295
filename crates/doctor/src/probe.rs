//! Measuring: does the open flag take effect, and what does a sync cost here?
//!
//! One small file in the data directory is written block by block, as the trail's segments are: in place, after all of
//! it was written and synced once. With each sync method, and for comparison without any sync, past the page cache and
//! into it. The whole takes about two seconds and a few thousand writes, too little to disturb a running server.
//!
//! The file keeps its name while it is used, because btrfs does not log a file without one, and its syncs would look
//! free. It goes when the measurement ends, however it ends; one left by a killed doctor goes at the next run.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use holdfast_seams::{AlignedBuf, BLOCK_BYTES, Create, Disk, DiskFile, OpenHow, RealDisk, SyncMethod};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use serde::{Deserialize, Serialize};

const FILE_BYTES: u64 = 1 << 20;
/// A disk with less room than this is not written to.
const FREE_BYTES_MIN: u64 = 16 << 20;
/// How often each way of writing is tried at most, and for how long all together.
const SAMPLES_MAX: usize = 400;
const TIME_MAX: Duration = Duration::from_millis(1500);
/// Writes of one way before the next one's turn, and some before them that pay for the change and are not counted.
const TURN: usize = 10;
const WARM_UP: usize = 2;
const PREFIX: &str = ".holdfast-doctor-";

/// What was measured in a directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Where the probe file was: the data directory, or the one it would be made in.
    pub directory: String,
    pub free_bytes: u64,
    pub total_bytes: u64,
    /// Nothing where there was no room, or the file system is mounted for reading only.
    pub writing: Option<Writing>,
    /// Why nothing was written.
    pub not_written: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Writing {
    pub open: OpenFlags,
    /// A write and what makes it durable, by the name of the sync method. A method that failed is absent.
    pub synced: Vec<(String, Times)>,
    /// A write past the page cache that nothing makes durable.
    pub direct: Option<Times>,
    /// A write into the page cache.
    pub cached: Times,
}

/// What became of `O_DIRECT | O_DSYNC`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenFlags {
    /// The kernel shows them (F_GETFL) on a file that was opened with them.
    pub direct: bool,
    pub dsync: bool,
    /// The open was refused, and why.
    pub refused: Option<String>,
    /// What direct I/O must be aligned to, in memory and in the file; 0 says that there is none. Linux 6.1 and later.
    pub align: Option<(u32, u32)>,
}

/// A distribution of durations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Times {
    pub count: usize,
    pub min_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

impl Times {
    fn of(mut samples: Vec<Duration>) -> Option<Times> {
        samples.sort();
        let at = |fraction: f64| {
            let index = ((samples.len() as f64 - 1.0) * fraction).round() as usize;
            (samples[index].as_nanos() as f64 / 100.0).round() / 10.0
        };
        (!samples.is_empty()).then(|| Times {
            count: samples.len(),
            min_us: at(0.0),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            max_us: at(1.0),
        })
    }
}

impl Writing {
    /// The times of a sync method.
    pub fn of(&self, method: SyncMethod) -> Option<&Times> {
        self.synced.iter().find(|(name, _)| name == method.name()).map(|(_, times)| times)
    }
}

/// Measures in a directory that exists.
pub fn measure(directory: &Path) -> anyhow::Result<Measured> {
    let stat = rustix::fs::statvfs(directory).with_context(|| format!("asking about {}", directory.display()))?;
    let mut measured = Measured {
        directory: directory.display().to_string(),
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
        writing: None,
        not_written: None,
    };
    if measured.free_bytes < FREE_BYTES_MIN {
        measured.not_written = Some(format!("less than {} MiB are free", FREE_BYTES_MIN >> 20));
        return Ok(measured);
    }
    remove_leftovers(directory);
    match write(directory) {
        Ok(writing) => measured.writing = Some(writing),
        Err(error) => measured.not_written = Some(error.to_string()),
    }
    Ok(measured)
}

/// The probe file; dropping it removes it.
struct ProbeFile(PathBuf);

impl Drop for ProbeFile {
    fn drop(&mut self) {
        // Nothing can be done about it now; the next run tries again.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Files of doctors that were killed: their process is gone.
fn remove_leftovers(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        if id.parse::<u32>().is_ok() && !Path::new("/proc").join(id).exists() {
            drop(ProbeFile(entry.path()));
        }
    }
}

fn write(directory: &Path) -> io::Result<Writing> {
    let disk = RealDisk::new();
    let file = ProbeFile(directory.join(format!("{PREFIX}{}", std::process::id())));
    let made = disk.open(&file.0, &OpenHow { create: Create::New, write: true, ..OpenHow::default() })?;
    let blocks = AlignedBuf::zeroed(FILE_BYTES as usize);
    made.write_at(&[IoSlice::new(blocks.as_slice())], 0)?;
    made.sync_all()?;
    let open = open_flags(&file.0);
    let mut samples = Vec::new();
    sample(&*made, SAMPLES_MAX, |_| Ok(()), &mut samples)?;
    let cached = Times::of(samples).ok_or(io::ErrorKind::WriteZero)?;
    made.sync_all()?;
    let methods = [SyncMethod::OpenDirectDsync, SyncMethod::OpenSync, SyncMethod::Fdatasync, SyncMethod::Fsync];
    // A method that the file system refuses is missing from the table, which says enough.
    let opened = methods.iter().filter_map(|method| Some((*method, disk.open(&file.0, &method.open_how()).ok()?)));
    let direct = if open.direct { Some(disk.open(&file.0, &OpenHow::WRITE_DIRECT)?) } else { None };
    let mut sampled: Vec<_> = opened.map(|(method, file)| (Some(method), file, Vec::new())).collect();
    sampled.extend(direct.map(|file| (None, file, Vec::new())));
    // In turns, so that the machine's other work falls on all of them equally.
    let began = Instant::now();
    while began.elapsed() < TIME_MAX && sampled.iter().any(|(.., samples)| samples.len() < SAMPLES_MAX) {
        for (method, file, samples) in &mut sampled {
            let finish = |file: &dyn DiskFile| method.map_or(Ok(()), |method| method.sync(file));
            sample(&**file, TURN, finish, samples)?;
        }
    }
    let times =
        |wanted| sampled.iter().find(|(method, ..)| *method == wanted).and_then(|(_, _, s)| Times::of(s.clone()));
    let synced = methods.iter().filter_map(|method| Some((method.name().to_owned(), times(Some(*method))?))).collect();
    Ok(Writing { open, synced, direct: times(None), cached })
}

/// Opens as the trail does, without the fallback that the server has, and asks the kernel what it made of it.
fn open_flags(path: &Path) -> OpenFlags {
    let wanted = OFlags::RDWR | OFlags::CLOEXEC | OFlags::DIRECT | OFlags::DSYNC;
    let align = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::DIOALIGN).ok();
    let align = align.filter(|stat| stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    let align = align.map(|stat| (stat.stx_dio_mem_align, stat.stx_dio_offset_align));
    let kept = rustix::fs::open(path, wanted, Mode::empty()).and_then(|fd| rustix::fs::fcntl_getfl(&fd));
    match kept {
        Ok(kept) => OpenFlags {
            direct: kept.contains(OFlags::DIRECT),
            dsync: kept.contains(OFlags::DSYNC),
            refused: None,
            align,
        },
        Err(errno) => OpenFlags { direct: false, dsync: false, refused: Some(errno.to_string()), align },
    }
}

/// Times some blocks' writes, each with what follows it, at one place of the file after the other.
fn sample(
    file: &dyn DiskFile,
    count: usize,
    finish: impl Fn(&dyn DiskFile) -> io::Result<()>,
    samples: &mut Vec<Duration>,
) -> io::Result<()> {
    let mut block = AlignedBuf::zeroed(BLOCK_BYTES);
    for number in 0..count + WARM_UP {
        block.as_mut_slice()[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
        let offset = ((samples.len() + number) * BLOCK_BYTES) as u64 % FILE_BYTES;
        let started = Instant::now();
        file.write_at(&[IoSlice::new(block.as_slice())], offset)?;
        finish(file)?;
        if number >= WARM_UP {
            samples.push(started.elapsed());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_directory_is_measured_and_left_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(format!("{PREFIX}4194305")), "of a doctor that was killed").unwrap();
        let measured = measure(directory.path()).unwrap();
        let writing = measured.writing.unwrap();
        assert!(writing.cached.count > 0 && !writing.synced.is_empty());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_told_and_no_error() {
        let measured = measure(Path::new("/proc")).unwrap();
        assert!(measured.writing.is_none() && measured.not_written.is_some());
    }

    #[test]
    fn the_distribution() {
        let times = Times::of((1..=100).map(Duration::from_micros).collect()).unwrap();
        assert_eq!((times.min_us, times.p50_us, times.p99_us, times.max_us), (1.0, 51.0, 99.0, 100.0));
    }
}
