//! The drive's write cache, and whether the kernel flushes it.
//!
//! | the kernel takes it for | the drive says | verdict |
//! |---|---|---|
//! | write back | anything | good: it is flushed at each sync (with FUA: the one write passes it) |
//! | write through | write back | bad: the kernel was set not to flush a volatile cache |
//! | write through | write through, or nothing | good: there is no volatile cache, or none that needs flushing |
//! | unknown | | cannot know |

use super::Case;
use crate::look::{Cache, Device, DeviceKind};
use crate::report::Finding;
use crate::report::Verdict::{self, Bad, CannotKnow, Good};

const NAME: &str = "write cache";

pub fn check(case: &Case) -> Finding {
    let disks = case.survey.disks();
    if disks.is_empty() {
        return Finding::new(NAME, CannotKnow, "no block device to be seen", "The file system has none, or hides it.");
    }
    let found: Vec<String> = disks.iter().map(|disk| format!("{} {}", disk.name, words(disk))).collect();
    let judged = disks.iter().map(|disk| judge(disk)).max_by_key(|(verdict, _)| *verdict);
    let (verdict, why) = judged.unwrap_or((CannotKnow, ""));
    let finding = Finding::new(NAME, verdict, found.join(", "), why);
    if verdict == Bad {
        let names: Vec<&str> = disks.iter().filter(|d| judge(d).0 == Bad).map(|d| d.name.as_str()).collect();
        return finding.with_advice(format!(
            "echo \"write back\" > /sys/block/{}/queue/write_cache, and find out who changed it.",
            names.join(", ")
        ));
    }
    finding
}

fn words(disk: &Device) -> String {
    let mode = |cache| match cache {
        Cache::WriteBack => "write back",
        Cache::WriteThrough => "write through",
    };
    let mut words = disk.write_cache.map_or("unknown", mode).to_owned();
    if let Some(drive) = disk.drive_cache.filter(|drive| Some(*drive) != disk.write_cache) {
        words += &format!(" (the drive says {})", mode(drive));
    }
    match disk.fua {
        Some(true) => words + ", FUA",
        Some(false) if disk.write_cache == Some(Cache::WriteBack) => words + ", no FUA",
        _ => words,
    }
}

fn judge(disk: &Device) -> (Verdict, &'static str) {
    if disk.kind == DeviceKind::Memory {
        return (Bad, "The disk is in memory: a restart of the machine loses all.");
    }
    match (disk.write_cache, disk.drive_cache) {
        (Some(Cache::WriteBack), _) => {
            (Good, "The kernel knows of it, and flushes it at each sync unless barriers are off.")
        }
        (Some(Cache::WriteThrough), Some(Cache::WriteBack)) => (
            Bad,
            "The drive has a volatile write cache, and the kernel is set not to flush it: a power cut loses \
                   acknowledged commits.",
        ),
        (Some(Cache::WriteThrough), _) => (Good, "A write is on the medium, or in protected memory, when it returns."),
        (None, _) => (CannotKnow, "sysfs does not tell; the device may have a cache or not."),
    }
}
