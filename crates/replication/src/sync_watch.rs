//! Decides what commits do while the standbys that they wait for are away.
//!
//! | `synchronous_standby_away` | enough standbys acknowledge | too few, for `standby_timeout_ms` |
//! |---|---|---|
//! | wait | commits wait for acks | commits wait |
//! | go_on | commits wait for acks | commits no longer wait, at any level, until enough standbys are back |
//!
//! The time runs from when the standby was heard last: one that falls silent is away as soon as one that is killed. Under
//! supervisors, whose nodes exchange pulses, it is not waited for where each other node with data counts as lost ([`Control::lost`]):
//! that takes the time of a lease. A link that seems alive has until the next check to prove that it is. While one standby of several
//! acknowledges, the time is waited for: it would be taken out of the sync set with the others.
//!
//! After a takeover with a control plane the agreed sync set is this server alone, and the standby that is missing is the master
//! that was replaced: `go_on` then waits for no time ([`Control::took_over_alone`]). The group is still asked first, as always.
//! A third server with data that answers may follow soon; then the time is waited for. So it is as soon as enough standbys have
//! been there once.
//!
//! Either way a change is reported to the operator. With a control plane its sync set is kept correct: a standby is added when
//! commits wait for it and it has everything before; all are removed *before* commits continue without them. Where commits
//! wait for any n of the standbys, these are named as a quorum as soon as n of them have everything; while n are connected
//! nothing changes when others come or go.
//!
//! Failure: without a majority of the control plane the sync set does not change; commits wait, and that is reported.

use crate::control::Control;
use crate::notify::Notify;
use crate::settings::Away;
use holdfast_control::{NodeId, Quorum};
use holdfast_engine::{Engine, OnGivenUp};
use holdfast_standby::Hub;
use holdfast_standby::hub::StandbyReport;
use holdfast_types::{Level, Lsn};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How often the standbys are checked.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// How often waiting commits are let through while commits continue without standbys.
const LET_THROUGH_EVERY: Duration = Duration::from_millis(2);

/// When enough standbys acknowledged, recorded as it happens: between two checks they may come and go.
#[derive(Debug)]
pub struct InSync {
    /// How often there were enough, and since when there are too few.
    state: Mutex<(u64, Instant)>,
}

impl Default for InSync {
    fn default() -> InSync {
        InSync { state: Mutex::new((0, Instant::now())) }
    }
}

impl InSync {
    pub fn set(&self, in_sync: bool) {
        let mut state = self.state.lock();
        if in_sync {
            state.0 += 1;
        } else {
            state.1 = Instant::now();
        }
    }

    fn get(&self) -> (u64, Instant) {
        *self.state.lock()
    }
}

/// Reports a standby for which the trail is no longer kept.
pub fn notify_standby_dropped(notify: Notify, keep_bytes_max: u64) -> OnGivenUp {
    Arc::new(move |standby| {
        notify.warn(&format!(
            "standby {standby} was dropped: it lags more than standby_keep_bytes_max = {keep_bytes_max} bytes, and the trail is no \
             longer kept for it. If the archive does not have that part either, make a new copy: holdfast standby create"
        ));
    })
}

/// What the last check found, and what was reported since.
struct SyncState {
    /// There were too few at the last check.
    out_of_sync: bool,
    /// How often there were enough.
    times_seen: u64,
    reported_away: bool,
    /// Commits continue without standbys, and the group has agreed.
    without_standbys: bool,
    /// The group could not be asked, which was reported.
    refused: bool,
    /// No standby can be there yet: this server took over, and no third one answers.
    is_alone: bool,
}

/// Watches a master's sync set.
pub struct SyncWatch {
    pub hub: Arc<Hub>,
    pub in_sync: Arc<InSync>,
    pub engine: Engine,
    pub control: Option<Arc<Control>>,
    /// Commits wait for this quorum of standbys; `None`: they wait for all that are named.
    pub quorum: Option<Quorum>,
    pub away: Away,
    /// The operator has named standbys, or configured a level above local.
    pub is_wanted: bool,
    /// Standbys count as away when there are too few for this long.
    pub after: Duration,
    /// This role began when a standby was promoted.
    pub takes_over: bool,
    pub notify: Notify,
}

/// Waits until other nodes count as lost; without pulses for good.
async fn changed(lost: &mut Option<watch::Receiver<BTreeSet<NodeId>>>) {
    if let Some(receiver) = lost
        && receiver.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// The progress of naming a quorum.
#[derive(Default)]
struct QuorumNaming {
    /// Where the trail ended when commits began to wait for it.
    waiting_from: Option<Lsn>,
    /// A failure was reported.
    reported: bool,
}

impl SyncWatch {
    /// Watches until `stop`.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut state = SyncState {
            out_of_sync: false,
            times_seen: 0,
            reported_away: false,
            without_standbys: false,
            refused: false,
            is_alone: self.is_alone().await,
        };
        let (mut joining, mut naming) = (BTreeMap::new(), QuorumNaming::default());
        let mut lost = self.control.as_ref().map(|control| control.lost());
        loop {
            if let Some(lost) = &mut lost {
                self.hub.set_lost(lost.borrow_and_update().iter().map(NodeId::to_string).collect());
            }
            let without_standbys = self.check(&mut state).await;
            if without_standbys {
                self.engine.reached(Level::Commit, self.engine.trail().durable());
                joining.clear();
                naming = QuorumNaming::default();
            } else if let Some(quorum) = &self.quorum {
                self.name_quorum(quorum, &mut naming).await;
            } else {
                self.add_to_sync_set(&mut joining).await;
            }
            tokio::select! {
                () = tokio::time::sleep(if without_standbys { LET_THROUGH_EVERY } else { CHECK_EVERY }) => {}
                () = changed(&mut lost) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Returns whether commits continue without standbys, to which the group has agreed.
    async fn check(&self, state: &mut SyncState) -> bool {
        // Two checks in a row: the hub knows that there are too few slightly before it reports since when.
        let (out, was_out) = (!self.hub.is_in_sync(), state.out_of_sync);
        let (times, out_since) = self.in_sync.get();
        state.out_of_sync = out;
        if times != state.times_seen {
            self.notify.info("enough standbys are connected: commits wait for their acknowledgements");
            (state.times_seen, state.reported_away) = (times, false);
        }
        let is_over = was_out && out_since.elapsed() + self.hub.silent_before() >= self.after;
        let is_away = out && (is_over || (state.is_alone && times == 0) || (was_out && self.are_all_lost()));
        if !is_away {
            (state.without_standbys, state.refused) = (false, false);
            return false;
        }
        if self.away == Away::GoOn && !state.without_standbys {
            state.without_standbys = self.may_continue_without(state).await;
            if state.without_standbys {
                state.reported_away = true;
                self.notify.warn("too few standbys are connected: commits continue WITHOUT them, at level local");
            }
        }
        // A server that never had a standby, and of which none is wanted, has nothing to report.
        let concerns = times > 0 || self.is_wanted || self.engine.gate().batches > 0;
        if !state.without_standbys && concerns && !std::mem::replace(&mut state.reported_away, true) {
            self.notify.warn("too few standbys are connected: commits above level local wait for them");
        }
        state.without_standbys
    }

    /// Whether no standby acknowledges, and each node that could have one counts as lost: none will acknowledge soon.
    fn are_all_lost(&self) -> bool {
        let is_lost = self.control.as_ref().is_some_and(|control| control.are_others_lost());
        is_lost && !self.hub.standbys().iter().any(|standby| standby.counts)
    }

    /// Whether nothing is to be waited for before the first standby comes.
    async fn is_alone(&self) -> bool {
        match &self.control {
            Some(control) if self.takes_over && self.away == Away::GoOn => {
                control.took_over_alone(self.engine.trail().epoch()).await
            }
            _ => false,
        }
    }

    /// Asks the group, if there is one, whether commits may continue without standbys. Asked each time: the record as this node
    /// knows it may be old.
    async fn may_continue_without(&self, state: &mut SyncState) -> bool {
        let Some(control) = &self.control else { return true };
        match control.shrink_to_this(self.engine.trail().epoch()).await {
            Ok(()) => true,
            Err(error) => {
                if !std::mem::replace(&mut state.refused, true) {
                    self.notify.warn(&format!(
                        "commits wait for standbys until the control plane agrees to continue without them: {error}"
                    ));
                }
                false
            }
        }
    }

    /// Adds standbys to the control plane's sync set. `joining`: where the trail ended when commits began to wait for each.
    async fn add_to_sync_set(&self, joining: &mut BTreeMap<String, Lsn>) {
        let Some(control) = &self.control else { return };
        let standbys = self.hub.standbys();
        joining.retain(|name, _| standbys.iter().any(|s| s.name == *name));
        let waited_for = |s: &StandbyReport| s.counts && s.priority.is_some() && control.is_member(&s.name);
        for standby in standbys.into_iter().filter(|s| waited_for(s) && !control.is_in_sync_set(&s.name)) {
            let end = *joining.entry(standby.name.clone()).or_insert_with(|| self.engine.trail().durable());
            if standby.durable_lsn.is_none_or(|durable| durable < end.0) {
                continue;
            }
            match control.grow(self.engine.trail().epoch(), &standby.name).await {
                Ok(()) => {
                    self.notify.info(&format!("{} has everything: it may be promoted without loss", standby.name))
                }
                Err(error) => tracing::warn!("{} cannot be added to the sync set yet: {error}", standby.name),
            }
        }
    }

    /// Names the quorum in the control plane's sync set. `waiting_from`: where the trail ended when commits began to wait for
    /// it; everything before may have been acknowledged or read without it.
    async fn name_quorum(&self, quorum: &Quorum, QuorumNaming { waiting_from, reported }: &mut QuorumNaming) {
        let Some(control) = self.control.as_ref().filter(|control| !control.is_named(quorum)) else { return };
        let trail = self.engine.trail();
        let (written, _, last_epoch) = trail.end();
        // The last boxcar distinguishes standbys that have everything from those that may not: it has to be of this epoch.
        if last_epoch != trail.epoch() {
            return trail.prove_soon();
        }
        // In this order: a standby that has lost something is removed by a later change, and what was acknowledged because it
        // had it is below what was reached.
        let (change, waiting_from) = (control.next_change(), *waiting_from.get_or_insert(written));
        let end = waiting_from.max(self.hub.reached().hot);
        let standbys = self.hub.standbys();
        let has_all = |s: &&StandbyReport| {
            let is_named = quorum.standbys.iter().any(|node| node.to_string() == s.name);
            is_named && s.counts && s.durable_lsn.is_some_and(|durable| durable >= end.0)
        };
        let have_all: Vec<&str> = standbys.iter().filter(has_all).map(|s| s.name.as_str()).collect();
        if have_all.len() < quorum.needed {
            return;
        }
        match control.name_quorum(trail.epoch(), quorum, change).await {
            Ok(()) => self.notify.info(&format!(
                "{} of {} standbys have everything ({}): the one that has all that the others have may be promoted \
                 without loss",
                quorum.needed,
                quorum.standbys.len(),
                have_all.join(", ")
            )),
            Err(error) if !std::mem::replace(reported, true) => {
                tracing::warn!("the quorum of standbys cannot be named yet: {error}");
            }
            Err(_) => {}
        }
    }
}
