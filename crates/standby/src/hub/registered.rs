//! A running link as the hub knows it: it reports acks, positions and round trips here.
//!
//! Failure: what a link reports after its standby has reconnected is ignored.

use super::Hub;
use super::orders::Orders;
use super::state::Connected;
use crate::identity::Ack;
use holdfast_types::Lsn;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Instant;

/// A shipping link in the list of connected ones; dropping it removes it.
pub(crate) struct Registered {
    pub(crate) hub: Arc<Hub>,
    pub(crate) name: String,
    pub(super) link: u64,
    pub(crate) orders: Arc<Orders>,
    /// The standby starts before a position that it has confirmed.
    pub(super) fell_back: bool,
}

impl Registered {
    /// Records a checked ack. It does not count if the standby has reconnected since.
    pub(crate) fn acked(&self, ack: Ack) {
        let hub = &self.hub;
        let sent = hub.master.trail().durable();
        let mut state = hub.state.lock();
        let Some(connected) = state.standbys.get_mut(&self.name).filter(|c| c.link == self.link) else { return };
        match connected.take(ack) {
            None => hub.governor.connected(&self.name, sent, ack.applied),
            Some(_) => hub.governor.applied(&self.name, sent, ack.applied),
        }
        if !connected.counts && ack.durable >= connected.counts_from {
            connected.counts = true;
            tracing::info!(target: "holdfast::catchup", standby = %self.name, lsn = %ack.durable, "a standby has caught up");
        }
        state.confirm(&self.name, ack.durable);
        let news = state.recount();
        drop(state);
        hub.tell(news);
    }

    pub(crate) fn sent(&self, sent: Lsn) {
        self.hub.state.lock().ages.note(sent, Instant::now());
        self.update(|connected| connected.sent = sent);
    }

    pub(crate) fn round_trip(&self, us: u64) {
        self.update(|connected| connected.rtt_us = Some(us));
    }

    pub(crate) fn progress(&self) -> watch::Receiver<u64> {
        self.hub.progress.subscribe()
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Connected)) {
        let mut state = self.hub.state.lock();
        state.standbys.get_mut(&self.name).filter(|connected| connected.link == self.link).map(change);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        if let Some(connected) = state.standbys.get(&self.name).filter(|connected| connected.link == self.link) {
            let silent = connected.silent;
            state.standbys.remove(&self.name);
            self.hub.governor.disconnected(&self.name);
            let news = state.recount();
            if news.in_sync == Some(false) {
                state.silent_before = silent;
            }
            drop(state);
            self.hub.tell(news);
        }
    }
}
