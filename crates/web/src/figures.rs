//! What the node tells this crate: plain values, and the trait through which they are asked for.
//!
//! A value that is not known is `None`, and is then absent from the metrics and shown as such in the console.

use holdfast_types::figures::EngineFigures;
use holdfast_types::histogram::HistogramFigures;
use std::fmt;
use std::net::IpAddr;

/// What a server does for clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerRole {
    /// It recovers its directory, or changes its role.
    #[default]
    Starting,
    /// A majority of the control plane has not agreed that it is the master.
    Waiting,
    Master,
    Standby,
    /// Another server has become the master.
    Deposed,
    Stopping,
}

impl ServerRole {
    /// All of them, in the order of [`ServerRole::name`].
    pub const ALL: [ServerRole; 6] = [
        ServerRole::Starting,
        ServerRole::Waiting,
        ServerRole::Master,
        ServerRole::Standby,
        ServerRole::Deposed,
        ServerRole::Stopping,
    ];

    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            ServerRole::Starting => "starting",
            ServerRole::Waiting => "waiting",
            ServerRole::Master => "master",
            ServerRole::Standby => "standby",
            ServerRole::Deposed => "deposed",
            ServerRole::Stopping => "stopping",
        }
    }
}

/// What load balancers ask for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    pub role: ServerRole,
    /// Clients are admitted.
    pub serves: bool,
    /// It may acknowledge commits, and answer reads as current: with a control plane it holds the lease.
    pub has_right: bool,
    /// With a control plane: whether it holds the lease.
    pub lease_held: Option<bool>,
    pub name: String,
    pub epoch: u32,
    pub durable_lsn: u64,
    /// A standby: readers see everything below.
    pub applied_lsn: u64,
    /// A standby: it is connected to its master.
    pub follows: bool,
    /// A standby: how far it is behind what its master has reported; `None` while that is not known.
    pub lag_bytes: Option<u64>,
    pub lag_ms: Option<u64>,
    /// Why it does not serve, or does not work as it should.
    pub why: Option<String>,
}

impl Health {
    /// Clients can write here.
    pub fn is_primary(&self) -> bool {
        self.role == ServerRole::Master && self.serves && self.has_right
    }

    /// Clients can read here, and it receives what its master commits.
    pub fn is_replica(&self) -> bool {
        self.role == ServerRole::Standby && self.serves && self.follows
    }

    /// Clients can do here what the role allows.
    pub fn is_ready(&self) -> bool {
        match self.role {
            ServerRole::Master => self.is_primary(),
            ServerRole::Standby => self.serves,
            _ => false,
        }
    }
}

/// Sessions of one database in one state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionCount {
    pub database: String,
    /// As in `pg_stat_activity`.
    pub state: &'static str,
    pub count: u64,
}

/// A standby as its master sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StandbyFigures {
    pub name: String,
    pub connected: bool,
    /// What its link is doing, in one word.
    pub state: String,
    pub synchronous: bool,
    /// Positions: what it was sent, has received, has made durable, shows to readers.
    pub sent_lsn: Option<u64>,
    pub received_lsn: Option<u64>,
    pub durable_lsn: Option<u64>,
    pub applied_lsn: Option<u64>,
    pub apply_bytes_per_s: u64,
    /// What the governor makes each boxcar wait because of it.
    pub delay_us: u64,
    /// Why it does, or does not.
    pub reason: String,
}

/// The archive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArchiveFigures {
    pub place: String,
    pub state: String,
    pub archived: u64,
    pub archived_lsn: u64,
    pub failed: u64,
    pub waiting_bytes: u64,
    pub waiting_segments: u64,
    pub keep_bytes_max: u64,
    pub last_error: Option<String>,
}

/// The dumps that the server makes of itself, and its drills.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DumpFigures {
    pub place: String,
    pub state: &'static str,
    pub dumps: u64,
    pub failed: u64,
    /// How old the last dump is, how long it took, what it stored.
    pub age_ms: Option<u64>,
    pub seconds: Option<f64>,
    pub bytes: Option<u64>,
    pub stored_bytes: Option<u64>,
    pub drills: u64,
    pub drills_failed: u64,
    pub drill_ok: Option<bool>,
    pub drill_age_ms: Option<u64>,
    /// How long its restore took.
    pub restore_seconds: Option<f64>,
    /// How old the oldest change is that cannot be restored.
    pub restorable_age_ms: Option<u64>,
    pub last_error: Option<String>,
}

/// A file system that the server uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskFigures {
    /// `data`, `mirror`, `archive` or `dumps`.
    pub of: &'static str,
    pub path: String,
    pub size_bytes: u64,
    pub free_bytes: u64,
}

/// This process, as the operating system sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessFigures {
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
    pub virtual_bytes: u64,
    pub open_files: u64,
    pub open_files_max: u64,
    pub threads: u64,
    pub started_unix_s: f64,
}

/// Everything that the metrics show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    pub health: Health,
    pub version: &'static str,
    pub engine: EngineFigures,
    /// From a request's arrival to its answer, in microseconds, as the next.
    pub requests: HistogramFigures,
    /// Of requests that waited for a commit: from their arrival to their answer.
    pub commits: HistogramFigures,
    /// Errors sent to clients, by the first two characters of the SQLSTATE.
    pub errors: Vec<(String, u64)>,
    pub authentication_failures: u64,
    pub slow_statements: u64,
    pub sessions: Vec<SessionCount>,
    pub sessions_max: u64,
    pub locks_waiting: u64,
    pub lock_waits: u64,
    pub lock_timeouts: u64,
    pub deadlocks: u64,
    pub serialization_conflicts: u64,
    pub statement_restarts: u64,
    pub row_versions_kept: u64,
    pub oldest_snapshot_ms: Option<u64>,
    pub standbys: Vec<StandbyFigures>,
    /// Everything up to which the standbys are measured: durable here, or sent while still being written.
    pub sent_lsn: u64,
    pub archive: Option<ArchiveFigures>,
    pub dump: Option<DumpFigures>,
    /// The mirror's state in one word, and how far it is behind.
    pub mirror: Option<(String, u64)>,
    pub disks: Vec<DiskFigures>,
    pub process: ProcessFigures,
}

impl Figures {
    /// How many bytes a standby lacks, at one of its positions; `None`: not known.
    pub fn lag_bytes(&self, position: Option<u64>) -> Option<u64> {
        position.map(|position| self.sent_lsn.saturating_sub(position))
    }
}

/// A session, as the console shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionShown {
    pub pid: i32,
    pub database: String,
    pub user: String,
    pub application_name: String,
    pub client: String,
    pub state: &'static str,
    pub wait: Option<String>,
    pub query: String,
    /// Microseconds since 1970, here and below.
    pub started_us: i64,
    pub transaction_us: Option<i64>,
    pub query_us: Option<i64>,
    pub changed_us: i64,
    /// The sessions that must go first.
    pub waits_for: Vec<i32>,
    pub locks_held: u64,
}

/// A line of the server's log that an operator should see.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Event {
    /// Rises by one with each event.
    pub number: u64,
    pub unix_us: i64,
    /// `error`, `warn` or `info`.
    pub level: &'static str,
    pub target: String,
    pub text: String,
}

/// What an operator who has logged in may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// The role may see all sessions: it is a member of pg_monitor, or a superuser.
    pub monitors: bool,
    /// It may cancel and terminate other roles' sessions: pg_signal_backend.
    pub signals: bool,
    /// Differs when the role's password, or the role, has changed since.
    pub version: u64,
}

/// Why a request of the console is refused, for its operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What can be done to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalKind {
    /// Its statement ends with an error.
    Cancel,
    /// The session ends.
    Terminate,
}

/// The server behind the pages. Every call is short, and may take locks that no thread holds during I/O.
pub trait Source: Send + Sync + 'static {
    fn health(&self) -> Health;
    fn figures(&self) -> Figures;
    fn sessions(&self) -> Vec<SessionShown>;
    /// Events with a higher number than `after`, oldest first.
    fn events(&self, after: u64) -> Vec<Event>;
    /// Checks a role's password. May take some milliseconds of computing. The same answer for an unknown role, a wrong password
    /// and an expired one. A failure is logged and counted like one of a client of the database.
    fn login(&self, role: &str, password: &str, client: IpAddr) -> Result<Rights, Refused>;
    /// A login without a password has failed: logs and counts it likewise.
    fn login_failed(&self, client: IpAddr, why: &str);
    /// What a role may do now; `None`: it no longer exists, or may not log in.
    fn rights(&self, role: &str) -> Option<Rights>;
    /// Cancels or terminates a session, as SQL's functions do for this role.
    fn signal(&self, by: &str, pid: i32, kind: SignalKind) -> Result<(), Refused>;
}
