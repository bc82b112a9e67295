//! What a promotion may lose when the operator has accepted divergence, in words: what it is, and where it can be found
//! again.

use holdfast_types::{Epoch, Lsn};

/// What was known of the old master when the promotion was requested.
pub struct AcceptedLoss {
    /// Its address, in words.
    master: String,
    /// Its newest epoch that is known here.
    epoch: Epoch,
    /// When this server last heard from it, in words.
    linked: String,
}

impl AcceptedLoss {
    /// A server that follows `from`, whose chain ends at the master `root` (empty: not known). `linked`: when this
    /// server last heard from it.
    pub fn new(from: &str, root: &str, epoch: Epoch, linked: String) -> AcceptedLoss {
        let master = match root {
            "" => format!("the master that {from} follows"),
            root if root == from => format!("the master at {from}"),
            root => format!("the master at {root}, followed through {from},"),
        };
        AcceptedLoss { master, epoch, linked }
    }

    /// In words for the operator. Everything below `end` is on this server.
    pub fn describe(&self, end: Lsn) -> String {
        let AcceptedLoss { master, epoch, linked } = self;
        format!(
            "accepted loss: whatever {master} has in its trail from LSN {end} on, acknowledged or not, is not on this server; \
             its last epoch known here is {epoch}; {linked}. When that server comes back, holdfast rejoin writes what only it \
             has to lost-LSN.sql in its data directory"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_the_master_at_the_end_of_the_chain() {
        let of =
            |root: &str| AcceptedLoss::new("h:1", root, Epoch(3), "heard from at noon".to_owned()).describe(Lsn(0));
        assert!(of("h:1").contains("whatever the master at h:1 has"), "{}", of("h:1"));
        assert!(of("h:2").contains("whatever the master at h:2, followed through h:1, has"), "{}", of("h:2"));
        assert!(of("").contains("whatever the master that h:1 follows has"), "{}", of(""));
        assert!(of("").contains("epoch known here is 3; heard from at noon."));
    }
}
