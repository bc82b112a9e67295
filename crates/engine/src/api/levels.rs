//! What commits wait for, set from outside: acks of standbys, the lease, the governor.

use crate::api::engine::Engine;
use crate::state::engine::Delay;
use crate::state::gate::{GateInfo, Right};
use holdfast_types::{Level, Lsn};
use std::sync::atomic::Ordering;

impl Engine {
    /// Standbys, as many as are asked for, have everything below `lsn` at this level and those under it. Answers of
    /// commits that have waited for it leave on the calling thread. Must not be called by a thread that a reader or a
    /// writer of this engine may block.
    pub fn reached(&self, level: Level, lsn: Lsn) {
        let engine = &self.0.engine;
        if !engine.gate.reached(level, lsn) {
            engine.abandon();
        }
    }

    /// Everything that was acknowledged at level hot or above ends below this position: as many standbys as are asked for have
    /// it, or commits have continued without them.
    pub fn reached_hot(&self) -> Lsn {
        self.0.engine.gate.reached_hot()
    }

    /// Nothing is acknowledged from now on, at any level, that the mirror does not have, which is taken to have nothing
    /// yet; or the mirror is not waited for any more.
    pub fn wait_for_mirror(&self, wait: bool) {
        let engine = &self.0.engine;
        if !engine.gate.wait_for_mirror(wait) {
            engine.abandon();
        }
    }

    /// The mirror has everything below `lsn` on its disk. Answers leave as with [`Engine::reached`].
    pub fn mirrored(&self, lsn: Lsn) {
        let engine = &self.0.engine;
        if !engine.gate.mirrored(lsn) {
            engine.abandon();
        }
    }

    /// Nothing is acknowledged from now on, at any level. What is being let through at this moment still is.
    pub fn hold(&self, reason: &str) {
        self.0.engine.gate.hold(reason);
    }

    /// [`Engine::hold`], and nothing more is written: what no client is answered for would only make this trail differ from those of
    /// standbys that have less of it. Until the engine is closed.
    pub fn depose(&self, reason: &str) {
        let engine = &self.0.engine;
        self.hold(reason);
        engine.deposed.store(true, Ordering::Release);
        engine.trail.refuse_reservations(Some(&format!("nothing is written any more: {reason}")));
    }

    /// Ends what [`Engine::hold`] began.
    pub fn release(&self) {
        let engine = &self.0.engine;
        if !engine.gate.release() {
            engine.abandon();
        }
    }

    /// Nothing is acknowledged from now on at a moment at which `right` says false: the lease of a control plane. Once for
    /// an engine. What waits is looked at again with [`Engine::let_through`].
    pub fn set_right(&self, right: Right) -> bool {
        self.0.engine.gate.set_right(right)
    }

    /// Commits that wait for a level are not answered any more, nor is what comes behind them: what they have changed
    /// stays in the trail. For the end of a server.
    pub fn stop_waiting(&self) {
        self.0.engine.close_gate();
    }

    /// Lets through what waits and may pass by now; what [`Engine::hold`] holds stays held.
    pub fn let_through(&self) {
        let engine = &self.0.engine;
        if !engine.gate.recheck() {
            engine.abandon();
        }
    }

    /// No commit waits for less than this level from now on.
    pub fn set_level_floor(&self, level: Level) {
        self.0.engine.gate.set_floor(level);
    }

    /// Whether this node may acknowledge, and answer reads as current, at this moment.
    pub fn has_right(&self) -> bool {
        !self.is_deposed() && self.0.engine.gate.has_right()
    }

    /// Whether another server has become the master, see [`Engine::depose`].
    pub fn is_deposed(&self) -> bool {
        self.0.engine.deposed.load(Ordering::Acquire)
    }

    /// What waits for a level.
    pub fn gate(&self) -> GateInfo {
        self.0.engine.gate.info()
    }

    /// Sets the governor's delay. Once for an engine; false when there is one already.
    pub fn set_delay(&self, delay: Delay) -> bool {
        self.0.engine.delay.set(delay).is_ok()
    }
}
