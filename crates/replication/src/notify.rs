//! The operator's command (`notify_command`): run with one line of text when something about standbys or the mirror changes.
//!
//! Nothing waits for the command. Failure: a command that cannot be started, or ends with an error, is logged; the change
//! itself is in the log in any case.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Commands that run at the same time; beyond that the text is only logged.
const RUNNING_MAX: usize = 16;

/// Reports changes to the operator: in the log, and through the command.
#[derive(Clone, Debug, Default)]
pub struct Notify {
    /// Empty: none.
    command: String,
    running: Arc<AtomicUsize>,
}

impl Notify {
    pub fn new(command: String) -> Notify {
        Notify { command, ..Notify::default() }
    }

    /// Reports a change that the operator should act on.
    pub fn warn(&self, text: &str) {
        tracing::warn!(target: "holdfast::standby", "{text}");
        self.run_command(text);
    }

    /// Reports a change for the better, or one that the operator asked for.
    pub fn info(&self, text: &str) {
        tracing::info!(target: "holdfast::standby", "{text}");
        self.run_command(text);
    }

    fn run_command(&self, text: &str) {
        if self.command.is_empty() {
            return;
        }
        if self.running.fetch_add(1, Ordering::AcqRel) >= RUNNING_MAX {
            self.running.fetch_sub(1, Ordering::AcqRel);
            return tracing::warn!(
                "notify_command is still running {RUNNING_MAX} times; it is not run for this change"
            );
        }
        let (notify, text) = (self.clone(), text.to_owned());
        let spawned = std::thread::Builder::new().name("notify".into()).spawn(move || {
            let started = Command::new("sh")
                .args(["-c", &format!("{} \"$1\"", notify.command), "sh", &text])
                .stdin(Stdio::null())
                .status();
            match started {
                Ok(status) if status.success() => {}
                Ok(status) => tracing::warn!("notify_command ended with {status}"),
                Err(error) => tracing::warn!("notify_command cannot be run: {error}"),
            }
            notify.running.fetch_sub(1, Ordering::AcqRel);
        });
        if let Err(error) = spawned {
            self.running.fetch_sub(1, Ordering::AcqRel);
            tracing::warn!("notify_command cannot be run: {error}");
        }
    }
}
