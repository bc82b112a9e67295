//! What an operator orders over a link: stop shipping to a standby, let it follow again, forget it.
//!
//! Failure: a refusal with the reason and the next step; nothing is changed then.

use super::Hub;
use super::orders::Order;
use super::state::State;
use crate::refusal::{Reason, Refusal};
use std::time::Duration;
use tokio::time::Instant;

/// The time that an operator's stop waits for the standbys to receive the rest, and how often it checks.
const STOP_MAX: Duration = Duration::from_secs(10);
const STOP_LOOK: Duration = Duration::from_millis(20);

impl Hub {
    pub(super) fn check_stopped(&self, name: &str) -> Result<(), Refusal> {
        let state = self.state.lock();
        if !state.all_stopped && !state.stopped.contains(name) {
            return Ok(());
        }
        let message = format!("shipping to {name} is stopped on {}", self.master.name());
        Err(Refusal::new(Reason::Stopped, message, "Start it there with: holdfast standby start"))
    }

    /// Ends shipping in order: everything written so far is sent first. `None` means to all standbys, as before the
    /// server stops.
    pub fn stop(&self, standby: Option<&str>) {
        let mut state = self.state.lock();
        match standby {
            Some(name) => _ = state.stopped.insert(name.to_owned()),
            None => state.all_stopped = true,
        }
        let concerned = state.standbys.iter().filter(|(name, _)| standby.is_none_or(|standby| standby == *name));
        concerned.for_each(|(_, connected)| connected.orders.give(Order::Stop));
    }

    /// Lets a stopped standby, or all stopped standbys, follow again.
    pub fn start(&self, standby: Option<&str>) {
        let mut state = self.state.lock();
        match standby {
            Some(name) => _ = state.stopped.remove(name),
            None => {
                state.all_stopped = false;
                state.stopped.clear();
            }
        }
    }

    /// `holdfast standby stop`: waits until the standbys have received everything and have disconnected.
    pub(super) async fn stop_for_operator(&self, standby: Option<&str>) -> Result<String, Refusal> {
        if standby.is_none()
            && let Some(done) = self.master.follow_on(false)
        {
            return done;
        }
        if let Some(name) = standby {
            self.known(name)?;
        }
        self.stop(standby);
        let here = |state: &State| state.standbys.keys().any(|name| standby.is_none_or(|standby| standby == name));
        let until = Instant::now() + STOP_MAX;
        while here(&self.state.lock()) && Instant::now() < until {
            tokio::time::sleep(STOP_LOOK).await;
        }
        let who = standby.unwrap_or("all standbys");
        let still = if here(&self.state.lock()) { "; the link has not ended yet" } else { "" };
        let waits = if self.is_in_sync() { "" } else { "; commits above level local wait for standbys" };
        Ok(format!("shipping to {who} is stopped at LSN {}{still}{waits}", self.master.trail().durable()))
    }

    /// `holdfast standby start`: lets standbys follow again.
    pub(super) fn start_for_operator(&self, standby: Option<&str>) -> Result<String, Refusal> {
        if standby.is_none()
            && let Some(done) = self.master.follow_on(true)
        {
            return done;
        }
        if let Some(name) = standby
            && !self.state.lock().stopped.contains(name)
        {
            self.known(name)?;
        }
        self.start(standby);
        Ok(format!("{} may follow", standby.unwrap_or("all standbys")))
    }

    /// `holdfast standby forget`: keeps no more trail for a standby.
    pub(super) fn forget_for_operator(&self, standby: &str) -> Result<String, Refusal> {
        if self.state.lock().standbys.contains_key(standby) {
            let message = format!("{standby} follows this server");
            return Err(Refusal::new(Reason::NotAdmitted, message, "Stop its server first"));
        }
        if self.master.forget(standby)? {
            return Ok(format!("no trail is kept for {standby} any longer"));
        }
        let message = format!("no trail is kept for a standby named {standby}");
        Err(Refusal::new(Reason::NotAdmitted, message, "List the standbys with: holdfast standby status"))
    }

    /// Refuses the name of a standby that does not follow now.
    fn known(&self, name: &str) -> Result<(), Refusal> {
        let state = self.state.lock();
        if state.standbys.contains_key(name) || state.stopped.contains(name) {
            return Ok(());
        }
        let names: Vec<&str> = state.standbys.keys().map(String::as_str).collect();
        let message = format!("no standby named {name} follows {}", self.master.name());
        let advice =
            format!("Standbys that follow: {}", if names.is_empty() { "none".to_owned() } else { names.join(", ") });
        Err(Refusal::new(Reason::Failed, message, advice))
    }
}
