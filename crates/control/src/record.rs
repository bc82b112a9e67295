//! The replicated record, {epoch, master, sync set, members}, and the commands that change it: a pure state machine
//! without clocks, so that every node that applies the same log has the same record.
//!
//! | command | state | condition | becomes |
//! |---|---|---|---|
//! | Found | none | members and terms are usable | Free, epoch 0 |
//! | Found | any | the same group | unchanged, done |
//! | Depose | Serving | successor is a data member of the sync set, or loss is accepted | Deposed; renewals are over |
//! | Depose | Deposed, Free | as for Serving | the same state with this successor |
//! | Depose with `seen` | any | as above; the record has had no change since that revision, not even a renewal | as above |
//! | Promote | Deposed, Free | by the successor, waited long enough, another was master; out of a quorum: compared with enough others | Serving in a higher epoch, sync set {master} |
//! | Promote | Deposed, Free | as above, by the last master itself | Serving in a higher epoch, the sync set as it was |
//! | Promote | any | the same attempt again | unchanged, done |
//! | RenewLease | Serving | by the master of this epoch | renewals + 1; the positions it names are kept where they are newer and not lower, or of a node outside the sync set; refused if the master names less for itself than it had in an earlier epoch |
//! | Release | Serving, Deposed | by the master of this epoch | Free: no node holds a lease |
//! | Release | Free | the same again | unchanged, done |
//! | HandOver | Serving | record 2; by the master of this epoch; as Depose for the successor | Free for this successor: the page was closed |
//! | HandOver | Deposed, Free | as above | Free; a successor that was named before stays |
//! | TellPositions | Serving | by the master of this epoch | the positions are kept as by RenewLease |
//! | Freeze | any | a record | frozen, or no longer: no node is named without a person while it is; what was decided before is refused as moved |
//! | Look | any | a record | unchanged, done: the answer is the record at this position in the log |
//! | ShrinkSyncSet, GrowSyncSet | Serving | by the master of this epoch; never the master itself; no older than the last | the set without, with it |
//! | NameQuorum | Serving | as for ShrinkSyncSet; all are data members, and as many as needed are present | the master and these, of which each commit reaches the number given |
//!
//! The positions make a trail recognizable that was put back from an older copy: with each renewal the master names what it
//! and its standbys have on their disks, and a node that has less than was named does not become master
//! ([`Record::missing_at`]; the node itself checks, before the old master is deposed). A standby that loses what it had and is
//! noticed by its master is out of the sync set before its position goes back.
//!
//! There are two versions. Under record 1 the master renews its lease by RenewLease, and `Deposed.wait` says whether it ever did.
//! Under record 2 the voters grant it by their answers to pulses, of which the record knows nothing: RenewLease is refused, and
//! `wait` is always true. Version and lease terms change only with an epoch (rule C19): a Promote names them (`becomes`), and
//! the wait before it is the one of the old terms. So no epoch has both kinds of lease. A version never goes back.
//!
//! Depose, HandOver and Release are *ending entries*: a voter stops granting when one is appended to its log
//! ([`Command::ends`]).
//!
//! Everything else is refused and changes nothing. A command for another epoch than the record's is always refused
//! as stale. A deposed master can no longer shrink the sync set: it could remove its successor from it. The master
//! numbers the changes it requests: a change that was abandoned and arrives late, on a connection that hung, is refused if a
//! later one has been agreed. It would put a standby back for which commits no longer wait.
//!
//! The sync set holds the nodes that have every commit acknowledged at level hot or above, the master among them; at
//! warm too, unless master and standby fail at the same time. The master removes a standby *before* it acknowledges a commit
//! without it, and waits for a standby *before* it adds it. So every member of the set may be promoted without loss. Out of
//! a quorum, a member may be promoted that has all that enough others have; [`crate::sync_members`] describes the set and
//! its changes, [`crate::compare`] the comparison of its members.
//!
//! A master that restarts is promoted again. If no other node was master in between, no other node acknowledged
//! anything, so the set is still correct: a master that starts and fails repeatedly does not remove its standbys from
//! the set. Its trail may hold more than they have, though, and its readers will see that. So before it answers the first
//! reader it removes every standby that is not known to have all of its trail. A successor starts with a set of itself
//! only: it does not know what the others have.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_types::Epoch;
use serde::{Deserialize, Serialize};

pub(crate) use crate::epoch_number as epoch;
use crate::id::NodeId;
pub use crate::known_positions::Position;
use crate::lease::LeaseTerms;
use crate::pulse_key::PulseKey;
pub use crate::refusal::Refusal;
use crate::sync_members::SyncMembers;

/// The version with which the in-process member founds a group: the lease is renewed by commands in the log.
pub const RECORD_VERSION: u16 = 1;
/// The version under which voters grant the lease by their answers to pulses ([`crate::grant`]).
pub const RECORD_VERSION_GRANTS: u16 = 2;
/// The largest number of members of a group.
pub const MEMBERS_MAX: usize = 9;

/// The role of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Has the data and can be master.
    Data,
    /// Votes only.
    Witness,
}

/// Whether a master may acknowledge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mastership {
    /// No node holds a lease or can get one; `successor` is about to be promoted.
    Free { successor: Option<NodeId> },
    /// The master renews its lease.
    Serving { renewals: u64 },
    /// No renewal is granted any more. With `wait` a lease may have been granted in this epoch and not have run out yet.
    Deposed { successor: NodeId, wait: bool },
}

/// The record that the group has agreed on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    pub version: u16,
    /// A random number that tells this group from every other.
    pub group: u64,
    /// Raised by everything that changed the record.
    pub revision: u64,
    #[serde(with = "epoch")]
    pub epoch: Epoch,
    /// The master of this epoch, also when it has been deposed; `None` before the first promotion.
    pub master: Option<NodeId>,
    pub mastership: Mastership,
    /// Who has everything acknowledged at hot or above; the master does.
    pub sync_set: SyncMembers,
    pub members: BTreeMap<NodeId, Role>,
    pub lease: LeaseTerms,
    /// The epoch in which this master became master after another one; it may have restarted since.
    #[serde(default, with = "epoch")]
    pub master_since: Epoch,
    /// The newest epoch whose master was promoted although acknowledged commits might be lost.
    #[serde(default, with = "epoch", skip_serializing_if = "epoch::is_none")]
    pub accepted: Epoch,
    /// The attempt that the last promotion was, so that one sent twice is one promotion.
    pub attempt: u64,
    /// The number of the last change of the sync set in this epoch.
    pub sync_change: u64,
    /// How much of the trail each data node has on its disk, as the master last said. A node that has less was put back
    /// from an older copy, and is not promoted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub positions: BTreeMap<NodeId, Position>,
    /// The successor was named without a person: it is replaced when it is not promoted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub automatic: bool,
    /// By command no successor is named without a person.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub frozen: bool,
    /// What proves the pulses of its members, under record 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pulse_key: Option<PulseKey>,
}

/// What a node asks the group to agree on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// The first command of a group.
    Found {
        version: u16,
        group: u64,
        members: BTreeMap<NodeId, Role>,
        lease: LeaseTerms,
        /// With record 2.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pulse_key: Option<PulseKey>,
    },
    /// Ends the mastership of an epoch, in favour of a successor.
    Depose {
        #[serde(with = "epoch")]
        expected_epoch: Epoch,
        successor: NodeId,
        /// The successor need not be in the sync set: what only the old master has is given up.
        accept_loss: bool,
        /// No person has asked for it: it was decided on the record of this revision, and counts for no later one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seen: Option<u64>,
    },
    /// Makes a node master of the next epoch, at least `epoch_at_least` (its trail may have seen higher ones).
    Promote {
        node: NodeId,
        #[serde(with = "epoch")]
        expected_epoch: Epoch,
        #[serde(with = "epoch")]
        epoch_at_least: Epoch,
        /// How long it has waited since it saw the old master deposed, milliseconds of its clock.
        waited_ms: u64,
        accept_loss: bool,
        /// Tells this attempt from every other.
        attempt: u64,
        /// It has all that these had when the old lease was out.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        compared: BTreeSet<NodeId>,
        /// Record version and lease terms from this epoch on; as before where it names none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        becomes: Option<Becomes>,
    },
    /// Record 1 only.
    RenewLease {
        #[serde(with = "epoch")]
        epoch: Epoch,
        by: NodeId,
        /// What data nodes have on their disks: the master, once its trail is open in this epoch, and each standby as far
        /// as it has confirmed it.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        positions: BTreeMap<NodeId, u64>,
    },
    /// The master has stopped: its successor need not wait.
    Release {
        #[serde(with = "epoch")]
        epoch: Epoch,
        by: NodeId,
    },
    /// Record 2 only. The master has closed its lease page for good: this successor need not wait.
    HandOver {
        #[serde(with = "epoch")]
        epoch: Epoch,
        by: NodeId,
        successor: NodeId,
    },
    /// As the positions of RenewLease, without a renewal.
    TellPositions {
        #[serde(with = "epoch")]
        epoch: Epoch,
        by: NodeId,
        positions: BTreeMap<NodeId, u64>,
    },
    ShrinkSyncSet {
        #[serde(with = "epoch")]
        epoch: Epoch,
        by: NodeId,
        node: NodeId,
        /// Counts the changes that the master asked for in this epoch, from 1.
        change: u64,
    },
    GrowSyncSet {
        #[serde(with = "epoch")]
        epoch: Epoch,
        by: NodeId,
        node: NodeId,
        change: u64,
    },
    /// `needed` of these standbys have everything, and commits wait for so many of them, no matter which.
    NameQuorum {
        #[serde(with = "epoch")]
        epoch: Epoch,
        by: NodeId,
        standbys: BTreeSet<NodeId>,
        needed: usize,
        change: u64,
    },
    /// Names no successor without a person from now on, or permits that again. A release that does not know this command cannot apply
    /// it and stops: all members are of a release that does before it is given.
    Freeze { frozen: bool },
    /// Changes nothing; the answer is current.
    Look,
}

/// What a Promote changes for its epoch and later ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Becomes {
    pub version: u16,
    pub lease: LeaseTerms,
}

impl Command {
    /// The epoch whose mastership this command ends, unless it is refused.
    pub fn ends(&self) -> Option<Epoch> {
        match self {
            Command::Depose { expected_epoch: epoch, .. }
            | Command::HandOver { epoch, .. }
            | Command::Release { epoch, .. } => Some(*epoch),
            _ => None,
        }
    }
}

/// What came of a command: the record behind it, and why it was refused if it was.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Answer {
    pub record: Option<Record>,
    pub refusal: Option<Refusal>,
}

/// Applies a command. Refusals leave the record as it is.
pub fn apply(record: &mut Option<Record>, command: &Command) -> Result<(), Refusal> {
    let Some(record) = record else {
        *record = Some(found(command)?);
        return Ok(());
    };
    let mut next = record.clone();
    next.decide(command)?;
    if next != *record {
        next.revision += 1;
        *record = next;
    }
    Ok(())
}

fn found(command: &Command) -> Result<Record, Refusal> {
    let Command::Found { version, group, members, lease, pulse_key } = command else { return Err(Refusal::NotFounded) };
    let unusable = |why: String| Err(Refusal::Unusable(why));
    if !(RECORD_VERSION..=RECORD_VERSION_GRANTS).contains(version) {
        return unusable(format!(
            "its record has version {version}, this program writes up to {RECORD_VERSION_GRANTS}"
        ));
    }
    if members.len() > MEMBERS_MAX {
        return unusable(format!("it has {} members; the limit is {MEMBERS_MAX}", members.len()));
    }
    if !members.values().any(|role| *role == Role::Data) {
        return unusable("no member holds data".to_owned());
    }
    if let Some(flaw) = lease.flaw_under(*version) {
        return unusable(flaw);
    }
    Ok(Record {
        version: *version,
        group: *group,
        revision: 1,
        epoch: Epoch(0),
        master: None,
        mastership: Mastership::Free { successor: None },
        sync_set: SyncMembers::default(),
        members: members.clone(),
        lease: *lease,
        master_since: Epoch(0),
        accepted: Epoch(0),
        attempt: 0,
        sync_change: 0,
        positions: BTreeMap::new(),
        automatic: false,
        frozen: false,
        pulse_key: pulse_key.clone(),
    })
}

impl Record {
    fn decide(&mut self, command: &Command) -> Result<(), Refusal> {
        match command {
            Command::Look => Ok(()),
            Command::Freeze { frozen } => {
                self.frozen = *frozen;
                Ok(())
            }
            Command::Found { group, .. } if *group == self.group => Ok(()),
            Command::Found { .. } => Err(Refusal::OtherGroup),
            Command::Depose { expected_epoch, successor, accept_loss, seen } => {
                self.expect(*expected_epoch)?;
                if let Some(seen) = seen.filter(|seen| *seen != self.revision) {
                    return Err(Refusal::Moved { seen, found: self.revision });
                }
                self.eligible(*successor, *accept_loss)?;
                self.mastership = self.deposed_for(*successor);
                self.automatic = seen.is_some();
                Ok(())
            }
            Command::Promote { attempt, node, .. } if *attempt == self.attempt && self.master == Some(*node) => Ok(()),
            Command::Promote {
                node,
                expected_epoch,
                epoch_at_least,
                waited_ms,
                accept_loss,
                attempt,
                compared,
                becomes,
            } => {
                self.expect(*expected_epoch)?;
                self.eligible(*node, *accept_loss)?;
                self.lease_is_over_for(*node, *waited_ms)?;
                if !*accept_loss && !self.has_everything(*node, compared) {
                    return Err(Refusal::NotCompared(*node));
                }
                let next = self.epoch.0.checked_add(1).ok_or(Refusal::NoEpochLeft)?;
                if let Some(becomes) = becomes {
                    self.becomes(becomes)?;
                }
                self.epoch = Epoch(next).max(*epoch_at_least);
                if self.master != Some(*node) {
                    self.sync_set = SyncMembers::all([*node]);
                    self.master_since = self.epoch;
                    // What others have beyond the successor's trail is cut off there.
                    self.positions.retain(|of, _| of == node);
                }
                if *accept_loss {
                    self.positions.remove(node);
                    self.accepted = self.epoch;
                }
                self.master = Some(*node);
                self.mastership = Mastership::Serving { renewals: 0 };
                self.attempt = *attempt;
                self.sync_change = 0;
                self.automatic = false;
                Ok(())
            }
            Command::RenewLease { epoch, by, positions } => {
                if self.version != RECORD_VERSION {
                    return Err(Refusal::OtherRecord { needed: RECORD_VERSION, found: self.version });
                }
                *self.serving(*epoch, *by)? += 1;
                self.note_positions(*epoch, *by, positions)
            }
            Command::TellPositions { epoch, by, positions } => {
                self.serving(*epoch, *by)?;
                self.note_positions(*epoch, *by, positions)
            }
            Command::HandOver { epoch, by, successor } => self.hand_over(*epoch, *by, *successor),
            Command::Release { epoch, by } => self.release(*epoch, *by),
            Command::ShrinkSyncSet { epoch, by, node, change } => {
                self.serving(*epoch, *by)?;
                if self.master == Some(*node) {
                    return Err(Refusal::MasterStays);
                }
                self.is_newest(*change)?;
                self.sync_set.remove(*node);
                Ok(())
            }
            Command::GrowSyncSet { epoch, by, node, change } => {
                self.serving(*epoch, *by)?;
                if self.members.get(node) != Some(&Role::Data) {
                    return Err(Refusal::NotData(*node));
                }
                self.is_newest(*change)?;
                self.sync_set.insert(*node);
                Ok(())
            }
            Command::NameQuorum { epoch, by, standbys, needed, change } => {
                self.serving(*epoch, *by)?;
                if let Some(node) = standbys.iter().find(|node| self.members.get(node) != Some(&Role::Data)) {
                    return Err(Refusal::NotData(*node));
                }
                let bad_quorum = Refusal::BadQuorum { needed: *needed, standbys: standbys.len() };
                let quorum = SyncMembers::quorum(*by, standbys.clone(), *needed).ok_or(bad_quorum)?;
                self.is_newest(*change)?;
                self.sync_set = quorum;
                Ok(())
            }
        }
    }

    /// Positions never go back, not in a later epoch either: a master that begins one with less than it had lacks acknowledged
    /// commits. A renewal of the same epoch that hung may arrive late. A standby that really lost something is out of the sync
    /// set.
    fn note_positions(&mut self, epoch: Epoch, by: NodeId, positions: &BTreeMap<NodeId, u64>) -> Result<(), Refusal> {
        let members = &self.members;
        let of_data = |(node, _): &(&NodeId, &u64)| members.get(node) == Some(&Role::Data);
        for (node, lsn) in positions.iter().filter(of_data) {
            let told = Position { epoch, lsn: *lsn };
            let known = self.positions.get(node).copied();
            if let Some(known) = known.filter(|known| *node == by && known.epoch < epoch && *lsn < known.lsn) {
                return Err(Refusal::WentBack { by, told, known });
            }
            let is_newer = known.is_none_or(|known| known < told && known.lsn <= told.lsn);
            if is_newer || !self.sync_set.contains(*node) {
                self.positions.insert(*node, told);
            }
        }
        Ok(())
    }

    fn becomes(&mut self, becomes: &Becomes) -> Result<(), Refusal> {
        let flaw = if (self.version..=RECORD_VERSION_GRANTS).contains(&becomes.version) {
            becomes.lease.flaw_under(becomes.version)
        } else {
            Some(format!("the record has version {}, the next one would have {}", self.version, becomes.version))
        };
        (self.version, self.lease) = (becomes.version, becomes.lease);
        flaw.map_or(Ok(()), |flaw| Err(Refusal::BadTerms(flaw)))
    }

    fn hand_over(&mut self, epoch: Epoch, by: NodeId, successor: NodeId) -> Result<(), Refusal> {
        if self.version < RECORD_VERSION_GRANTS {
            return Err(Refusal::OtherRecord { needed: RECORD_VERSION_GRANTS, found: self.version });
        }
        self.expect(epoch)?;
        if self.master != Some(by) {
            return Err(Refusal::NotMaster { by });
        }
        let named = match self.mastership {
            Mastership::Serving { .. } => None,
            Mastership::Free { successor } => successor,
            Mastership::Deposed { successor, .. } => Some(successor),
        };
        if named.is_none() {
            self.eligible(successor, false)?;
        }
        self.mastership = Mastership::Free { successor: named.or(Some(successor)) };
        Ok(())
    }

    fn expect(&self, epoch: Epoch) -> Result<(), Refusal> {
        let stale = Refusal::StaleEpoch { expected: epoch.0, found: self.epoch.0 };
        if epoch == self.epoch { Ok(()) } else { Err(stale) }
    }

    /// Before the first promotion nothing has been acknowledged, so every data node will do.
    fn eligible(&self, node: NodeId, accept_loss: bool) -> Result<(), Refusal> {
        if self.members.get(&node) != Some(&Role::Data) {
            return Err(Refusal::NotData(node));
        }
        let is_one = self.master.is_none() || self.sync_set.contains(node);
        if is_one || accept_loss { Ok(()) } else { Err(Refusal::NotInSyncSet(node)) }
    }

    /// Whether a node has every acknowledged commit, if it has all that those in `compared` have.
    pub fn has_everything(&self, node: NodeId, compared: &BTreeSet<NodeId>) -> bool {
        self.master.is_none_or(|master| self.sync_set.proves(node, master, compared))
    }

    fn deposed_for(&self, successor: NodeId) -> Mastership {
        match self.mastership {
            Mastership::Free { .. } => Mastership::Free { successor: Some(successor) },
            Mastership::Serving { renewals } => {
                Mastership::Deposed { successor, wait: renewals > 0 || self.version >= RECORD_VERSION_GRANTS }
            }
            Mastership::Deposed { wait, .. } => Mastership::Deposed { successor, wait },
        }
    }

    fn lease_is_over_for(&self, node: NodeId, waited_ms: u64) -> Result<(), Refusal> {
        let (successor, wait) = match self.mastership {
            Mastership::Serving { .. } | Mastership::Free { successor: None } => return Err(Refusal::NotDeposed),
            Mastership::Free { successor: Some(successor) } => (successor, false),
            Mastership::Deposed { successor, wait } => (successor, wait),
        };
        if successor != node {
            return Err(Refusal::OtherSuccessor(successor));
        }
        // Under record 2 it counts from the youngest grant that voters report (crate::grant::Wait).
        let missing_ms = self.lease.wait_out_ms().saturating_sub(waited_ms);
        if wait && missing_ms > 0 { Err(Refusal::TooEarly { missing_ms }) } else { Ok(()) }
    }

    /// The renewals of the epoch, when `by` is its master and may still act as such.
    fn serving(&mut self, epoch: Epoch, by: NodeId) -> Result<&mut u64, Refusal> {
        self.expect(epoch)?;
        if self.master != Some(by) {
            return Err(Refusal::NotMaster { by });
        }
        match &mut self.mastership {
            Mastership::Serving { renewals } => Ok(renewals),
            Mastership::Deposed { successor, .. } => Err(Refusal::Deposed { successor: *successor }),
            Mastership::Free { .. } => Err(Refusal::Released),
        }
    }

    /// Refuses a change that is not newer; an equal number is a repetition of the last change.
    fn is_newest(&mut self, change: u64) -> Result<(), Refusal> {
        if change < self.sync_change {
            return Err(Refusal::Superseded);
        }
        self.sync_change = change;
        Ok(())
    }

    fn release(&mut self, epoch: Epoch, by: NodeId) -> Result<(), Refusal> {
        self.expect(epoch)?;
        if self.master != Some(by) {
            return Err(Refusal::NotMaster { by });
        }
        let successor = match self.mastership {
            Mastership::Free { successor } => successor,
            Mastership::Serving { .. } => None,
            Mastership::Deposed { successor, .. } => Some(successor),
        };
        self.mastership = Mastership::Free { successor };
        Ok(())
    }

    /// Whether `node` is master of `epoch` and has not been deposed.
    pub fn is_served_by(&self, node: NodeId, epoch: Epoch) -> bool {
        self.master == Some(node) && self.epoch == epoch && matches!(self.mastership, Mastership::Serving { .. })
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "record_grants_tests.rs"]
mod grants_tests;
