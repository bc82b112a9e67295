//! What has happened, for `holdfast cluster events` and the log.

use crate::message::Event;
use crate::moment::unix_ms;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// The newest events that are kept.
const EVENTS_MAX: usize = 1000;

/// What an event is about; the table in docs/cluster.md describes each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Started,
    Stopping,
    ServerStarted,
    Adopted,
    ServerEnded,
    NoServer,
    Master,
    Hung,
    Crashes,
    RightEnded,
    NodeLost,
    NodeBack,
    Successor,
    Switchover,
    Frozen,
    Thawed,
    Released,
    NotReleased,
    Resumed,
    NotResumed,
    Returned,
    NotReturned,
    Refused,
    Scheduling,
    Pages,
    Process,
}

impl Kind {
    /// All kinds, in the order of the table.
    #[cfg(test)]
    const ALL: [Kind; 26] = [
        Kind::Started,
        Kind::Stopping,
        Kind::ServerStarted,
        Kind::Adopted,
        Kind::ServerEnded,
        Kind::NoServer,
        Kind::Master,
        Kind::Hung,
        Kind::Crashes,
        Kind::RightEnded,
        Kind::NodeLost,
        Kind::NodeBack,
        Kind::Successor,
        Kind::Switchover,
        Kind::Frozen,
        Kind::Thawed,
        Kind::Released,
        Kind::NotReleased,
        Kind::Resumed,
        Kind::NotResumed,
        Kind::Returned,
        Kind::NotReturned,
        Kind::Refused,
        Kind::Scheduling,
        Kind::Pages,
        Kind::Process,
    ];

    /// The word in `holdfast cluster events`.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Started => "started",
            Kind::Stopping => "stopping",
            Kind::ServerStarted => "server_started",
            Kind::Adopted => "adopted",
            Kind::ServerEnded => "server_ended",
            Kind::Hung => "hung",
            Kind::Crashes => "crashes",
            Kind::NoServer => "no_server",
            Kind::Master => "master",
            Kind::RightEnded => "right_ended",
            Kind::NodeLost => "node_lost",
            Kind::NodeBack => "node_back",
            Kind::Successor => "successor",
            Kind::Switchover => "switchover",
            Kind::Frozen => "frozen",
            Kind::Thawed => "thawed",
            Kind::Released => "released",
            Kind::NotReleased => "not_released",
            Kind::Resumed => "resumed",
            Kind::NotResumed => "not_resumed",
            Kind::Returned => "returned",
            Kind::NotReturned => "not_returned",
            Kind::Refused => "refused",
            Kind::Scheduling => "scheduling",
            Kind::Pages => "pages",
            Kind::Process => "process",
        }
    }
}

#[derive(Default)]
pub struct Events(Mutex<VecDeque<Event>>);

impl Events {
    pub fn add(&self, kind: Kind, text: String) {
        tracing::info!(target: "holdfast::cluster", event = kind.word(), "{text}");
        self.keep(kind, text);
    }

    /// Something that an operator should look at.
    pub fn warn(&self, kind: Kind, text: String) {
        tracing::warn!(target: "holdfast::cluster", event = kind.word(), "{text}");
        self.keep(kind, text);
    }

    fn keep(&self, kind: Kind, text: String) {
        let mut events = self.0.lock();
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(Event { unix_ms: unix_ms(), kind: kind.word().to_owned(), text });
    }

    pub fn all(&self) -> Vec<Event> {
        self.0.lock().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Kind;

    #[test]
    fn the_table_in_the_documentation_has_each_kind_once() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cluster.md");
        let text = std::fs::read_to_string(path).unwrap();
        let table = text.split_once("\n## Events\n").unwrap().1;
        let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" | "));
        let described: Vec<&str> =
            rows.flat_map(|(kinds, _)| kinds.split(", ")).map(|kind| kind.trim_matches('`')).collect();
        let words: Vec<&str> = Kind::ALL.iter().map(|kind| kind.word()).collect();
        assert_eq!(described, words);
    }
}
