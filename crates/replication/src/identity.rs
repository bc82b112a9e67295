//! What two nodes compare before they pair, read from an engine.

use holdfast_engine::Engine;
use holdfast_standby::Identity;
use holdfast_trail::boxcar::FORMAT_VERSION;

/// The identity that this engine's trail shows to other nodes.
pub fn identity(engine: &Engine) -> Identity {
    let trail = engine.trail();
    Identity {
        trail_id: trail.trail_id(),
        format: FORMAT_VERSION,
        segment_bytes: trail.segment_bytes(),
        epoch: trail.epoch(),
    }
}
