//! The seams between Holdfast and the machine: disk and clock as traits, their real implementations, and a
//! simulated disk that fails, tears and loses power for tests.
//!
//! Everything that must survive a power cut goes through [`Disk`], so that the same code runs on a file system and on
//! [`testing::FaultDisk`]. Errors are plain [`std::io::Error`]s here: the layer above adds which file failed and what
//! the operator can do.
//!
//! [`socket_owner`] asks the kernel for the user at the other end of a connection over loopback.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod aligned;
pub mod clock;
pub mod disk;
pub mod points;
mod real;
pub mod replace;
pub mod sabotage;
pub mod socket_owner;
#[allow(clippy::unwrap_used, reason = "a fake that fails ends its test")]
pub mod testing;

pub use aligned::{AlignedBuf, BLOCK_BYTES, round_up_to_block};
pub use clock::{Clock, RealClock};
pub use disk::{Create, Disk, DiskFile, DiskLock, DiskStats, Metadata, OpenHow, SyncMethod, WriteThrough};
pub use real::RealDisk;
pub use replace::{ReplaceError, Replacement, read_whole, replace};
