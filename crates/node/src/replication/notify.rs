//! The operator's command: run with one line of text when something about standbys changes.
//!
//! It runs beside everything else and nothing waits for it. Failure: one that cannot be started, or ends with an error, is
//! logged; the change itself is in the log in any case.

use std::process::{Command, Stdio};

/// Commands that run at one time; with more the text is only logged.
const RUNNING_MAX: usize = 16;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Notify {
    /// Empty: none.
    command: String,
    running: std::sync::Arc<std::sync::atomic::AtomicUsize>,
}

impl Notify {
    pub fn new(command: String) -> Notify {
        Notify { command, ..Notify::default() }
    }

    /// Logs the change and tells the operator's command.
    pub fn tell(&self, text: &str) {
        use std::sync::atomic::Ordering;
        tracing::warn!(target: "holdfast::standby", "{text}");
        if self.command.is_empty() {
            return;
        }
        if self.running.fetch_add(1, Ordering::AcqRel) >= RUNNING_MAX {
            self.running.fetch_sub(1, Ordering::AcqRel);
            return tracing::warn!("notify_command runs {RUNNING_MAX} times already, it is not told of this");
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
