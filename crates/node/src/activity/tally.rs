//! What a session has done, added up by database: the counters behind `pg_stat_database`.
//!
//! A session counts for itself, under the lock that it takes for each message in any case; when it ends, or leaves a
//! database, its counts are added to the database's.

use holdfast_sql::catalogue::DatabaseActivityRow;

/// What one message has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub commits: u64,
    pub rollbacks: u64,
    pub rows_returned: u64,
    pub rows_inserted: u64,
    pub rows_updated: u64,
    pub rows_deleted: u64,
    pub deadlocks: u64,
}

impl Done {
    /// A statement with this command tag has ended.
    pub fn statement(&mut self, verb: &str, rows: u64) {
        match verb {
            "INSERT 0" | "COPY" => self.rows_inserted += rows,
            "UPDATE" => self.rows_updated += rows,
            "DELETE" => self.rows_deleted += rows,
            _ => self.rows_returned += rows,
        }
    }
}

/// What a session, or all sessions that have ended, have done in a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub done: Done,
    pub sessions: u64,
    pub killed: u64,
    pub session_us: u64,
    pub active_us: u64,
    pub idle_in_transaction_us: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.did(&other.done);
        self.sessions += other.sessions;
        self.killed += other.killed;
        self.session_us += other.session_us;
        self.active_us += other.active_us;
        self.idle_in_transaction_us += other.idle_in_transaction_us;
    }

    pub fn did(&mut self, done: &Done) {
        let (all, Done { commits, rollbacks, rows_returned, rows_inserted, rows_updated, rows_deleted, deadlocks }) =
            (&mut self.done, *done);
        all.commits += commits;
        all.rollbacks += rollbacks;
        all.rows_returned += rows_returned;
        all.rows_inserted += rows_inserted;
        all.rows_updated += rows_updated;
        all.rows_deleted += rows_deleted;
        all.deadlocks += deadlocks;
    }

    /// The row of `pg_stat_database`.
    pub fn row(&self, database_oid: u32, sessions_now: u64, since_us: i64) -> DatabaseActivityRow {
        DatabaseActivityRow {
            database_oid,
            sessions_now,
            commits: self.done.commits,
            rollbacks: self.done.rollbacks,
            rows_returned: self.done.rows_returned,
            rows_inserted: self.done.rows_inserted,
            rows_updated: self.done.rows_updated,
            rows_deleted: self.done.rows_deleted,
            deadlocks: self.done.deadlocks,
            session_us: self.session_us,
            active_us: self.active_us,
            idle_in_transaction_us: self.idle_in_transaction_us,
            sessions: self.sessions,
            sessions_killed: self.killed,
            since_us,
        }
    }
}
