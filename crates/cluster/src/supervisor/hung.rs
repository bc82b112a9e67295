//! A master whose server lives and does nothing: it is stopped (SIGSTOP, a debugger), or hangs. Only its supervisor sees that;
//! without this module it would extend the server's lease indefinitely.
//!
//! | the server of an open lease page | then |
//! |---|---|
//! | ticks | nothing |
//! | does not tick for the time of a lease | its page is closed for good, its lease released: the standby takes over. It gets SIGTERM |
//! | still lives 5 s later | SIGKILL; it is started again as after any end |
//!
//! The time is watched: a look adds at most 50 ms. So neither a supervisor that was stopped itself, nor a machine that was frozen
//! as a whole, ends a server that ticks again when it continues.
//!
//! Failure: without a page `progress` nothing is known, and nothing is done.

use super::Supervisor;
use super::events::Kind;
use crate::moment::boot_ns;
use crate::page::{Progress, ServerState};
use crate::process::Process;
use holdfast_control::grant::Own;
use rustix::process::Signal;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a look adds at most.
const LOOK_MAX: Duration = Duration::from_millis(50);
/// How long a server may take to end by itself.
const END_MAX: Duration = Duration::from_secs(5);

/// The time for which a server has not ticked.
#[derive(Default)]
struct Stillness {
    tick_ns: Option<u64>,
    looked: Option<Instant>,
    lasts: Duration,
}

impl Stillness {
    /// One look; `None`: the tick is not known, or does not matter.
    fn look(&mut self, tick_ns: Option<u64>, now: Instant) -> Duration {
        let passed = self.looked.replace(now).map_or(Duration::ZERO, |looked| now.duration_since(looked).min(LOOK_MAX));
        let is_same = tick_ns.is_some() && tick_ns == self.tick_ns;
        self.lasts = if is_same { self.lasts + passed } else { Duration::ZERO };
        self.tick_ns = tick_ns;
        self.lasts
    }
}

/// Watches whether one server hangs, and ends it.
#[derive(Default)]
pub struct Hung {
    stillness: Stillness,
    /// Since when its end is asked for, and whether it was killed.
    ending: Option<(Instant, bool)>,
}

impl Hung {
    /// Looks at the server's tick once. Called every few milliseconds.
    pub fn look(&mut self, supervisor: &Arc<Supervisor>, process: &Process) {
        let now = Instant::now();
        supervisor.tell_own(process);
        match &mut self.ending {
            Some((since, is_killed)) if !*is_killed && now.duration_since(*since) >= END_MAX => {
                *is_killed = true;
                signal(process, Signal::KILL);
            }
            Some(_) => {}
            None => {
                let lasts = self.stillness.look(supervisor.tick_of_master(process), now);
                if lasts >= supervisor.lease_time() {
                    self.ending = Some((now, false));
                    supervisor.end_hung(process, lasts);
                }
            }
        }
    }
}

impl Supervisor {
    /// The newest tick of a server that has a right.
    fn tick_of_master(&self, process: &Process) -> Option<u64> {
        let server = process.identity();
        self.pages.current().filter(|page| page.server() == server && !page.is_closed())?;
        Some(Progress::open(self.dir.path()).ok().filter(|page| page.server() == server)?.tick_ns())
    }

    /// Lets the pulses say how the server is.
    fn tell_own(&self, process: &Process) {
        let page = Progress::open(self.dir.path()).ok().filter(|page| page.server() == process.identity());
        let sync_ns =
            page.as_ref().and_then(Progress::sync_began_ns).map_or(0, |began| boot_ns().saturating_sub(began));
        let server_ready = page.is_some_and(|page| page.state() == ServerState::Ready);
        self.pulse.set_own(Own { server_ready, disk_moves: Duration::from_nanos(sync_ns) < self.lease_time() });
    }

    fn end_hung(self: &Arc<Self>, process: &Process, lasts: Duration) {
        let pid = process.identity().pid;
        let text = format!(
            "the server, pid {pid}, is stopped or hangs: no tick for {} ms; its right ends, and it is ended",
            lasts.as_millis()
        );
        self.events.warn(Kind::Hung, text);
        if let Some(epoch) = self.right_ends(process.identity()) {
            let supervisor = self.clone();
            drop(tokio::spawn(async move { supervisor.release(epoch).await }));
        }
        signal(process, Signal::TERM);
    }
}

fn signal(process: &Process, signal: Signal) {
    if let Err(error) = process.signal(signal) {
        tracing::debug!("the server cannot be ended: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_watched_time_without_a_tick_counts() {
        let (mut still, began) = (Stillness::default(), Instant::now());
        let ms = Duration::from_millis;
        assert_eq!(still.look(Some(1), began), ms(0));
        assert_eq!(still.look(Some(1), began + ms(10)), ms(10));
        // The supervisor itself was stopped.
        assert_eq!(still.look(Some(1), began + ms(60_000)), ms(60));
        assert_eq!(still.look(Some(1), began + ms(60_010)), ms(70));
        assert_eq!(still.look(Some(2), began + ms(60_020)), ms(0));
        assert_eq!(still.look(Some(2), began + ms(60_030)), ms(10));
        assert_eq!(still.look(None, began + ms(60_040)), ms(0), "not known");
        assert_eq!(still.look(None, began + ms(60_050)), ms(0));
    }
}
