//! The files of a trail directory, and how an LSN maps to one of them.
//!
//! ```text
//! control                      identity of the trail and proven position (module control)
//! control.new                  the next control file; ignored until it is exchanged for the current one
//! lock                         held by the process that has the trail open
//! EEEEEEEE-SSSSSSSS.segment    segment number S (hexadecimal), put into service in epoch E
//! spare-NNNNNNNN.segment       a whole segment file waiting for its next use
//! cut-LLLLLLLLLLLLLLLL-I.tail  what was cut off at LSN L, written by incarnation I or before: the torn tail of a segment,
//!                              or the boxcars that a new master did not have, one after the other over all segments
//! ```
//! Segment S covers the LSNs from `S * segment_bytes` up to `(S + 1) * segment_bytes`; its first block is the segment
//! header. Numbering starts at 1, so LSN 0 is before everything. Boxcars never cross segments, and every finished
//! segment ends with a boxcar of kind `SegmentEnd`, which may come before the segment is full.

use std::fmt;
use std::path::{Path, PathBuf};

use holdfast_seams::BLOCK_BYTES;
use holdfast_types::{Epoch, Lsn};

pub const BLOCK: u64 = BLOCK_BYTES as u64;
/// Maximum segment size: boxcar lengths are 32-bit, and recovery reads a segment at a time.
pub const SEGMENT_BYTES_MAX: u64 = 4 << 30;
/// Minimum segment size: the header, the segment end, and room between them.
pub const SEGMENT_BYTES_MIN: u64 = 4 * BLOCK;
pub const FIRST_SEGMENT: u32 = 1;

pub const CONTROL: &str = "control";
pub const CONTROL_NEW: &str = "control.new";
pub const LOCK: &str = "lock";

/// Identifies a trail. It is random and chosen when the trail is made; the trails of its standbys have the same id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrailId(pub [u8; 16]);

impl fmt::Display for TrailId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Segment arithmetic of one trail.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub segment_bytes: u64,
}

impl Layout {
    /// The first position a boxcar can have in a segment.
    pub fn first_lsn(self, segment: u32) -> Lsn {
        Lsn(u64::from(segment) * self.segment_bytes + BLOCK)
    }

    pub fn segment_of(self, lsn: Lsn) -> u32 {
        (lsn.0 / self.segment_bytes) as u32
    }

    pub fn offset_of(self, lsn: Lsn) -> u64 {
        lsn.0 % self.segment_bytes
    }

    pub fn lsn(self, segment: u32, offset: u64) -> Lsn {
        Lsn(u64::from(segment) * self.segment_bytes + offset)
    }

    /// Bytes for boxcars in an empty segment: without the header and the block that the segment end needs.
    pub fn usable_bytes(self) -> u64 {
        self.segment_bytes - 2 * BLOCK
    }
}

pub fn segment_name(epoch: Epoch, segment: u32) -> String {
    format!("{:08x}-{segment:08x}.segment", epoch.0)
}

pub fn spare_name(number: u32) -> String {
    format!("spare-{number:08x}.segment")
}

pub fn cut_name(lsn: Lsn, incarnation: u32) -> String {
    format!("cut-{:016x}-{incarnation}.tail", lsn.0)
}

/// The meaning of a file name in the trail directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Name {
    Segment { epoch: Epoch, segment: u32 },
    Spare(u32),
    Other,
}

pub fn parse_name(name: &str) -> Name {
    let Some((left, right)) = name.strip_suffix(".segment").and_then(|stem| stem.split_once('-')) else {
        return Name::Other;
    };
    let hex = |text: &str| (text.len() == 8).then(|| u32::from_str_radix(text, 16).ok()).flatten();
    match (left, hex(left), hex(right)) {
        ("spare", _, Some(number)) => Name::Spare(number),
        (_, Some(epoch), Some(segment)) => Name::Segment { epoch: Epoch(epoch), segment },
        _ => Name::Other,
    }
}

pub fn segment_path(dir: &Path, epoch: Epoch, segment: u32) -> PathBuf {
    dir.join(segment_name(epoch, segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_positions_go_there_and_back() {
        assert_eq!(segment_name(Epoch(3), 0x1f), "00000003-0000001f.segment");
        assert_eq!(parse_name("00000003-0000001f.segment"), Name::Segment { epoch: Epoch(3), segment: 0x1f });
        assert_eq!(parse_name(&spare_name(7)), Name::Spare(7));
        assert_eq!(parse_name("control"), Name::Other);
        assert_eq!(parse_name("00000003-1f.segment"), Name::Other);
        let layout = Layout { segment_bytes: 65536 };
        let lsn = layout.first_lsn(5);
        assert_eq!((layout.segment_of(lsn), layout.offset_of(lsn)), (5, 4096));
    }
}
