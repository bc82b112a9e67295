//! What has happened, for `holdfast cluster events` and the log.

use crate::message::Event;
use crate::moment::unix_ms;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// The newest events that are kept.
const EVENTS_MAX: usize = 1000;

#[derive(Default)]
pub struct Events(Mutex<VecDeque<Event>>);

impl Events {
    pub fn add(&self, kind: &str, text: String) {
        tracing::info!(target: "holdfast::cluster", event = kind, "{text}");
        self.keep(kind, text);
    }

    /// Something that an operator should look at.
    pub fn warn(&self, kind: &str, text: String) {
        tracing::warn!(target: "holdfast::cluster", event = kind, "{text}");
        self.keep(kind, text);
    }

    fn keep(&self, kind: &str, text: String) {
        let mut events = self.0.lock();
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(Event { unix_ms: unix_ms(), kind: kind.to_owned(), text });
    }

    pub fn all(&self) -> Vec<Event> {
        self.0.lock().iter().cloned().collect()
    }
}
