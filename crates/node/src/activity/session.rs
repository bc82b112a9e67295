//! One session's activity: written by the session, read by the views.

use crate::clock::now_us;
use crate::plan::Plan;
use holdfast_sql::catalogue::{Doing, SessionRow};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of a query that are shown (PostgreSQL's default of track_activity_query_size).
const QUERY_BYTES_MAX: usize = 1023;

/// What does not change during a session.
#[derive(Debug)]
pub struct Who {
    pub pid: i32,
    pub database: String,
    pub database_oid: u32,
    pub user: String,
    pub client: Option<SocketAddr>,
    pub application_name: String,
}

/// One session's activity.
#[derive(Debug)]
pub struct SessionActivity {
    pub(super) who: Who,
    backend_start_us: i64,
    now: Mutex<Now>,
    /// It waits until its commit is durable.
    syncing: AtomicBool,
    /// Number of the transaction that has begun to write; 0 for none.
    transaction: AtomicU64,
    /// The present request has waited for a commit.
    committed: AtomicBool,
}

#[derive(Debug)]
struct Now {
    doing: Doing,
    application_name: String,
    /// The present database; USE changes it.
    database: String,
    database_oid: u32,
    transaction_start_us: Option<i64>,
    query_start_us: Option<i64>,
    state_change_us: i64,
    query: Query,
}

/// The last query's text.
enum Query {
    /// A buffer that is reused.
    Text(String),
    /// The text of a prepared statement.
    Prepared(Arc<Plan>),
}

impl Query {
    /// The text without a password in it.
    fn text(&self) -> Cow<'_, str> {
        let text = match self {
            Query::Text(text) => text,
            Query::Prepared(plan) => shown(&plan.text),
        };
        holdfast_sql::without_secrets(text).map_or(Cow::Borrowed(text), Cow::Owned)
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text().fmt(f)
    }
}

/// The part of a text that is shown.
fn shown(text: &str) -> &str {
    &text[..text.floor_char_boundary(QUERY_BYTES_MAX)]
}

impl SessionActivity {
    pub fn new(who: Who) -> SessionActivity {
        let now = now_us();
        SessionActivity {
            backend_start_us: now,
            now: Mutex::new(Now {
                doing: Doing::Idle,
                application_name: who.application_name.clone(),
                database: who.database.clone(),
                database_oid: who.database_oid,
                transaction_start_us: None,
                query_start_us: None,
                state_change_us: now,
                query: Query::Text(String::new()),
            }),
            who,
            syncing: AtomicBool::new(false),
            transaction: AtomicU64::new(0),
            committed: AtomicBool::new(false),
        }
    }

    /// A message with this text begins; both times in microseconds since 1970.
    pub fn begin_text(&self, text: &str, at_us: i64, transaction_us: i64) {
        let mut now = self.now.lock();
        match &mut now.query {
            Query::Text(last) => {
                last.clear();
                last.push_str(shown(text));
            }
            query => *query = Query::Text(shown(text).to_owned()),
        }
        now.begin(at_us, transaction_us);
    }

    /// Prepared statements begin; `plan` is the last of them.
    pub fn begin_prepared(&self, plan: Option<&Arc<Plan>>, at_us: i64, transaction_us: i64) {
        let mut now = self.now.lock();
        match (plan, &now.query) {
            (Some(plan), Query::Prepared(last)) if Arc::ptr_eq(plan, last) => {}
            (Some(plan), _) => now.query = Query::Prepared(plan.clone()),
            (None, _) => {}
        }
        now.begin(at_us, transaction_us);
    }

    /// The message has been answered. Returns when, in microseconds since 1970.
    pub fn end(&self, doing: Doing) -> i64 {
        let at_us = now_us();
        let mut now = self.now.lock();
        now.doing = doing;
        now.state_change_us = at_us;
        // PostgreSQL forgets it as soon as a transaction has failed.
        if matches!(doing, Doing::Idle | Doing::IdleInFailed) {
            now.transaction_start_us = None;
        }
        at_us
    }

    /// The open transaction begins to write, under this number; 0: it has ended.
    pub fn set_transaction(&self, number: u64) {
        self.transaction.store(number, Ordering::Relaxed);
    }

    /// The session has switched to another database.
    pub fn set_database(&self, name: &str, oid: u32) {
        let mut now = self.now.lock();
        name.clone_into(&mut now.database);
        now.database_oid = oid;
    }

    pub fn set_application_name(&self, name: &str) {
        name.clone_into(&mut self.now.lock().application_name);
    }

    /// Runs a wait for a durable commit, which the view shows as such.
    pub async fn until_durable<T>(&self, work: impl Future<Output = T>) -> T {
        self.syncing.store(true, Ordering::Relaxed);
        let done = work.await;
        self.syncing.store(false, Ordering::Relaxed);
        self.committed.store(true, Ordering::Relaxed);
        done
    }

    /// Whether the request that ends now has waited for a commit. Only the session itself asks.
    pub fn take_committed(&self) -> bool {
        let committed = self.committed.load(Ordering::Relaxed);
        if committed {
            self.committed.store(false, Ordering::Relaxed);
        }
        committed
    }

    /// The session's row in the view. `lock`: what it waits for, as the lock manager knows.
    pub(super) fn row(&self, lock: Option<&'static str>) -> SessionRow {
        let now = self.now.lock();
        let wait_event = match (now.doing, lock) {
            (Doing::Active, Some(lock)) => Some(("Lock", lock)),
            (Doing::Active, None) => self.syncing.load(Ordering::Relaxed).then_some(("IO", "WALSync")),
            _ => Some(("Client", "ClientRead")),
        };
        let transaction = self.transaction.load(Ordering::Relaxed);
        SessionRow {
            pid: self.who.pid,
            database_oid: now.database_oid,
            database: now.database.clone(),
            user: self.who.user.clone(),
            application_name: now.application_name.clone(),
            client: self.who.client.map(|c| (c.ip().to_string(), c.port())),
            backend_start_us: self.backend_start_us,
            transaction_start_us: now.transaction_start_us,
            query_start_us: now.query_start_us,
            state_change_us: now.state_change_us,
            doing: now.doing,
            wait_event,
            transaction: (transaction != 0).then_some(transaction),
            query: now.query.text().into_owned(),
        }
    }
}

impl Now {
    fn begin(&mut self, at_us: i64, transaction_us: i64) {
        self.doing = Doing::Active;
        self.transaction_start_us = Some(transaction_us);
        self.query_start_us = Some(at_us);
        self.state_change_us = at_us;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> SessionActivity {
        SessionActivity::new(Who {
            pid: 7,
            database: "d".into(),
            database_oid: 5,
            user: "u".into(),
            client: Some(([127, 0, 0, 1], 4711).into()),
            application_name: "app".into(),
        })
    }

    #[test]
    fn a_transaction_has_its_time_until_it_is_over() {
        let s = session();
        s.begin_text("begin", 10, 10);
        assert_eq!((s.row(None).doing, s.row(None).wait_event), (Doing::Active, None));
        assert_eq!(s.row(Some("relation")).wait_event, Some(("Lock", "relation")));
        s.end(Doing::IdleInTransaction);
        s.set_transaction(3);
        let row = s.row(None);
        assert_eq!((row.transaction_start_us, row.query_start_us, row.transaction), (Some(10), Some(10), Some(3)));
        assert_eq!(row.wait_event, Some(("Client", "ClientRead")));
        s.begin_text("commit", 20, 10);
        s.end(Doing::Idle);
        assert_eq!((s.row(None).transaction_start_us, s.row(None).query), (None, "commit".to_string()));
    }

    #[test]
    fn a_commit_waits_for_its_sync() {
        let s = session();
        s.begin_text("insert", 1, 1);
        let mut commit = std::pin::pin!(s.until_durable(std::future::pending::<()>()));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(commit.as_mut().poll(&mut context).is_pending());
        assert_eq!(s.row(None).wait_event, Some(("IO", "WALSync")));
        assert_eq!(s.row(Some("transactionid")).wait_event, Some(("Lock", "transactionid")), "it met a lock");
    }

    #[test]
    fn long_queries_are_cut_between_characters() {
        let s = session();
        s.begin_text(&"ä".repeat(1000), 1, 1);
        assert_eq!(s.row(None).query, "ä".repeat(511));
        s.begin_text("short", 1, 1);
        assert_eq!(s.row(None).query, "short");
    }
}
