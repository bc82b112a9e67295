//! The segment header: one block that identifies the file. It is local to the node, little-endian.
//!
//! ```text
//! offset length
//!      0      8  magic "HFSEGMNT"
//!      8      2  format version, 1
//!     10      2  flags: 1 = recycled (after the trail's end it holds old bytes, not zeros)
//!     12      4  epoch in which it was put into service
//!     16     16  trail id
//!     32      4  segment number
//!     36      4  zero
//!     40      8  segment size in bytes
//!     48      8  put into service, milliseconds since 1970-01-01 UTC
//!     56      4  checksum: CRC-32C of bytes 0..56
//! ```

use holdfast_seams::AlignedBuf;
use holdfast_types::Epoch;

use crate::bytes::{array, put, u16_at, u32_at, u64_at};
use crate::layout::{BLOCK, TrailId};

pub const FORMAT_VERSION: u16 = 1;
const MAGIC: [u8; 8] = *b"HFSEGMNT";
const RECYCLED: u16 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    pub recycled: bool,
    pub epoch: Epoch,
    pub trail_id: TrailId,
    pub segment: u32,
    pub segment_bytes: u64,
    pub created_unix_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderFlaw {
    Damaged,
    Newer(u16),
}

impl SegmentHeader {
    pub fn encode(&self) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(BLOCK as usize);
        let block = buf.as_mut_slice();
        put(block, 0, &MAGIC);
        put(block, 8, &FORMAT_VERSION.to_le_bytes());
        put(block, 10, &(if self.recycled { RECYCLED } else { 0 }).to_le_bytes());
        put(block, 12, &self.epoch.0.to_le_bytes());
        put(block, 16, &self.trail_id.0);
        put(block, 32, &self.segment.to_le_bytes());
        put(block, 40, &self.segment_bytes.to_le_bytes());
        put(block, 48, &self.created_unix_ms.to_le_bytes());
        let sum = crc32c::crc32c(&block[..56]);
        put(block, 56, &sum.to_le_bytes());
        buf
    }

    pub fn decode(block: &[u8]) -> Result<SegmentHeader, HeaderFlaw> {
        if array(block, 0) != MAGIC || crc32c::crc32c(&block[..56]) != u32_at(block, 56) {
            return Err(HeaderFlaw::Damaged);
        }
        let version = u16_at(block, 8);
        if version > FORMAT_VERSION {
            return Err(HeaderFlaw::Newer(version));
        }
        Ok(SegmentHeader {
            recycled: u16_at(block, 10) & RECYCLED != 0,
            epoch: Epoch(u32_at(block, 12)),
            trail_id: TrailId(array(block, 16)),
            segment: u32_at(block, 32),
            segment_bytes: u64_at(block, 40),
            created_unix_ms: u64_at(block, 48),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let header = SegmentHeader {
            recycled: true,
            epoch: Epoch(2),
            trail_id: TrailId(*b"0123456789abcdef"),
            segment: 9,
            segment_bytes: 65536,
            created_unix_ms: 1_700_000_000_000,
        };
        let block = header.encode();
        let hex: String = block.as_slice()[..60].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "48465345474d4e5401000100020000003031323334353637383961626364656609000000000000000000010000000000\
             0068e5cf8b01000039e594b2"
        );
        assert_eq!(SegmentHeader::decode(block.as_slice()), Ok(header));
        let mut newer = block.clone();
        put(newer.as_mut_slice(), 8, &2u16.to_le_bytes());
        assert_eq!(SegmentHeader::decode(newer.as_slice()), Err(HeaderFlaw::Damaged));
        let sum = crc32c::crc32c(&newer.as_slice()[..56]);
        put(newer.as_mut_slice(), 56, &sum.to_le_bytes());
        assert_eq!(SegmentHeader::decode(newer.as_slice()), Err(HeaderFlaw::Newer(2)));
    }
}
