//! What the link needs from a standby.

use std::time::Duration;

use holdfast_trail::{ReceiveError, Shipped, Trail};
use holdfast_types::{Epoch, Lsn};
use tokio::sync::watch;

use crate::identity::{Identity, Tip};
use crate::mastership::Lineage;
use crate::message::Welcome;

/// What the link is doing, for the operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkPhase {
    Connecting,
    Pairing {
        master: String,
    },
    /// Boxcars arrive from this position on; the master's trail ended at `to` when that began.
    Following {
        master: String,
        from: Lsn,
        to: Lsn,
    },
    /// The link has ended; the standby waits for the next attempt.
    Waiting {
        why: String,
        pause: Duration,
    },
}

/// The following side of a link.
pub trait Standby: Send + Sync + 'static {
    /// The standby's name in the master's sync set and slot.
    fn name(&self) -> &str;

    fn identity(&self) -> Identity;

    fn trail(&self) -> &Trail;

    /// The newest epoch that this node has learned from any source: its trail, or the record of a control plane. A master of
    /// an older epoch was deposed, and nothing more of it is taken.
    fn newest_epoch(&self) -> Epoch {
        self.trail().epoch()
    }

    /// The end of the master's trail at which the base copy was taken, until this trail reaches it.
    fn anchor(&self) -> Option<Tip>;

    /// Nothing below this position may be cut off: it is in the databases, or known to be durable at the master.
    fn settled(&self) -> Lsn;

    /// Called with what the followed node reports about itself, before anything of it is taken.
    fn learned(&self, _greeting: &Welcome) {}

    /// How the history of the master that greets belongs to the end of this node's trail. By default the master of the same epoch
    /// wrote that end, and has to have it.
    fn lineage(&self, greeting: &Welcome) -> Lineage {
        let wrote_it = greeting.follows.is_none() && greeting.identity.epoch == self.identity().epoch;
        if wrote_it { Lineage::WroteIt } else { Lineage::Continues }
    }

    /// Called when everything below `end` has arrived; after this it is acknowledged to the master as received. It is
    /// made durable in any case, even if the link ends, unless this node fails.
    fn received(&self, _end: Lsn) {}

    /// Makes boxcars durable, in order. Called from a thread that may block, never concurrently.
    fn receive(&self, boxcars: &[Shipped]) -> Result<(), ReceiveError> {
        self.trail().receive(boxcars)
    }

    /// Called when everything below `lsn` is durable at the master: it may be applied and served.
    fn allow_apply(&self, lsn: Lsn);

    /// The position below which everything is in the databases, with notification of changes.
    fn applied(&self) -> watch::Receiver<Lsn>;

    /// Called whenever what the link is doing changes: for the status, the log and the operator's command.
    fn changed(&self, phase: &LinkPhase);
}
