//! What is told of a promotion for which the operator has accepted divergence: what may be lost by it, and where it will
//! be found again.

use super::Following;
use holdfast_types::{Epoch, Lsn};

/// What was known of the old master when the promotion was asked for.
pub struct GivenUp {
    /// Where it is.
    master: String,
    /// The newest epoch of it that is known here.
    epoch: Epoch,
    /// When it was last heard of.
    linked: String,
}

impl GivenUp {
    /// Of the master that is followed, which is in `epoch` as far as this server knows.
    pub fn of(following: &Following, epoch: Epoch) -> GivenUp {
        let (from, root) = (following.master(), following.root());
        let master = match root.as_str() {
            "" => format!("the master that {from} follows"),
            root if root == from => format!("the master at {from}"),
            root => format!("the master at {root}, followed by way of {from},"),
        };
        GivenUp { master, epoch, linked: following.linked() }
    }

    /// For the operator. What is below `end` is here.
    pub fn told(&self, end: Lsn) -> String {
        let GivenUp { master, epoch, linked } = self;
        format!(
            "Given up is what {master} may have in its trail from LSN {end} on, of epoch {epoch} as far as is known here, \
             acknowledged or not; {linked}. When that server is brought back, holdfast rejoin writes what only it had to a \
             file in its data directory, lost-LSN.sql"
        )
    }
}
