//! The page of one mastership's lease, `lease-EPOCH`: written by the supervisor, read by the server at each answer.
//!
//! ```text
//! offset length
//!     64      8  end of the lease on CLOCK_BOOTTIME, nanoseconds; 0: not granted yet
//!     72      8  end of the lease on CLOCK_MONOTONIC_RAW, nanoseconds
//!     80      8  closed: 0, or 1 for good
//! ```
//! The lease lasts while the page is not closed and both clocks show less than their end. One store closes it, whatever the
//! server does at that moment. Nothing opens it again: a later mastership has an epoch, and so a page, of its own.
//!
//! Failure: a supervisor that dies leaves the ends as they are, and the lease runs out.

use super::map::{Map, WriteMap};
use super::{Head, create, open_to_read, open_to_write};
use crate::error::ClusterError;
use crate::moment::Moment;
use crate::process::Identity;
use holdfast_control::LeasePage;
use holdfast_types::Epoch;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MAGIC: [u8; 8] = *b"HFLEASE1";
const PREFIX: &str = "lease-";
const END_BOOT: usize = 8;
const END_RAW: usize = 9;
const CLOSED: usize = 10;

fn path_of(dir: &Path, epoch: Epoch) -> PathBuf {
    dir.join(format!("{PREFIX}{}", epoch.0))
}

/// The lease pages in a runtime directory, in the order of their epochs.
pub fn lease_pages(dir: &Path) -> Result<Vec<PathBuf>, ClusterError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(ClusterError::io("read", dir))? {
        let path = entry.map_err(ClusterError::io("read", dir))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(epoch) = name.strip_prefix(PREFIX).and_then(|epoch| epoch.parse::<u32>().ok()) {
            found.push((epoch, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// The page as the server sees it: for reading only.
pub struct HolderPage(Map);

impl HolderPage {
    pub fn open(dir: &Path, epoch: Epoch) -> Result<HolderPage, ClusterError> {
        let path = path_of(dir, epoch);
        let (map, head) = open_to_read(&path, MAGIC)?;
        if head.epoch != u64::from(epoch.0) {
            return Err(ClusterError::Page { path, why: "it is of another epoch" });
        }
        Ok(HolderPage(map))
    }
}

impl LeasePage for HolderPage {
    fn lasts(&self) -> bool {
        self.0.load(CLOSED) == 0 && left(|word| self.0.load(word)) > 0
    }

    fn remaining(&self) -> Duration {
        match self.0.load(CLOSED) {
            0 => Duration::from_nanos(left(|word| self.0.load(word))),
            _ => Duration::ZERO,
        }
    }
}

/// What is left on the clock that ends the lease first.
fn left(load: impl Fn(usize) -> u64) -> u64 {
    let (boot, raw) = (load(END_BOOT), load(END_RAW));
    let now = Moment::now();
    boot.saturating_sub(now.boot_ns).min(raw.saturating_sub(now.raw_ns))
}

/// The page as the supervisor sees it.
pub struct GrantorPage {
    map: WriteMap,
    epoch: Epoch,
    server: Identity,
    path: PathBuf,
}

impl GrantorPage {
    /// A new page, open and not granted yet.
    pub fn create(dir: &Path, epoch: Epoch, server: Identity) -> Result<GrantorPage, ClusterError> {
        let path = path_of(dir, epoch);
        let map = create(&path, Head { magic: MAGIC, epoch: epoch.0.into(), server })?;
        Ok(GrantorPage { map, epoch, server, path })
    }

    /// A page that an earlier supervisor made.
    pub fn open(path: &Path) -> Result<GrantorPage, ClusterError> {
        let (map, head) = open_to_write(path, MAGIC)?;
        let Ok(epoch) = u32::try_from(head.epoch) else {
            return Err(ClusterError::Page { path: path.to_owned(), why: "its epoch is out of range" });
        };
        Ok(GrantorPage { map, epoch: Epoch(epoch), server: head.server, path: path.to_owned() })
    }

    /// Lets the lease last until then; an older grant does not shorten it. A closed page stays closed.
    pub fn extend(&self, end_boot_ns: u64, end_raw_ns: u64) {
        if end_boot_ns > self.map.load(END_BOOT) {
            // The reader needs both: a longer end on one clock alone grants nothing.
            self.map.store(END_RAW, end_raw_ns);
            self.map.store(END_BOOT, end_boot_ns);
        }
    }

    /// Lets the lease last until then, or end: an end of 0 on both clocks ends it at once, and a later one may follow. A closed page
    /// stays closed.
    pub fn show(&self, end_boot_ns: u64, end_raw_ns: u64) {
        if (self.map.load(END_BOOT), self.map.load(END_RAW)) != (end_boot_ns, end_raw_ns) {
            // Whichever the reader sees first, it counts by the earlier end.
            self.map.store(END_RAW, end_raw_ns);
            self.map.store(END_BOOT, end_boot_ns);
        }
    }

    /// The end that the page shows, on CLOCK_BOOTTIME and CLOCK_MONOTONIC_RAW.
    pub fn end(&self) -> (u64, u64) {
        (self.map.load(END_BOOT), self.map.load(END_RAW))
    }

    /// Ends the server's right to answer, for good.
    pub fn close(&self) {
        self.map.store(CLOSED, 1);
    }

    pub fn is_closed(&self) -> bool {
        self.map.load(CLOSED) != 0
    }

    /// Whether the lease was ever granted.
    pub fn is_granted(&self) -> bool {
        self.map.load(END_BOOT) != 0
    }

    pub fn remaining(&self) -> Duration {
        if self.is_closed() { Duration::ZERO } else { Duration::from_nanos(left(|word| self.map.load(word))) }
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The server that the lease is for.
    pub fn server(&self) -> Identity {
        self.server
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lease_ends_by_either_clock_and_by_one_store() {
        let dir = tempfile::tempdir().unwrap();
        let grantor = GrantorPage::create(dir.path(), Epoch(3), Identity { pid: 1, start: 2 }).unwrap();
        let holder = HolderPage::open(dir.path(), Epoch(3)).unwrap();
        assert!(!holder.lasts(), "not granted yet");
        let (now, hour) = (Moment::now(), 3_600_000_000_000);
        grantor.extend(now.boot_ns + hour, 1);
        assert!(!holder.lasts(), "over on one of the clocks");
        grantor.extend(now.boot_ns + hour, now.raw_ns + hour);
        assert!(!holder.lasts(), "no longer than the grant before");
        grantor.extend(now.boot_ns + 2 * hour, now.raw_ns + hour);
        assert!(holder.lasts() && holder.remaining() <= Duration::from_nanos(hour));
        // A standstill ends it on the spot, and the next grant begins it again.
        grantor.show(0, 0);
        assert!(!holder.lasts() && !grantor.is_granted());
        let end = (now.boot_ns + hour, now.raw_ns + hour);
        grantor.show(end.0, end.1);
        assert!(holder.lasts() && grantor.end() == end);
        // A successor of the supervisor sees the same page.
        let successor = GrantorPage::open(grantor.path()).unwrap();
        assert_eq!((successor.epoch(), successor.server().pid), (Epoch(3), 1));
        successor.close();
        assert!(!holder.lasts() && grantor.is_closed() && holder.remaining() == Duration::ZERO);
        grantor.extend(now.boot_ns + 3 * hour, now.raw_ns + 3 * hour);
        grantor.show(now.boot_ns + 4 * hour, now.raw_ns + 4 * hour);
        assert!(!holder.lasts(), "a closed page stays closed");
        assert_eq!(lease_pages(dir.path()).unwrap(), [grantor.path()]);
    }
}
