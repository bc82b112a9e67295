//! Hot standby: how a standby's trail is kept equal to its master's, and how the master learns of it.
//!
//! The master ([`hub`], [`ship`]) sends each boxcar while it writes it itself; a standby ([`receive`]) puts it into its own
//! trail, at the same position, and acknowledges: received, durable, applied. Before a byte is sent both check that they
//! fit ([`pairing`]). From the acks of all standbys the [`sync_set`] says which commits have reached which level, and the
//! [`governor`] how much the master has to slow down. A new standby begins with a [`base_copy`].
//!
//! A link runs over any stream: TCP, TLS ([`tls`]; [`cert`] makes the certificates), a simulated network. What is on it is
//! in [`frame`]. Databases are not seen here: what a node does is behind [`Master`] and [`Standby`].
//!
//! How it fails: a link that breaks, or on which nothing comes, is ended by both sides on their own; the standby connects
//! again and goes on where its trail ends. What a peer sends is checked before it is used. A refusal names its cause and
//! the way out, on both sides.

mod ages;
pub mod ask;
pub mod base_copy;
pub mod cert;
pub mod error;
pub mod frame;
pub mod governor;
pub mod hub;
pub mod identity;
pub mod limits;
pub mod link;
pub mod master;
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
pub use master::{Archived, Boxcars, Holder, Later, Master, Peer};
pub use receive::{Blocking, Connect, Ended, Follower, Phase, draw_instance, follow};
pub use refusal::{Reason, Refusal};
pub use standby::Standby;
pub use sync_set::{Reached, SyncSet};
