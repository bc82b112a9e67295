//! Page-sized slots in an unlinked file of the data directory, for page versions that do not fit in memory (RULES 12,
//! 18). The content is worthless after a crash, so nothing is synced and the file disappears with the process.
//!
//! Failure: a write that fails (full disk) is reported; the page then stays in memory.

use super::page::PAGE_BYTES;
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// A scratch file of slots of one page each.
pub struct Scratch {
    file: File,
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    free: Vec<u32>,
    /// Number of slots ever used: the file's length in pages.
    end: u32,
}

/// Makes an unlinked, empty, private file in `dir`.
pub fn unlinked_file(dir: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    match rustix::fs::open(dir, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR) {
        Ok(fd) => Ok(File::from(fd)),
        // Not every file system supports O_TMPFILE (open(2)).
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR | rustix::io::Errno::NOENT) if dir.is_dir() => {
            let path = dir.join(format!(".scratch-{}-{:x}", std::process::id(), unique()));
            let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
            std::fs::remove_file(&path)?;
            Ok(file)
        }
        Err(e) => Err(e.into()),
    }
}

fn unique() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Scratch {
    pub fn new(dir: &Path) -> io::Result<Scratch> {
        Ok(Scratch { file: unlinked_file(dir)?, slots: Mutex::default() })
    }

    /// Stores a page and returns its slot.
    pub fn put(&self, page: &[u8]) -> io::Result<u32> {
        let slot = {
            let mut s = self.slots.lock();
            match s.free.pop() {
                Some(slot) => slot,
                None => {
                    let slot = s.end;
                    s.end = slot.checked_add(1).ok_or(io::ErrorKind::StorageFull)?;
                    slot
                }
            }
        };
        let written = self.file.write_all_at(page, u64::from(slot) * PAGE_BYTES as u64);
        if written.is_err() {
            self.free(slot);
        }
        written.map(|()| slot)
    }

    /// Reads a slot that [`Scratch::put`] returned and that was not freed since.
    pub fn get(&self, slot: u32, page: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(page, u64::from(slot) * PAGE_BYTES as u64)
    }

    pub fn free(&self, slot: u32) {
        let mut s = self.slots.lock();
        s.free.push(slot);
        // All slots are free: truncate the file, so that one long report does not keep the disk space.
        if s.free.len() == s.end as usize && s.end > 1024 && self.file.set_len(0).is_ok() {
            *s = Slots::default();
        }
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> u64 {
        let s = self.slots.lock();
        (u64::from(s.end) - s.free.len() as u64) * PAGE_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_reused_and_keep_their_content() {
        let dir = tempfile::tempdir().unwrap();
        let s = Scratch::new(dir.path()).unwrap();
        let a = s.put(&[1; PAGE_BYTES]).unwrap();
        let b = s.put(&[2; PAGE_BYTES]).unwrap();
        s.free(a);
        let c = s.put(&[3; PAGE_BYTES]).unwrap();
        assert_eq!(a, c);
        let mut page = [0; PAGE_BYTES];
        s.get(b, &mut page).unwrap();
        assert_eq!(page, [2; PAGE_BYTES]);
        assert_eq!(s.used_bytes(), 2 * PAGE_BYTES as u64);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the file has no name");
    }
}
