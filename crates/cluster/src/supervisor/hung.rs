//! A master whose server lives and does nothing: it is stopped (SIGSTOP, a debugger), it hangs, or its disk does. Only its supervisor
//! sees that; without this module it would extend the server's lease indefinitely.
//!
//! | the server of an open lease page | then |
//! |---|---|
//! | ticks | nothing |
//! | does not tick for the time of a lease | its page is closed for good, its lease released: the standby takes over. It gets SIGTERM |
//! | has waited for one sync of its trail for the time of a lease, and another node can take its place, whose disk moves (rule C8) | the same |
//! | the same, and no other node can | it keeps its right, which is reported once |
//! | still lives 5 s after it was to end | SIGKILL; it is started again as after any end |
//!
//! The time is watched: a look adds at most 50 ms. So neither a supervisor that was stopped itself, nor a machine that was frozen
//! as a whole, ends a server that ticks again when it continues.
//!
//! A disk that hangs may return from one sync and hang in the next. So it counts as moving again, for others as well, when no sync has
//! lasted for the time of a lease for that time and a second.
//!
//! Failure: without a page `progress` nothing is known, and nothing is done.

use super::Supervisor;
use super::events::Kind;
use crate::page::{Progress, ServerState};
use crate::planner::{GivingUp, NodeState, Plan, Step, View, plan};
use crate::process::Process;
use holdfast_control::grant::{Own, Seen};
use holdfast_control::{ControlPlane, Grants, NodeId, Record};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a look adds at most.
const LOOK_MAX: Duration = Duration::from_millis(50);
/// How long a server may take to end by itself.
const END_MAX: Duration = Duration::from_secs(5);
/// How long a disk that hung has to move, and the time of a lease, before it counts as moving.
const PROBATION: Duration = Duration::from_secs(1);
/// The server writes down when its sync began as often as it looks, from another clock: the same sync is never the same number.
const SAME_NS: u64 = 5_000_000;

/// For how long a time in the page `progress` has not moved: that of the newest tick, or of the beginning of a sync.
#[derive(Default)]
struct Stillness {
    at_ns: Option<u64>,
    looked: Option<Instant>,
    lasts: Duration,
}

impl Stillness {
    /// One look; `None`: the time is not known, or does not matter.
    fn look(&mut self, at_ns: Option<u64>, now: Instant) -> Duration {
        let passed = self.looked.replace(now).map_or(Duration::ZERO, |looked| now.duration_since(looked).min(LOOK_MAX));
        let is_same = at_ns.zip(self.at_ns).is_some_and(|(at_ns, before_ns)| at_ns.abs_diff(before_ns) < SAME_NS);
        self.lasts = if is_same { self.lasts + passed } else { Duration::ZERO };
        // The first one: a drift of many small steps is a move.
        self.at_ns = if is_same { self.at_ns } else { at_ns };
        self.lasts
    }
}

/// The disk of a server's trail, by its syncs.
#[derive(Default)]
struct TrailDisk {
    sync: Stillness,
    /// When a sync had lasted for the time of a lease, last.
    hung: Option<Instant>,
}

impl TrailDisk {
    /// One look: for how long the present sync has lasted, and whether the disk counts as moving.
    fn look(&mut self, began_ns: Option<u64>, lease: Duration, now: Instant) -> (Duration, bool) {
        let lasts = self.sync.look(began_ns, now);
        if lasts >= lease {
            self.hung = Some(now);
        }
        (lasts, self.hung.is_none_or(|hung| now.duration_since(hung) >= lease + PROBATION))
    }
}

/// Watches whether one server hangs, and ends it.
#[derive(Default)]
pub struct Hung {
    tick: Stillness,
    disk: TrailDisk,
    /// It was reported that no other node can take the place of one whose disk hangs.
    is_kept: bool,
    /// Since when its end is asked for, and whether it was killed.
    ending: Option<(Instant, bool)>,
}

impl Hung {
    /// Looks at the server once. Called every few milliseconds.
    pub fn look(&mut self, supervisor: &Arc<Supervisor>, process: &Process) {
        let now = Instant::now();
        let page = Progress::open(supervisor.dir.path()).ok().filter(|page| page.server() == process.identity());
        let began_ns = page.as_ref().and_then(Progress::sync_began_ns);
        let (sync_lasts, disk_moves) = self.disk.look(began_ns, supervisor.lease_time(), now);
        self.is_kept &= !disk_moves;
        supervisor.tell_own(page.as_ref(), disk_moves);
        match &mut self.ending {
            Some((since, is_killed)) if !*is_killed && now.duration_since(*since) >= END_MAX => {
                *is_killed = true;
                signal(process, Signal::KILL);
            }
            Some(_) => {}
            None => {
                let page = page.filter(|_| supervisor.has_right(process));
                let still = self.tick.look(page.as_ref().map(Progress::tick_ns), now);
                if page.is_some()
                    && let Some(why) = self.hangs(supervisor, still, sync_lasts)
                {
                    self.ending = Some((now, false));
                    supervisor.end_hung(process, why);
                }
            }
        }
    }

    /// Why a master's server is to be ended.
    fn hangs(&mut self, supervisor: &Supervisor, still: Duration, sync_lasts: Duration) -> Option<GivingUp> {
        let lease = supervisor.lease_time();
        let ms = |lasts: Duration| lasts.as_millis() as u64;
        if still >= lease {
            return Some(GivingUp::ServerHangs { ms: ms(still) });
        }
        if sync_lasts < lease {
            return None;
        }
        let why = GivingUp::DiskHangs { ms: ms(sync_lasts) };
        let plan = supervisor.plan_of_giving_up(why)?;
        if let Step::HandOver { .. } = plan.step {
            return Some(why);
        }
        if !std::mem::replace(&mut self.is_kept, true) {
            supervisor.events.warn(Kind::Hung, plan.why);
        }
        None
    }
}

impl Supervisor {
    /// Whether the server is a master's, which may answer.
    fn has_right(&self, process: &Process) -> bool {
        let server = process.identity();
        self.pages.current().is_some_and(|page| page.server() == server && !page.is_closed())
    }

    /// Lets the pulses say how the server is.
    fn tell_own(&self, page: Option<&Progress>, disk_moves: bool) {
        let server_ready = page.is_some_and(|page| page.state() == ServerState::Ready);
        self.pulse.set_own(Own { server_ready, disk_moves });
    }

    /// Whether another node can take the place of this master by what its pulses say; `None`: there are none, or no record.
    fn plan_of_giving_up(&self, why: GivingUp) -> Option<Plan> {
        let record = self.control.record().filter(|record| record.is_by_pulses())?;
        let grants = self.control.grants();
        let seen = grants.seen.look();
        Some(plan(&view_by_pulses(&record, &self.cluster.database.nodes, &grants, &seen, why)))
    }

    fn end_hung(self: &Arc<Self>, process: &Process, why: GivingUp) {
        let pid = process.identity().pid;
        let found = match why {
            GivingUp::DiskHangs { ms } => format!("waits for its disk: a sync of its trail has lasted {ms} ms"),
            GivingUp::ServerHangs { ms } => format!("is stopped or hangs: no tick for {ms} ms"),
            why => why.to_string(),
        };
        self.events.warn(Kind::Hung, format!("the server, pid {pid}, {found}; its right ends, and it is ended"));
        if let Some(epoch) = self.right_ends(process.identity()) {
            let supervisor = self.clone();
            drop(tokio::spawn(async move { supervisor.release(epoch).await }));
        }
        signal(process, Signal::TERM);
    }
}

/// What the pulses say of the nodes, for a master that gives up.
fn view_by_pulses<'a>(
    record: &'a Record,
    order: &'a [NodeId],
    grants: &Grants,
    seen: &Seen,
    why: GivingUp,
) -> View<'a> {
    let state = |node: NodeId| {
        let slot = grants.roster.slot(node)?;
        let state = NodeState {
            is_up: seen.heard.contains(slot),
            quiet_ms: seen.quiet_ms[slot].map_or(0, u64::from),
            server_ready: seen.server_ready.contains(slot),
            disk_moves: seen.disk_moves.contains(slot),
            clock_off: seen.clock_off.contains(slot),
            ..NodeState::default()
        };
        Some((node, state))
    };
    View {
        record,
        order,
        nodes: record.members.keys().filter_map(|node| state(*node)).collect(),
        unfit: BTreeMap::new(),
        // They count silence, and here the master speaks.
        voters: Default::default(),
        named_ms: 0,
        is_frozen: record.frozen,
        restarts_first: None,
        giving_up: Some(why),
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
    use holdfast_control::grant::{NodeSet, Roster};

    #[test]
    fn only_watched_time_without_a_tick_counts() {
        let (mut still, began) = (Stillness::default(), Instant::now());
        let ms = Duration::from_millis;
        // Ticks are 25 ms apart; the beginning of one sync is not always the same number.
        let (first, again, second) = (Some(1_000_000_000), Some(1_000_900_000), Some(1_025_000_000));
        assert_eq!(still.look(first, began), ms(0));
        assert_eq!(still.look(again, began + ms(10)), ms(10));
        // The supervisor itself was stopped.
        assert_eq!(still.look(first, began + ms(60_000)), ms(60));
        assert_eq!(still.look(first, began + ms(60_010)), ms(70));
        assert_eq!(still.look(second, began + ms(60_020)), ms(0));
        assert_eq!(still.look(second, began + ms(60_030)), ms(10));
        assert_eq!(still.look(None, began + ms(60_040)), ms(0), "not known");
        assert_eq!(still.look(None, began + ms(60_050)), ms(0));
    }

    #[test]
    fn between_two_syncs_that_hang_a_disk_does_not_move() {
        let (mut disk, began, ms) = (TrailDisk::default(), Instant::now(), Duration::from_millis);
        let lease = ms(600);
        let mut at = began;
        let mut look = |began_ns, more_ms| {
            at += ms(more_ms);
            disk.look(began_ns, lease, at)
        };
        let (first, second) = (Some(1_000_000_000), Some(21_000_000_000));
        assert_eq!(look(first, 0), (ms(0), true));
        for step in 1..12 {
            assert_eq!(look(first, 50), (ms(50 * step), true));
        }
        assert_eq!(look(first, 50), (ms(600), false));
        // The next sync hangs as well.
        assert_eq!(look(second, 10), (ms(0), false));
        assert_eq!(look(second, 50), (ms(50), false));
        // It returns, and no other one hangs.
        assert_eq!(look(None, 1_530), (ms(0), false));
        assert_eq!(look(None, 10), (ms(0), true));
    }

    /// Rule C8, from what pulses say.
    #[test]
    fn a_disk_is_given_up_for_one_that_moves_only() {
        use crate::supervisor::failover::tests::{node, record};
        let (record, order) = (record(&["a", "b"], false), ["a", "b"].map(node));
        let grants = Grants::new(Roster::new(["a", "b", "w"].map(node)).unwrap());
        let all = NodeSet::of(0..3);
        let good = Seen { heard: all, server_ready: NodeSet::of([0, 1]), disk_moves: all, ..Seen::default() };
        let step = |seen: &Seen| {
            let why = GivingUp::DiskHangs { ms: 600 };
            plan(&view_by_pulses(&record, &order, &grants, seen, why)).step
        };
        assert_eq!(step(&good), Step::HandOver { successor: node("b") });
        let without_b = NodeSet::of([0, 2]);
        for bad in [
            Seen { heard: without_b, ..good },
            Seen { server_ready: NodeSet::of([0]), ..good },
            Seen { disk_moves: without_b, ..good },
            Seen { clock_off: NodeSet::of([1]), ..good },
        ] {
            assert_eq!(step(&bad), Step::Nothing, "{bad:?}");
        }
    }
}
