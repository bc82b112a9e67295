//! Hot standby: keeps a standby's trail equal to its master's, and reports to the master how far it is.
//!
//! The master ([`hub`], [`ship`]) sends each boxcar while it writes it; a standby ([`receive`]) writes it to its own
//! trail, at the same position, and acknowledges: received, durable, applied. Before a byte is sent, both check that
//! they match ([`pairing`]). From the acks of all standbys the [`sync_set`] computes which commits have reached which
//! level, and the [`governor`] how much the master has to slow down. A new standby begins with a [`base_copy`].
//!
//! A link runs over any stream: TCP, TLS ([`tls`]; [`cert`] creates the certificates), a simulated network. [`frame`]
//! has its format. This crate does not see databases: the traits [`LinkServer`] and [`Standby`] hide what a node does.
//!
//! How it fails: each side on its own ends a link that breaks or on which nothing arrives; the standby reconnects and
//! continues where its trail ends. What a peer sends is checked before it is used. A refusal names its cause and what
//! to do, on both sides.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod ages;
pub mod ask;
pub mod base_copy;
pub mod cert;
pub mod error;
pub mod frame;
pub mod governor;
pub mod hub;
pub mod identity;
pub mod kind;
pub mod limits;
pub mod link;
pub mod link_server;
pub mod mastership;
pub mod message;
pub mod packing;
pub mod pairing;
pub mod receive;
pub mod refusal;
mod ship;
#[cfg(test)]
mod simulation;
mod source;
pub mod standby;
pub mod sync_set;
pub mod tls;
mod versions;

pub use error::LinkError;
pub use governor::Governor;
pub use hub::Hub;
pub use identity::{Ack, Identity, Tip};
pub use limits::LinkOptions;
pub use link::refuse;
pub use link_server::{Archived, Boxcars, Holder, Later, LinkServer, Peer};
pub use mastership::{Lineage, Mastership};
pub use receive::{Blocking, Connect, Ended, Follower, draw_instance, follow};
pub use refusal::{Reason, Refusal};
pub use standby::{LinkPhase, Standby};
pub use sync_set::{Reached, SyncSet};
