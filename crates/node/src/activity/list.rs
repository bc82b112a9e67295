//! All sessions of the server.

use super::latencies::Latencies;
use super::session::{SessionActivity, Who};
use super::statements::Statements;
use super::tables::Tables;
use super::tally::{Done, Tally};
use super::totals::Totals;
use crate::cancel::Canceller;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Bytes of each table and index of a database.
type Sizes = Arc<HashMap<String, u64>>;

/// All sessions of the server, by process number, and what sessions have done since the server started.
#[derive(Debug, Default)]
pub struct Activities {
    pub(super) sessions: Mutex<BTreeMap<i32, Arc<SessionActivity>>>,
    pub totals: Totals,
    pub statements: Statements,
    pub(super) tables: Tables,
    /// What sessions have done that have ended, by database.
    pub(super) ended: Mutex<BTreeMap<u32, Tally>>,
    /// The sizes of a database's tables at a snapshot, by database.
    pub(super) sizes: Mutex<BTreeMap<String, (u64, Sizes)>>,
    pub latencies: Latencies,
}

/// A session's entry in the list; dropping it removes the entry.
pub struct Listed {
    all: Arc<Activities>,
    own: Arc<SessionActivity>,
}

impl Activities {
    /// A session begins.
    pub fn enter(self: &Arc<Self>, who: Who, canceller: Arc<Canceller>) -> Listed {
        let own = Arc::new(SessionActivity::new(who, canceller));
        self.sessions.lock().insert(own.who.pid, own.clone());
        Listed { all: self.clone(), own }
    }

    /// What was done in each database so far, with the number of its sessions now.
    pub(super) fn by_database(&self) -> BTreeMap<u32, (Tally, u64)> {
        // The sessions first: one that ends meanwhile is missed rather than counted twice.
        let sessions = self.list();
        let ended = self.ended.lock().clone();
        let mut all: BTreeMap<u32, (Tally, u64)> = ended.into_iter().map(|(oid, tally)| (oid, (tally, 0))).collect();
        for session in sessions {
            let (oid, tally) = session.tally();
            let (sum, now) = all.entry(oid).or_default();
            sum.add(&tally);
            *now += 1;
        }
        all
    }

    pub(super) fn list(&self) -> Vec<Arc<SessionActivity>> {
        self.sessions.lock().values().cloned().collect()
    }
}

impl Listed {
    /// The statements of all sessions.
    pub fn statements(&self) -> &Statements {
        &self.all.statements
    }

    /// A statement has done this to a table of a database.
    pub fn count_table(&self, database: u32, table: u32, done: &Done) {
        self.all.tables.count(database, table, done);
    }

    /// The session switches to another database.
    pub fn move_to(&self, name: &str, oid: u32) {
        let (before, tally) = self.own.set_database(name, oid);
        self.all.ended.lock().entry(before).or_default().add(&tally);
    }

    /// The counters of the whole server.
    pub fn totals(&self) -> &Totals {
        &self.all.totals
    }

    /// A request was answered after so many microseconds, without an error or with one.
    pub fn took(&self, us: i64, succeeded: bool) {
        self.all.latencies.answered(us, self.own.take_committed() && succeeded);
    }
}

impl std::ops::Deref for Listed {
    type Target = SessionActivity;

    fn deref(&self) -> &SessionActivity {
        &self.own
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.all.sessions.lock().remove(&self.own.who.pid);
        let (oid, mut tally) = self.own.tally();
        tally.killed += u64::from(self.own.canceller.termination().is_ordered());
        self.all.ended.lock().entry(oid).or_default().add(&tally);
    }
}
