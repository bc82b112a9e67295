//! The runs of other nodes that have ended, by the starts of their directories that this node has met ([`crate::starts`]).
//!
//! Where a machine was copied while it ran, both copies can be reached. The group takes part with the one that was started last, and
//! refuses the other one when that connects. Its grants must not count until then: voters that are asked for their votes and voters
//! that grant leases have to be the same.
//!
//! Failure: a node that is started more often than [`KEPT`] times after it was copied is no longer told from its original here.

use std::sync::atomic::{AtomicU64, Ordering};

use super::voters::NODES_MAX;

/// The runs of a node that are remembered.
const KEPT: usize = 16;

/// Written by the control plane's thread, read by the pulse thread.
pub struct EndedRuns([[AtomicU64; KEPT]; NODES_MAX]);

impl Default for EndedRuns {
    fn default() -> EndedRuns {
        EndedRuns(std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))))
    }
}

impl EndedRuns {
    /// The node in that slot was started again after these runs, the latest first.
    pub fn note(&self, slot: usize, ended: &[u64]) {
        let Some(of_node) = self.0.get(slot) else { return };
        for (place, run) in of_node.iter().zip(ended) {
            place.store(*run, Ordering::Release);
        }
    }

    pub fn has_ended(&self, slot: usize, incarnation: u64) -> bool {
        self.0.get(slot).is_some_and(|runs| runs.iter().any(|run| run.load(Ordering::Acquire) == incarnation))
    }
}
