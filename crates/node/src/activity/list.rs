//! All sessions of the server.

use super::latencies::Latencies;
use super::session::{SessionActivity, Who};
use super::totals::Totals;
use crate::cancel::Canceller;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All sessions of the server, by process number, and what sessions have done since the server started.
#[derive(Debug, Default)]
pub struct Activities {
    pub(super) sessions: Mutex<BTreeMap<i32, Arc<SessionActivity>>>,
    pub totals: Totals,
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

    pub(super) fn list(&self) -> Vec<Arc<SessionActivity>> {
        self.sessions.lock().values().cloned().collect()
    }
}

impl Listed {
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
    }
}
