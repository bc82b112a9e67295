//! What a disk has done, in numbers, for people and as JSON.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::faults::Fired;
use crate::file::Torn;

/// Counted since the mount, over all power cuts.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Counters {
    /// Everything that changes something: writes, syncs, changes of names and lengths. What `cut after=N` counts.
    pub operations: u64,
    pub reads: u64,
    pub writes: u64,
    pub written_bytes: u64,
    /// Requests to make something durable; writes through count.
    pub syncs: u64,
    /// Those that had something to make durable and did.
    pub barriers: u64,
    /// Those that were acknowledged although nothing was made durable.
    pub lies: u64,
    pub name_changes: u64,
    pub power_cuts: u64,
    pub disk_full: u64,
    /// Files written because the drive's cache was full.
    pub cache_overflows: u64,
}

/// What the last power cut left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LastCut {
    pub cut_number: u64,
    pub unsynced_bytes: u64,
    #[serde(flatten)]
    pub torn: Torn,
    pub kept_names: u64,
    pub lost_names: u64,
}

/// Whether the disk has power; without it every operation fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    On,
    Off,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    pub power: Power,
    pub seed: u64,
    #[serde(flatten)]
    pub counters: Counters,
    pub unsynced_bytes: u64,
    pub unsynced_names: usize,
    pub used_bytes: u64,
    pub last_cut: Option<LastCut>,
    pub faults: Vec<Fired>,
    /// Why the last command was refused.
    pub last_error: Option<String>,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.counters;
        let power = if self.power == Power::On { "on" } else { "off" };
        writeln!(f, "power {power}, seed {}, {} power cuts", self.seed, c.power_cuts)?;
        writeln!(
            f,
            "{} operations: {} writes of {} bytes, {} name changes",
            c.operations, c.writes, c.written_bytes, c.name_changes
        )?;
        writeln!(f, "{} syncs, {} of them wrote something, {} were lies", c.syncs, c.barriers, c.lies)?;
        writeln!(f, "not durable now: {} bytes, {} name changes", self.unsynced_bytes, self.unsynced_names)?;
        if let Some(cut) = &self.last_cut {
            let t = &cut.torn;
            writeln!(
                f,
                "last power cut: of {} unsynced bytes {} sectors kept, {} dropped, {} garbage; {} lengths lost; \
                 {} name changes kept, {} lost",
                cut.unsynced_bytes,
                t.kept_sectors,
                t.dropped_sectors,
                t.garbage_sectors,
                t.lost_lengths,
                cut.kept_names,
                cut.lost_names
            )?;
        }
        for fault in &self.faults {
            writeln!(f, "fault `{}`: fired {} times, {} operations matched", fault.rule, fault.fired, fault.seen)?;
        }
        self.last_error.iter().try_for_each(|error| writeln!(f, "last error: {error}"))
    }
}
