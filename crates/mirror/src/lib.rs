//! The mirror: a second data directory on another disk, kept by the same process, so that one dead disk loses nothing.
//!
//! The server runs a standby of itself: an engine on the mirror's directory receives the trail while it is written, over
//! the link that other nodes use. No commit at any level is acknowledged before the mirror's trail has it durable; the
//! engine's gate sees to that. What the mirror costs and promises is in `docs/mirror.md`.
//!
//! | file | what |
//! |---|---|
//! | [`from_dump`] | marks a directory whose pages come from a dump |
//! | [`records`] | what is written down about the mirror, on both disks |
//! | [`directory`] | what is found in its directory, and what is to be done with that |
//! | [`loopback_link`] | the two ends of the link |
//! | [`state`] | in service or not, and what commits do meanwhile |
//! | [`settings`] | its copy of holdfast.toml |
//! | [`supervisor`] | copies, opens, follows, and does so again |
//! | [`lifecycle`] | starts and stops it with the server |
//! | [`status`] | how it is, for views and commands |
//! | [`promote`], [`promotion_mark`] | it becomes a data directory like any other |
//!
//! Failure: whatever happens to the mirror's disk ends the mirror, never the server; what happens to the main disk ends the
//! process as it always does.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod directory;
mod from_dump;
mod lifecycle;
mod loopback_link;
mod promote;
mod promotion_mark;
mod records;
mod settings;
mod state;
mod status;
mod supervisor;

pub use directory::{MirrorRefused, NAME, same_device};
pub use from_dump::{mark_for_dump, trail_to_mirror};
pub use lifecycle::{Mirror, MirrorSettings, check, keep, leave_offline};
pub use promote::{PromoteError, Promoted, promote};
