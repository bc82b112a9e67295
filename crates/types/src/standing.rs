//! The rows of the views that show where the trail is on other machines: standbys, a standby's link, the archive. Crate `replication`
//! fills them, `sql` shows them.

/// A standby's link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkRow {
    /// Host and port.
    pub master: String,
    /// What it is doing, in one word.
    pub state: String,
    /// Everything below is durable at the master, as far as it has reported.
    pub master_durable_lsn: u64,
    /// How old the last boxcar applied is, by the master's clock; 0 when all that is known is applied. `None`: not known,
    /// as it still lacks boxcars that were there when it began to follow.
    pub behind_ms: Option<u64>,
    /// It is connected to the master: otherwise its lag is not known.
    pub follows: bool,
    /// Why the link does not work.
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
    /// Commits wait for it.
    pub synchronous: bool,
    /// Its place among the synchronous ones, from 1; 0: none.
    pub priority: u32,
    /// How fast it applies; 0 while that is not known.
    pub apply_bytes_per_s: u64,
    /// What the governor makes each boxcar wait because of it.
    pub delay_us: u64,
    /// Why it does, or does not.
    pub reason: String,
    pub acked_us: Option<i64>,
}

impl StandbyRow {
    /// What it has: applied, or at least in its trail.
    fn has(&self) -> Option<u64> {
        self.applied_lsn.or(self.durable_lsn)
    }

    /// How many bytes it lacks of a trail that ends at `end`; `None`: not known.
    pub fn lag_bytes(&self, end: u64) -> Option<u64> {
        self.has().map(|has| end.saturating_sub(has))
    }

    /// How many bytes its trail has beyond `end`; `None`: not known.
    pub fn ahead_bytes(&self, end: u64) -> Option<u64> {
        self.durable_lsn.map(|durable| durable.saturating_sub(end))
    }
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
    /// Everything below is archived.
    pub archived_lsn: u64,
    /// Tries that failed since the server started.
    pub failed: u64,
    pub last_failed: Option<String>,
    pub last_failed_us: Option<i64>,
    pub last_error: Option<String>,
    /// Finished segments that are not archived.
    pub waiting_segments: u64,
    pub waiting_bytes: u64,
    pub keep_bytes_max: u64,
    /// More is waiting than that.
    pub is_beyond: bool,
}
