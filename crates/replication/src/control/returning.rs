//! The master to which a server returns by itself, where a supervisor runs the server: no operator has to do that.

use super::{Control, RETRY};
use holdfast_control::{Mastership, NodeId, Record};
use holdfast_types::Epoch;

/// What the group's record says of the master to follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The epoch in which it became master in place of another node.
    pub master_since: Epoch,
    /// The newest epoch whose master was promoted although commits might be lost.
    pub accepted: Epoch,
}

impl Terms {
    fn of(record: &Record) -> Terms {
        Terms { master_since: record.master_since, accepted: record.accepted }
    }
}

/// A master that serves, and what an unattended return to it has to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServingMaster {
    pub node: NodeId,
    pub epoch: Epoch,
    /// Where it takes links, HOST:PORT.
    pub link: String,
    pub terms: Terms,
}

impl Control {
    /// Whether this server is started again by its supervisor, and may return by itself.
    pub fn is_supervised(&self) -> bool {
        self.is_supervised
    }

    /// The record as this node knows it, if another node is the serving master of a newer epoch.
    pub(super) fn serving_other(&self, epoch: Epoch) -> Option<NodeId> {
        let record = self.handle.record()?;
        other_that_serves(&record, self.me).filter(|_| record.epoch > epoch)
    }

    /// Waits until the group has a serving master that takes links; `None`: this node is the last master again, so it need not
    /// return.
    pub async fn master_to_return_to(&self) -> Option<ServingMaster> {
        let mut warned = false;
        loop {
            let found = self.handle.look().await;
            match &found {
                Ok(record) if record.master.is_none_or(|master| master == self.me) => return None,
                Ok(record) => {
                    let node = other_that_serves(record, self.me);
                    let link = match node {
                        Some(node) => self.link_of(node).await.ok().flatten(),
                        None => None,
                    };
                    if let (Some(node), Some(link)) = (node, link) {
                        let (epoch, terms) = (record.epoch, Terms::of(record));
                        return Some(ServingMaster { node, epoch, link, terms });
                    }
                }
                Err(_) => {}
            }
            if !std::mem::replace(&mut warned, true) {
                let why = found.map_or_else(
                    |error| error.to_string(),
                    |record| {
                        let master = record.master.map_or_else(String::new, |master| master.to_string());
                        format!("{master} was the last one, of epoch {}", record.epoch)
                    },
                );
                tracing::warn!("this server waits for a serving master to return to: {why}");
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Reports the return, or why there is none, to this node's supervisor, for its events.
    pub fn returned(&self, is_done: bool, text: &str) {
        self.handle.returned(is_done, text);
    }
}

fn other_that_serves(record: &Record, me: NodeId) -> Option<NodeId> {
    let serves = matches!(record.mastership, Mastership::Serving { .. });
    record.master.filter(|master| serves && *master != me)
}
