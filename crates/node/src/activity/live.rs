//! What the catalogue shows of the running server: the sessions' own records, combined with what the engine knows.

use super::list::Activities;
use super::statements::{Counts, Key};
use super::tally::Done;
use crate::admission::Admission;
use crate::automatic_stats::AutomaticStats;
use crate::backup::{BackupReport, Backups};
use crate::clock::server_start_us;
use crate::feeds::{Feeds, SlotReport};
use crate::subscriptions::{Figures, Subscriptions};
use holdfast_engine::{Blocked, Database, DatabaseInfo, Engine};
use holdfast_replication::ReplicationStatus;
use holdfast_sql::catalogue::{
    DatabaseActivityRow, DumpRow, HbaRow, IdentRow, Live, OldestSnapshot, SessionRow, SlotRow, Standing, StatementRow,
    SubscriberRow, SubscriptionRow, TableActivityRow, TransactionsRow,
};
use holdfast_store::subscriptions::SELECT_POSITIONS;
use holdfast_types::Value;
use holdfast_types::access::Roles;
use holdfast_types::subscription::Subscription;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The engine, once it is open: connections are opened while it is still opening.
pub type EngineSlot = Arc<RwLock<Option<Engine>>>;

/// The feeds, once there are any.
pub type FeedsSlot = Arc<RwLock<Option<Arc<Feeds>>>>;

/// The workers of subscriptions, once there may be any.
pub type SubscriptionsSlot = Arc<RwLock<Option<Arc<Subscriptions>>>>;

/// The sources of the catalogue's live tables.
#[derive(Clone)]
pub struct Watcher {
    pub automatic: Arc<AutomaticStats>,
    pub activities: Arc<Activities>,
    pub engine: EngineSlot,
    pub feeds: FeedsSlot,
    pub subscriptions: SubscriptionsSlot,
    pub replication: Arc<ReplicationStatus>,
    pub admission: Arc<Admission>,
    pub backups: Arc<Backups>,
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

/// PostgreSQL's name for waiting for a lock of this kind.
fn wait_event(kind: &'static str) -> &'static str {
    match kind {
        // Locks of rows and keys are held until the end of their transaction.
        "tuple" | "unique key" => "transactionid",
        "database" => "object",
        other => other,
    }
}

fn slot_row(report: SlotReport, database: &DatabaseInfo) -> SlotRow {
    let subscriber = report.reader.map(|of| SubscriberRow {
        pid: of.pid,
        sent_lsn: of.sent,
        written_lsn: of.status.written,
        flushed_lsn: of.status.flushed,
        applied_lsn: of.status.applied,
        answered_us: (of.answered_us != 0).then_some(of.answered_us),
    });
    SlotRow {
        name: report.slot.name,
        plugin: report.slot.plugin,
        database_oid: database.oid,
        database: database.name.clone(),
        restart_lsn: report.slot.restart.lsn().0,
        confirmed_lsn: report.slot.confirmed.lsn().0,
        wal_status: report.wal_status,
        subscriber,
    }
}

fn subscription_row(db: &Database, subscription: &Subscription, of: Figures) -> SubscriptionRow {
    SubscriptionRow {
        database_oid: db.oid(),
        database: db.name().to_owned(),
        number: subscription.number,
        name: subscription.name.clone(),
        state: if subscription.options.enabled { of.phase.name() } else { "disabled" },
        copying: of.copying,
        received_lsn: of.received,
        applied_lsn: of.applied,
        heard_us: of.heard_us,
        committed_us: of.committed_us,
        lag_us: of.lag_us,
        transactions: of.transactions,
        changes: of.changes,
        bytes: of.bytes,
        rows_copied: of.rows_copied,
        rows_missing: of.rows_missing,
        apply_errors: of.apply_errors,
        copy_errors: of.copy_errors,
        last_error: of.last_error,
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
        let report = self.replication.report();
        Standing {
            in_recovery: report.in_recovery,
            epoch: report.epoch,
            durable_lsn: report.durable_lsn,
            applied_lsn: report.applied_lsn,
            standbys: report.rows().cloned().collect(),
            link: report.link,
            archive: report.archive,
            dump: self.backups.report(self.engine().as_ref()).map(dump_row),
        }
    }

    fn slots(&self) -> Vec<SlotRow> {
        let (Some(engine), Some(feeds)) = (self.engine(), self.feeds.read().clone()) else { return Vec::new() };
        let databases = engine.databases();
        let row = |report: SlotReport| {
            let database = databases.iter().find(|database| database.volume == report.volume)?;
            Some(slot_row(report, database))
        };
        feeds.report().into_iter().filter_map(row).collect()
    }

    fn subscriptions(&self) -> Vec<SubscriptionRow> {
        let (Some(engine), Some(workers)) = (self.engine(), self.subscriptions.read().clone()) else {
            return Vec::new();
        };
        let mut rows = Vec::new();
        for db in engine.opened() {
            for subscription in &db.schema().subscriptions.list {
                let figures = workers.figures(db.volume(), subscription.number).unwrap_or_default();
                rows.push(subscription_row(&db, subscription, figures));
            }
        }
        rows
    }

    fn subscription_positions(&self, database: &str) -> Vec<(u32, u32, u64)> {
        let Some(Ok(db)) = self.engine().map(|engine| engine.database(database)) else { return Vec::new() };
        let rows = db.position_rows(SELECT_POSITIONS).unwrap_or_else(|error| {
            tracing::warn!(database, %error, "the positions of subscriptions cannot be read");
            Vec::new()
        });
        let position = |row: Vec<Value>| match row.as_slice() {
            [Value::Int(subscription), Value::Int(object), Value::Int(lsn)] => {
                Some((*subscription as u32, *object as u32, *lsn as u64))
            }
            _ => None,
        };
        rows.into_iter().filter_map(position).collect()
    }

    fn database_activity(&self) -> Vec<DatabaseActivityRow> {
        let all = self.activities.by_database();
        all.into_iter().map(|(oid, (tally, now))| tally.row(oid, now, server_start_us())).collect()
    }

    fn table_activity(&self, database_oid: u32) -> Vec<TableActivityRow> {
        let row = |(table, done): (u32, Done)| TableActivityRow {
            table,
            rows_inserted: done.rows_inserted,
            rows_updated: done.rows_updated,
            rows_deleted: done.rows_deleted,
        };
        self.activities.tables.of(database_oid).into_iter().map(row).collect()
    }

    fn started_us(&self) -> i64 {
        server_start_us()
    }

    /// Counted once for each change of the database.
    fn object_sizes(&self, database: &str) -> Arc<HashMap<String, u64>> {
        let Some(Ok(db)) = self.engine().map(|engine| engine.database(database)) else { return Arc::default() };
        let now = db.visible_snapshot();
        if let Some((snapshot, sizes)) = self.activities.sizes.lock().get(database)
            && *snapshot == now
        {
            return sizes.clone();
        }
        let (snapshot, sizes) = match db.object_sizes() {
            Ok((snapshot, sizes)) => (snapshot, Arc::new(sizes)),
            Err(error) => {
                tracing::warn!(database, %error, "the sizes of tables cannot be counted");
                return Arc::default();
            }
        };
        self.activities.sizes.lock().insert(database.to_owned(), (snapshot, sizes.clone()));
        sizes
    }

    fn database_bytes(&self, oid: u32) -> Option<u64> {
        self.engine()?.database_bytes(oid)
    }

    fn statements(&self) -> Vec<StatementRow> {
        self.activities.statements.list().into_iter().map(statement_row).collect()
    }

    fn statements_info(&self) -> (u64, i64) {
        self.activities.statements.info()
    }

    fn hba_file(&self) -> Vec<HbaRow> {
        self.admission.hba_rows()
    }

    fn ident_file(&self) -> Vec<IdentRow> {
        self.admission.ident_rows()
    }

    fn transactions(&self) -> TransactionsRow {
        let engine = self.engine();
        let stats = engine.as_ref().map(Engine::transaction_stats).unwrap_or_default();
        let oldest = engine.and_then(|e| e.oldest_snapshot());
        TransactionsRow {
            statement_restarts: stats.statement_restarts,
            serialization_conflicts: self.activities.totals.serialization_conflicts(),
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
        self.replication.visible().0
    }

    /// The roles; before the engine is open those of a new server.
    pub fn roles(&self) -> Arc<Roles> {
        self.engine().map(|engine| engine.roles()).unwrap_or_default()
    }

    /// Address and port of a session's client.
    fn client(&self, pid: i32) -> Option<String> {
        let session = self.activities.sessions.lock().get(&pid)?.clone();
        session.who.peer.client().map(|c| c.to_string())
    }
}

fn statement_row((key, text, counts): (Key, Arc<str>, Counts)) -> StatementRow {
    StatementRow {
        role: key.role,
        database_oid: key.database,
        query_id: key.query,
        query: text.to_string(),
        calls: counts.calls,
        rows: counts.rows,
        total_ms: counts.total_ms,
        min_ms: counts.min_ms,
        max_ms: counts.max_ms,
        mean_ms: counts.mean_ms,
        stddev_ms: counts.stddev_ms(),
        wal_records: counts.wal_records,
        wal_bytes: counts.wal_bytes,
    }
}

fn dump_row(report: BackupReport) -> DumpRow {
    let us = |ms: u64| i64::try_from(ms.saturating_mul(1000)).unwrap_or(i64::MAX);
    let (dump, drill) = (report.dump, report.drill);
    DumpRow {
        place: report.place,
        state: report.state.to_owned(),
        last_dump: dump.as_ref().map(|dump| dump.name.clone()),
        last_dump_us: dump.as_ref().map(|dump| us(dump.at_unix_ms)),
        last_dump_lsn: dump.as_ref().map(|dump| dump.lsn),
        last_dump_seconds: dump.as_ref().map(|dump| dump.seconds),
        last_dump_bytes: dump.as_ref().map(|dump| dump.bytes),
        last_dump_stored_bytes: dump.as_ref().map(|dump| dump.stored_bytes),
        dumps: report.dumps,
        next_dump_us: report.next_dump_unix_ms.map(us),
        failed: report.dump_failures,
        last_failed_us: report.last_failure.as_ref().map(|failure| us(failure.at_unix_ms)),
        last_error: report.last_failure.map(|failure| failure.text),
        last_drill_us: drill.as_ref().map(|drill| us(drill.at_unix_ms)),
        last_drill_ok: drill.as_ref().map(|drill| drill.ok),
        last_drill_lsn: drill.as_ref().and_then(|drill| drill.lsn),
        last_drill_seconds: drill.as_ref().map(|drill| drill.seconds),
        last_restore_seconds: drill.as_ref().map(|drill| drill.restore_seconds),
        last_drill: drill.map(|drill| drill.text),
        drills: report.drills,
        drills_failed: report.drill_failures,
        next_drill_us: report.next_drill_unix_ms.map(us),
        restorable_lsn: report.restorable_lsn,
        restorable_age_seconds: report.restorable_age_ms.map(|ms| ms as f64 / 1e3),
    }
}
