//! A server whose pages were removed from the runtime directory while it ran, and whose supervisor has ended.
//!
//! | missing | then |
//! |---|---|
//! | `progress` | the process that has the trail is adopted, if it was started for this runtime directory; it makes the page again |
//! | `lease-EPOCH` of the master | no supervisor can extend that lease again. When it has run out for certain, the server is ended and started again |
//! | both, or the directory | both |
//! | another process has the trail | it is named with its pid; an operator ends it |
//!
//! A server that is a standby, or is replaced by another node meanwhile, needs no lease page and continues.
//!
//! Failure: a server that does not end by SIGTERM gets SIGKILL: it answers nothing, so no client loses more.

use super::events::Kind;
use super::{Supervisor, is_free};
use crate::process::{Identity, Process, arguments_of, users_of};
use holdfast_control::{ControlPlane, LeaseTerms, Mastership};
use holdfast_types::Epoch;
use rustix::process::Signal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(100);
/// How long a server has to stop in order.
const STOP_MAX: Duration = Duration::from_secs(10);

impl Supervisor {
    fn trail_lock(&self) -> PathBuf {
        self.data.join("trail").join("lock")
    }

    pub(super) fn is_trail_free(&self) -> bool {
        is_free(&self.trail_lock())
    }

    /// The process that has the trail, if it was started for this runtime directory.
    pub(super) fn orphan(&self) -> Option<Identity> {
        if self.is_trail_free() {
            return None;
        }
        self.holders().into_iter().find(|holder| {
            let arguments = arguments_of(holder.pid);
            arguments.windows(2).any(|pair| pair[0] == "--supervisor" && pair[1] == self.dir.path())
        })
    }

    fn holders(&self) -> Vec<Identity> {
        users_of(&self.trail_lock()).unwrap_or_else(|error| {
            self.events.warn(Kind::Process, format!("the process that has the trail cannot be found: {error}"));
            Vec::new()
        })
    }

    /// Why no server can be started, and which process to end.
    pub(super) fn describe_holder(&self) -> String {
        let data = self.data.display();
        let pids: Vec<String> = self.holders().iter().map(|holder| holder.pid.to_string()).collect();
        match pids.is_empty() {
            true => format!("another process has the trail in {data}; this user may not see which one"),
            false => format!("process {} has the trail in {data}: end it", pids.join(", ")),
        }
    }

    /// The epoch in which the group counts with this node as the master, if there is no lease page of it; an error: nothing is
    /// known of the group yet.
    fn epoch_without_page(&self) -> Result<Option<Epoch>, ()> {
        let record = self.control.record().ok_or(())?;
        let is_master = record.master == Some(self.node) && matches!(record.mastership, Mastership::Serving { .. });
        let has_page = self.pages.current().is_some_and(|page| page.epoch() == record.epoch);
        Ok((is_master && !has_page).then_some(record.epoch))
    }

    /// Ends an adopted server that is the master and whose lease page is missing, once its lease has run out.
    pub(super) async fn end_without_page(self: Arc<Self>, server: Identity) {
        // No process extends it, and the drift of clocks is less than half of it.
        let runs_out = 2 * LeaseTerms::default().lease();
        let began = Instant::now();
        while self.is_its_server(server) {
            match self.epoch_without_page() {
                Ok(None) => {
                    self.state.lock().lacks = None;
                    return;
                }
                Ok(Some(epoch)) => {
                    let why = format!(
                        "the lease page of epoch {epoch} was removed: the server, pid {}, answers nothing when its lease has \
                         run out, and is then ended and started again",
                        server.pid
                    );
                    let is_new = self.state.lock().lacks.replace(why.clone()).is_none();
                    if is_new {
                        self.events.warn(Kind::Pages, why);
                    }
                    if began.elapsed() > runs_out {
                        return self.end(server).await;
                    }
                }
                Err(()) => {}
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends a process; the task that watches it starts the next one.
    async fn end(&self, server: Identity) {
        let Some(process) = self.open(server) else { return };
        for (signal, time) in [(Signal::TERM, STOP_MAX), (Signal::KILL, STOP_MAX)] {
            if let Err(error) = process.signal(signal) {
                tracing::debug!("the server cannot be ended: {error}");
            }
            if has_ended_within(&process, time).await {
                return;
            }
        }
        self.events.warn(Kind::Process, format!("the server, pid {}, does not end: end it", server.pid));
    }
}

async fn has_ended_within(process: &Process, time: Duration) -> bool {
    let began = Instant::now();
    while began.elapsed() < time {
        if process.has_ended().unwrap_or(false) {
            return true;
        }
        tokio::time::sleep(LOOK).await;
    }
    false
}
