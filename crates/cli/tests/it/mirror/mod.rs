//! A server with its mirror on a second disk: one of the disks dies, the process is killed, the power fails.
//!
//! The disks are FUSE file systems that fail and lose power on command; where none can be mounted those tests say that
//! they are skipped, and fail where `CI` is set.

mod bed;
mod crashes;
mod disks;
mod first;
mod full;
