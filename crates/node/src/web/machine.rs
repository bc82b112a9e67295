//! What the operating system knows of this process and of its disks. What cannot be read counts as 0.

use holdfast_web::figures::{DiskFigures, ProcessFigures};
use rustix::process::{Resource, getrlimit};
use std::path::Path;

/// The figures of this process.
pub(super) fn process() -> ProcessFigures {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the program's name in parentheses, which may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
    let (ticks, page) = (rustix::param::clock_ticks_per_second() as f64, rustix::param::page_size() as u64);
    ProcessFigures {
        cpu_seconds: (number(11) + number(12)) as f64 / ticks,
        resident_bytes: number(21) * page,
        virtual_bytes: number(20),
        open_files: std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64),
        open_files_max: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        threads: number(17),
        started_unix_s: boot_unix_s() + number(19) as f64 / ticks,
    }
}

/// When the machine started.
fn boot_unix_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "));
    line.and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

/// The file system that a path is on; `None`: it cannot be asked.
pub(super) fn disk(of: &'static str, path: &Path) -> Option<DiskFigures> {
    let found = rustix::fs::statvfs(path).ok()?;
    Some(DiskFigures {
        of,
        path: path.display().to_string(),
        size_bytes: found.f_blocks * found.f_frsize,
        // What an ordinary user can still write.
        free_bytes: found.f_bavail * found.f_frsize,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_described() {
        let p = process();
        assert!(p.resident_bytes > 1 << 20 && p.virtual_bytes > p.resident_bytes, "{p:?}");
        assert!(p.threads > 0 && p.open_files > 2 && p.open_files_max >= p.open_files, "{p:?}");
        assert!(p.started_unix_s > 1.5e9 && p.cpu_seconds >= 0.0, "{p:?}");
        let disk = disk("data", Path::new("/")).unwrap();
        assert!(disk.size_bytes >= disk.free_bytes && disk.size_bytes > 0, "{disk:?}");
    }
}
