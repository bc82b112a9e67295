//! What every session is doing, as `pg_stat_activity` shows it.
//!
//! A session notes when a message begins and ends: its own short lock, taken by nobody else but those who look. What it
//! waits for is not noted where somebody knows it anyway: the lock manager is asked when one looks, and a session that
//! is not active waits for its client.

mod live;
mod session;

pub use live::Watcher;
pub use session::{SessionActivity, Who};

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// All sessions of the server, by process number.
#[derive(Debug, Default)]
pub struct Activities {
    sessions: Mutex<BTreeMap<i32, Arc<SessionActivity>>>,
    /// Statements and commits that ended with 40001.
    serialization_conflicts: AtomicU64,
}

/// A session's place among them; it leaves when this is dropped.
pub struct Listed {
    all: Arc<Activities>,
    own: Arc<SessionActivity>,
}

impl Activities {
    /// A session begins.
    pub fn enter(self: &Arc<Self>, who: Who) -> Listed {
        let own = Arc::new(SessionActivity::new(who));
        self.sessions.lock().insert(own.who.pid, own.clone());
        Listed { all: self.clone(), own }
    }

    fn list(&self) -> Vec<Arc<SessionActivity>> {
        self.sessions.lock().values().cloned().collect()
    }
}

impl Listed {
    /// A transaction could not be serialized.
    pub fn conflict(&self) {
        self.all.serialization_conflicts.fetch_add(1, Ordering::Relaxed);
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
