//! Pages: files of 4096 bytes on tmpfs, mapped by the supervisor and by the server. They outlive both processes, and reading
//! or writing them waits for no disk, no lock and no other process.
//!
//! Both kinds begin alike. Little-endian words of 8 bytes:
//! ```text
//! offset length
//!      0      8  magic: "HFLEASE1" or "HFPROGR1"
//!      8      8  of a lease: its epoch; of the progress: zero
//!     16      8  pid of the server that the page is for
//!     24      8  its start time, field 22 of /proc/PID/stat: tells it from a later process with the same pid
//!     32      8  CRC-32C of bytes 0..32
//!     40     24  zero
//!     64      .  the words of the kind, see there
//! ```
//! A page is written in a file of another name, and gets its own by a rename: no process sees half of one.
//!
//! Failure: a page with another magic, size or checksum is refused, with its path.

mod lease;
mod map;
mod progress;

pub use lease::{GrantorPage, HolderPage, lease_pages};
pub use map::PAGE_BYTES;
pub use progress::{Progress, ProgressPage, ServerState};

use crate::error::ClusterError;
use crate::process::Identity;
use map::{Map, WriteMap};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const HEAD_WORDS: usize = 5;

/// The words that a page begins with, except for its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head {
    magic: [u8; 8],
    epoch: u64,
    server: Identity,
}

impl Head {
    fn bytes(&self) -> [u8; HEAD_WORDS * 8] {
        let mut bytes = [0; HEAD_WORDS * 8];
        bytes[..8].copy_from_slice(&self.magic);
        bytes[8..16].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[16..24].copy_from_slice(&u64::from(self.server.pid).to_le_bytes());
        bytes[24..32].copy_from_slice(&self.server.start.to_le_bytes());
        let sum = u64::from(crc32c::crc32c(&bytes[..32]));
        bytes[32..40].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn read(magic: [u8; 8], load: impl Fn(usize) -> u64) -> Result<Head, &'static str> {
        let words: [u64; HEAD_WORDS] = std::array::from_fn(|word| u64::from_le(load(word)));
        if words[0].to_le_bytes() != magic {
            return Err("it begins with other bytes");
        }
        let Ok(pid) = u32::try_from(words[2]) else { return Err("its pid is out of range") };
        let head = Head { magic, epoch: words[1], server: Identity { pid, start: words[3] } };
        let is_whole = head.bytes()[32..] == words[4].to_le_bytes();
        if is_whole { Ok(head) } else { Err("its checksum is wrong") }
    }
}

/// Makes a page under its final name, in place of an older one.
fn create(path: &Path, head: Head) -> Result<WriteMap, ClusterError> {
    let made = path.with_extension(format!("new.{}", std::process::id()));
    let io = |what| ClusterError::io(what, path);
    // What a process with this pid left behind.
    let _ = std::fs::remove_file(&made);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let mut file = options.open(&made).map_err(io("create"))?;
    let mut bytes = [0; PAGE_BYTES];
    bytes[..HEAD_WORDS * 8].copy_from_slice(&head.bytes());
    file.write_all(&bytes).map_err(io("write"))?;
    let map = WriteMap::open(&file).map_err(io("map"))?;
    std::fs::rename(&made, path).map_err(io("rename"))?;
    Ok(map)
}

fn open_to_read(path: &Path, magic: [u8; 8]) -> Result<(Map, Head), ClusterError> {
    let file = File::open(path).map_err(ClusterError::io("open", path))?;
    let map = Map::open(&file).map_err(ClusterError::io("map", path))?;
    let head = Head::read(magic, |word| map.load(word));
    head.map(|head| (map, head)).map_err(|why| ClusterError::Page { path: path.to_owned(), why })
}

fn open_to_write(path: &Path, magic: [u8; 8]) -> Result<(WriteMap, Head), ClusterError> {
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(ClusterError::io("open", path))?;
    let map = WriteMap::open(&file).map_err(ClusterError::io("map", path))?;
    let head = Head::read(magic, |word| map.load(word));
    head.map(|head| (map, head)).map_err(|why| ClusterError::Page { path: path.to_owned(), why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_types::Epoch;

    const SERVER: Identity = Identity { pid: 4711, start: 123_456 };

    #[test]
    fn golden_bytes_of_both_pages() {
        let dir = tempfile::tempdir().unwrap();
        let hex = |path: &Path| {
            let bytes = std::fs::read(path).unwrap();
            assert_eq!(bytes.len(), PAGE_BYTES);
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            assert!(bytes[40..64].iter().chain(&bytes[128..]).all(|byte| *byte == 0));
            (hex(&bytes[..40]), hex(&bytes[64..128]))
        };
        let lease = GrantorPage::create(dir.path(), Epoch(7), SERVER).unwrap();
        lease.extend(0x1122, 0x3344);
        let path = dir.path().join("lease-7");
        let head = "48464c45415345310700000000000000671200000000000040e201000000000088e25dff00000000".to_owned();
        let zeros = |count| "00".repeat(count);
        assert_eq!(hex(&path), (head.clone(), format!("22110000000000004433000000000000{}", zeros(48))));
        lease.close();
        let closed = format!("22110000000000004433000000000000{}{}", "0100000000000000", zeros(40));
        assert_eq!(hex(&path), (head, closed));

        let progress = ProgressPage::create(dir.path(), SERVER).unwrap();
        progress.tick(0x11);
        progress.sync_began(Some(0x22));
        progress.trail(3, 0x44);
        progress.state(ServerState::Ready);
        let words: String =
            [0x11, 0x22, 3, 0x44, 0, 1, 0, 0].map(|word: u64| format!("{word:02x}{}", zeros(7))).concat();
        let head = "484650524f4752310000000000000000671200000000000040e20100000000006f580ba900000000".to_owned();
        assert_eq!(hex(&dir.path().join("progress")), (head, words));
    }

    #[test]
    fn a_progress_page_that_was_removed_is_made_again_with_its_words() {
        let dir = tempfile::tempdir().unwrap();
        let mut page = ProgressPage::create(dir.path(), SERVER).unwrap();
        page.tick(5);
        page.trail(3, 44);
        page.state(ServerState::Ready);
        assert!(!page.restore(dir.path(), SERVER).unwrap(), "it is there");
        std::fs::remove_file(dir.path().join("progress")).unwrap();
        assert!(page.restore(dir.path(), SERVER).unwrap());
        page.tick(6);
        let seen = Progress::open(dir.path()).unwrap();
        assert_eq!((seen.server(), seen.tick_ns(), seen.trail()), (SERVER, 6, Some((3, 44))));
        assert_eq!(seen.state(), ServerState::Ready);
        std::fs::remove_dir_all(dir.path()).unwrap();
        assert!(!page.restore(dir.path(), SERVER).unwrap(), "there is no directory");
    }

    #[test]
    fn torn_foreign_and_changed_pages_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let lease = GrantorPage::create(dir.path(), Epoch(7), SERVER).unwrap();
        let path = lease.path().to_owned();
        let whole = std::fs::read(&path).unwrap();
        assert!(HolderPage::open(dir.path(), Epoch(7)).is_ok());
        for bit in 0..40 * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, bytes).unwrap();
            assert!(HolderPage::open(dir.path(), Epoch(7)).is_err(), "bit {bit}");
            assert!(GrantorPage::open(&path).is_err(), "bit {bit}");
        }
        for length in [0, 40, PAGE_BYTES - 1, PAGE_BYTES + 1] {
            let mut bytes = whole.clone();
            bytes.resize(length, 0);
            std::fs::write(&path, bytes).unwrap();
            assert!(HolderPage::open(dir.path(), Epoch(7)).is_err(), "{length} bytes");
        }
        // Another epoch's page under this name.
        std::fs::rename(GrantorPage::create(dir.path(), Epoch(8), SERVER).unwrap().path(), &path).unwrap();
        assert!(HolderPage::open(dir.path(), Epoch(7)).is_err());
        assert!(Progress::open(dir.path()).is_err(), "there is none");
        std::fs::write(dir.path().join("progress"), &whole).unwrap();
        assert!(Progress::open(dir.path()).is_err(), "a lease");
    }
}
