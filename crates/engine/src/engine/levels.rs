//! What commits wait for, told from outside: acks of standbys, the lease, the governor.

use super::*;
use crate::gate::{GateInfo, Right};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Asked before each boxcar, with the bytes of the one before: how long MAIN waits first. Called with no lock held.
pub type Delay = Arc<dyn Fn(u64) -> Duration + Send + Sync>;

impl Engine {
    /// Standbys, as many as are asked for, have everything below `lsn` at this level and those under it. Answers of
    /// commits that have waited for it leave on the calling thread. Must not be called by a thread that a reader or a
    /// writer of this engine may block.
    pub fn reached(&self, level: Level, lsn: Lsn) {
        let shared = &self.0.shared;
        if !shared.gate.reached(level, lsn) {
            shared.abandon();
        }
    }

    /// Nothing is acknowledged from now on, at any level, that the mirror does not have, which is taken to have nothing
    /// yet; or the mirror is not waited for any more.
    pub fn wait_for_mirror(&self, wait: bool) {
        let shared = &self.0.shared;
        if !shared.gate.wait_for_mirror(wait) {
            shared.abandon();
        }
    }

    /// The mirror has everything below `lsn` on its disk. Answers leave as with [`Engine::reached`].
    pub fn mirrored(&self, lsn: Lsn) {
        let shared = &self.0.shared;
        if !shared.gate.mirrored(lsn) {
            shared.abandon();
        }
    }

    /// Nothing is acknowledged from now on, at any level. What is being let through at this moment still is.
    pub fn hold(&self, reason: &str) {
        self.0.shared.gate.hold(reason);
    }

    /// [`Engine::hold`], and nothing more is written: what nobody is told of would only part this trail from those of
    /// standbys that have less of it. Until the engine is closed.
    pub fn depose(&self, reason: &str) {
        let shared = &self.0.shared;
        self.hold(reason);
        shared.deposed.store(true, Ordering::Release);
        shared.trail.refuse_reservations(Some(&format!("nothing is written any more: {reason}")));
    }

    /// Ends what [`Engine::hold`] began.
    pub fn release(&self) {
        let shared = &self.0.shared;
        if !shared.gate.release() {
            shared.abandon();
        }
    }

    /// Nothing is acknowledged from now on at a moment at which `right` says false: the lease of a control plane. Once for
    /// an engine. What waits goes on with [`Engine::look_at_gate`].
    pub fn set_right(&self, right: Right) -> bool {
        self.0.shared.gate.set_right(right)
    }

    /// Commits that wait for a level are not answered any more, nor is what comes behind them: what they have changed
    /// stays in the trail. For the end of a server.
    pub fn stop_waiting(&self) {
        self.0.shared.close_gate();
    }

    /// Lets go on what waits and may by now; what [`Engine::hold`] holds stays held.
    pub fn look_at_gate(&self) {
        let shared = &self.0.shared;
        if !shared.gate.look() {
            shared.abandon();
        }
    }

    /// No commit waits for less than this level from now on.
    pub fn set_level_floor(&self, level: Level) {
        self.0.shared.gate.set_floor(level);
    }

    /// Whether this node may acknowledge, and answer reads as current, at this moment.
    pub fn has_right(&self) -> bool {
        self.0.shared.gate.has_right()
    }

    /// What waits for a level.
    pub fn gate(&self) -> GateInfo {
        self.0.shared.gate.info()
    }

    /// Sets the governor's delay. Once for an engine; false when there is one already.
    pub fn set_delay(&self, delay: Delay) -> bool {
        self.0.shared.delay.set(delay).is_ok()
    }
}
