//! The failover without a command: Raft's leader watches whether the master renews its lease, and names a successor.
//!
//! | the record | and | then |
//! |---|---|---|
//! | Serving | a renewal, an epoch or a snapshot was applied here less than a lease ago, or this leader is not *settled* | nothing |
//! | Serving, frozen | | nothing; silence counts from the thaw on |
//! | Serving | otherwise, and there is a successor | Depose for it |
//! | Free for no node | this leader is settled, and there is a successor | Depose, which only names it |
//! | Free for no node | three takeovers from servers that had ended in the last 10 minutes, and the last master's node answers | nothing for 5 to 30 s ([`RestartsFirst`]): its server starts again in place |
//! | Deposed, Free for a node | a person named it | nothing |
//! | Deposed, Free for a node | it is silent for a lease, or has had [`SUCCESSOR_MS`](crate::sight::SUCCESSOR_MS) since it might be promoted, and there is another one | Depose for the other one |
//!
//! *Settled* (rule K3): for 1 s it is the leader of one term, a quorum has acknowledged it within 500 ms, and an entry of its own
//! term is applied here; and now all of its log is applied. Silence and these times are watched: a turn adds at most 50 ms, and one of more
//! than 250 ms sets them to 0. So neither a leader that was stopped, nor a new one, nor one that is cut off deposes a master that serves.
//!
//! The Depose names the revision that it was decided on, is one write in the term of the decision, and is neither repeated nor
//! passed on (rule K2): what arrives late changes nothing. The next turn decides again.
//!
//! Which node is the best successor is decided by [`Planner`](crate::sight::Planner), the supervisor's; it also says why.
//! [`explain`] shows the same sight to the same planner at any time, and names no node.
//!
//! Failure: without a majority nothing is proposed. Without a successor nothing is either, and the master keeps its epoch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use openraft::ServerState;
use tokio::time::{sleep, timeout};

use crate::applied::TURN;
use crate::core::Core;
use crate::grant::NodeSet;
use crate::id::NodeId;
use crate::record::{Command, Mastership, Record, Role};
use crate::server::PROPOSAL_TIMEOUT;
use crate::sight::{
    ByPulses, Decision, EXPLAIN_TIMEOUT, Explained, Explanation, Heard, RestartsFirst, Sight, Undecided,
};
use crate::trail_tip::TrailTip;
use crate::watching::{Look, Watch};
use crate::wire::{Reply, Request};

/// A quorum has acknowledged a settled leader within this time.
const QUORUM_ACK_MS_MAX: u64 = 500;
/// How long a node with data may take to say where its trail ends.
const TIP_TIMEOUT: Duration = Duration::from_millis(1_500);
/// The master is asked for this long only.
const MASTER_TIP_TIMEOUT: Duration = Duration::from_millis(300);
/// The pause between two questions for a successor.
const ASK_EVERY: Duration = Duration::from_millis(100);

impl Record {
    /// Whether this node was the last master, and no other one is named yet.
    pub fn is_given_up_by(&self, node: NodeId) -> bool {
        self.master == Some(node) && matches!(self.mastership, Mastership::Free { successor: None })
    }

    /// The node that is to be promoted next.
    pub fn successor(&self) -> Option<NodeId> {
        match self.mastership {
            Mastership::Serving { .. } => None,
            Mastership::Free { successor } => successor,
            Mastership::Deposed { successor, .. } => Some(successor),
        }
    }
}

/// What the leader sees of the record, and whether it may decide on it.
struct View {
    term: u64,
    record: Record,
    silent_ms: Option<u64>,
    late_ms: u64,
    restarts_first: Option<RestartsFirst>,
    undecided: Option<Undecided>,
}

impl Look {
    fn at(core: &Core) -> Look {
        let metrics = core.raft.metrics();
        let metrics = metrics.borrow();
        let own = metrics.last_applied.is_some_and(|applied| applied.leader_id.term == metrics.current_term);
        let acknowledged = metrics.millis_since_quorum_ack.is_some_and(|ms| ms < QUORUM_ACK_MS_MAX);
        let leads = metrics.state == ServerState::Leader && metrics.current_leader == Some(core.me);
        let (now_ns, signs) = (core.clock.now_ns(), core.applied.signs());
        let (term, leads) = (metrics.current_term, leads && own && acknowledged);
        Look { now_ns, signs, term, leads, has_majority: acknowledged }
    }
}

/// What is seen of the present record. `None`: there has been no master yet.
fn view(watch: &mut Watch, core: &Core) -> Option<View> {
    let record = core.applied.record()?;
    let master = record.master?;
    let named = record.successor();
    let is_known = watch.named.is_some_and(|(epoch, to, _)| (epoch, to) == (record.epoch, named));
    if !is_known {
        watch.named = Some((record.epoch, named, watch.watched_ns));
    }
    let (term, all_applied) = {
        let metrics = core.raft.metrics();
        let metrics = metrics.borrow();
        (metrics.current_term, metrics.last_applied.map(|applied| applied.index) == metrics.last_log_index)
    };
    let is_serving = matches!(record.mastership, Mastership::Serving { .. });
    if record.frozen {
        // What a person did meanwhile, a restart for example, is no silence.
        watch.silent_ns = 0;
    }
    let by_pulses = record.is_by_pulses();
    let silent_ms = match by_pulses {
        true => core.master_silent_ms(record.epoch, master),
        false => Some(watch.silent_ns / 1_000_000),
    };
    let undecided = if !watch.has_majority {
        Some(Undecided::NoMajority)
    } else if is_serving && record.frozen {
        Some(Undecided::Frozen)
    } else if is_serving && silent_ms.is_none() {
        Some(Undecided::Granted { ms: core.unheard_ms_of(&core.grants.seen.look(), master) })
    } else if let Some(ms) = silent_ms.filter(|ms| is_serving && !by_pulses && *ms < u64::from(record.lease.lease_ms)) {
        Some(Undecided::Renewed { ms })
    } else if !watch.is_settled(by_pulses) || !all_applied || term != watch.term {
        Some(Undecided::NotSettled)
    } else if is_serving && master == core.me && core.holding.lease.lock().valid_now() {
        // It renews its lease no more.
        Some(Undecided::OwnLease)
    } else {
        (named.is_some() && !record.automatic).then_some(Undecided::NamedByCommand)
    };
    let silent_ms = silent_ms.filter(|_| is_serving && undecided.is_none());
    let late_ms = if is_serving { 0 } else { late_ms(watch, core, &record) };
    let restarts_first = RestartsFirst::after(core.applied.takeovers());
    let given_up_ms = core.applied.given_up_ms(record.epoch).filter(|_| record.is_given_up_by(master));
    let restarts_first = restarts_first.filter(|it| given_up_ms.is_some_and(|ms| ms < it.pause_ms));
    Some(View { term, record, silent_ms, late_ms, restarts_first, undecided })
}

/// For how long the successor could have been promoted.
fn late_ms(watch: &Watch, core: &Core, record: &Record) -> u64 {
    let since_ns = watch.named.map_or(watch.watched_ns, |(_, _, since_ns)| since_ns);
    let known_ms = (watch.watched_ns - since_ns) / 1_000_000;
    match record.mastership {
        // A successor of a lease that may last waits first; the wait belongs to the epoch.
        Mastership::Deposed { wait: true, .. } => {
            let waited_ms = core.applied.waited_ms(record.epoch).unwrap_or(0);
            waited_ms.saturating_sub(record.lease.wait_out_ms()).min(known_ms)
        }
        _ => known_ms,
    }
}

/// Names successors while this member leads Raft. Never returns.
pub async fn keep(core: Arc<Core>) {
    let Some(planner) = core.planner.clone() else { return std::future::pending().await };
    *core.watching.lock() = Watch::starting(Look::at(&core));
    let mut ask_at_ns = 0;
    loop {
        sleep(TURN).await;
        turn(&core);
        let Some(view) = decidable(&core).filter(|_| core.watching.lock().watched_ns >= ask_at_ns) else { continue };
        let mut asking = std::pin::pin!(hear(&core, &view.record, MASTER_TIP_TIMEOUT));
        // Only watched time counts, so the turns continue.
        let heard = loop {
            tokio::select! {
                biased;
                heard = &mut asking => break heard,
                () = sleep(TURN) => turn(&core),
            }
        };
        turn(&core);
        let heard = {
            let mut watch = core.watching.lock();
            ask_at_ns = watch.watched_ns + ASK_EVERY.as_nanos() as u64;
            watch.note_heard(&heard);
            watch.since_when(heard)
        };
        // What has happened meanwhile is decided on in the next turn.
        let is_same = |now: &View| now.term == view.term && now.record.revision == view.record.revision;
        let Some(view) = decidable(&core).filter(is_same) else { continue };
        let (term, sight) = (view.term, sight(&core, view, heard));
        if let Some(successor) = planner(&sight).successor {
            depose(&core, term, &sight, successor).await;
        }
    }
}

fn turn(core: &Core) {
    core.watching.lock().turn(Look::at(core), by_the_clock(core));
}

fn decidable(core: &Core) -> Option<View> {
    view(&mut core.watching.lock(), core).filter(|view| view.undecided.is_none())
}

fn sight(core: &Core, view: View, heard: BTreeMap<NodeId, Heard>) -> Sight {
    let View { record, silent_ms, late_ms, restarts_first, undecided, .. } = view;
    let by_pulses = if record.is_by_pulses() { said(core) } else { ByPulses::default() };
    Sight { record, leader: core.me, silent_ms, undecided, late_ms, restarts_first, heard, by_pulses }
}

/// What the nodes that were heard say in their pulses.
fn said(core: &Core) -> ByPulses {
    let (grants, seen) = (&core.grants, core.grants.seen.look());
    let hanging = NodeSet(seen.heard.0 & !seen.disk_moves.0);
    ByPulses { clock_off: grants.names(seen.clock_off).collect(), disk_hangs: grants.names(hanging).collect() }
}

/// Why the master is the master and no other node is. `None`: this member does not lead.
pub async fn explain(core: &Core) -> Option<Explanation> {
    let planner = core.planner.clone()?;
    if core.raft.metrics().borrow().current_leader != Some(core.me) {
        return None;
    }
    let record = core.applied.record()?;
    let heard = hear(core, &record, MASTER_TIP_TIMEOUT).await;
    let (view, heard) = {
        let mut watch = core.watching.lock();
        let without_master =
            || View { term: 0, record, silent_ms: None, late_ms: 0, restarts_first: None, undecided: None };
        (view(&mut watch, core).unwrap_or_else(without_master), watch.since_when(heard))
    };
    let Decision { why, lacks, .. } = planner(&sight(core, view, heard));
    Some(Explanation { leader: core.me, why, lacks })
}

#[cfg(not(test))]
fn by_the_clock(_: &Core) -> bool {
    false
}

#[cfg(test)]
fn by_the_clock(core: &Core) -> bool {
    core.sabotage == crate::simulation::Sabotage::SilenceByTheClock
}

/// The leader's explanation: of this member, of the leader, or through another member that reaches it.
pub async fn explained(core: &Core) -> Explained {
    if let Some(explanation) = explain(core).await {
        return Explained::Led(explanation);
    }
    let leader = core.raft.metrics().borrow().current_leader;
    let first = core.others().filter(|node| Some(*node) == leader);
    let mut unreachable = BTreeMap::new();
    for node in first.chain(core.others().filter(|node| Some(*node) != leader)) {
        match core.peers.ask(node, Request::Explain { further: true }, EXPLAIN_TIMEOUT).await {
            Ok(Reply::Explained(explanation)) => return Explained::Led(explanation),
            Ok(_) => {}
            Err(error) => {
                unreachable.insert(node, error.to_string());
            }
        }
    }
    Explained::NotLed { unreachable }
}

/// What the nodes with data say of themselves now.
pub async fn heard(core: &Core, record: &Record) -> BTreeMap<NodeId, Heard> {
    let heard = hear(core, record, TIP_TIMEOUT).await.into_iter();
    heard.map(|(node, heard)| (node, heard.unwrap_or(Heard::Silent { ms: 0 }))).collect()
}

/// Asks the nodes with data where their trails end; `None`: no answer. A node that no pulse comes from is not asked: that would take
/// until the question has timed out.
async fn hear(core: &Core, record: &Record, of_master: Duration) -> BTreeMap<NodeId, Option<Heard>> {
    let data = record.members.iter().filter(|(_, role)| **role == Role::Data).map(|(node, _)| *node);
    let unheard = &core.unheard(record);
    let asked = data.map(|node| async move {
        if let Some(ms) = unheard.get(&node) {
            // One that was never heard is silent since it was asked for first.
            return (node, Some(*ms).filter(|ms| *ms != u64::MAX).map(|ms| Heard::Silent { ms }));
        }
        // The master is hardly ever its own successor, and an answer of the others is not to wait for it.
        let within = if record.master == Some(node) { of_master } else { TIP_TIMEOUT };
        (node, timeout(within, hear_one(core, node)).await.ok().flatten())
    });
    join_all(asked).await.into_iter().collect()
}

async fn hear_one(core: &Core, node: NodeId) -> Option<Heard> {
    let tip = match node == core.me {
        true => core.trail.tip().await,
        false => match core.peers.ask(node, Request::Tip, TIP_TIMEOUT).await {
            Ok(Reply::Tip(tip)) => tip,
            Ok(_) | Err(_) => return None,
        },
    };
    Some(match tip {
        Ok(TrailTip { lacks: Some(why), .. }) | Err(why) => Heard::Unfit(why),
        Ok(tip) => Heard::Tip(tip),
    })
}

async fn depose(core: &Core, term: u64, sight: &Sight, successor: NodeId) {
    let Record { epoch, revision, .. } = sight.record;
    tracing::warn!(%epoch, %successor, term, silent_ms = ?sight.silent_ms, "the leader of the control plane names a successor");
    let command = Command::Depose { expected_epoch: epoch, successor, accept_loss: false, seen: Some(revision) };
    #[cfg(test)]
    if core.sabotage == crate::simulation::Sabotage::DeposeWithoutSeen {
        let command = Command::Depose { expected_epoch: epoch, successor, accept_loss: false, seen: None };
        return drop(core.propose(command, crate::core::PATIENCE).await);
    }
    match timeout(PROPOSAL_TIMEOUT, core.raft.client_write(command)).await {
        Ok(Ok(written)) => {
            core.published.publish(&written.data.record);
            if let Some(refusal) = written.data.refusal {
                tracing::info!("the successor was not named: {refusal}");
            }
        }
        Ok(Err(error)) => tracing::info!("the successor was not named: {error}"),
        Err(_) => tracing::warn!("no majority of the members has agreed on the successor yet"),
    }
}
