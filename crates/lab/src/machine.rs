//! What the study ran on: facts that explain the figures. A fact that cannot be found out is left out.

use crate::results::Fact;
use crate::text;
use anyhow::Context;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Writes timed to find out what a sync takes.
const SYNC_SAMPLES: usize = 200;
const BLOCK_BYTES: usize = 4096;

/// The machine's facts; `dir` lies on the disk the databases are on.
pub fn facts(dir: &Path) -> anyhow::Result<Vec<Fact>> {
    let uname = rustix::system::uname();
    let mut facts = vec![Fact::new("Processor", processor())];
    if let Some(kib) = meminfo_kib("MemTotal") {
        facts.push(Fact::new("Memory", text::bytes(kib * 1024)));
    }
    facts.push(Fact::new(
        "Operating system",
        format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
    ));
    if let Some((device, kind)) = file_system(dir) {
        facts.push(Fact::new("File system", format!("{kind} on {device}")));
    }
    let sync = sync_time(dir)?;
    facts.push(Fact::new("fdatasync after a 4 KiB write, median", text::time(sync.as_nanos() as f64 / 1e3)));
    let sqlite = holdfast_store::sqlite::ffi::SQLITE_VERSION.to_string_lossy();
    facts.push(Fact::new("SQLite", sqlite));
    facts.push(Fact::new("Build", if cfg!(debug_assertions) { "debug: figures mean little" } else { "release" }));
    Ok(facts)
}

fn processor() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|l| l.strip_prefix("model name")?.split(':').nth(1)).unwrap_or("unknown").trim();
    format!("{model}, {cores} cores")
}

/// A line of /proc/meminfo, in KiB.
pub fn meminfo_kib(name: &str) -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    info.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')?.trim().strip_suffix(" kB")?.trim().parse().ok())
}

/// Device and type of the file system `dir` is on.
pub fn file_system(dir: &Path) -> Option<(String, String)> {
    let dir = dir.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (device, point, kind) = (words.next()?, words.next()?, words.next()?);
            dir.starts_with(point).then(|| (point.len(), device.to_string(), kind.to_string()))
        })
        .max_by_key(|(length, ..)| *length)
        .map(|(_, device, kind)| (device, kind))
}

/// Median time of fdatasync after overwriting one block of an existing file.
pub fn sync_time(dir: &Path) -> anyhow::Result<Duration> {
    let file = tempfile::tempfile_in(dir).with_context(|| format!("cannot create a file in {}", dir.display()))?;
    let mut times = (0..SYNC_SAMPLES).map(|i| one_sync(&file, i)).collect::<std::io::Result<Vec<_>>>()?;
    times.sort();
    Ok(times[SYNC_SAMPLES / 2])
}

fn one_sync(file: &File, i: usize) -> std::io::Result<Duration> {
    const BLOCKS: usize = 16;
    file.write_all_at(&[i as u8; BLOCK_BYTES], ((i % BLOCKS) * BLOCK_BYTES) as u64)?;
    let start = Instant::now();
    file.sync_data()?;
    Ok(start.elapsed())
}

/// Free bytes for an ordinary user on the disk of `dir`.
pub fn free_bytes(dir: &Path) -> anyhow::Result<u64> {
    let stat = rustix::fs::statvfs(dir).with_context(|| format!("cannot read the free space of {}", dir.display()))?;
    Ok(stat.f_bavail * stat.f_frsize)
}

/// Room to keep free for runs of `seconds` each: what a server's log and files may grow by beyond its rows, as much
/// as a disk takes in that time and at most `most`.
pub fn reserve_bytes(seconds: f64, most: u64) -> u64 {
    const AT_LEAST: u64 = 256 << 20;
    const A_SECOND: f64 = (1u64 << 30) as f64;
    (AT_LEAST + (seconds * A_SECOND) as u64).min(most)
}

/// Fails with advice when less than `needed` bytes are free.
pub fn require_free(dir: &Path, needed: u64) -> anyhow::Result<()> {
    let free = free_bytes(dir)?;
    anyhow::ensure!(
        free >= needed,
        "{} has {} free and this step needs {}; make room, name another disk with --data, or lower --log-rows or \
         --seconds",
        dir.display(),
        text::bytes(free),
        text::bytes(needed)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_runs_need_little_room() {
        assert_eq!(reserve_bytes(0.0, 4 << 30), 256 << 20);
        assert_eq!(reserve_bytes(0.25, 4 << 30), 512 << 20);
        assert_eq!(reserve_bytes(60.0, 4 << 30), 4 << 30);
    }

    #[test]
    fn facts_are_found() {
        let facts = facts(&std::env::temp_dir()).unwrap();
        let value = |name: &str| facts.iter().find(|f| f.name == name).map(|f| f.value.clone()).unwrap_or_default();
        assert!(value("Processor").contains("cores"));
        assert!(value("SQLite").starts_with("3."));
        assert!(value("Operating system").starts_with("Linux"));
    }

    #[test]
    fn a_full_disk_is_told_before_it_is_full() {
        let message = require_free(&std::env::temp_dir(), u64::MAX).unwrap_err().to_string();
        assert!(message.contains("--data,"), "{message}");
        require_free(&std::env::temp_dir(), 1).unwrap();
    }
}
