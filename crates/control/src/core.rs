//! What the tasks of a control node share: proposing, promoting, and keeping the lease.
//!
//! A proposal reaches the leader as long as any member does: a member that is cut off from the leader alone hands it to another
//! one.
//!
//! Failure: without a majority a proposal is retried for [`PATIENCE`]; then it fails with [`ControlError::NoQuorum`],
//! which leaves open whether it was done. Every command may be repeated. If renewals fail, the lease expires.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use holdfast_types::Epoch;
use openraft::{AsyncRuntime, ChangeMembers};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::applied::Applied;
use crate::clock::LeaseClock;
use crate::error::ControlError;
use crate::grants::Grants;
use crate::id::{DiskId, NodeId};
use crate::lease::{Lease, LeaseTerms, WaitOut};
use crate::machine::Published;
use crate::peers::Peers;
use crate::plane::{Basis, Promotion};
use crate::raft::{Peer, Raft, Runtime};
use crate::record::{Answer, Command, Mastership, Record, Refusal, Role};
use crate::server::PROPOSAL_TIMEOUT;
use crate::sight::Planner;
use crate::trail_tip::TrailSlot;
use crate::watching::Watch;
use crate::wire::{Reply, Request};

/// The time for which a proposal is retried if there is no leader.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The pause between two attempts.
const RETRY_AFTER: Duration = Duration::from_millis(50);
/// How long the leader may take to answer a proposal before it is also handed to the other members.
const AROUND_AFTER: Duration = Duration::from_millis(250);
/// How often an expired lease is checked.
const LEASE_LOOK: Duration = Duration::from_millis(20);

/// The lease of this process as master, and a channel that reports whether it is held.
pub struct Holding {
    pub lease: Mutex<Lease>,
    pub held: watch::Sender<bool>,
    /// The leader of Raft that this member hears, for the status; may be half a second old.
    pub leader: Mutex<Option<NodeId>>,
    /// Changes of the sync set that were asked for, counted in the order of asking.
    pub sync_changes: AtomicU64,
}

pub struct Core {
    pub me: NodeId,
    pub disk: DiskId,
    pub members: BTreeMap<NodeId, Role>,
    /// The version of the record, and the lease, that the group is founded with.
    pub record_version: u16,
    pub terms: LeaseTerms,
    /// Shared with the pulse thread, where leases are granted by pulses.
    pub grants: Arc<Grants>,
    pub clock: Arc<dyn LeaseClock>,
    pub random: Arc<dyn Fn() -> u64 + Send + Sync>,
    pub raft: Raft,
    pub peers: Peers,
    pub published: Published,
    pub holding: Arc<Holding>,
    pub trail: TrailSlot,
    /// What this member's state machine has applied, and when.
    pub applied: Applied,
    /// Chooses who is named when the master is silent; `None`: no node is, without a command.
    pub planner: Option<Planner>,
    /// What this member watches for as Raft's leader.
    pub watching: Mutex<Watch>,
    #[cfg(test)]
    pub sabotage: crate::simulation::Sabotage,
}

impl Core {
    /// Every member but this one.
    pub fn others(&self) -> impl Iterator<Item = NodeId> {
        self.members.keys().copied().filter(|node| *node != self.me)
    }

    /// Makes both steps of a change; returns the voters after it. The change continues if it takes longer than the wait here:
    /// abandoned between the steps it would leave the first.
    pub async fn change_members(&self, change: ChangeMembers<NodeId, Peer>) -> Result<BTreeSet<NodeId>, String> {
        let raft = self.raft.clone();
        let change = Runtime::spawn(async move { raft.change_membership(change, false).await });
        match timeout(PROPOSAL_TIMEOUT, change).await {
            Ok(Ok(Ok(changed))) => {
                Ok(changed.membership.iter().flat_map(|membership| membership.voter_ids()).collect())
            }
            Ok(Ok(Err(error))) => Err(error.to_string()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no majority of the members answered in time; the change may still be made".to_owned()),
        }
    }

    /// Appends a command to the log through the current leader; retries for at most `within`. Every command is
    /// idempotent.
    pub async fn propose(&self, command: Command, within: Duration) -> Result<Record, ControlError> {
        let answer = async {
            loop {
                if let Some(answer) = self.propose_once(&command).await? {
                    return Ok::<Answer, ControlError>(answer);
                }
                sleep(RETRY_AFTER).await;
            }
        };
        let answer = timeout(within, answer).await.map_err(|_| ControlError::NoQuorum)??;
        self.published.publish(&answer.record);
        match (answer.refusal, answer.record) {
            (Some(refusal), _) => Err(refusal.into()),
            (None, Some(record)) => Ok(record),
            (None, None) => Err(ControlError::NoQuorum),
        }
    }

    /// `None`: it may or may not have been done.
    async fn propose_once(&self, command: &Command) -> Result<Option<Answer>, ControlError> {
        let (state, leader) = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow();
            (metrics.running_state.clone(), metrics.current_leader)
        };
        state.map_err(|fatal| ControlError::Stopped(fatal.to_string()))?;
        if leader == Some(self.me) {
            let written = timeout(PROPOSAL_TIMEOUT, self.raft.client_write(command.clone())).await;
            return Ok(written.ok().and_then(Result::ok).map(|written| written.data));
        }
        Ok(self.propose_to(leader, command).await)
    }

    /// Sends a proposal to the leader, and hands it to the other members as well when the leader does not answer soon: this node
    /// may be cut off from it alone. Such a node cannot lead itself, because the others still hear the leader.
    async fn propose_to(&self, leader: Option<NodeId>, command: &Command) -> Option<Answer> {
        let mut answers = FuturesUnordered::new();
        if let Some(leader) = leader {
            answers.push(self.ask_for(leader, Request::Propose(command.clone())));
            if let Ok(Some(Some(answer))) = timeout(AROUND_AFTER, answers.next()).await {
                return Some(answer);
            }
        }
        for node in self.others().filter(|node| Some(*node) != leader) {
            let pass = Request::Pass { origin: self.me, command: command.clone(), further: true };
            answers.push(self.ask_for(node, pass));
        }
        while let Some(answer) = answers.next().await {
            if answer.is_some() {
                return answer;
            }
        }
        None
    }

    async fn ask_for(&self, node: NodeId, request: Request) -> Option<Answer> {
        match self.peers.ask(node, request, PROPOSAL_TIMEOUT).await {
            Ok(Reply::Proposed(answer)) => Some(answer),
            Ok(_) | Err(_) => None,
        }
    }

    /// Deposes the old master, waits until its lease is over on every allowed clock, compares where the sync set is a
    /// quorum ([`crate::compare`]), and promotes.
    pub async fn promote(self: &Arc<Core>, promotion: Promotion) -> Result<Epoch, ControlError> {
        let Promotion { node, expected_epoch, epoch_at_least, accept_loss, trail_end, basis } = promotion;
        if !accept_loss {
            self.check_not_rolled_back(expected_epoch, trail_end).await?;
            self.check_before(expected_epoch, node).await?;
        }
        if self.is_by_pulses() && node == self.me {
            self.check_clock().await?;
        }
        let depose = |seen| Command::Depose { expected_epoch, successor: node, accept_loss, seen };
        let deposed = match basis {
            Basis::Asked => self.propose(depose(None), PATIENCE).await?,
            Basis::Named | Basis::Starts => {
                let record = self.propose(Command::Look, PATIENCE).await?;
                if record.epoch != expected_epoch {
                    return Err(Refusal::StaleEpoch { expected: expected_epoch.0, found: record.epoch.0 }.into());
                }
                match record.successor() {
                    Some(named) if named == node => record,
                    Some(other) => return Err(Refusal::OtherSuccessor(other).into()),
                    None if basis == Basis::Named => return Err(Refusal::NotDeposed.into()),
                    // Tried again, it would be refused by its own first attempt; the next promotion finds the node named.
                    None => self.propose(depose(Some(record.revision)), PATIENCE).await?,
                }
            }
        };
        if !accept_loss && node == self.me {
            // The record above may have been old.
            self.check_position(&deposed, trail_end)?;
        }
        let waited_ms = match deposed.is_by_pulses() {
            true => self.wait_out_grants(&deposed).await?,
            false => self.wait_out(&deposed).await,
        };
        let compared = if accept_loss { BTreeSet::new() } else { self.compared(&deposed, node).await? };
        let (attempt, becomes) = ((self.random)(), None);
        let promote = Command::Promote {
            node,
            expected_epoch,
            epoch_at_least,
            waited_ms,
            accept_loss,
            attempt,
            compared,
            becomes,
        };
        let record = self.propose(promote, PATIENCE).await?;
        if node == self.me {
            self.begin_mastership(&record);
        }
        Ok(record.epoch)
    }

    /// Refuses a promotion that cannot succeed, so that no master is deposed in vain. This node's own copy of the record is
    /// sufficient, because the group checks again.
    async fn check_before(&self, expected_epoch: Epoch, node: NodeId) -> Result<(), ControlError> {
        // Of another epoch, or without this node: the group will say so.
        let is_concerned = |record: &Arc<Record>| record.epoch == expected_epoch && record.sync_set.contains(node);
        match self.published.get().filter(is_concerned) {
            Some(record) => self.compared(&record, node).await.map(drop),
            None => Ok(()),
        }
    }

    /// Continues the mastership of `epoch` after this member's process was started again. The record is asked of the group: this
    /// node's own copy may be old. Nothing is granted for the time before: the lease counts from the first renewal asked for now.
    pub async fn resume(self: &Arc<Core>, epoch: Epoch) -> Result<(), ControlError> {
        let record = self.propose(Command::Look, PATIENCE).await?;
        if record.epoch != epoch {
            return Err(Refusal::StaleEpoch { expected: epoch.0, found: record.epoch.0 }.into());
        }
        match record.mastership {
            Mastership::Serving { .. } if record.master == Some(self.me) => {
                self.begin_mastership(&record);
                Ok(())
            }
            Mastership::Serving { .. } => Err(Refusal::NotMaster { by: self.me }.into()),
            Mastership::Deposed { successor, .. } => Err(Refusal::Deposed { successor }.into()),
            Mastership::Free { .. } => Err(Refusal::Released.into()),
        }
    }

    /// Counts until the old lease is over, is known to be given up, or the record has moved on.
    async fn wait_out(&self, deposed: &Record) -> u64 {
        let mut wait = WaitOut::start(self.clock.clone());
        #[cfg(not(test))]
        let (needed_ms, claimed_ms) = (deposed.lease.wait_out_ms(), None);
        #[cfg(test)]
        let (needed_ms, claimed_ms) = self.sabotage.wait_out_ms(&deposed.lease);
        let over = |record: &Record| {
            record.epoch != deposed.epoch || !matches!(record.mastership, Mastership::Deposed { wait: true, .. })
        };
        let waited_ms = |wait: &WaitOut| wait.waited_ms().max(self.waited_since_renewal_ms(deposed.epoch));
        while waited_ms(&wait) < needed_ms && !over(deposed) {
            let newest = self.published.get();
            if newest.is_some_and(|newest| newest.revision >= deposed.revision && over(&newest)) {
                break;
            }
            sleep(WaitOut::STEP).await;
            wait.step();
            #[cfg(test)]
            if self.sabotage == crate::simulation::Sabotage::JumpCounts {
                wait.trust_the_clock();
            }
        }
        claimed_ms.unwrap_or(waited_ms(&wait))
    }

    /// The time since the last renewal of that epoch, if this member has applied its Depose itself (rule K1).
    fn waited_since_renewal_ms(&self, epoch: Epoch) -> u64 {
        #[cfg(test)]
        if self.sabotage == crate::simulation::Sabotage::WaitFromAnswer {
            let heard_of = self.applied.waited_ms(epoch).or(self.applied.since_renewal_ms(epoch));
            return heard_of.unwrap_or(0);
        }
        self.applied.waited_ms(epoch).unwrap_or(0)
    }

    /// A lease of its own for each epoch: an older one can never become valid again.
    fn begin_mastership(self: &Arc<Core>, record: &Record) {
        let lease = Lease::new(record.epoch, self.clock.clone());
        let old = std::mem::replace(&mut *self.holding.lease.lock(), lease.clone());
        old.give_up();
        let core = self.clone();
        let terms = record.lease;
        if record.is_by_pulses() {
            // The pulse thread asks for it.
            return drop(Runtime::spawn(async move { core.keep_told(&lease).await }));
        }
        drop(Runtime::spawn(async move {
            tokio::select! {
                biased;
                () = core.renew(&lease, &terms) => {}
                () = core.tell_held(&lease) => {}
            }
            // No more renewals: told once more when the last one has run out.
            core.tell_lost(&lease).await;
        }));
    }

    /// Renews the lease until a renewal is refused. It continues to ask while the majority is unreachable.
    async fn renew(&self, lease: &Lease, terms: &LeaseTerms) {
        let epoch = lease.epoch();
        while !lease.is_given_up() {
            let asked_ns = self.clock.now_ns();
            let command = Command::RenewLease { epoch, by: self.me, positions: self.trail.positions(epoch) };
            match self.propose(command, 2 * terms.renew_every()).await {
                Ok(_) => {
                    #[cfg(test)]
                    let asked_ns = self.sabotage.lease_from(asked_ns, &*self.clock);
                    lease.granted(asked_ns, terms);
                    self.tell(lease);
                }
                Err(ControlError::NoQuorum) => {
                    tracing::warn!("cannot renew the lease: no majority of the members answers")
                }
                Err(error) => {
                    tracing::warn!(epoch = %lease.epoch(), "the lease is no longer renewed: {error}");
                    return;
                }
            }
            sleep(terms.renew_every()).await;
        }
    }

    /// Tells the group what this master and its standbys have on their disks, before the first commit of its epoch is
    /// acknowledged: from then on a copy of its directory from before can be told. Renewals repeat it.
    pub async fn tell_positions(&self, epoch: Epoch) -> Result<(), ControlError> {
        let (by, positions) = (self.me, self.trail.positions(epoch));
        let command = match self.is_by_pulses() {
            true => Command::TellPositions { epoch, by, positions },
            false => Command::RenewLease { epoch, by, positions },
        };
        self.propose(command, PATIENCE).await.map(drop)
    }

    async fn tell_held(&self, lease: &Lease) {
        loop {
            self.tell(lease);
            sleep(lease.remaining().max(LEASE_LOOK)).await;
        }
    }

    async fn tell_lost(&self, lease: &Lease) {
        while lease.valid_now() {
            sleep(lease.remaining().max(LEASE_LOOK)).await;
        }
        self.tell(lease);
    }

    /// Tells whether the lease is held, if it is still the one that counts.
    fn tell(&self, lease: &Lease) {
        if self.holding.lease.lock().epoch() != lease.epoch() {
            return;
        }
        let now = lease.valid_now();
        self.holding.held.send_if_modified(|held| {
            let changed = *held != now;
            if changed && !now {
                tracing::warn!(epoch = %lease.epoch(), "the lease has expired: nothing is acknowledged");
            }
            *held = now;
            changed
        });
    }

    /// Releases the lease here first, then reports that to the group, so that a successor need not wait.
    pub async fn release(&self, epoch: Epoch) -> Result<(), ControlError> {
        let lease = self.holding.lease.lock().clone();
        if lease.epoch() == epoch {
            lease.give_up();
            self.tell(&lease);
        }
        self.propose(Command::Release { epoch, by: self.me }, PATIENCE).await.map(drop)
    }
}
