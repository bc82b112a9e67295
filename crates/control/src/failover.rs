//! The failover without a command: Raft's leader watches whether the master renews its lease, and names a successor.
//!
//! | the record | and | then |
//! |---|---|---|
//! | Serving | a renewal, an epoch or a snapshot was applied here less than a lease ago, or this leader is not *settled* | nothing |
//! | Serving | otherwise, and there is a successor | Depose for it |
//! | Free for no node | this leader is settled, and there is a successor | Depose, which only names it |
//! | Deposed, Free for a node | a person named it | nothing |
//! | Deposed, Free for a node | it is silent for a lease, or has had [`SUCCESSOR_MS`] since it might be promoted, and there is another one | Depose for the other one |
//!
//! *Settled* (rule K3): for 1 s it is the leader of one term, a quorum has acknowledged it within 500 ms, and an entry of its own
//! term is applied here; and now all of its log is applied. Silence and these times are watched: a turn adds at most 50 ms, and one of more
//! than 250 ms sets them to 0. So neither a leader that was stopped, nor a new one, nor one that is cut off deposes a master that serves.
//!
//! The Depose names the revision that it was decided on, is one write in the term of the decision, and is neither repeated nor
//! passed on (rule K2): what arrives late changes nothing. The next turn decides again.
//!
//! Which node is the best successor is decided by [`Planner`], the supervisor's; it also says why. [`explain`] shows the same sight
//! to the same planner at any time, and changes nothing.
//!
//! Failure: without a majority nothing is proposed. Without a successor nothing is either, and the master keeps its epoch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use holdfast_types::Epoch;
use openraft::ServerState;
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use crate::applied::TURN;
use crate::core::Core;
use crate::id::NodeId;
use crate::record::{Command, Mastership, Record, Role};
use crate::server::PROPOSAL_TIMEOUT;
use crate::trail_tip::TrailTip;
use crate::wire::{Reply, Request};

/// A successor that could be promoted for this time, and was not, is replaced.
pub const SUCCESSOR_MS: u64 = 2_000;
/// For how long a leader leads before it deposes.
const SETTLED_NS: u64 = 1_000_000_000;
/// A quorum has acknowledged a settled leader within this time.
const QUORUM_ACK_MS_MAX: u64 = 500;
/// A turn that lasts longer proves nothing.
const TURN_NS_MAX: u64 = 250_000_000;
const TURN_COUNTS_NS_MAX: u64 = 50_000_000;
/// How long a node with data may take to say where its trail ends.
const TIP_TIMEOUT: Duration = Duration::from_millis(1_500);
/// How long the leader may take to explain: it asks the nodes with data.
pub const EXPLAIN_TIMEOUT: Duration = Duration::from_secs(3);
/// The master is asked for this long only.
const MASTER_TIP_TIMEOUT: Duration = Duration::from_millis(300);
/// The pause between two questions for a successor.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// What a node with data says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// Its trail is open, and ends there.
    Tip(TrailTip),
    /// It answers, and has no trail that could be a master's; why.
    Unfit(String),
    /// It does not answer; since when, as far as this leader watched it.
    Silent { ms: u64 },
}

/// What the leader knows when the mastership is over.
#[derive(Clone, Debug)]
pub struct Sight {
    pub record: Record,
    pub leader: NodeId,
    /// For how long no renewal was applied, where the master counts as silent.
    pub silent_ms: Option<u64>,
    /// Why nothing is decided now, however fit a successor is; `None`: the planner decides.
    pub undecided: Option<Undecided>,
    /// For how long the successor that is named could have been promoted.
    pub late_ms: u64,
    /// The nodes with data.
    pub heard: BTreeMap<NodeId, Heard>,
}

/// Why a leader names no node now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Undecided {
    /// The master renews its lease: the last renewal was applied here so long ago.
    Renewed { ms: u64 },
    /// The master is this member, and has its lease.
    OwnLease,
    /// A person has named the successor.
    NamedByCommand,
    /// No majority has acknowledged this leader lately.
    NoMajority,
    /// It leads for less than a second, or was stopped itself, or has not applied all of its log.
    NotSettled,
}

/// What is decided on a sight, and why.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Decision {
    /// The node to name.
    pub successor: Option<NodeId>,
    /// Why it is that one, or none, in a sentence.
    pub why: String,
    /// The nodes with data, and what keeps each from being the next master; empty: nothing does.
    pub lacks: Vec<(NodeId, Vec<String>)>,
}

/// Decides whom to name.
pub type Planner = Arc<dyn Fn(&Sight) -> Decision + Send + Sync>;

/// Why the master is the master and no other node is, by the member that leads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Explanation {
    pub leader: NodeId,
    pub why: String,
    /// See [`Decision::lacks`].
    pub lacks: Vec<(NodeId, Vec<String>)>,
}

impl Record {
    /// The node that is to be promoted next.
    pub fn successor(&self) -> Option<NodeId> {
        match self.mastership {
            Mastership::Serving { .. } => None,
            Mastership::Free { successor } => successor,
            Mastership::Deposed { successor, .. } => Some(successor),
        }
    }
}

/// Times that Raft's leader watches.
#[derive(Default)]
pub struct Watch {
    last_ns: u64,
    signs: u64,
    has_majority: bool,
    silent_ns: u64,
    term: u64,
    leads_ns: u64,
    /// All watched time of this member.
    watched_ns: u64,
    named: Option<(Epoch, Option<NodeId>, u64)>,
    /// When each node was heard last.
    heard_ns: BTreeMap<NodeId, u64>,
}

/// What the leader sees of the record, and whether it may decide on it.
struct View {
    term: u64,
    record: Record,
    silent_ms: Option<u64>,
    late_ms: u64,
    undecided: Option<Undecided>,
}

/// What a turn of the loop looks at.
#[derive(Clone, Copy)]
struct Look {
    now_ns: u64,
    signs: u64,
    term: u64,
    /// It leads in this term, an own entry is applied, and a quorum has acknowledged it lately.
    leads: bool,
    has_majority: bool,
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

impl Watch {
    fn starting(look: Look) -> Watch {
        Watch { last_ns: look.now_ns, signs: look.signs, term: look.term, ..Watch::default() }
    }

    /// Counts a turn of the loop. `by_the_clock`: what a simpler program would do, for the simulation.
    fn turn(&mut self, look: Look, by_the_clock: bool) {
        let passed_ns = look.now_ns.saturating_sub(std::mem::replace(&mut self.last_ns, look.now_ns));
        let counted_ns = if by_the_clock { passed_ns } else { passed_ns.min(TURN_COUNTS_NS_MAX) };
        self.watched_ns += counted_ns;
        (self.silent_ns, self.leads_ns) = (self.silent_ns + counted_ns, self.leads_ns + counted_ns);
        if passed_ns > TURN_NS_MAX && !by_the_clock {
            (self.silent_ns, self.leads_ns) = (0, 0);
            self.heard_ns.clear();
        }
        if std::mem::replace(&mut self.signs, look.signs) != look.signs {
            self.silent_ns = 0;
        }
        self.has_majority = look.has_majority;
        let is_new = std::mem::replace(&mut self.term, look.term) != look.term;
        if is_new || !look.leads {
            self.leads_ns = 0;
        }
    }

    fn is_settled(&self) -> bool {
        self.leads_ns >= SETTLED_NS
    }

    /// What is seen of the present record. `None`: there has been no master yet.
    fn view(&mut self, core: &Core) -> Option<View> {
        let record = core.applied.record()?;
        let master = record.master?;
        let named = record.successor();
        let is_known = self.named.is_some_and(|(epoch, to, _)| (epoch, to) == (record.epoch, named));
        if !is_known {
            self.named = Some((record.epoch, named, self.watched_ns));
        }
        let (term, all_applied) = {
            let metrics = core.raft.metrics();
            let metrics = metrics.borrow();
            (metrics.current_term, metrics.last_applied.map(|applied| applied.index) == metrics.last_log_index)
        };
        let is_serving = matches!(record.mastership, Mastership::Serving { .. });
        let ms = self.silent_ns / 1_000_000;
        let undecided = if !self.has_majority {
            Some(Undecided::NoMajority)
        } else if is_serving && ms < u64::from(record.lease.lease_ms) {
            Some(Undecided::Renewed { ms })
        } else if !self.is_settled() || !all_applied || term != self.term {
            Some(Undecided::NotSettled)
        } else if is_serving && master == core.me && core.holding.lease.lock().valid_now() {
            // It renews its lease no more.
            Some(Undecided::OwnLease)
        } else {
            (named.is_some() && !record.automatic).then_some(Undecided::NamedByCommand)
        };
        let silent_ms = (is_serving && undecided.is_none()).then_some(ms);
        let late_ms = if is_serving { 0 } else { self.late_ms(core, &record) };
        Some(View { term, record, silent_ms, late_ms, undecided })
    }

    /// For how long the successor could have been promoted.
    fn late_ms(&self, core: &Core, record: &Record) -> u64 {
        let since_ns = self.named.map_or(self.watched_ns, |(_, _, since_ns)| since_ns);
        let known_ms = (self.watched_ns - since_ns) / 1_000_000;
        match record.mastership {
            // A successor of a lease that may last waits first; the wait belongs to the epoch.
            Mastership::Deposed { wait: true, .. } => {
                let waited_ms = core.applied.waited_ms(record.epoch).unwrap_or(0);
                waited_ms.saturating_sub(record.lease.wait_out_ms()).min(known_ms)
            }
            _ => known_ms,
        }
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
        let mut asking = std::pin::pin!(hear(&core, &view.record));
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
    core.watching.lock().view(core).filter(|view| view.undecided.is_none())
}

fn sight(core: &Core, view: View, heard: BTreeMap<NodeId, Heard>) -> Sight {
    let View { record, silent_ms, late_ms, undecided, .. } = view;
    Sight { record, leader: core.me, silent_ms, undecided, late_ms, heard }
}

/// Why the master is the master and no other node is. `None`: this member does not lead.
pub async fn explain(core: &Core) -> Option<Explanation> {
    let planner = core.planner.clone()?;
    if core.raft.metrics().borrow().current_leader != Some(core.me) {
        return None;
    }
    let record = core.applied.record()?;
    let heard = hear(core, &record).await;
    let (view, heard) = {
        let mut watch = core.watching.lock();
        let without_master = || View { term: 0, record, silent_ms: None, late_ms: 0, undecided: None };
        (watch.view(core).unwrap_or_else(without_master), watch.since_when(heard))
    };
    let Decision { why, lacks, .. } = planner(&sight(core, view, heard));
    Some(Explanation { leader: core.me, why, lacks })
}

impl Watch {
    /// Remembers when each node was heard; the silence of a node counts from the first question to it on.
    fn note_heard(&mut self, heard: &BTreeMap<NodeId, Option<Heard>>) {
        let now_ns = self.watched_ns;
        for (node, heard) in heard {
            let last_ns = self.heard_ns.entry(*node).or_insert(now_ns);
            if heard.is_some() {
                *last_ns = now_ns;
            }
        }
    }

    /// Completes the answers of nodes that were silent with the time for which they have been.
    fn since_when(&self, heard: BTreeMap<NodeId, Option<Heard>>) -> BTreeMap<NodeId, Heard> {
        let silent = |node: &NodeId| {
            let last_ns = self.heard_ns.get(node).copied().unwrap_or(self.watched_ns);
            Heard::Silent { ms: (self.watched_ns - last_ns) / 1_000_000 }
        };
        heard.into_iter().map(|(node, heard)| (node, heard.unwrap_or_else(|| silent(&node)))).collect()
    }
}

#[cfg(not(test))]
fn by_the_clock(_: &Core) -> bool {
    false
}

#[cfg(test)]
fn by_the_clock(core: &Core) -> bool {
    core.sabotage == crate::simulation::Sabotage::SilenceByTheClock
}

/// Asks the nodes with data where their trails end; `None`: no answer.
async fn hear(core: &Core, record: &Record) -> BTreeMap<NodeId, Option<Heard>> {
    let data = record.members.iter().filter(|(_, role)| **role == Role::Data).map(|(node, _)| *node);
    let asked = data.map(|node| async move {
        // The master is hardly ever its own successor, and an answer of the others is not to wait for it.
        let within = if record.master == Some(node) { MASTER_TIP_TIMEOUT } else { TIP_TIMEOUT };
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A leader of term 3 that watches turns of 25 ms, until something is changed.
    struct Bench {
        watch: Watch,
        look: Look,
    }

    impl Bench {
        fn new() -> Bench {
            let look = Look { now_ns: 1_000_000_000, signs: 7, term: 3, leads: true, has_majority: true };
            Bench { watch: Watch::starting(look), look }
        }

        fn turns(&mut self, count: u64, ms: u64) {
            for _ in 0..count {
                self.look.now_ns += ms * 1_000_000;
                self.watch.turn(self.look, false);
            }
        }

        fn silent_ms(&self) -> u64 {
            self.watch.silent_ns / 1_000_000
        }
    }

    #[test]
    fn silence_counts_from_the_last_sign() {
        let mut bench = Bench::new();
        bench.turns(120, 25);
        assert_eq!(bench.silent_ms(), 3_000);
        bench.look.signs += 1;
        bench.turns(1, 25);
        assert_eq!(bench.silent_ms(), 0);
        // A slow turn counts in part, one that was a pause proves nothing.
        bench.turns(1, 200);
        assert_eq!(bench.silent_ms(), 50);
        bench.turns(1, 10_000);
        assert_eq!(bench.silent_ms(), 0);
    }

    #[test]
    fn a_leader_is_settled_after_a_second_of_one_term() {
        let mut bench = Bench::new();
        bench.turns(39, 25);
        assert!(!bench.watch.is_settled());
        bench.turns(1, 25);
        assert!(bench.watch.is_settled());
        let spoilers: [fn(&mut Bench); 3] = [
            |bench| bench.look.term += 1,
            |bench| bench.turns(1, 1_000),
            |bench| {
                // It was cut off for a turn.
                bench.look.leads = false;
                bench.turns(1, 25);
                bench.look.leads = true;
            },
        ];
        for spoil in spoilers {
            bench.turns(50, 25);
            assert!(bench.watch.is_settled());
            spoil(&mut bench);
            bench.turns(39, 25);
            assert!(!bench.watch.is_settled());
        }
    }
}
