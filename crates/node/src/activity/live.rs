//! What the catalogue is told when somebody looks: the sessions' own notes, put together with what the engine knows.

use super::Activities;
use crate::connect::EngineSlot;
use crate::replication::Standings;
use holdfast_engine::{Blocked, Engine};
use holdfast_sql::catalogue::{Live, OldestSnapshot, SessionRow, Standing, TransactionsRow};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Looks at a server.
#[derive(Clone)]
pub struct Watcher {
    pub automatic: Arc<crate::automatic_stats::AutomaticStats>,
    pub activities: Arc<Activities>,
    pub engine: EngineSlot,
    pub standings: Arc<Standings>,
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.activities.fmt(f)
    }
}

impl Watcher {
    fn engine(&self) -> Option<Engine> {
        self.engine.read().clone()
    }

    fn waits(&self) -> Vec<Blocked> {
        self.engine().map(|e| e.blocked()).unwrap_or_default()
    }
}

/// PostgreSQL's name of waiting for such a lock.
fn wait_event(kind: &'static str) -> &'static str {
    match kind {
        // Whoever has changed or locked a row, or a key, lets go of it at the end of his transaction.
        "tuple" | "unique key" => "transactionid",
        "database" => "object",
        other => other,
    }
}

impl Live for Watcher {
    fn sessions(&self) -> Vec<SessionRow> {
        let waits = self.waits();
        let lock_of = |pid| waits.iter().find(|w| w.pid == pid).map(|w| wait_event(w.kind));
        self.activities.list().iter().map(|s| s.row(lock_of(s.who.pid))).collect()
    }

    fn blocked(&self) -> Vec<(i32, Vec<i32>)> {
        self.waits().into_iter().filter(|w| w.pid != 0).map(|w| (w.pid, w.by)).collect()
    }

    fn standing(&self) -> Standing {
        self.standings.standing()
    }

    fn transactions(&self) -> TransactionsRow {
        let engine = self.engine();
        let stats = engine.as_ref().map(Engine::transaction_stats).unwrap_or_default();
        let oldest = engine.and_then(|e| e.oldest_snapshot());
        TransactionsRow {
            statement_restarts: stats.statement_restarts,
            serialization_conflicts: self.activities.serialization_conflicts.load(Ordering::Relaxed),
            deadlocks: stats.deadlocks,
            lock_waits: stats.lock_waits,
            lock_timeouts: stats.lock_timeouts,
            requests_sent_to_branches: stats.requests_sent_to_branches,
            row_versions_kept: stats.row_versions_kept,
            oldest_snapshot: oldest.map(|o| OldestSnapshot {
                database: o.database,
                number: o.number,
                age_ms: u64::try_from(o.age.as_millis()).unwrap_or(u64::MAX),
                client: self.client(o.pid),
                pid: o.pid,
            }),
        }
    }
}

impl Watcher {
    /// Everything below is shown to readers.
    pub fn shown_lsn(&self) -> u64 {
        self.standings.shown().0
    }

    /// Address and port of a session's client.
    fn client(&self, pid: i32) -> Option<String> {
        let session = self.activities.sessions.lock().get(&pid)?.clone();
        session.who.client.map(|c| c.to_string())
    }
}
