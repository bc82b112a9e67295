//! Processor time of a server: its process and all its descendants, from /proc (proc(5), `stat`).

use std::collections::HashMap;
use std::time::Duration;

/// What /proc reports about one process.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stat {
    parent: u32,
    /// utime + stime of the process, in clock ticks.
    own_ticks: u64,
    /// And with those of its children that have ended.
    ticks: u64,
}

/// User and system time used so far by `pid`, its descendants, and those of its descendants that have ended.
pub fn tree_time(pid: u32) -> Duration {
    let stats = stats();
    time(stats.iter().filter(|(of, _)| descends(&stats, **of, pid)).map(|(_, s)| s.ticks).sum())
}

/// User and system time used so far by the calling thread, without the children of its process.
pub fn this_thread() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").ok().and_then(|line| parse(&line));
    time(stat.map_or(0, |stat| stat.own_ticks))
}

fn time(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// `pid` and its descendants.
pub fn tree(pid: u32) -> Vec<u32> {
    let stats = stats();
    stats.keys().copied().filter(|of| descends(&stats, *of, pid)).collect()
}

/// Every process there is.
fn stats() -> HashMap<u32, Stat> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect()
}

/// `pid` is `ancestor` or below it.
fn descends(stats: &HashMap<u32, Stat>, pid: u32, ancestor: u32) -> bool {
    /// Deeper than any process tree; ends a walk through parents that changed while they were read.
    const DEPTH_MAX: usize = 64;
    std::iter::successors(Some(pid), |p| stats.get(p).map(|s| s.parent)).take(DEPTH_MAX).any(|p| p == ancestor)
}

/// Reads a line of /proc/PID/stat. The command in parentheses may hold spaces and parentheses itself.
fn parse(line: &str) -> Option<Stat> {
    let (_, rest) = line.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    // Numbered as in proc(5), where the state after the command is field 3.
    let field = |n: usize| fields.get(n - 3)?.parse::<u64>().ok();
    let own_ticks = field(14)? + field(15)?;
    Some(Stat { parent: field(4)? as u32, own_ticks, ticks: own_ticks + field(16)? + field(17)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_past_any_command() {
        let line = "77 (a) b) (c) S 12 1 1 0 -1 4194304 1 2 3 4 100 20 3 4 20 0 1 0 5 6 7";
        assert_eq!(parse(line), Some(Stat { parent: 12, own_ticks: 120, ticks: 127 }));
        assert_eq!(parse("garbage"), None);
    }

    #[test]
    fn this_process_uses_time() {
        let pid = std::process::id();
        let before = tree_time(pid);
        let mut x = 1u64;
        while tree_time(pid) < before + Duration::from_millis(20) {
            (0..1_000_000).for_each(|i| x = std::hint::black_box(x.wrapping_mul(31) + i));
        }
        assert_eq!(tree_time(u32::MAX), Duration::ZERO);
    }
}
