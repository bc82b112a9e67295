//! Which members answer Raft's calls: the absence of a member is logged once, and its return once.
//!
//! Raft calls a member that is away several times a second and openraft logs each failure; the server's default filter drops
//! those lines, and this takes their place.
//!
//! | a call to a member | then |
//! |---|---|
//! | fails, after one that was answered | noted |
//! | fails, and all have failed for [`ABSENT_AFTER`] | logged, once |
//! | is answered, after an absence that was logged | logged, once |
//!
//! Failure: none; it only logs.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::id::NodeId;

/// How long a member may not answer before that is logged: a connection that is made again is no absence.
const ABSENT_AFTER: Duration = Duration::from_secs(1);

/// The members that do not answer.
#[derive(Default)]
pub struct Presence {
    silent: Mutex<BTreeMap<NodeId, Silence>>,
}

struct Silence {
    since: Instant,
    is_logged: bool,
}

impl Presence {
    /// A call to the member has failed.
    pub fn failed(&self, member: NodeId, why: &dyn Display) {
        if self.note_failure(member, Instant::now()) {
            tracing::warn!(%member, "a member of the control plane does not answer: {why}; its return will be logged");
        }
    }

    /// The member has answered a call.
    pub fn answered(&self, member: NodeId) {
        if let Some(since) = self.note_answer(member) {
            let seconds = since.elapsed().as_secs();
            tracing::info!(%member, "a member of the control plane answers again, after {seconds} s");
        }
    }

    /// Whether the absence is to be logged.
    fn note_failure(&self, member: NodeId, now: Instant) -> bool {
        let mut silent = self.silent.lock();
        let silence = silent.entry(member).or_insert(Silence { since: now, is_logged: false });
        let is_absent = now.saturating_duration_since(silence.since) >= ABSENT_AFTER;
        is_absent && !std::mem::replace(&mut silence.is_logged, is_absent)
    }

    /// Since when the member was absent, if that was logged.
    fn note_answer(&self, member: NodeId) -> Option<Instant> {
        let silence = self.silent.lock().remove(&member)?;
        silence.is_logged.then_some(silence.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absence_and_a_return_are_reported_once() {
        let (presence, begin) = (Presence::default(), Instant::now());
        let [b, w]: [NodeId; 2] = ["b", "w"].map(|name| name.parse().unwrap());
        let fails = |member, ms| presence.note_failure(member, begin + Duration::from_millis(ms));
        assert_eq!(presence.note_answer(b), None);
        assert!(!fails(b, 0) && !fails(b, 900));
        assert_eq!(presence.note_answer(b), None, "too short to be logged");
        assert!(!fails(b, 1000) && !fails(w, 1500));
        let logged: Vec<bool> = [1800, 2000, 2200, 9000].map(|ms| fails(b, ms)).to_vec();
        assert_eq!(logged, [false, true, false, false]);
        assert_eq!(presence.note_answer(b), Some(begin + Duration::from_millis(1000)));
        assert_eq!(presence.note_answer(b), None);
        assert!(fails(w, 2500), "each member by itself");
    }
}
