//! What commits do while the standbys that they wait for are away.
//!
//! | `synchronous_standby_away` | enough of them acknowledge | too few, for `standby_timeout_ms` |
//! |---|---|---|
//! | wait | commits wait for acks | commits wait |
//! | go_on | commits wait for acks | the operator is told; commits wait no longer, at any level, until enough are back |
//!
//! Either way the operator is told when the state changes. Where there is a control plane its sync set is kept true: a
//! standby is taken in when commits wait for it and it has everything before; all are taken out *before* commits go on
//! without them. Where commits wait for any n of the standbys, these are named as a quorum as soon as n of them have
//! everything; while n are here nothing changes, whoever of the others comes or goes.
//!
//! Failure: without a majority of the control plane the sync set does not change; commits wait, and that is told.

use super::{Control, Notify};
use crate::config::Away;
use holdfast_control::Quorum;
use holdfast_engine::{Engine, OnGivenUp};
use holdfast_standby::Hub;
use holdfast_standby::hub::StandbyReport;
use holdfast_types::{Level, Lsn};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// While commits go on without standbys they are let through as often as this.
const LET_THROUGH_EVERY: Duration = Duration::from_millis(2);

/// When enough standbys acknowledged, told as it happens: between two looks they may have come and gone.
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

/// Tells the operator of a standby that is given up.
pub fn tell_given_up(notify: Notify, keep_bytes_max: u64) -> OnGivenUp {
    Arc::new(move |standby| {
        notify.tell(&format!(
            "standby {standby} is given up, it is more than standby_keep_bytes_max = {keep_bytes_max} behind: the trail is \
             not kept for it any more, and where the archive lacks it, too, it will need a new copy (holdfast standby create)"
        ));
    })
}

/// What is known of the present state of things.
struct Episode {
    /// There were too few at the last look.
    out: bool,
    /// How often there were enough.
    times_seen: u64,
    told_away: bool,
    /// Commits go on alone, and the group has agreed.
    alone: bool,
    /// The group could not be asked, which was told.
    refused: bool,
}

/// Watches over a master's sync set.
pub struct SyncWatch {
    pub hub: Arc<Hub>,
    pub in_sync: Arc<InSync>,
    pub engine: Engine,
    pub control: Option<Arc<Control>>,
    /// Commits wait for any so many of these standbys.
    pub quorum: Option<Quorum>,
    pub away: Away,
    /// The operator has named standbys, or a level above local.
    pub is_asked_for: bool,
    /// Too few for so long are away.
    pub after: Duration,
    pub notify: Notify,
}

/// A quorum that is not named yet.
#[derive(Default)]
struct Naming {
    /// Where the trail ended when commits began to wait for it.
    waiting_from: Option<Lsn>,
    /// It was told that it cannot be named.
    told: bool,
}

impl SyncWatch {
    /// Until `stop`.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut episode = Episode { out: false, times_seen: 0, told_away: false, alone: false, refused: false };
        let (mut joining, mut naming) = (BTreeMap::new(), Naming::default());
        loop {
            let goes_on = self.look(&mut episode).await;
            if goes_on {
                self.engine.reached(Level::Commit, self.engine.trail().durable());
                joining.clear();
                naming = Naming::default();
            } else if let Some(quorum) = &self.quorum {
                self.name_quorum(quorum, &mut naming).await;
            } else {
                self.take_in(&mut joining).await;
            }
            tokio::select! {
                () = tokio::time::sleep(if goes_on { LET_THROUGH_EVERY } else { LOOK_EVERY }) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// True: commits go on without standbys, and the group knows it.
    async fn look(&self, episode: &mut Episode) -> bool {
        // Two looks in a row: that there are too few is known a moment before it is told since when.
        let (out, was_out) = (!self.hub.is_in_sync(), episode.out);
        let (times, alone_since) = self.in_sync.get();
        episode.out = out;
        if times != episode.times_seen {
            self.notify.tell("enough standbys are here: commits wait for their acknowledgements");
            (episode.times_seen, episode.told_away) = (times, false);
        }
        let is_away = out && was_out && alone_since.elapsed() >= self.after;
        if !is_away {
            (episode.alone, episode.refused) = (false, false);
            return false;
        }
        if self.away == Away::GoOn && !episode.alone {
            episode.alone = self.may_go_on_alone(episode).await;
            if episode.alone {
                episode.told_away = true;
                self.notify.tell("too few standbys are here: commits go on WITHOUT them, at level local");
            }
        }
        // A server that never had a standby, and of which nobody asks for one, has no news.
        let concerns = times > 0 || self.is_asked_for || self.engine.gate().boxcars > 0;
        if !episode.alone && concerns && !std::mem::replace(&mut episode.told_away, true) {
            self.notify.tell("too few standbys are here: commits above level local wait for them");
        }
        episode.alone
    }

    /// Asks the group, if there is one, once for each time that commits are to go on alone: what this node knows of the
    /// record may be behind it.
    async fn may_go_on_alone(&self, episode: &mut Episode) -> bool {
        let Some(control) = &self.control else { return true };
        match control.shrink_to_this(self.engine.trail().epoch()).await {
            Ok(()) => true,
            Err(error) => {
                if !std::mem::replace(&mut episode.refused, true) {
                    self.notify.tell(&format!(
                        "commits cannot go on without standbys before the control plane agrees: {error}"
                    ));
                }
                false
            }
        }
    }

    /// Takes standbys into the control plane's sync set. `joining`: where the trail ended when commits began to wait for
    /// each.
    async fn take_in(&self, joining: &mut BTreeMap<String, Lsn>) {
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
                    self.notify.tell(&format!("{} has everything: it may be promoted without loss", standby.name))
                }
                Err(error) => tracing::warn!("{} cannot be taken into the sync set yet: {error}", standby.name),
            }
        }
    }

    /// Names the quorum in the control plane's sync set. `waiting_from`: where the trail ended when commits began to wait for
    /// it; everything in front may have been acknowledged or read without it.
    async fn name_quorum(&self, quorum: &Quorum, Naming { waiting_from, told }: &mut Naming) {
        let Some(control) = self.control.as_ref().filter(|control| !control.is_named(quorum)) else { return };
        let trail = self.engine.trail();
        let (written, _, last_epoch) = trail.end();
        // By their last boxcar those that have everything are told from those that may not: it has to be of this epoch.
        if last_epoch != trail.epoch() {
            return trail.prove_soon();
        }
        // In this order: a standby that has lost something is taken out by a later change, and what was acknowledged because
        // it had it is below what was reached.
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
            Ok(()) => self.notify.tell(&format!(
                "{} of {} standbys have everything ({}): whoever of them has all that the others have may be promoted \
                 without loss",
                quorum.needed,
                quorum.standbys.len(),
                have_all.join(", ")
            )),
            Err(error) if !std::mem::replace(told, true) => {
                tracing::warn!("the quorum of standbys cannot be named yet: {error}");
            }
            Err(_) => {}
        }
    }
}
