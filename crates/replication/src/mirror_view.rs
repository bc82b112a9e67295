//! What this crate knows of the mirror on another disk, which `holdfast_mirror` keeps: the name of its slot, and how it is.
//!
//! Failure: none.

use holdfast_types::StandbyRow;

/// The name under which the trail is kept for the mirror. No standby may have it: it begins with a dot.
pub const MIRROR_SLOT: &str = ".mirror";

/// The mirror as views and commands show it. The node hands it to [`crate::ReplicationStatus`].
pub trait MirrorView: Send + Sync {
    /// Its row in the views of standbys, under the name `mirror`.
    fn row(&self) -> StandbyRow;

    /// Its part of `holdfast standby status`.
    fn json(&self) -> serde_json::Value;
}
