//! How much large values may take in all statements together (`statements_memory_bytes_max`): half of the machine's memory unless
//! configured, and half of what its control group may take, if that is less.
//!
//! Failure: memory that cannot be read counts as 1 GiB.

use holdfast_store::sqlite::bound_large_values;
use std::path::Path;

const UNKNOWN_BYTES: u64 = 1 << 30;
/// On the smallest machine, a value of this size still fits.
const LEAST_BYTES: u64 = 64 << 20;

/// Sets the bound for this process; 0: half of the memory.
pub fn bound(configured: u64) {
    let half =
        || (memory_bytes(Path::new("/proc/meminfo"), Path::new("/sys/fs/cgroup/memory.max")) / 2).max(LEAST_BYTES);
    bound_large_values(if configured > 0 { configured } else { half() });
}

fn memory_bytes(meminfo: &Path, cgroup: &Path) -> u64 {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let total = |text: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    let machine = total(&read(meminfo)).unwrap_or(UNKNOWN_BYTES);
    read(cgroup).trim().parse::<u64>().map_or(machine, |group| group.min(machine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_of_machine_and_control_group_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (meminfo, cgroup) = (dir.path().join("meminfo"), dir.path().join("memory.max"));
        assert_eq!(memory_bytes(&meminfo, &cgroup), UNKNOWN_BYTES);
        std::fs::write(&meminfo, "MemTotal:       24683520 kB\nMemFree: 1 kB\n").unwrap();
        assert_eq!(memory_bytes(&meminfo, &cgroup), 24_683_520 * 1024);
        std::fs::write(&cgroup, "max\n").unwrap();
        assert_eq!(memory_bytes(&meminfo, &cgroup), 24_683_520 * 1024);
        std::fs::write(&cgroup, "2147483648\n").unwrap();
        assert_eq!(memory_bytes(&meminfo, &cgroup), 2 << 30);
    }
}
