//! Can such a device sync this fast?
//!
//! | device | a sync takes at least | because |
//! |---|---|---|
//! | rotating, no cache that is protected | 1 ms | the platter turns in 4 to 11 ms, and the same track comes round once a turn |
//! | SATA or SAS SSD | 15 us | the link alone takes that; a flush to flash some hundreds |
//! | NVMe | 4 us | the fastest with protected memory take 8 |
//! | SD card, eMMC | 100 us | a program of flash |
//! | virtual, RAID controller | nothing | the host's or the controller's memory may answer, protected or not |
//!
//! Faster is bad: some layer acknowledges what it does not have. A second sign is a write-back cache whose flush costs
//! nothing: a synced direct write no slower than one without the sync. On a rotating disk that is bad; elsewhere
//! memory with power-loss protection looks the same, and the verdict is that one cannot know.

use super::Case;
use super::layers::{is_raid, is_virtual};
use crate::look::{Cache, Device, DeviceKind, Transport};
use crate::probe::{Times, Writing};
use crate::report::Finding;
use crate::report::Verdict::{self, Bad, CannotKnow, Good, Warn};

const NAME: &str = "sync latency";

/// A synced write that takes less than this many times one without the sync was not flushed, or had no need to be.
const FLUSH_RATIO_MIN: f64 = 1.15;

/// Slower than any disk in health.
const SLOW_US: f64 = 50_000.0;

pub fn check(case: &Case) -> Finding {
    let method = case.settings.sync_method;
    let writing = case.measured.and_then(|measured| measured.writing.as_ref());
    let Some((writing, times)) = writing.and_then(|writing| Some((writing, writing.of(method)?))) else {
        return Finding::new(NAME, CannotKnow, "not measured", "Nothing was written.");
    };
    let found = format!(
        "{}: median {}, 90 % {}, 99 % {}, worst {} ({} syncs)",
        method.name(),
        shown(times.p50_us),
        shown(times.p90_us),
        shown(times.p99_us),
        shown(times.max_us),
        times.count
    );
    let disks = case.survey.disks();
    let judged = disks.iter().map(|disk| judge(case, disk, writing, times)).max_by_key(|judged| judged.0);
    let Some((verdict, why)) = judged else {
        return Finding::new(NAME, CannotKnow, found, "Without a device there is nothing to hold it against.");
    };
    let finding = Finding::new(NAME, verdict, found, why);
    match verdict {
        Good => finding,
        CannotKnow => finding.with_advice("Pull the plug: `holdfast doctor --power-test`."),
        Warn => finding.with_advice("Look for a dying disk, a rebuilding RAID or a busy neighbour."),
        Bad => finding.with_advice(
            "Some layer lies. Check the controller's and the host's cache settings, then pull the plug with --power-test.",
        ),
    }
}

/// A duration as a person writes it.
pub fn shown(us: f64) -> String {
    if us < 10.0 {
        format!("{us:.1} us")
    } else if us < 1000.0 {
        format!("{us:.0} us")
    } else {
        format!("{:.1} ms", us / 1000.0)
    }
}

/// What such a device needs at least, and what it is called; nothing where memory may answer.
fn least_us(disk: &Device) -> Option<(f64, &'static str)> {
    match (disk.transport, disk.rotational) {
        _ if disk.kind != DeviceKind::Disk || is_virtual(disk) || is_raid(disk) => None,
        (Transport::Nvme, _) => Some((4.0, "an NVMe disk")),
        (Transport::Mmc, _) => Some((100.0, "a flash card")),
        (_, Some(true)) => Some((1000.0, "a rotating disk")),
        (Transport::Scsi, Some(false)) => Some((15.0, "a SATA or SAS SSD")),
        _ => None,
    }
}

fn judge(case: &Case, disk: &Device, writing: &Writing, times: &Times) -> (Verdict, String) {
    // A virtual machine's disks are virtual whatever they are called.
    let least = least_us(disk).filter(|_| case.survey.machine.hypervisor.is_none());
    if let Some((least_us, what)) = least
        && times.p50_us < least_us
    {
        let why = format!("{what} cannot sync in {}; it takes {} at least.", shown(times.p50_us), shown(least_us));
        return (Bad, capitalised(&why));
    }
    if times.p50_us > SLOW_US {
        return (Warn, "Safe, but slower than any disk in health.".to_owned());
    }
    let free = writing.direct.as_ref().is_some_and(|direct| times.p50_us < direct.p50_us * FLUSH_RATIO_MIN);
    if free && disk.write_cache == Some(Cache::WriteBack) {
        let text = format!(
            "{} has a volatile write cache, and flushing it costs nothing: without the sync a write takes {}.",
            disk.name,
            writing.direct.as_ref().map_or(String::new(), |direct| shown(direct.p50_us))
        );
        return match least {
            Some((_, "a rotating disk")) => (Bad, text),
            _ => (CannotKnow, format!("{text} Its memory is protected against power cuts, or it lies.")),
        };
    }
    match least {
        Some((_, what)) => (Good, format!("Plausible for {what}.")),
        None => (Good, "Nothing implausible; what answers may be a host's or a controller's memory.".to_owned()),
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
