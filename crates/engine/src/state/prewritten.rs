//! Fragments of a large transaction that are in the trail before the writer has its images.

use holdfast_types::TxnId;
use std::sync::Arc;

/// The database that the fragments belong to.
pub trait FragmentOwner: Send + Sync {
    /// Records in the trail that a transaction's fragments will never be used.
    fn drop_fragments(self: Arc<Self>, txn: TxnId);
}

/// Fragments in the trail to which no batch record refers yet. They are dropped there unless taken.
pub struct Prewritten {
    owner: Arc<dyn FragmentOwner>,
    txn: TxnId,
    /// The end of each fragment's operations in the images.
    ends: Vec<usize>,
}

impl Prewritten {
    /// No fragments yet, of the transaction `txn`.
    pub fn new(owner: Arc<dyn FragmentOwner>, txn: TxnId) -> Prewritten {
        Prewritten { owner, txn, ends: Vec::new() }
    }

    /// The number of fragments.
    pub fn count(&self) -> u32 {
        self.ends.len() as u32
    }

    /// Records that the next fragment, with this many bytes of operations, may be in the trail from here on.
    pub fn add(&mut self, bytes: usize) {
        self.ends.push(self.ends.last().unwrap_or(&0) + bytes);
    }

    /// Takes the transaction and the end of each fragment in the images. The caller drops them, or refers to them.
    pub fn take(mut self) -> (TxnId, Vec<usize>) {
        (self.txn, std::mem::take(&mut self.ends))
    }
}

impl Drop for Prewritten {
    fn drop(&mut self) {
        if !self.ends.is_empty() {
            self.owner.clone().drop_fragments(self.txn);
        }
    }
}
