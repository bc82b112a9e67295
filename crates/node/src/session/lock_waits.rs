//! `log_lock_waits`: logs a wait for a lock that lasts longer than `deadlock_timeout`, and its end, with PostgreSQL's texts.
//!
//! While a message runs, a timer asks the lock manager what the session waits for. Without the setting there is no timer. The end of
//! a wait is noticed within [`PAUSE`], or with the end of the message; a wait that ends with an error has no second line, as in
//! PostgreSQL.

use super::log_line::LogAuthor;
use crate::database::Databases;
use holdfast_engine::WaitInfo;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two looks at a wait that was logged.
const PAUSE: Duration = Duration::from_millis(50);

/// Watches what one session waits for.
pub(super) struct LockWatch {
    pub databases: Arc<Databases>,
    pub author: LogAuthor,
    /// The text of the message.
    pub statement: String,
    /// Waits that are longer are logged.
    pub after: Duration,
}

impl LockWatch {
    /// Runs the work of a message and logs its waits.
    pub async fn during<T, E>(&self, mut work: Pin<Box<dyn Future<Output = Result<T, E>> + '_>>) -> Result<T, E> {
        let mut logged: Option<WaitInfo> = None;
        let mut pause = self.after;
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    if done.is_ok() && let Some(wait) = &logged {
                        self.acquired(wait);
                    }
                    return done;
                }
                () = tokio::time::sleep(pause) => pause = self.look(&mut logged),
            }
        }
    }

    /// Looks at the present wait; returns when to look again.
    fn look(&self, logged: &mut Option<WaitInfo>) -> Duration {
        let now = self.databases.lock_wait_of(self.author.pid);
        if let Some(before) = logged.take_if(|before| now.as_ref().is_none_or(|now| now.since != before.since)) {
            self.acquired(&before);
        }
        match now {
            Some(_) if logged.is_some() => PAUSE,
            Some(wait) if wait.since.elapsed() >= self.after => {
                self.still_waiting(&wait);
                *logged = Some(wait);
                PAUSE
            }
            Some(wait) => self.after - wait.since.elapsed().min(self.after - Duration::from_micros(1)),
            None => self.after,
        }
    }

    fn still_waiting(&self, wait: &WaitInfo) {
        let list = |pids: &[i32]| pids.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
        let holding = if wait.holders.len() == 1 { "Process" } else { "Processes" };
        let (holders, queue) = (list(&wait.holders), list(&wait.queue));
        let detail = format!("{holding} holding the lock: {holders}. Wait queue: {queue}.");
        self.line("still waiting for", wait, Some(&detail));
    }

    fn acquired(&self, wait: &WaitInfo) {
        self.line("acquired", wait, None);
    }

    fn line(&self, what: &str, wait: &WaitInfo, detail: Option<&str>) {
        let ms = Instant::now().duration_since(wait.since).as_secs_f64() * 1e3;
        let message = format!("process {} {what} {} on {} after {ms:.3} ms", self.author.pid, wait.mode, wait.on);
        self.author.line("LOG", "00000", &message, Some(&self.statement), detail);
    }
}
