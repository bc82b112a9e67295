//! Does the mirror lie on a disk of its own? One that dies with the main disk is no help.
//!
//! Equal device numbers are one file system; different ones may still be partitions, or volumes, of one disk, which
//! the disks below both tell. Who has no device to be seen (network, FUSE) may lie anywhere.

use std::collections::BTreeSet;

use super::Case;
use crate::look::Survey;
use crate::report::Finding;
use crate::report::Verdict::{Bad, CannotKnow, Good};

const NAME: &str = "mirror";
const MOVE: &str = "Put the mirror on another disk: mirror in holdfast.toml, or serve --mirror.";

/// Nothing where no mirror is configured.
pub fn check(case: &Case) -> Option<Finding> {
    let mirror = case.settings.mirror.as_ref()?;
    let found = mirror.path.clone();
    let Some(survey) = &mirror.survey else {
        let why = "Neither it nor the directory it would be in is there: its disk is not mounted, perhaps.";
        return Some(
            Finding::new(NAME, Bad, found, why)
                .with_advice("Mount it: until then commits wait, or continue without it."),
        );
    };
    let (Some(own), Some(other)) = (&case.survey.mount, &survey.mount) else {
        return Some(Finding::new(NAME, CannotKnow, found, "The mounts were not found."));
    };
    if own.device == other.device {
        let why = "It is on the same device as the data directory: one dead disk takes both.";
        return Some(Finding::new(NAME, Bad, found, why).with_advice(MOVE));
    }
    let (ours, theirs) = (disks(case.survey), disks(survey));
    if let Some(disk) = ours.intersection(&theirs).next() {
        let why = format!("Both file systems are on the disk {disk}: when it dies it takes both.");
        return Some(Finding::new(NAME, Bad, found, why).with_advice(MOVE));
    }
    if ours.is_empty() || theirs.is_empty() {
        let why = "It is another file system; on which disk it is cannot be seen from here.";
        return Some(Finding::new(NAME, CannotKnow, found, why));
    }
    let theirs: Vec<&str> = theirs.into_iter().collect();
    let why = format!("It is on another disk ({}) than the data directory.", theirs.join(", "));
    Some(Finding::new(NAME, Good, found, why))
}

/// The names of the disks below a directory.
fn disks(survey: &Survey) -> BTreeSet<&str> {
    survey.disks().into_iter().map(|disk| disk.name.as_str()).collect()
}
