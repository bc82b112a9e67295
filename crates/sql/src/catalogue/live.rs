//! What the server is doing now, for the tables that show it. It is asked for only when one of them is read, because
//! the answer takes locks that the work itself needs.

use super::pg_hba::{HbaRow, IdentRow};
use super::pg_stat_database::DatabaseActivityRow;
use super::pg_stat_statements::StatementRow;
use super::standing::Standing;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

/// The server's answers about its current state.
pub trait Live: Debug {
    /// All connected sessions.
    fn sessions(&self) -> Vec<SessionRow>;
    /// The process number of each session that waits for a lock, with the process numbers of the sessions that it waits
    /// for.
    fn blocked(&self) -> Vec<(i32, Vec<i32>)>;
    fn transactions(&self) -> TransactionsRow;
    /// What was done in each database.
    fn database_activity(&self) -> Vec<DatabaseActivityRow> {
        Vec::new()
    }
    /// What was done to the tables of a database.
    fn table_activity(&self, _database_oid: u32) -> Vec<TableActivityRow> {
        Vec::new()
    }
    /// When the server started, in microseconds since 1970; 0 where it is not known.
    fn started_us(&self) -> i64 {
        0
    }
    /// Bytes of each table and index of a database, by its name in SQLite.
    fn object_sizes(&self, _database: &str) -> Arc<HashMap<String, u64>> {
        Arc::default()
    }
    /// Bytes of a database.
    fn database_bytes(&self, _oid: u32) -> Option<u64> {
        None
    }
    /// What each statement has cost.
    fn statements(&self) -> Vec<StatementRow> {
        Vec::new()
    }
    /// How often statements were forgotten, and when all were reset, in microseconds since 1970.
    fn statements_info(&self) -> (u64, i64) {
        (0, 0)
    }
    /// The positions of the trail here, on standbys and in the archive.
    fn standing(&self) -> Standing;
    /// The logical replication slots.
    fn slots(&self) -> Vec<SlotRow> {
        Vec::new()
    }
    /// The subscriptions that have a worker.
    fn subscriptions(&self) -> Vec<SubscriptionRow> {
        Vec::new()
    }
    /// How far the subscriptions of a database have applied and copied: subscription, table's stable id or 0, LSN.
    fn subscription_positions(&self, _database: &str) -> Vec<(u32, u32, u64)> {
        Vec::new()
    }
    /// The lines of `pg_hba.conf`.
    fn hba_file(&self) -> Vec<HbaRow>;
    /// The lines of `pg_ident.conf`.
    fn ident_file(&self) -> Vec<IdentRow>;
}

/// A logical replication slot.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotRow {
    pub name: String,
    pub plugin: String,
    pub database_oid: u32,
    pub database: String,
    /// Reading begins there.
    pub restart_lsn: u64,
    /// The subscriber has everything before.
    pub confirmed_lsn: u64,
    pub wal_status: WalStatus,
    pub subscriber: Option<SubscriberRow>,
}

/// Where the server has what a slot needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalStatus {
    /// In the trail.
    Reserved,
    /// The beginning of it only in the archive.
    Extended,
    /// Nowhere: the slot can no longer be read.
    Lost,
}

impl WalStatus {
    /// PostgreSQL's word.
    pub fn name(self) -> &'static str {
        match self {
            WalStatus::Reserved => "reserved",
            WalStatus::Extended => "extended",
            WalStatus::Lost => "lost",
        }
    }
}

/// The session that reads a slot.
#[derive(Clone, Debug, PartialEq)]
pub struct SubscriberRow {
    pub pid: i32,
    pub sent_lsn: u64,
    pub written_lsn: u64,
    pub flushed_lsn: u64,
    pub applied_lsn: u64,
    /// Microseconds since 1970.
    pub answered_us: Option<i64>,
}

/// A subscription and what its worker has done since the server started. LSNs are the publisher's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubscriptionRow {
    pub database_oid: u32,
    pub database: String,
    pub number: u32,
    pub name: String,
    pub state: &'static str,
    /// The table that is being copied.
    pub copying: Option<u32>,
    pub received_lsn: u64,
    pub applied_lsn: u64,
    /// Microseconds since 1970; 0: never.
    pub heard_us: i64,
    pub committed_us: i64,
    pub lag_us: i64,
    pub transactions: u64,
    pub changes: u64,
    pub bytes: u64,
    pub rows_copied: u64,
    pub rows_missing: u64,
    pub apply_errors: u64,
    pub copy_errors: u64,
    pub last_error: Option<String>,
}

/// What statements have done to a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableActivityRow {
    /// Its OID in the database that is asked about.
    pub table: u32,
    pub rows_inserted: u64,
    pub rows_updated: u64,
    pub rows_deleted: u64,
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
    /// The OID of the role that was authenticated.
    pub role: u32,
    pub application_name: String,
    /// The client's address, as `inet`; `None` for a Unix socket, and where it is not known.
    pub client: Option<String>,
    /// -1 for a Unix socket; `None` where it is not known.
    pub client_port: Option<i32>,
    /// What TLS has established; `None`: the connection is not encrypted.
    pub encryption: Option<EncryptionRow>,
    /// Microseconds since 1970, here and below.
    pub backend_start_us: i64,
    pub transaction_start_us: Option<i64>,
    pub query_start_us: Option<i64>,
    pub state_change_us: i64,
    pub doing: Doing,
    /// Type and name, in PostgreSQL's words.
    pub wait_event: Option<(&'static str, &'static str)>,
    /// The number of the transaction, once it has begun to write.
    pub transaction: Option<u64>,
    pub query: String,
    /// The statement's number in `pg_stat_statements`.
    pub query_id: Option<i64>,
}

/// The row of `pg_stat_ssl` of an encrypted connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EncryptionRow {
    pub version: String,
    pub cipher: String,
    pub bits: u16,
    /// Subject, serial number in decimal, and issuer of the client's certificate.
    pub client_certificate: Option<(String, String, String)>,
}

/// The row of `holdfast_stat_transactions`.
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
    /// 0 if the snapshot does not belong to a client's session.
    pub pid: i32,
    pub client: Option<String>,
}

/// A lock that is held or waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct LockRow {
    /// `relation`, `tuple`, `unique key`, `database` or `advisory`.
    pub kind: &'static str,
    pub database: u32,
    pub relation: Option<u32>,
    /// For an advisory lock: the upper and lower half of the key, and 1 if the key is one number, 2 if it is two.
    pub advisory: Option<(u32, u32, u32)>,
    pub pid: i32,
    pub mode: &'static str,
    pub granted: bool,
}

/// A prepared transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedRow {
    pub gid: String,
    /// Microseconds since 1970.
    pub prepared_unix_us: i64,
    pub owner: String,
    pub database: String,
}
