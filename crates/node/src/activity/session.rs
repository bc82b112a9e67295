//! One session's activity: written by the session, read by the views.

use super::tally::{Done, Tally};
use crate::cancel::Canceller;
use crate::clock::now_us;
use crate::plan::Plan;
use holdfast_sql::catalogue::{Doing, EncryptionRow, SessionRow};
use holdfast_types::Level;
use holdfast_types::inet::Inet;
use holdfast_wire::{Peer, PeerAddress};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Bytes of a query that are shown (PostgreSQL's default of track_activity_query_size).
const QUERY_BYTES_MAX: usize = 1023;

/// What does not change during a session.
#[derive(Debug)]
pub struct Who {
    pub pid: i32,
    pub database: String,
    pub database_oid: u32,
    pub user: String,
    /// The OID of the role that was authenticated.
    pub role: u32,
    pub peer: Peer,
    pub application_name: String,
}

/// One session's activity.
#[derive(Debug)]
pub struct SessionActivity {
    pub(super) who: Who,
    pub(super) canceller: Arc<Canceller>,
    backend_start_us: i64,
    now: Mutex<Now>,
    /// What it waits for, apart from locks: one of the constants below.
    waits: AtomicU8,
    /// Number of the transaction that has begun to write; 0 for none.
    transaction: AtomicU64,
    /// The present request has waited for a commit.
    committed: AtomicBool,
}

const NOT_WAITING: u8 = 0;
const SYNCING: u8 = 1;
/// Also on a standby.
const SYNCING_STANDBYS: u8 = 2;
/// It waits for its client in the middle of a statement.
const READING: u8 = 3;

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
    /// The last statement's number in `pg_stat_statements`; 0: none.
    query_id: i64,
    /// What it has done in the present database, and since when it has been there.
    tally: Tally,
    entered_us: i64,
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
        holdfast_sql::without_secrets(text)
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
    pub fn new(who: Who, canceller: Arc<Canceller>) -> SessionActivity {
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
                query_id: 0,
                tally: Tally { sessions: 1, ..Tally::default() },
                entered_us: now,
            }),
            who,
            canceller,
            waits: AtomicU8::new(NOT_WAITING),
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

    /// The message has been answered, and has done this; `query_id` is its last statement's. Returns when, in microseconds
    /// since 1970.
    pub fn end(&self, doing: Doing, done: &Done, query_id: i64) -> i64 {
        let at_us = now_us();
        let mut now = self.now.lock();
        now.pass_time(at_us);
        now.tally.did(done);
        if query_id != 0 {
            now.query_id = query_id;
        }
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

    /// The session has switched to another database: returns the one before, and what was done there.
    pub(super) fn set_database(&self, name: &str, oid: u32) -> (u32, Tally) {
        let at_us = now_us();
        let mut now = self.now.lock();
        let mut tally = std::mem::take(&mut now.tally);
        tally.session_us += elapsed(now.entered_us, at_us);
        now.entered_us = at_us;
        name.clone_into(&mut now.database);
        (std::mem::replace(&mut now.database_oid, oid), tally)
    }

    /// The present database, and what the session has done there.
    pub(super) fn tally(&self) -> (u32, Tally) {
        let at_us = now_us();
        let now = self.now.lock();
        let mut tally = now.tally;
        tally.session_us += elapsed(now.entered_us, at_us);
        (now.database_oid, tally)
    }

    /// The text of the last message, without passwords.
    pub fn query_text(&self) -> String {
        self.now.lock().query.text().into_owned()
    }

    /// As PostgreSQL's logs name a session: the second of its start and its process number, in hexadecimal.
    pub fn session_id(&self) -> String {
        format!("{:x}.{:x}", self.backend_start_us / 1_000_000, self.who.pid)
    }

    pub fn set_application_name(&self, name: &str) {
        name.clone_into(&mut self.now.lock().application_name);
    }

    /// Runs a wait until a commit has reached its level, which the view shows as such.
    pub async fn until_durable<T>(&self, level: Level, work: impl Future<Output = T>) -> T {
        let state = if level == Level::Local { SYNCING } else { SYNCING_STANDBYS };
        self.waits.store(state, Ordering::Relaxed);
        let done = work.await;
        self.waits.store(NOT_WAITING, Ordering::Relaxed);
        self.committed.store(true, Ordering::Relaxed);
        done
    }

    /// Runs a wait for the client's COPY data, which the view shows as such.
    pub async fn until_client<T>(&self, work: impl Future<Output = T>) -> T {
        self.waits.store(READING, Ordering::Relaxed);
        let done = work.await;
        self.waits.store(NOT_WAITING, Ordering::Relaxed);
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
            (Doing::Active, None) => match self.waits.load(Ordering::Relaxed) {
                SYNCING => Some(("IO", "WALSync")),
                SYNCING_STANDBYS => Some(("IPC", "SyncRep")),
                READING => Some(("Client", "ClientRead")),
                _ => None,
            },
            _ => Some(("Client", "ClientRead")),
        };
        let transaction = self.transaction.load(Ordering::Relaxed);
        SessionRow {
            pid: self.who.pid,
            database_oid: now.database_oid,
            database: now.database.clone(),
            user: self.who.user.clone(),
            role: self.who.role,
            application_name: now.application_name.clone(),
            client: self.who.peer.client().map(|c| Inet::from(c.ip()).to_string()),
            client_port: port(&self.who.peer),
            encryption: encryption(&self.who.peer),
            backend_start_us: self.backend_start_us,
            transaction_start_us: now.transaction_start_us,
            query_start_us: now.query_start_us,
            state_change_us: now.state_change_us,
            doing: now.doing,
            wait_event,
            transaction: (transaction != 0).then_some(transaction),
            query: now.query.text().into_owned(),
            query_id: (now.query_id != 0).then_some(now.query_id),
        }
    }
}

fn port(peer: &Peer) -> Option<i32> {
    peer.address.map(|address| match address {
        PeerAddress::Unix { .. } => -1,
        PeerAddress::Tcp { client, .. } => client.port().into(),
    })
}

fn encryption(peer: &Peer) -> Option<EncryptionRow> {
    let tls = peer.tls.as_ref()?;
    let certificate = tls.client_certificate.as_ref();
    Some(EncryptionRow {
        version: tls.version.to_owned(),
        cipher: tls.cipher.to_owned(),
        bits: tls.bits,
        client_certificate: certificate.map(|c| (c.subject.clone(), c.serial.clone(), c.issuer.clone())),
    })
}

fn elapsed(from_us: i64, to_us: i64) -> u64 {
    u64::try_from(to_us - from_us).unwrap_or(0)
}

impl Now {
    /// Counts the time since the last change of state.
    fn pass_time(&mut self, at_us: i64) {
        let passed = elapsed(self.state_change_us, at_us);
        match self.doing {
            Doing::Active => self.tally.active_us += passed,
            Doing::IdleInTransaction | Doing::IdleInFailed => self.tally.idle_in_transaction_us += passed,
            Doing::Idle => {}
        }
    }

    fn begin(&mut self, at_us: i64, transaction_us: i64) {
        self.pass_time(at_us);
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
        let who = Who {
            pid: 7,
            database: "d".into(),
            database_oid: 5,
            user: "u".into(),
            role: 10,
            peer: Peer {
                address: Some(PeerAddress::Tcp {
                    client: ([127, 0, 0, 1], 4711).into(),
                    server: ([127, 0, 0, 1], 5433).into(),
                }),
                tls: None,
            },
            application_name: "app".into(),
        };
        SessionActivity::new(who, Arc::default())
    }

    #[test]
    fn a_transaction_has_its_time_until_it_is_over() {
        let s = session();
        s.begin_text("begin", 10, 10);
        assert_eq!((s.row(None).doing, s.row(None).wait_event), (Doing::Active, None));
        assert_eq!(s.row(Some("relation")).wait_event, Some(("Lock", "relation")));
        s.end(Doing::IdleInTransaction, &Done::default(), 0);
        s.set_transaction(3);
        let row = s.row(None);
        assert_eq!((row.transaction_start_us, row.query_start_us, row.transaction), (Some(10), Some(10), Some(3)));
        assert_eq!(row.wait_event, Some(("Client", "ClientRead")));
        s.begin_text("commit", 20, 10);
        s.end(Doing::Idle, &Done::default(), 0);
        assert_eq!((s.row(None).transaction_start_us, s.row(None).query), (None, "commit".to_string()));
    }

    #[test]
    fn a_commit_waits_for_its_sync() {
        let s = session();
        s.begin_text("insert", 1, 1);
        let mut commit = std::pin::pin!(s.until_durable(Level::Local, std::future::pending::<()>()));
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
