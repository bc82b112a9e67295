//! The control plane of a pair without a witness: this node's own word, kept in a file.
//!
//! Nobody grants a lease, so a master holds an unlimited one, and nothing deposes it from outside. That is why a
//! promotion needs [`Proof`] that the old master is stopped, or the operator's word that divergence is accepted. The
//! record is this node's; the other one of the pair has its own, and learns of a new epoch from the boxcars.
//!
//! The file `manual` is one record (see [`crate::frames`]) of JSON, written beside, synced and renamed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use holdfast_seams::Disk;
use holdfast_types::Epoch;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::{BootClock, LeaseClock};
use crate::error::ControlError;
use crate::id::NodeId;
use crate::lease::{Lease, LeaseTerms};
use crate::plane::{ControlPlane, Promotion};
use crate::record::{Command, RECORD_VERSION, Record, Role, apply};
use crate::{files, frames};

const NAME: &str = "manual";
const NAME_NEW: &str = "manual.new";

/// Why the old master cannot acknowledge any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// None was given: only a node that was the last master by its own record, or the first of all, is promoted.
    None,
    /// The old master has been shown to be stopped: it said so itself, orderly, or its machine was fenced.
    Stopped,
    /// The operator accepts, in so many words, that both may acknowledge.
    DivergenceAccepted,
}

/// Promotion by hand.
pub struct Manual {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    me: NodeId,
    clock: Arc<dyn LeaseClock>,
    proof: Mutex<Proof>,
    record: watch::Sender<Option<Arc<Record>>>,
    lease: Mutex<Lease>,
    held: watch::Sender<bool>,
}

impl Manual {
    /// Opens or makes the record of `me`, one of `members`.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, me: NodeId, members: &[NodeId]) -> Result<Manual, ControlError> {
        disk.create_dir(dir).map_err(ControlError::io("create", dir))?;
        let record = match read(&*disk, dir)? {
            Some(record) => record,
            None => {
                let members: BTreeMap<NodeId, Role> =
                    members.iter().chain([&me]).map(|node| (*node, Role::Data)).collect();
                let mut record = None;
                let lease = LeaseTerms::default();
                apply(&mut record, &Command::Found { version: RECORD_VERSION, group: 0, members, lease })?;
                record.ok_or(ControlError::NoQuorum)?
            }
        };
        let clock: Arc<dyn LeaseClock> = Arc::new(BootClock);
        Ok(Manual {
            disk,
            dir: dir.to_path_buf(),
            me,
            proof: Mutex::new(Proof::None),
            record: watch::Sender::new(Some(Arc::new(record))),
            lease: Mutex::new(Lease::new(Epoch(0), clock.clone())),
            held: watch::Sender::new(false),
            clock,
        })
    }

    /// What the next promotion may rely on; it is used up by it.
    pub fn prove(&self, proof: Proof) {
        *self.proof.lock() = proof;
    }

    /// Another node has become master in that epoch, its boxcars say: what this one knew is out of date.
    pub fn learned(&self, epoch: Epoch, master: NodeId) -> Result<(), ControlError> {
        self.change(|record| {
            if epoch > record.epoch {
                (record.epoch, record.master) = (epoch, Some(master));
                record.sync_set = [master].into();
            }
            Ok(())
        })
        .map(drop)
    }

    fn change(&self, change: impl FnOnce(&mut Record) -> Result<(), ControlError>) -> Result<Record, ControlError> {
        let mut outcome = Err(ControlError::NoQuorum);
        self.record.send_if_modified(|shown| {
            let Some(old) = shown.as_deref() else { return false };
            let mut next = old.clone();
            outcome = change(&mut next).and_then(|()| {
                if next != *old {
                    next.revision += 1;
                    write(&*self.disk, &self.dir, &next)?;
                }
                Ok(next)
            });
            let changed = outcome.as_ref().is_ok_and(|next| next != old);
            if let (Ok(next), true) = (&outcome, changed) {
                *shown = Some(Arc::new(next.clone()));
            }
            changed
        });
        outcome
    }

    /// Through the same decisions as the replicated record: deposed, released by the proof, promoted.
    fn promote_now(&self, promotion: Promotion) -> Result<Epoch, ControlError> {
        let Promotion { node, expected_epoch, epoch_at_least, .. } = promotion;
        if node != self.me {
            return Err(ControlError::NeedsProof(format!("without a witness {node} is promoted on {node} itself")));
        }
        let proof = std::mem::replace(&mut *self.proof.lock(), Proof::None);
        let record = self.change(|record| {
            let other = record.master.filter(|master| *master != self.me);
            if let (Some(other), Proof::None) = (other, proof) {
                return Err(ControlError::NeedsProof(format!(
                    "without a witness nobody can tell whether {other} still acknowledges; show that it is stopped, \
                     or promote with --accept-divergence"
                )));
            }
            // Which commits the other one has is not known here; the caller has compared the trails.
            let accept_loss = true;
            let mut agreed = Some(record.clone());
            apply(&mut agreed, &Command::Depose { expected_epoch, successor: node, accept_loss })?;
            if let Some(by) = record.master {
                apply(&mut agreed, &Command::Release { epoch: expected_epoch, by })?;
            }
            let attempt = record.attempt + 1;
            let promote = Command::Promote { node, expected_epoch, epoch_at_least, waited_ms: 0, accept_loss, attempt };
            apply(&mut agreed, &promote)?;
            agreed.into_iter().for_each(|agreed| *record = agreed);
            Ok(())
        })?;
        let lease = Lease::unlimited(record.epoch, self.clock.clone());
        std::mem::replace(&mut *self.lease.lock(), lease).give_up();
        self.held.send_replace(true);
        Ok(record.epoch)
    }

    fn command(&self, command: Command) -> Result<(), ControlError> {
        let applied = self.change(|record| {
            let mut agreed = Some(record.clone());
            apply(&mut agreed, &command)?;
            agreed.into_iter().for_each(|agreed| *record = agreed);
            Ok(())
        });
        applied.map(drop)
    }
}

fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Record>, ControlError> {
    let path = dir.join(NAME);
    if disk.metadata(&path).map_err(ControlError::io("look at", &path))?.is_none() {
        return Ok(None);
    }
    let bytes = files::read(disk, &path)?;
    let damage = |what: String| ControlError::Damage { file: path.clone(), offset: 0, what };
    let frame = frames::get(&bytes, 0).ok_or_else(|| damage("its checksum does not fit its bytes".to_owned()))?;
    let record: Record = serde_json::from_slice(frame.text).map_err(|error| damage(error.to_string()))?;
    if record.version > RECORD_VERSION {
        return Err(ControlError::Newer { file: path, found: record.version, known: RECORD_VERSION });
    }
    Ok(Some(record))
}

fn write(disk: &dyn Disk, dir: &Path, record: &Record) -> Result<(), ControlError> {
    let text = serde_json::to_vec(record).map_err(|error| ControlError::Stopped(format!("encoding: {error}")))?;
    let mut bytes = Vec::new();
    frames::put(&mut bytes, 1, 0, &text);
    files::replace(disk, dir, NAME_NEW, NAME, &bytes)
}

impl ControlPlane for Manual {
    fn record(&self) -> Option<Arc<Record>> {
        self.record.borrow().clone()
    }

    fn watch(&self) -> watch::Receiver<Option<Arc<Record>>> {
        self.record.subscribe()
    }

    fn look(&self) -> BoxFuture<'_, Result<Record, ControlError>> {
        Box::pin(async { self.change(|_| Ok(())) })
    }

    fn lease(&self) -> Lease {
        self.lease.lock().clone()
    }

    fn lease_held(&self) -> watch::Receiver<bool> {
        self.held.subscribe()
    }

    fn promote(&self, promotion: Promotion) -> BoxFuture<'_, Result<Epoch, ControlError>> {
        Box::pin(async move { self.promote_now(promotion) })
    }

    fn shrink(&self, epoch: Epoch, node: NodeId) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(async move { self.command(Command::ShrinkSyncSet { epoch, by: self.me, node }) })
    }

    fn grow(&self, epoch: Epoch, node: NodeId) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(async move { self.command(Command::GrowSyncSet { epoch, by: self.me, node }) })
    }

    fn release(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(async move {
            let lease = self.lease.lock().clone();
            if lease.epoch() == epoch {
                lease.give_up();
                self.held.send_replace(false);
            }
            self.command(Command::Release { epoch, by: self.me })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_seams::testing::FaultDisk;

    fn node(name: &str) -> NodeId {
        name.parse().unwrap()
    }

    fn open(disk: &FaultDisk, me: &str) -> Manual {
        Manual::open(Arc::new(disk.clone()), Path::new("/control"), node(me), &[node("a"), node("b")]).unwrap()
    }

    fn promotion(me: &str, epoch: u32) -> Promotion {
        let (expected_epoch, epoch_at_least) = (Epoch(epoch), Epoch(5));
        Promotion { node: node(me), expected_epoch, epoch_at_least, accept_loss: false }
    }

    #[tokio::test]
    async fn a_restarted_master_needs_no_proof_and_gets_a_new_epoch() {
        let disk = FaultDisk::new(1);
        let manual = open(&disk, "a");
        assert!(!manual.lease().valid_now());
        assert_eq!(manual.promote(promotion("a", 0)).await.unwrap(), Epoch(5));
        let lease = manual.lease();
        assert!(lease.valid_now() && *manual.lease_held().borrow());
        manual.grow(Epoch(5), node("b")).await.unwrap();
        drop(manual);
        let manual = open(&disk, "a");
        assert!(!manual.lease().valid_now(), "a lease does not outlive its process");
        assert_eq!(manual.promote(promotion("a", 5)).await.unwrap(), Epoch(6));
        manual.release(Epoch(6)).await.unwrap();
        assert!(!manual.lease().valid_now());
    }

    #[tokio::test]
    async fn the_other_one_needs_proof_once_for_each_promotion() {
        let disk = FaultDisk::new(1);
        let manual = open(&disk, "b");
        manual.learned(Epoch(7), node("a")).unwrap();
        let refused = manual.promote(promotion("b", 7)).await.unwrap_err();
        assert!(refused.to_string().contains("--accept-divergence"), "{refused}");
        manual.prove(Proof::Stopped);
        assert_eq!(manual.promote(promotion("b", 7)).await.unwrap(), Epoch(8));
        manual.learned(Epoch(9), node("a")).unwrap();
        assert!(manual.promote(promotion("b", 9)).await.is_err(), "the proof has been used up");
        assert!(manual.promote(promotion("a", 9)).await.is_err());
    }
}
