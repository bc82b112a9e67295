//! Which processor cores processes run on: those that this one may use, and keeping a server or the lab to some of them.
//!
//! Threads and processes that are started later stay where the one that starts them is.
//!
//! Failure: a kernel or a user that does not allow it, as an error; a thread that ends meanwhile is none.

use anyhow::Context;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::HashSet;

/// Looks at a process until it has no thread that is not kept yet; more than it takes.
const LOOKS_MAX: usize = 20;

/// The cores that the lab may use.
pub fn allowed() -> anyhow::Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("cannot read the cores that this process may use")?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// Keeps a process and its descendants, with all their threads, to these cores.
pub fn keep_server(pid: u32, cores: &[usize]) -> anyhow::Result<()> {
    keep(|| crate::process_cpu::tree(pid), cores)
}

/// Keeps the lab's own threads to these cores, but not the servers it has started.
pub fn keep_lab(cores: &[usize]) -> anyhow::Result<()> {
    keep(|| vec![std::process::id()], cores)
}

fn keep(processes: impl Fn() -> Vec<u32>, cores: &[usize]) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    let mut kept = HashSet::new();
    for _ in 0..LOOKS_MAX {
        let new: Vec<i32> = processes().into_iter().flat_map(threads).filter(|thread| kept.insert(*thread)).collect();
        if new.is_empty() {
            break;
        }
        for thread in new {
            match sched_setaffinity(Pid::from_raw(thread), &set) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => (),
                Err(e) => return Err(e).with_context(|| format!("cannot keep a server or the lab to cores {cores:?}")),
            }
        }
    }
    Ok(())
}

fn threads(pid: u32) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    tasks.into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Time that a core has had so far and time in which it was busy, in clock ticks, for any process.
pub fn busy(core: usize) -> Option<(u64, u64)> {
    parse_busy(&std::fs::read_to_string("/proc/stat").ok()?, core)
}

/// A line `cpuN user nice system idle iowait irq softirq steal guest guest_nice` (proc(5)); guests are users already.
fn parse_busy(stat: &str, core: usize) -> Option<(u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix(&format!("cpu{core} ")))?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let all = ticks.iter().sum::<u64>();
    Some((all, all - ticks.get(3)? - ticks.get(4)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_kept_to_a_core_and_let_go() {
        let cores = allowed().unwrap();
        let mut child = Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn().unwrap();
        let of_child = || {
            let set = sched_getaffinity(Some(Pid::from_child(&child))).unwrap();
            (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect::<Vec<_>>()
        };
        for wanted in [&cores[..1], &cores] {
            keep_server(child.id(), wanted).unwrap();
            assert_eq!(of_child(), wanted);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(keep_server(child.id(), &cores).is_ok(), "one that has ended needs nothing");
    }

    #[test]
    fn a_cores_time_is_read() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 1 20 300 40 5 6 7 3 0\ncpu1 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(parse_busy(stat, 0), Some((389, 49)));
        assert_eq!((parse_busy(stat, 1), parse_busy(stat, 2)), (Some((8, 6)), None));
        assert!(busy(allowed().unwrap()[0]).is_some());
    }
}
