//! The sessions of a server: their process ids, their keys for cancel requests, and how many there are.

use crate::session::Cancel;
use parking_lot::Mutex;
use std::collections::{HashMap, hash_map};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

struct Entry {
    key: i32,
    cancel: Option<Arc<dyn Cancel>>,
}

struct Sessions {
    by_pid: HashMap<i32, Entry>,
    last_pid: i32,
}

/// Shared by all workers.
pub struct Registry {
    sessions: Mutex<Sessions>,
    /// Each process has new keys from the system's random source, so a cancel key cannot be computed from its pid.
    keys: RandomState,
}

impl Default for Registry {
    fn default() -> Registry {
        let sessions = Mutex::new(Sessions { by_pid: HashMap::new(), last_pid: 0 });
        Registry { sessions, keys: RandomState::new() }
    }
}

/// A session's entry in the registry, removed when dropped.
pub struct Registration {
    registry: Arc<Registry>,
    pub pid: i32,
    pub key: i32,
}

impl Registry {
    /// Registers one more session: gives it a unique pid and a key.
    pub fn register(self: &Arc<Registry>) -> Registration {
        let mut sessions = self.sessions.lock();
        loop {
            sessions.last_pid = sessions.last_pid.checked_add(1).unwrap_or(1);
            let pid = sessions.last_pid;
            if let hash_map::Entry::Vacant(place) = sessions.by_pid.entry(pid) {
                let key = self.keys.hash_one(pid) as i32;
                place.insert(Entry { key, cancel: None });
                return Registration { registry: self.clone(), pid, key };
            }
        }
    }

    /// The number of registered sessions.
    pub fn len(&self) -> usize {
        self.sessions.lock().by_pid.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Handles a cancel request: interrupts the session if the key is right. As in PostgreSQL, the client gets no
    /// answer.
    pub fn cancel(&self, pid: i32, key: i32) {
        let cancel = self.sessions.lock().by_pid.get(&pid).filter(|e| e.key == key).and_then(|e| e.cancel.clone());
        if let Some(cancel) = cancel {
            cancel.cancel();
        }
    }

    /// Interrupts every session.
    pub fn cancel_all(&self) {
        let all: Vec<_> = self.sessions.lock().by_pid.values().filter_map(|e| e.cancel.clone()).collect();
        all.iter().for_each(|c| c.cancel());
    }
}

impl Registration {
    /// From now on cancel requests interrupt the session.
    pub fn set_cancel(&self, cancel: Arc<dyn Cancel>) {
        if let Some(entry) = self.registry.sessions.lock().by_pid.get_mut(&self.pid) {
            entry.cancel = Some(cancel);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.sessions.lock().by_pid.remove(&self.pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Counter(AtomicU32);
    impl Cancel for Counter {
        fn cancel(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_the_right_key_cancels() {
        let registry = Arc::new(Registry::default());
        let (a, b) = (registry.register(), registry.register());
        let counter = Arc::new(Counter::default());
        a.set_cancel(counter.clone());
        registry.cancel(a.pid, a.key.wrapping_add(1));
        registry.cancel(b.pid, a.key);
        assert_eq!(counter.0.load(Ordering::Relaxed), 0);
        registry.cancel(a.pid, a.key);
        assert_eq!(counter.0.load(Ordering::Relaxed), 1);
        assert_eq!(registry.len(), 2);
        drop(a);
        assert_eq!(registry.len(), 1);
    }
}
