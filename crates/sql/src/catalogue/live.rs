//! What the server does at this moment, for the tables that show it: asked for when one of them is read, since finding it
//! out takes locks that the work itself takes.

use super::replication::Standing;
use std::fmt::Debug;

/// Who knows.
pub trait Live: Debug {
    /// Everybody who is connected.
    fn sessions(&self) -> Vec<SessionRow>;
    /// Process numbers of those who wait for a lock, and of those who must go first.
    fn blocked(&self) -> Vec<(i32, Vec<i32>)>;
    fn transactions(&self) -> TransactionsRow;
    /// How far the trail has come, here and elsewhere.
    fn standing(&self) -> Standing;
}

/// What a session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    Idle,
    Active,
    IdleInTransaction,
    IdleInFailed,
}

/// A connected client.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionRow {
    pub pid: i32,
    pub database_oid: u32,
    pub database: String,
    pub user: String,
    pub application_name: String,
    /// Address and port.
    pub client: Option<(String, u16)>,
    /// Microseconds since 1970, here and below.
    pub backend_start_us: i64,
    pub transaction_start_us: Option<i64>,
    pub query_start_us: Option<i64>,
    pub state_change_us: i64,
    pub doing: Doing,
    /// Type and name, in PostgreSQL's words.
    pub wait_event: Option<(&'static str, &'static str)>,
    /// Of a transaction that has begun to write.
    pub transaction: Option<u64>,
    pub query: String,
}

/// `holdfast_stat_transactions`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransactionsRow {
    pub statement_restarts: u64,
    pub serialization_conflicts: u64,
    pub deadlocks: u64,
    pub lock_waits: u64,
    pub lock_timeouts: u64,
    pub requests_sent_to_branches: u64,
    pub row_versions_kept: u64,
    pub oldest_snapshot: Option<OldestSnapshot>,
}

/// The snapshot that a transaction has held the longest.
#[derive(Clone, Debug, PartialEq)]
pub struct OldestSnapshot {
    pub database: String,
    pub number: u64,
    pub age_ms: u64,
    /// 0 for none that a client knows.
    pub pid: i32,
    pub client: Option<String>,
}
