//! Hands lines of the log to the console: those that the log's filter lets through, from `info` on.
//!
//! Failure: none. The console keeps the newest lines only.

use std::fmt::{self, Write};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The layer that hands lines on.
pub struct LogEvents;

impl<S: Subscriber> Layer<S> for LogEvents {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            _ => return,
        };
        let mut line = Line::default();
        event.record(&mut line);
        holdfast_node::events::add(level, event.metadata().target(), line.message + &line.fields);
    }
}

/// The message, and after it the other fields.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        // Writing to a String does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value}"),
            name => write!(self.fields, " {name}={value}"),
        };
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    /// Keeps what a layer would hand on.
    struct Kept(std::sync::mpsc::Sender<String>);

    impl<S: Subscriber> Layer<S> for Kept {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut line = Line::default();
            event.record(&mut line);
            self.0.send(line.message + &line.fields).unwrap();
        }
    }

    #[test]
    fn a_line_has_its_message_first() {
        let (kept, lines) = std::sync::mpsc::channel();
        let subscriber = tracing_subscriber::registry().with(Kept(kept)).with(LogEvents);
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(standby = "b", lsn = %7, "a standby {}", "left");
        });
        assert_eq!(lines.recv().unwrap(), "a standby left standby=b lsn=7");
    }
}
