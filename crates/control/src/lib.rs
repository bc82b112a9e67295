//! The control plane decides which node is master: a small record {epoch, master, sync set, members} that three nodes
//! agree on through Raft, and the lease that allows a master to acknowledge.
//!
//! Three members, each with a directory: two data nodes and a witness, or three data nodes. A server uses the control
//! plane only through [`ControlPlane`]; [`ControlNode::start`] returns one backed by Raft. Its guarantees:
//!
//! - At most one node holds a valid lease at any moment, and an epoch only ever has one master. A successor is promoted
//!   only when the old master's lease has run out on every clock that is wrong by at most the agreed percentage, or was
//!   released.
//! - A master that was stopped, suspended or cut off finds its lease run out before it can acknowledge anything: the
//!   check is made at the moment of use, [`Lease::valid_now`].
//! - Every member of the sync set has everything that was acknowledged at hot or above (at warm too, unless master and
//!   standby fail at the same time), if the master keeps three rules: [`ControlPlane::shrink`] *before* acknowledging without
//!   a standby; the same for every standby that may lack a part of its trail, before its first answer; waiting for a standby
//!   *before* [`ControlPlane::grow`].
//! - Where commits wait for some of the standbys only, a quorum ([`ControlPlane::name_quorum`]), a node that has all that
//!   enough others have has everything acknowledged. A promotion compares them: [`ControlHandle::set_trail`].
//!
//! Without a person it is Raft's leader that names the successor of a master that no longer renews its lease, where
//! [`Machinery::planner`] is set (`failover.rs`); the witness leads where it can (`leads.rs`).
//!
//! How it fails: without a majority nothing changes and the lease runs out. A failed disk ends the process; a damaged
//! directory refuses to open; the other two nodes replace one that was lost. A clock that is wrong by more than agreed, or
//! that stops while a virtual machine is frozen, breaks the lease; then only the epoch in every boxcar remains, which
//! standbys check. A control directory that was put back from an older copy has forgotten its votes: the other members detect
//! that and refuse it ([`ControlError::RolledBack`]).
//!
//! # Use
//!
//! ```no_run
//! use holdfast_control::{Config, ControlNode, ControlPlane, Basis, LeaseTerms, Machinery, Promotion, Role, TcpTransport};
//! use std::collections::BTreeMap;
//! use std::sync::Arc;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let (a, b, w) = ("a".parse()?, "b".parse()?, "w".parse()?);
//! let addresses = [(a, "127.0.0.1:7001"), (b, "127.0.0.1:7002"), (w, "127.0.0.1:7003")];
//! let addresses = addresses.map(|(node, address)| (node, address.to_owned())).into();
//! let transport = TcpTransport::bind("127.0.0.1:7001", addresses, None)?;
//! let config = Config {
//!     node: a,
//!     dir: "data/control".into(),
//!     members: BTreeMap::from([(a, Role::Data), (b, Role::Data), (w, Role::Witness)]),
//!     lease: LeaseTerms::default(),
//!     by_pulses: false,
//!     link: Some("127.0.0.1:5433".to_owned()),
//! };
//! let disk = Arc::new(holdfast_seams::RealDisk::new());
//! let control = ControlNode::start(config, Machinery::real(disk, Arc::new(transport)))?;
//!
//! // Become master. A start as master is a promotion, too: each mastership has an epoch of its own.
//! let record = control.look().await?;
//! let trail_epoch = holdfast_types::Epoch(17); // the highest epoch in this node's trail
//! let epoch = control
//!     .promote(Promotion {
//!         node: a,
//!         expected_epoch: record.epoch,
//!         epoch_at_least: holdfast_types::Epoch(trail_epoch.0 + 1),
//!         accept_loss: false,
//!         basis: Basis::Starts,
//!         trail_end: None, // or where this node's trail ends, so that an older copy is noticed
//!     })
//!     .await?;
//! // Open the trail with exactly this epoch. Then, for every commit that is to be acknowledged and every current read:
//! let lease = control.lease();
//! assert_eq!(lease.epoch(), epoch);
//! if lease.valid_now() { /* answer */ }
//! // A standby is lost: out of the set first, then acknowledge without it.
//! control.shrink(epoch, b).await?;
//! // An orderly stop, or a hand-over asked for by `Mastership::Deposed` in `watch()`: stop answering, then
//! control.release(epoch).await?;
//! # Ok(())
//! # }
//! ```

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod applied;
mod clock;
mod compare;
mod core;
mod epoch_number;
mod error;
mod failover;
mod files;
mod frames;
pub mod grant;
mod grants;
mod handle;
mod id;
mod journal;
mod known_positions;
mod leads;
mod lease;
mod machine;
mod members;
mod node;
mod peers;
mod plane;
mod presence;
mod pulse_key;
mod raft;
mod record;
mod refusal;
mod server;
mod sight;
#[cfg(test)]
mod simulation;
mod starts;
mod storage;
mod sync_members;
mod trail_tip;
mod transport;
mod voter_feed;
mod watching;
mod wire;

pub use clock::{BootClock, LeaseClock};
pub use error::ControlError;
pub use grants::Grants;
pub use handle::ControlHandle;
pub use id::{BadName, DiskId, NODE_NAME_BYTES_MAX, NodeId};
pub use known_positions::Position;
pub use lease::{LEASE_MS_BY_GRANTS, Lease, LeasePage, LeaseTerms};
pub use node::{Config, ControlNode, Machinery};
pub use plane::{Basis, Change, ControlPlane, Promotion, Quorum};
pub use pulse_key::{PULSE_KEY_BYTES, PulseKey};
pub use record::{Becomes, Command, Mastership, RECORD_VERSION_GRANTS, Record, Refusal, Role, apply};
pub use sight::{
    ByPulses, Decision, Explained, Explanation, Heard, Planner, RestartsFirst, SUCCESSOR_MS, Sight, Undecided,
};
pub use sync_members::SyncMembers;
pub use trail_tip::{Compared, ComparedTrail, TrailTip, judge};
pub use transport::{BoxStream, Incoming, Secure, Stream, TcpTransport, Transport};
