//! The console's sessions. They live in memory: a restart of the server ends them.
//!
//! The cookie is 32 random bytes; the list holds its hash, so that a copy of the memory is not enough to use a session.

use crate::limits::{CONSOLE_IDLE_MAX, CONSOLE_SESSIONS_MAX, CONSOLE_TIME_MAX};
use crate::one_time::random_hex;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use std::collections::BTreeMap;
use std::time::Instant;

#[derive(Default)]
pub(super) struct Sessions {
    /// By the hash of the cookie.
    all: Mutex<BTreeMap<Vec<u8>, ConsoleSession>>,
}

struct ConsoleSession {
    role: String,
    /// Of the role's rights at the login.
    version: u64,
    token: String,
    begun: Instant,
    used: Instant,
}

impl ConsoleSession {
    fn has_expired(&self) -> bool {
        self.used.elapsed() > CONSOLE_IDLE_MAX || self.begun.elapsed() > CONSOLE_TIME_MAX
    }
}

/// What the browser of a new session gets.
pub(super) struct Opened {
    pub cookie: String,
    pub token: String,
}

fn key(cookie: &str) -> Vec<u8> {
    digest(&SHA256, cookie.as_bytes()).as_ref().to_vec()
}

impl Sessions {
    /// Opens a session; the one that was used the longest ago ends where there are too many.
    pub fn open(&self, role: &str, version: u64) -> Option<Opened> {
        let (cookie, token) = (random_hex::<32>()?, random_hex::<32>()?);
        let now = Instant::now();
        let session = ConsoleSession { role: role.to_owned(), version, token: token.clone(), begun: now, used: now };
        let mut all = self.all.lock();
        while all.len() >= CONSOLE_SESSIONS_MAX {
            let Some(oldest) = all.iter().min_by_key(|(_, of)| of.used).map(|(key, _)| key.clone()) else { break };
            all.remove(&oldest);
        }
        all.insert(key(&cookie), session);
        Some(Opened { cookie, token })
    }

    /// Role, version and token of the session with this cookie, which is used now.
    pub fn find(&self, cookie: &str) -> Option<(String, u64, String)> {
        let mut all = self.all.lock();
        let session = all.get_mut(&key(cookie)).filter(|session| !session.has_expired())?;
        session.used = Instant::now();
        Some((session.role.clone(), session.version, session.token.clone()))
    }

    pub fn close(&self, cookie: &str) {
        self.all.lock().remove(&key(cookie));
    }

    /// Ends sessions that have expired, and those for which `keep` is false, given role and version.
    pub fn retain(&self, keep: impl Fn(&str, u64) -> bool) {
        let mut all = self.all.lock();
        all.retain(|_, session| !session.has_expired() && keep(&session.role, session.version));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_found_by_cookie_end_and_are_bounded() {
        let sessions = Sessions::default();
        let first = sessions.open("a", 1).unwrap();
        assert_eq!(sessions.find(&first.cookie), Some(("a".to_owned(), 1, first.token.clone())));
        assert_eq!(sessions.find(&first.token), None);
        let others: Vec<Opened> = (0..CONSOLE_SESSIONS_MAX).map(|_| sessions.open("b", 2).unwrap()).collect();
        assert!(sessions.find(&first.cookie).is_none(), "the oldest makes room");
        sessions.close(&others[0].cookie);
        assert!(sessions.find(&others[0].cookie).is_none() && sessions.find(&others[1].cookie).is_some());
        sessions.retain(|role, version| role != "b" || version != 2);
        assert!(sessions.find(&others[1].cookie).is_none());
    }
}
