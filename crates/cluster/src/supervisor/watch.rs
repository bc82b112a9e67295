//! The server's process: adopted, or started; watched; started again when it has ended.
//!
//! | seen | then |
//! |---|---|
//! | PF_EXITING, or the process is gone | its lease page is closed for good, first of all |
//! | it has a right and does not tick for a lease | it is ended ([`super::hung`]) |
//! | its pidfd reports the end | its lease is released; it is started again after a pause |
//! | it ended within 10 s of its start | the pause doubles, from 100 ms up to 30 s |
//! | SIGTERM of the supervisor | the server gets it as well, and has stopped when the supervisor ends |
//!
//! Before a start the trail's lock must be free: only then no other server has the directory. A server that was started by a
//! supervisor which died before it knew so is found by its page, or as the process that has the trail ([`super::orphan`]), and
//! adopted.
//!
//! Failure: `/proc` that cannot be read for a moment is looked at again; the pidfd reports the end in any case.

use super::events::Kind;
use super::hung::Hung;
use super::{Server, Supervisor};
use crate::moment::unix_ms;
use crate::page::Progress;
use crate::process::{Identity, Process};
use holdfast_control::grant::Own;
use holdfast_types::Epoch;
use rustix::process::Signal;
use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch::Receiver;

/// How often the process is looked at.
const LOOK: Duration = Duration::from_millis(10);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A server that ran for this long gets the shortest pause again.
const STEADY: Duration = Duration::from_secs(10);

/// The server's process, and the child if this supervisor has started it.
pub struct Watched {
    process: Process,
    child: Option<Child>,
}

/// Growing pauses between starts.
struct Pauses(Duration);

impl Pauses {
    fn after(&mut self, ran: Duration) -> Duration {
        self.0 = if ran >= STEADY { PAUSE_MIN } else { (self.0 * 2).clamp(PAUSE_MIN, PAUSE_MAX) };
        self.0
    }
}

impl Supervisor {
    /// Looks for a server that an earlier supervisor started, and takes its pages over.
    pub(super) fn adopt(self: &Arc<Self>) -> Option<Watched> {
        let found = self.running().map(|process| Watched { process, child: None });
        if let Some(found) = &found {
            self.adopted(found);
        }
        let server = found.as_ref().map(|found| found.process.identity());
        match self.pages.take_over(server) {
            Ok(closed) => {
                if let Some(epoch) = closed {
                    self.events.add(
                        Kind::RightEnded,
                        format!("the server of epoch {epoch} has ended; its lease page was closed"),
                    );
                    let supervisor = self.clone();
                    drop(tokio::spawn(async move { supervisor.release(epoch).await }));
                }
            }
            Err(error) => self.events.warn(Kind::Pages, error.to_string()),
        }
        match (self.pages.current().is_some(), server) {
            (true, _) => drop(tokio::spawn(self.clone().resume())),
            (false, Some(server)) => drop(tokio::spawn(self.clone().end_without_page(server))),
            (false, None) => {}
        }
        found
    }

    /// The server of an earlier supervisor, if it lives: the one in the page `progress`, or without that the one that has the trail.
    fn running(&self) -> Option<Process> {
        let in_page = Progress::open(self.dir.path()).ok().map(|progress| progress.server());
        in_page.and_then(|server| self.open(server)).or_else(|| self.orphan().and_then(|server| self.open(server)))
    }

    pub(super) fn open(&self, server: Identity) -> Option<Process> {
        match Process::open(server) {
            Ok(found) => found,
            Err(error) => {
                self.events.warn(Kind::Process, format!("process {} cannot be examined: {error}", server.pid));
                None
            }
        }
    }

    fn adopted(&self, found: &Watched) {
        let identity = found.process.identity();
        let is_stopped = found.process.stat().ok().flatten().is_some_and(|stat| stat.is_stopped());
        let how = if is_stopped { ", which is stopped" } else { "" };
        self.events.add(Kind::Adopted, format!("the running server, pid {}{how}, was adopted", identity.pid));
        self.begins(identity, true);
    }

    fn begins(&self, identity: Identity, is_adopted: bool) {
        let mut state = self.state.lock();
        state.server = Some(Server { identity, since_unix_ms: unix_ms(), is_adopted });
        (state.waits, state.lacks) = (None, None);
        state.starts += u64::from(!is_adopted);
    }

    fn start_server(&self) -> io::Result<Watched> {
        let mut command = Command::new(&self.program);
        command
            .arg("serve")
            .arg("--data")
            .arg(&self.data)
            .arg("--supervisor")
            .arg(self.dir.path())
            .args(&self.arguments);
        // No pipe as standard output: it would break when this supervisor ends.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
            command.env_remove(name);
        }
        let mut child = command.spawn()?;
        let opened = Identity::of_child(child.id()).and_then(|identity| Ok((identity, Process::open(identity)?)));
        match opened {
            Ok((identity, Some(process))) => {
                self.events.add(Kind::ServerStarted, format!("the server was started, pid {}", identity.pid));
                self.begins(identity, false);
                Ok(Watched { process, child: Some(child) })
            }
            Ok((_, None)) => Err(io::Error::other(format!("it has ended at once: {}", child.wait()?))),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                Err(error)
            }
        }
    }

    /// The next server: one that runs, or a new one. An error says why there is none now.
    fn next_server(&self) -> Result<Watched, String> {
        if let Some(process) = self.running() {
            let found = Watched { process, child: None };
            self.adopted(&found);
            return Ok(found);
        }
        if !self.is_trail_free() {
            return Err(self.describe_holder());
        }
        // It may have been removed.
        self.dir.create().map_err(|error| error.to_string())?;
        self.start_server().map_err(|error| format!("{} cannot be started: {error}", self.program.display()))
    }

    /// Ends the right of a process that is ending: nothing is waited for before that.
    pub(super) fn right_ends(&self, identity: Identity) -> Option<Epoch> {
        let epoch = self.pages.close_for(identity)?;
        self.events.add(
            Kind::RightEnded,
            format!("the server, pid {}, ends; the lease page of epoch {epoch} was closed", identity.pid),
        );
        Some(epoch)
    }

    /// Watches a process until it has ended.
    async fn until_ended(self: &Arc<Self>, process: &Process, stop: &mut Receiver<bool>) {
        let (mut is_asked, mut is_ending, mut hung) = (false, false, Hung::default());
        loop {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop), if !is_asked => {
                    is_asked = true;
                    if let Err(error) = process.signal(Signal::TERM) {
                        tracing::debug!("the server cannot be stopped: {error}");
                    }
                }
                () = tokio::time::sleep(LOOK) => {
                    if !is_ending && process.stat().is_ok_and(|stat| stat.is_none_or(|stat| stat.is_ending())) {
                        is_ending = true;
                        self.right_ends(process.identity());
                    }
                    hung.look(self, process);
                    match process.has_ended() {
                        Ok(true) => return,
                        Ok(false) => {}
                        Err(error) => tracing::warn!("the server's process cannot be watched: {error}"),
                    }
                }
            }
        }
    }

    /// What is to be done after the end of a process. Returns the epoch whose lease the group still counts with.
    fn gone(&self, identity: Identity, child: Option<Child>) -> Option<Epoch> {
        self.right_ends(identity);
        self.state.lock().server = None;
        self.pulse.set_own(Own { server_ready: false, disk_moves: true });
        self.control.set_trail(None);
        let how = match child.map(|mut child| child.wait()) {
            Some(Ok(status)) => status.to_string(),
            Some(Err(error)) => error.to_string(),
            None => "it was adopted, so its exit status is not known".to_owned(),
        };
        self.events.warn(Kind::ServerEnded, format!("the server, pid {}, has ended: {how}", identity.pid));
        self.pages.current().filter(|page| page.server() == identity).map(|page| page.epoch())
    }
}

/// Keeps a server running until `stop`.
pub async fn keep_server(supervisor: Arc<Supervisor>, adopted: Option<Watched>, mut stop: Receiver<bool>) {
    let mut pauses = Pauses(Duration::ZERO);
    let mut next = adopted.map(Ok);
    loop {
        let (ran, why) = match next.take().unwrap_or_else(|| supervisor.next_server()) {
            Ok(Watched { process, child }) => {
                let (identity, began) = (process.identity(), Instant::now());
                supervisor.until_ended(&process, &mut stop).await;
                let ran = began.elapsed();
                if let Some(epoch) = supervisor.gone(identity, child) {
                    let (of_task, supervisor) = (supervisor.clone(), &supervisor);
                    let is_stopping = *stop.borrow();
                    match is_stopping {
                        true => supervisor.release(epoch).await,
                        // The next start does not wait for it.
                        false => drop(tokio::spawn(async move { of_task.release(epoch).await })),
                    }
                }
                (ran, None)
            }
            Err(why) => (Duration::ZERO, Some(why)),
        };
        if *stop.borrow() {
            return;
        }
        let pause = pauses.after(ran);
        if let Some(why) = why {
            supervisor.events.warn(Kind::NoServer, format!("{why}; the next attempt is in {pause:?}"));
            supervisor.state.lock().waits = Some(why);
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_reset() {
        let mut pauses = Pauses(Duration::ZERO);
        let short: Vec<u128> = (0..11).map(|_| pauses.after(Duration::from_secs(1)).as_millis()).collect();
        assert_eq!(short, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        assert_eq!(pauses.after(STEADY), PAUSE_MIN);
    }
}
