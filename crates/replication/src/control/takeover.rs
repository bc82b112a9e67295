//! Takeovers without a command: a server that the record names as the successor promotes itself, and a server that starts waits
//! while another one is named. Both only under supervisors, whose groups name successors by themselves.
//!
//! | the record | a standby | a server that starts and was the last master |
//! |---|---|---|
//! | names this node | promotes itself, and tries again as long as it is named | is promoted |
//! | names another node | follows | waits |
//! | says that this node is the master, and names none | names itself, and is promoted: its promotion was lost or has failed | the same |
//! | names none: the lease was given up | follows | waits for at most a second until another one is named; then it names itself, and is promoted |
//! | names none, and there was no master | follows | names itself, and is promoted |
//!
//! What a new master knows about its takeover, whether another node can have what it commits:
//!
//! | the record, as this node knows it | another standby could follow | the node is alone |
//! |---|---|---|
//! | it became master in this epoch in place of another node, and the sync set is itself | no: the only other node with data was replaced | yes |
//! | the same | a third node with data answers | no |
//! | it was the master before, and restarted | its standby comes back | no |
//! | of another epoch | unknown | no |
//!
//! Failure: a record that is too old says no; then commits wait for `standby_timeout_ms`, as after any other start.

use super::{ADDRESS_MAX, Control};
use holdfast_control::{Basis, Mastership, NodeId, Record, Refusal};
use holdfast_types::Epoch;
use std::sync::Arc;
use std::time::Duration;

/// How long a server that starts waits for the group to name another node, after it has given its lease up.
const OTHERS_FIRST_MAX: Duration = Duration::from_secs(1);

impl Control {
    /// Whether this standby is to promote itself by the record as this node knows it, and on what basis.
    pub fn own_promotion(&self) -> Option<Basis> {
        let record = self.handle.record().filter(|_| self.is_supervised)?;
        own_promotion(&record, self.me)
    }

    /// The last master has given its lease up, and starts again: the group may name another node first, which needs no restart.
    pub(super) async fn let_others_go_first(&self, record: &Record) {
        let is_free = matches!(record.mastership, Mastership::Free { successor: None }) && record.master.is_some();
        // Of a frozen group no other node is named.
        if !self.is_supervised || !is_free || record.frozen {
            return;
        }
        let mut records = self.handle.watch();
        let is_decided = |newest: &Option<Arc<Record>>| {
            newest.as_ref().is_some_and(|newest| newest.epoch > record.epoch || newest.successor().is_some())
        };
        // What has happened is asked of the group next.
        drop(tokio::time::timeout(OTHERS_FIRST_MAX, records.wait_for(is_decided)).await);
    }

    /// Whether a server that starts is to try again after this refusal. `waits_for`: the successor of which that was reported.
    pub(super) fn waits_after(&self, refusal: &Refusal, waits_for: &mut Option<NodeId>) -> bool {
        if let Refusal::OtherSuccessor(successor) = refusal
            && waits_for.replace(*successor) != Some(*successor)
        {
            tracing::warn!(
                "this server was the last master and waits: {successor} is named as its successor; see holdfast cluster status"
            );
        }
        // The others: the record has moved while it was looked at.
        matches!(refusal, Refusal::OtherSuccessor(_) | Refusal::Moved { .. } | Refusal::StaleEpoch { .. })
    }

    /// Whether no other node can follow this master yet, which took over in `epoch`; see the module's table.
    pub async fn took_over_alone(&self, epoch: Epoch) -> bool {
        let record = self.handle.record();
        if !record.is_some_and(|record| is_alone_since_takeover(&record, self.me, epoch)) {
            return false;
        }
        if self.others.len() < 2 {
            return true;
        }
        for node in &self.others {
            if let Ok(Ok(_)) = tokio::time::timeout(ADDRESS_MAX, self.handle.link_of(*node)).await {
                return false;
            }
        }
        true
    }
}

fn own_promotion(record: &Record, me: NodeId) -> Option<Basis> {
    match record.successor() {
        Some(named) => (named == me).then_some(Basis::Named),
        None => (record.master == Some(me)).then_some(Basis::Starts),
    }
}

/// Whether `me` became the master of this epoch in place of another node, and is the whole sync set. A master that restarts has
/// a newer epoch than its takeover.
fn is_alone_since_takeover(record: &Record, me: NodeId, epoch: Epoch) -> bool {
    let is_own = record.is_served_by(me, epoch) && record.master_since == epoch;
    is_own && record.sync_set.members().iter().eq([&me])
}

#[cfg(test)]
mod tests {
    use super::{is_alone_since_takeover, own_promotion};
    use holdfast_control::{Basis, Command, LeaseTerms, NodeId, Record, Role, apply};
    use holdfast_types::Epoch;
    use std::collections::{BTreeMap, BTreeSet};

    /// The record after these commands.
    fn after(commands: &[Command]) -> Record {
        let mut record = None;
        commands.iter().for_each(|command| apply(&mut record, command).unwrap());
        record.unwrap()
    }

    fn deposes(successor: NodeId, epoch: u32) -> Command {
        Command::Depose { expected_epoch: Epoch(epoch), successor, accept_loss: false, seen: None }
    }

    fn promotes(node: NodeId, epoch: u32) -> Command {
        Command::Promote {
            node,
            expected_epoch: Epoch(epoch - 1),
            epoch_at_least: Epoch(epoch),
            waited_ms: 1_000_000,
            accept_loss: false,
            attempt: epoch.into(),
            compared: BTreeSet::new(),
            becomes: None,
        }
    }

    fn grows(by: NodeId, epoch: u32, node: NodeId) -> Command {
        Command::GrowSyncSet { epoch: Epoch(epoch), by, node, change: 1 }
    }

    #[test]
    fn a_master_is_alone_only_in_the_epoch_of_its_takeover() {
        let [a, b, w]: [NodeId; 3] = ["a", "b", "w"].map(|name| name.parse().unwrap());
        let members = BTreeMap::from([(a, Role::Data), (b, Role::Data), (w, Role::Witness)]);
        let found = Command::Found { version: 1, group: 7, members, lease: LeaseTerms::default(), pulse_key: None };
        let mut commands = vec![found, deposes(a, 0), promotes(a, 1), grows(a, 1, b), deposes(b, 1), promotes(b, 2)];
        assert!(is_alone_since_takeover(&after(&commands), b, Epoch(2)));
        // The record is older or newer than the mastership, or another node's.
        assert!(!is_alone_since_takeover(&after(&commands), b, Epoch(1)));
        assert!(!is_alone_since_takeover(&after(&commands), a, Epoch(2)));
        // It restarts: its standby may be on its way.
        let restarts = [&commands[..], &[deposes(b, 2), promotes(b, 3)]].concat();
        assert!(!is_alone_since_takeover(&after(&restarts), b, Epoch(3)));
        // Named: it promotes itself; a standby that the record calls master does so, too.
        assert_eq!(own_promotion(&after(&commands[..5]), b), Some(Basis::Named));
        assert_eq!(own_promotion(&after(&commands[..5]), a), None);
        assert_eq!(own_promotion(&after(&commands), b), Some(Basis::Starts));
        assert_eq!(own_promotion(&after(&commands), a), None);
        let released = [&commands[..], &[Command::Release { epoch: Epoch(2), by: b }]].concat();
        assert_eq!(own_promotion(&after(&released), b), Some(Basis::Starts));
        assert_eq!(own_promotion(&after(&released), a), None);
        commands.push(grows(b, 2, a));
        assert!(!is_alone_since_takeover(&after(&commands), b, Epoch(2)));
        commands.push(deposes(a, 2));
        assert!(!is_alone_since_takeover(&after(&commands), b, Epoch(2)));
    }
}
