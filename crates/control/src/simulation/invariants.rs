//! What must hold of all nodes at every moment.

use std::collections::BTreeMap;

use holdfast_types::Epoch;

use crate::id::NodeId;
use crate::lease::Lease;
use crate::record::Record;

/// What has been seen in a history so far.
#[derive(Default)]
pub struct Witnessed {
    masters: BTreeMap<Epoch, NodeId>,
    records: BTreeMap<u64, Record>,
    /// What each run of a node has shown last.
    shown: BTreeMap<(NodeId, u64), u64>,
    newest: Epoch,
}

impl Witnessed {
    /// A record that some run of a node shows or an operation returned.
    pub fn record(&mut self, run: Option<(NodeId, u64)>, record: &Record) -> Result<(), String> {
        if let Some(run) = run {
            let before = self.shown.insert(run, record.revision).unwrap_or(0);
            if before > record.revision {
                return Err(format!("{run:?} went back from revision {before} to {}", record.revision));
            }
        }
        let first = self.records.entry(record.revision).or_insert_with(|| record.clone());
        if first != record {
            return Err(format!("two records of one revision:\n{first:?}\n{record:?}"));
        }
        if let Some(master) = record.master {
            let first = *self.masters.entry(record.epoch).or_insert(master);
            if first != master {
                return Err(format!("epoch {} has two masters: {first} and {master}", record.epoch));
            }
        }
        self.newest = self.newest.max(record.epoch);
        Ok(())
    }

    /// The leases of all nodes that are not dead, paused ones too: they would use them when resumed.
    pub fn leases(&self, leases: &[(NodeId, Lease)]) -> Result<usize, String> {
        let valid: Vec<_> = leases.iter().filter(|(_, lease)| lease.valid_now()).collect();
        if valid.len() > 1 {
            return Err(format!("two nodes hold a lease at one moment: {valid:?}"));
        }
        for (node, lease) in &valid {
            if lease.epoch() != self.newest {
                return Err(format!("{node} holds {lease:?} though epoch {} has begun", self.newest));
            }
            if self.masters.get(&lease.epoch()).is_some_and(|master| master != node) {
                return Err(format!("{node} holds {lease:?} of another's epoch"));
            }
        }
        Ok(valid.len())
    }

    /// The masters of epochs after this one, as far as anybody was told.
    pub fn masters_since(&self, epoch: Epoch) -> Vec<(Epoch, NodeId)> {
        self.masters.iter().filter(|(of, _)| **of > epoch).map(|(of, master)| (*of, *master)).collect()
    }

    /// The newest revision that anybody has been told.
    pub fn revision(&self) -> u64 {
        self.records.keys().next_back().copied().unwrap_or(0)
    }
}
