//! Memory of a server: its process and all its descendants, from /proc (proc(5), `smaps_rollup`).
//!
//! Failure: a process whose figures may not be read. One that ends meanwhile counts nothing.

use crate::process_cpu;
use anyhow::Context;

/// Memory in use, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Resident pages of every process; what processes share counts in each of them.
    pub resident_bytes: u64,
    /// Memory with shared pages divided among the processes that share them (Pss): the sum is what the machine gives.
    pub proportional_bytes: u64,
}

/// Memory of `pid` and its descendants.
pub fn tree(pid: u32) -> anyhow::Result<Memory> {
    let mut sum = Memory::default();
    for pid in process_cpu::tree(pid) {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if matches!(e.raw_os_error(), Some(code) if GONE.contains(&code)) => continue,
            Err(e) => return Err(e).with_context(|| format!("cannot read {path}")),
        };
        let memory = parse(&text).with_context(|| format!("{path} has no Rss and Pss"))?;
        sum.resident_bytes += memory.resident_bytes;
        sum.proportional_bytes += memory.proportional_bytes;
    }
    Ok(sum)
}

/// What reading about a process that has ended fails with.
const GONE: [i32; 2] = [rustix::io::Errno::NOENT.raw_os_error(), rustix::io::Errno::SRCH.raw_os_error()];

fn parse(text: &str) -> Option<Memory> {
    let bytes = |name: &str| {
        let kib = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')?.trim().strip_suffix(" kB"))?;
        Some(kib.trim().parse::<u64>().ok()? * 1024)
    };
    Some(Memory { resident_bytes: bytes("Rss")?, proportional_bytes: bytes("Pss")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollup_is_read() {
        let text = "5581-7ffc ---p 00000000 00:00 0  [rollup]\nRss:    2048 kB\nPss:     512 kB\nPss_Anon:  1 kB\n";
        assert_eq!(parse(text), Some(Memory { resident_bytes: 2 << 20, proportional_bytes: 512 << 10 }));
        assert_eq!(parse(""), None);
    }

    #[test]
    fn this_process_uses_memory() {
        let memory = tree(std::process::id()).unwrap();
        assert!(memory.proportional_bytes > 100 << 10 && memory.resident_bytes >= memory.proportional_bytes);
    }
}
