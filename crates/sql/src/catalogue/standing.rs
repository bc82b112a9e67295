//! The positions of the trail here, on standbys and in the archive: the server's answer to [`super::Live::standing`].

use holdfast_types::{ArchiveRow, LinkRow, StandbyRow};

/// The role and positions of this server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// The server is a standby.
    pub in_recovery: bool,
    pub epoch: u32,
    /// Everything below this position is durable here.
    pub durable_lsn: u64,
    /// On a standby: readers see everything below this position.
    pub applied_lsn: u64,
    /// A standby's link to its master.
    pub link: Option<LinkRow>,
    /// A master's standbys.
    pub standbys: Vec<StandbyRow>,
    /// The archive of the trail, if there is one.
    pub archive: Option<ArchiveRow>,
    /// The server's own dumps, if it makes any.
    pub dump: Option<DumpRow>,
}

/// The first process number of the server's background work; sessions are numbered from 1.
pub const FIRST_PID: i64 = 2_147_480_000;

/// Of these the numbers that are not walsenders'.
const OTHERS_MAX: i64 = 100;

/// The number of the walsender of the standby in this place of the list.
fn walsender_pid(place: usize) -> i64 {
    FIRST_PID + OTHERS_MAX + i64::try_from(place).unwrap_or_default()
}

/// The connected standbys, each with its walsender's number.
pub fn walsenders(standbys: &[StandbyRow]) -> impl Iterator<Item = (i64, &StandbyRow)> {
    standbys.iter().filter(|s| s.connected).enumerate().map(|(place, standby)| (walsender_pid(place), standby))
}

/// The dumps that the server makes of itself, and its drills.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DumpRow {
    /// Directory or URL.
    pub place: String,
    /// What is being done, in one word.
    pub state: String,
    pub last_dump: Option<String>,
    pub last_dump_us: Option<i64>,
    pub last_dump_lsn: Option<u64>,
    pub last_dump_seconds: Option<f64>,
    /// Of the databases.
    pub last_dump_bytes: Option<u64>,
    pub last_dump_stored_bytes: Option<u64>,
    pub dumps: u64,
    pub next_dump_us: Option<i64>,
    /// Dumps that failed.
    pub failed: u64,
    pub last_failed_us: Option<i64>,
    /// Of the last dump or drill that failed.
    pub last_error: Option<String>,
    pub last_drill_us: Option<i64>,
    pub last_drill_ok: Option<bool>,
    pub last_drill_lsn: Option<u64>,
    pub last_drill_seconds: Option<f64>,
    /// How long its restore took.
    pub last_restore_seconds: Option<f64>,
    /// Its report.
    pub last_drill: Option<String>,
    pub drills: u64,
    pub drills_failed: u64,
    pub next_drill_us: Option<i64>,
    /// Everything below can be restored.
    pub restorable_lsn: Option<u64>,
    /// How old the oldest change is that cannot.
    pub restorable_age_seconds: Option<f64>,
}
