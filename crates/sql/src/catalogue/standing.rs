//! The positions of the trail here, on standbys and in the archive: the server's answer to [`super::Live::standing`].

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
}

/// A standby's link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkRow {
    /// Host and port.
    pub master: String,
    /// What the link is doing, in one word.
    pub state: String,
    /// Everything below this position is durable at the master, according to its last report.
    pub master_durable_lsn: u64,
    /// The age of the last applied boxcar by the master's clock; 0 when everything known is applied. `None` while
    /// unknown: the standby has not yet received all boxcars that existed when it began to follow.
    pub behind_ms: Option<u64>,
    /// The standby receives messages from the master; otherwise its lag is unknown.
    pub follows: bool,
    /// The error that keeps the link from working.
    pub error: Option<String>,
}

/// A standby as its master sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StandbyRow {
    pub name: String,
    /// Address and port.
    pub client: Option<(String, u16)>,
    pub connected: bool,
    /// What its link is doing, in one word.
    pub state: String,
    pub since_us: Option<i64>,
    /// `None`, as for the next three: it has not reported that since this server started.
    pub sent_lsn: Option<u64>,
    pub received_lsn: Option<u64>,
    pub durable_lsn: Option<u64>,
    pub applied_lsn: Option<u64>,
    /// Commits wait for this standby.
    pub synchronous: bool,
    /// Its priority among the synchronous standbys, from 1; 0 if it is not one.
    pub priority: u32,
    /// Its apply rate; 0 while unknown.
    pub apply_bytes_per_s: u64,
    /// The delay that the governor adds to each boxcar because of this standby.
    pub delay_us: u64,
    /// The reason for the delay, or for none.
    pub reason: String,
    pub acked_us: Option<i64>,
}

/// The state of the archive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArchiveRow {
    /// Directory or URL.
    pub place: String,
    /// What the archiver is doing, in one word.
    pub state: String,
    /// Segments archived since the server started.
    pub archived: u64,
    /// Bytes of their objects.
    pub archived_bytes: u64,
    pub last_archived: Option<String>,
    pub last_archived_us: Option<i64>,
    /// Everything below this position is archived.
    pub archived_lsn: u64,
    /// Failed attempts since the server started.
    pub failed: u64,
    pub last_failed: Option<String>,
    pub last_failed_us: Option<i64>,
    pub last_error: Option<String>,
    /// Finished segments that are not archived.
    pub waiting_segments: u64,
    pub waiting_bytes: u64,
    pub keep_bytes_max: u64,
    /// More than `keep_bytes_max` is waiting.
    pub is_beyond: bool,
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
