//! A disk that loses, tears, lies and fails, to test databases on.
//!
//! A FUSE file system over a backing directory that behaves like a file system on a drive with a volatile write cache:
//! what was written is seen at once and survives a power cut for certain only after a sync. At the cut each unsynced
//! 512-byte sector is kept, dropped or turned into garbage, independently and in any order, and so are lengths and names
//! that no sync has made durable. Then everything fails with EIO until the power is back; the backing directory holds
//! exactly what survived.
//!
//! [`UnsafeDisk`] mounts one; [`Options`] says how it behaves; `.unsafe-disk` in its root takes commands (see
//! [`Command`]) and shows the [`Status`] as JSON. It knows nothing of any database.
//!
//! What is not modelled: loss of modes and owners (durable at once), holes, extended attributes, device files. A sector
//! written twice between two syncs survives in its last form or not at all. Nothing is protected against the death of the
//! process that serves the mount, which counts as a power cut that keeps nothing.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod attributes;
mod backing;
mod command;
mod control_file;
mod disk;
mod disk_names;
mod faults;
mod file;
mod fuse;
mod mount;
mod names;
mod node;
mod pages;
mod random;
mod state;
mod status;

pub use command::{Command, NotUnderstood};
pub use control_file::CONTROL;
pub use disk::{Disk, Names, Options, cut_after, lying_drive};
pub use faults::{Effect, Fired, Operation, Rule};
pub use file::Torn;
pub use mount::{MountError, UnsafeDisk, cannot_mount, remove_dead_mount};
pub use random::Random;
pub use status::{Counters, LastCut, Power, Status};
