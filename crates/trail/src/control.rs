//! The control file: the identity of this trail and what has been proven about it. 4096 bytes, little-endian.
//!
//! ```text
//! offset length
//!      0      8  magic "HFCONTRL"
//!      8      2  format version, 1
//!     10      2  zero
//!     12      4  epoch: that of the last open
//!     16     16  trail id
//!     32      4  incarnation: that of the last open
//!     36      4  first segment: older ones are recycled or about to be
//!     40      8  segment size in bytes
//!     48      8  incarnation LSN: where the last open began to append; boxcars that an older incarnation wrote at
//!                or after it do not count
//!     56      8  proven: all bytes below are durable (the incarnation LSN, or the end at a clean close)
//!     64      4  checksum: CRC-32C of bytes 0..64
//! ```
//! The file is replaced, never changed in place: the new one is written to `control.new`, synced, exchanged with
//! `control`, and the directory is synced. A crash leaves the old one or the new one. The old one stays as
//! `control.new`, and its block is used for the next one, so that segments can be recycled and the epoch raised on a
//! full disk.

use std::io::IoSlice;
use std::path::Path;

use holdfast_seams::{AlignedBuf, Create, Disk, OpenHow};
use holdfast_types::{Epoch, Lsn};

use crate::bytes::{array, put, u16_at, u32_at, u64_at};
use crate::error::TrailError;
use crate::layout::{BLOCK, CONTROL, CONTROL_NEW, TrailId};

pub const FORMAT_VERSION: u16 = 1;
const MAGIC: [u8; 8] = *b"HFCONTRL";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Control {
    pub epoch: Epoch,
    pub trail_id: TrailId,
    pub incarnation: u32,
    pub first_segment: u32,
    pub segment_bytes: u64,
    pub incarnation_lsn: Lsn,
    pub proven: Lsn,
}

impl Control {
    fn encode(&self) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(BLOCK as usize);
        let block = buf.as_mut_slice();
        put(block, 0, &MAGIC);
        put(block, 8, &FORMAT_VERSION.to_le_bytes());
        put(block, 12, &self.epoch.0.to_le_bytes());
        put(block, 16, &self.trail_id.0);
        put(block, 32, &self.incarnation.to_le_bytes());
        put(block, 36, &self.first_segment.to_le_bytes());
        put(block, 40, &self.segment_bytes.to_le_bytes());
        put(block, 48, &self.incarnation_lsn.0.to_le_bytes());
        put(block, 56, &self.proven.0.to_le_bytes());
        let sum = crc32c::crc32c(&block[..64]);
        put(block, 64, &sum.to_le_bytes());
        buf
    }

    fn decode(path: &Path, block: &[u8]) -> Result<Control, TrailError> {
        if array(block, 0) != MAGIC || crc32c::crc32c(&block[..64]) != u32_at(block, 64) {
            return Err(TrailError::File {
                file: path.to_path_buf(),
                what: "its checksum does not match its bytes".to_owned(),
                advice: "Nothing was changed. Put back a copy of this trail directory, or promote a standby",
            });
        }
        let version = u16_at(block, 8);
        if version > FORMAT_VERSION {
            return Err(TrailError::Newer { file: path.to_path_buf(), found: version, known: FORMAT_VERSION });
        }
        Ok(Control {
            epoch: Epoch(u32_at(block, 12)),
            trail_id: TrailId(array(block, 16)),
            incarnation: u32_at(block, 32),
            first_segment: u32_at(block, 36),
            segment_bytes: u64_at(block, 40),
            incarnation_lsn: Lsn(u64_at(block, 48)),
            proven: Lsn(u64_at(block, 56)),
        })
    }

    /// Reads the control file past the page cache; `None` when it does not exist.
    pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Control>, TrailError> {
        let path = dir.join(CONTROL);
        if disk.metadata(&path).map_err(TrailError::io("read the metadata of", &path))?.is_none() {
            return Ok(None);
        }
        let file = disk.open(&path, &OpenHow::READ_DIRECT).map_err(TrailError::io("open", &path))?;
        file.sync_all().map_err(TrailError::io("sync", &path))?;
        let mut buf = AlignedBuf::zeroed(BLOCK as usize);
        file.read_at(buf.as_mut_slice(), 0).map_err(TrailError::io("read", &path))?;
        Control::decode(&path, buf.as_slice()).map(Some)
    }

    /// Replaces the control file and makes it durable.
    pub fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<(), TrailError> {
        let (new, path) = (dir.join(CONTROL_NEW), dir.join(CONTROL));
        let how = OpenHow { create: Create::IfMissing, ..OpenHow::WRITE_DIRECT };
        let file = disk.open(&new, &how).map_err(TrailError::io("create", &new))?;
        let buf = self.encode();
        file.write_at(&[IoSlice::new(buf.as_slice())], 0).map_err(TrailError::io("write", &new))?;
        file.sync_all().map_err(TrailError::io("sync", &new))?;
        disk.exchange(&new, &path).map_err(TrailError::io("rename", &new))?;
        disk.sync_dir(dir).map_err(TrailError::io("sync the directory", dir))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control() -> Control {
        Control {
            epoch: Epoch(5),
            trail_id: TrailId(*b"0123456789abcdef"),
            incarnation: 6,
            first_segment: 2,
            segment_bytes: 65536,
            incarnation_lsn: Lsn(0x23000),
            proven: Lsn(0x24000),
        }
    }

    #[test]
    fn golden_bytes() {
        let block = control().encode();
        let hex: String = block.as_slice()[..68].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "4846434f4e54524c01000000050000003031323334353637383961626364656606000000020000000000010000000000\
             003002000000000000400200000000000eaddb9a"
        );
        assert_eq!(Control::decode(Path::new("control"), block.as_slice()).unwrap(), control());
    }

    #[test]
    fn damage_and_newer_formats_are_refused() {
        let mut block = control().encode();
        block.as_mut_slice()[40] ^= 1;
        let refused = Control::decode(Path::new("control"), block.as_slice());
        assert!(matches!(refused, Err(TrailError::File { .. })));
        let mut block = control().encode();
        put(block.as_mut_slice(), 8, &2u16.to_le_bytes());
        let sum = crc32c::crc32c(&block.as_slice()[..64]);
        put(block.as_mut_slice(), 64, &sum.to_le_bytes());
        let refused = Control::decode(Path::new("control"), block.as_slice());
        assert!(matches!(refused, Err(TrailError::Newer { found: 2, .. })));
    }
}
