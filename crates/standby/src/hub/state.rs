//! What the hub knows: the connected standbys, what commits have reached on them, and which are stopped.
//!
//! Failure: none; positions only grow.

use super::orders::Orders;
use crate::ages::Ages;
use crate::identity::Ack;
use crate::sync_set::{Reached, SyncSet};
use holdfast_types::Lsn;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The largest number of names whose last ack is remembered.
const CONFIRMED_MAX: usize = 1000;

pub(super) struct State {
    pub sync_set: SyncSet,
    pub reached: Reached,
    /// Whether enough standbys of the sync set acknowledge.
    pub in_sync: bool,
    /// How long the standby whose link ended last had been silent, if there have been too few since.
    pub silent_before: Duration,
    pub ages: Ages,
    pub standbys: BTreeMap<String, Connected>,
    /// What each standby, connected or not, has confirmed to be on its disk; for at most [`CONFIRMED_MAX`] standbys.
    pub confirmed: BTreeMap<String, Lsn>,
    /// Where each standby's trail ended when it last reported that, for the status; for at most [`CONFIRMED_MAX`] standbys. It may
    /// be ahead of this trail.
    pub ends: BTreeMap<String, Lsn>,
    /// Numbers links in the order in which they connected.
    pub links: u64,
    /// Standbys whose nodes count as lost.
    pub lost: BTreeSet<String>,
    /// Standbys that the operator stopped: refused until started again.
    pub stopped: BTreeSet<String>,
    pub all_stopped: bool,
}

pub(super) struct Connected {
    pub link: u64,
    pub instance: u64,
    pub address: String,
    pub orders: Arc<Orders>,
    pub ack: Option<Ack>,
    /// The standby counts for the sync set once it has this much on its disk: what was durable here when it connected.
    /// Until then it catches up, and its base copy may be incomplete.
    pub counts_from: Lsn,
    pub counts: bool,
    pub sent: Lsn,
    pub rtt_us: Option<u64>,
    /// Its link ends because nothing was heard from it for this long.
    pub silent: Duration,
    pub loss: Loss,
}

/// Whether the acks of a link are those of a node that counts as lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Loss {
    /// They are not.
    No,
    /// The node was lost while this link was there. What it makes durable from now on proves that the node lives: only its pulses are
    /// lost then.
    Unproven,
    /// The link was made by a node that counts as lost: it flaps, and is on probation.
    OnProbation,
}

impl Connected {
    /// Whether commits count with this standby's acks.
    pub fn counts_now(&self) -> bool {
        self.counts && self.loss == Loss::No
    }

    /// Takes an ack; returns the one before it.
    pub fn take(&mut self, ack: Ack) -> Option<Ack> {
        let before = self.ack.replace(ack);
        if self.loss == Loss::Unproven && before.is_none_or(|before| before.durable < ack.durable) {
            self.loss = Loss::No;
        }
        before
    }
}

pub(super) fn remember(positions: &mut BTreeMap<String, Lsn>, standby: &str, lsn: Lsn) {
    if positions.len() < CONFIRMED_MAX || positions.contains_key(standby) {
        positions.insert(standby.to_owned(), lsn);
    }
}

/// What an ack, a connection or a setting changed.
pub(super) struct News {
    pub reached: Option<Reached>,
    pub in_sync: Option<bool>,
}

impl State {
    pub fn new(sync_set: SyncSet) -> State {
        State {
            sync_set,
            reached: Reached::default(),
            in_sync: false,
            silent_before: Duration::ZERO,
            ages: Ages::default(),
            standbys: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            ends: BTreeMap::new(),
            links: 0,
            lost: BTreeSet::new(),
            stopped: BTreeSet::new(),
            all_stopped: false,
        }
    }

    /// These standbys' nodes are lost, and no others.
    pub fn set_lost(&mut self, lost: BTreeSet<String>) {
        for (name, connected) in &mut self.standbys {
            match (self.lost.contains(name), lost.contains(name)) {
                (false, true) => connected.loss = Loss::Unproven,
                (_, false) => connected.loss = Loss::No,
                (true, true) => {}
            }
        }
        self.lost = lost;
    }

    pub fn confirm(&mut self, standby: &str, durable: Lsn) {
        remember(&mut self.confirmed, standby, durable);
        remember(&mut self.ends, standby, durable);
    }

    /// Combines the acks again. Positions only grow: a standby that disconnects takes nothing back.
    pub fn recount(&mut self) -> News {
        let counts = self.standbys.iter().filter(|(_, connected)| connected.counts_now());
        let acks = counts.filter_map(|(name, connected)| Some((name.as_str(), connected.ack?)));
        let now = self.sync_set.reached(acks);
        let in_sync = now.is_some();
        let reached = self.reached.max(now.unwrap_or_default());
        if in_sync != self.in_sync {
            self.silent_before = Duration::ZERO;
        }
        News {
            in_sync: (in_sync != std::mem::replace(&mut self.in_sync, in_sync)).then_some(in_sync),
            reached: (reached != std::mem::replace(&mut self.reached, reached)).then_some(reached),
        }
    }
}
