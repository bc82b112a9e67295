//! All sessions of the server.

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
