//! Does a sync end in a flush of the drive's cache?
//!
//! Barriers are on unless the mount says otherwise. Off is bad while a cache below can lose its content; with no
//! volatile cache it changes nothing. A battery could make it safe; whether there is one cannot be seen from here.

use super::Case;
use crate::look::{Cache, Mount};
use crate::report::Finding;
use crate::report::Verdict::{Bad, CannotKnow, Good, Warn};

const NAME: &str = "barriers";
const OFF: &[&str] = &["nobarrier", "barrier=0", "barrier=none", "fsync_mode=nobarrier"];

pub fn check(case: &Case) -> Finding {
    let Some(mount) = &case.survey.mount else {
        return Finding::new(NAME, CannotKnow, "unknown", "The mount was not found.");
    };
    if mount.device.starts_with("0:") && case.survey.device.is_none() {
        let found = format!("{} has none of its own", mount.file_system);
        return Finding::new(NAME, CannotKnow, found, "Whoever keeps the data flushes it, or does not.");
    }
    let Some(option) = off(mount) else {
        return Finding::new(NAME, Good, "on", "A sync ends in a flush of the drive's cache.");
    };
    let disks = case.survey.disks();
    let safe = !disks.is_empty()
        && disks
            .iter()
            .all(|disk| disk.write_cache == Some(Cache::WriteThrough) && disk.drive_cache != Some(Cache::WriteBack));
    if safe {
        return Finding::new(
            NAME,
            Warn,
            option,
            "No disk below has a volatile write cache, so nothing is lost by it today.",
        )
        .with_advice("Mount with barriers on; they cost nothing on such a disk, and the next disk may need them.");
    }
    Finding::new(
        NAME,
        Bad,
        option,
        "A sync returns while the data is still in the drive's write cache: a power cut loses acknowledged commits.",
    )
    .with_advice(format!(
        "Remount with barriers (take {option} out of /etc/fstab). Off is right only where every cache below has a battery \
         that was tested."
    ))
}

fn off(mount: &Mount) -> Option<&str> {
    mount.options.iter().map(String::as_str).find(|option| OFF.contains(option))
}
