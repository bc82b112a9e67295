//! The audit trail. Every change goes through it, in group commits called boxcars, before any client gets an answer.
//!
//! [`Trail::append`] queues records. One writer thread puts everything queued into a boxcar, writes it with one write
//! and one sync, and calls back in order. Segments are prepared and recycled in the background. [`Trail::open`]
//! recovers by a decision table (module [`recovery`]): everything that was acknowledged is in the trail, or the trail
//! refuses to open; a torn tail that was never acknowledged is saved aside and cut off.
//!
//! A trail opened with `follow` receives another trail's boxcars by [`Trail::receive`] instead, byte for byte. The
//! boxcars to be shipped come from [`Trail::tap`], before they are durable. [`Trail::ends_with`] finds up to which
//! point two trails are equal; [`Trail::cut_back`] cuts off what only one of them has.
//!
//! How it fails: a failed write or sync ends the process (it is never retried). A full disk is detected by
//! [`Trail::reserve`] before anything changes. An error about damage names the file, the offset and what to do.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod boxcar;
mod bytes;
mod closed;
mod control;
mod cursor;
mod cut;
mod cut_back;
mod delay;
mod dump;
mod error;
mod follow;
mod inspect;
mod layout;
mod live;
mod open;
mod options;
mod preparer;
mod reader;
mod receiver;
pub mod recovery;
mod room;
mod segment;
mod shared;
mod shipped;
#[cfg(test)]
mod simulation;
mod survey;
mod tap;
mod trail;
mod writer;

pub use boxcar::{BoxcarKind, Flaw};
pub use closed::Closed;
pub use cut::Cut;
pub use delay::CommitDelay;
pub use dump::{Dump, DumpItem};
pub use error::{ReceiveError, ReserveError, TrailError};
pub use follow::FollowFrom;
pub use holdfast_seams::SyncMethod;
pub use inspect::{Inspection, Outline, lock_without_opening};
pub use layout::TrailId;
pub use live::ProgressHook;
pub use options::{Failure, FailureHook, TrailOptions};
pub use reader::{Boxcar, Reader, ShippedReader};
pub use shared::{OnDurable, Span, TrailStats};
pub use shipped::{Shipped, ShippedFlaw};
pub use tap::{Match, Tap};
pub use trail::{Recovered, Reservation, SegmentCount, Trail};
