//! A restore that is served before it is complete.

use holdfast_seams::Disk;
use std::fmt;
use std::sync::Arc;

/// The disk on which its databases are.
#[derive(Clone)]
pub struct RestoredDisk(pub Arc<dyn Disk>);

impl fmt::Debug for RestoredDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RestoredDisk")
    }
}

impl PartialEq for RestoredDisk {
    fn eq(&self, other: &RestoredDisk) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for RestoredDisk {}
