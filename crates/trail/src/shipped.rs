//! A boxcar as it is shipped: the bytes that are equal on every node, checked before they are used.
//!
//! They are a boxcar from offset 32 on (the table in module [`boxcar`](crate::boxcar)): 64 bytes of head, then the
//! body, without padding. Shifted by those 32 bytes the table reads:
//!
//! ```text
//! offset length
//!      0      8  magic "HFBOXCAR"
//!      8      2  format version, 1
//!     10      1  kind
//!     11      1  zero
//!     12      4  epoch
//!     16     16  trail id
//!     32      4  segment number
//!     36      8  LSN of this boxcar
//!     44      8  written, milliseconds since 1970-01-01 UTC
//!     52      4  body length
//!     56      4  previous checksum
//!     60      4  checksum: CRC-32C of bytes 0..60 and the body
//!     64      n  body
//! ```
//! Bytes from the network that are not a valid boxcar are refused with a named flaw. No length in them is trusted
//! before it is compared with the number of bytes that arrived and with the room that the segment has at that position.

use std::fmt;
use std::sync::Arc;

use holdfast_types::{Epoch, Lsn};

use crate::boxcar::{
    BoxcarKind, FORMAT_VERSION, Head, MAGIC, SHIPPED, SHIPPED_HEAD_BYTES, disk_bytes, shipped_checksum,
};
use crate::bytes::{array, u16_at, u32_at, u64_at};
use crate::layout::{BLOCK, FIRST_SEGMENT, Layout, TrailId};

/// A boxcar's shipped bytes, and the fields of its head. The trail trusts only the bytes, never the fields next to
/// them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shipped {
    pub lsn: Lsn,
    /// LSN at which the next boxcar starts; after a segment end, this is in the next segment.
    pub end: Lsn,
    pub kind: BoxcarKind,
    pub epoch: Epoch,
    pub checksum: u32,
    pub previous_checksum: u32,
    /// Head and body; see the module's table.
    pub bytes: Arc<[u8]>,
}

/// Why bytes from the network are not a boxcar of this trail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShippedFlaw {
    /// Not the head of a boxcar.
    NoBoxcar,
    /// Its format is not known to this program.
    Newer(u16),
    OtherTrail(TrailId),
    /// The length in the head differs from the number of bytes that arrived.
    Length {
        claimed: u64,
        arrived: u64,
    },
    Checksum,
    /// Valid, but its kind is not known to this program.
    Kind(u8),
    /// A boxcar of that length is impossible at that position: the segment ends before its end, or it is not at a block
    /// boundary.
    Position {
        segment: u32,
        lsn: Lsn,
    },
}

impl fmt::Display for ShippedFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShippedFlaw::NoBoxcar => write!(f, "the bytes are not a boxcar"),
            ShippedFlaw::Newer(version) => {
                write!(f, "the boxcar has format {version}, which is newer than this program; upgrade this node first")
            }
            ShippedFlaw::OtherTrail(id) => write!(f, "the boxcar belongs to trail {id}"),
            ShippedFlaw::Length { claimed, arrived } => {
                write!(f, "the boxcar claims {claimed} bytes; {arrived} bytes arrived")
            }
            ShippedFlaw::Checksum => write!(f, "the boxcar's checksum does not match its bytes"),
            ShippedFlaw::Kind(code) => write!(f, "the boxcar has the unknown kind {code}"),
            ShippedFlaw::Position { segment, lsn } => {
                write!(f, "a boxcar of this length is impossible at LSN {lsn} in segment {segment}")
            }
        }
    }
}

impl Shipped {
    /// Checks bytes from the network, except their position in the trail, which is checked when they are received.
    pub fn parse(bytes: Arc<[u8]>, trail_id: TrailId, segment_bytes: u64) -> Result<Shipped, ShippedFlaw> {
        if bytes.len() < SHIPPED_HEAD_BYTES || array(&bytes, 0) != MAGIC {
            return Err(ShippedFlaw::NoBoxcar);
        }
        let version = u16_at(&bytes, 8);
        if version > FORMAT_VERSION {
            return Err(ShippedFlaw::Newer(version));
        }
        let body_bytes = u32_at(&bytes, 52);
        let (claimed, arrived) = (SHIPPED_HEAD_BYTES as u64 + u64::from(body_bytes), bytes.len() as u64);
        if claimed != arrived {
            return Err(ShippedFlaw::Length { claimed, arrived });
        }
        let checksum = u32_at(&bytes, 60);
        if shipped_checksum(&bytes) != checksum || bytes[11] != 0 {
            return Err(ShippedFlaw::Checksum);
        }
        let found = TrailId(array(&bytes, 16));
        if found != trail_id {
            return Err(ShippedFlaw::OtherTrail(found));
        }
        let kind = BoxcarKind::from_code(bytes[10]).ok_or(ShippedFlaw::Kind(bytes[10]))?;
        if kind != BoxcarKind::Data && body_bytes > 0 {
            return Err(ShippedFlaw::Length { claimed: SHIPPED_HEAD_BYTES as u64, arrived });
        }
        let (segment, lsn) = (u32_at(&bytes, 32), Lsn(u64_at(&bytes, 36)));
        let end =
            end_at(segment, lsn, kind, body_bytes, segment_bytes).ok_or(ShippedFlaw::Position { segment, lsn })?;
        let (epoch, previous_checksum) = (Epoch(u32_at(&bytes, 12)), u32_at(&bytes, 56));
        Ok(Shipped { lsn, end, kind, epoch, checksum, previous_checksum, bytes })
    }

    /// Makes the shipped form of a boxcar of this node's own trail from its head, and the bytes of head and body
    /// including the local part.
    pub(crate) fn new(head: &Head, whole: &[u8], layout: Layout) -> Shipped {
        Shipped {
            lsn: head.lsn,
            end: head.next(layout),
            kind: head.kind,
            epoch: head.epoch,
            checksum: head.checksum,
            previous_checksum: head.previous_checksum,
            bytes: whole[SHIPPED..].into(),
        }
    }

    /// The same boxcar with another body and a checksum that matches it: for a restore that ends inside a boxcar. Only a trail
    /// that ends with it can hold it. `None` if the body does not fit there.
    pub fn with_body(&self, body: &[u8], segment_bytes: u64) -> Option<Shipped> {
        let mut bytes = [self.bytes.get(..SHIPPED_HEAD_BYTES)?, body].concat();
        bytes[52..56].copy_from_slice(&u32::try_from(body.len()).ok()?.to_le_bytes());
        let checksum = shipped_checksum(&bytes);
        bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
        let trail_id = TrailId(array(&bytes, 16));
        Shipped::parse(bytes.into(), trail_id, segment_bytes).ok()
    }

    /// Whole records; empty unless the kind is `Data`.
    pub fn body(&self) -> &[u8] {
        self.bytes.get(SHIPPED_HEAD_BYTES..).unwrap_or_default()
    }

    /// Time at which the master wrote it, milliseconds since 1970-01-01 UTC by the master's clock.
    pub fn written_unix_ms(&self) -> u64 {
        if self.bytes.len() < SHIPPED_HEAD_BYTES { 0 } else { u64_at(&self.bytes, 44) }
    }

    /// Length on disk, padding included.
    pub(crate) fn disk_bytes(&self) -> u64 {
        disk_bytes(self.body().len() as u64)
    }
}

/// LSN at which the boxcar after one at that position starts; `None` when no boxcar can be at that position.
fn end_at(segment: u32, lsn: Lsn, kind: BoxcarKind, body_bytes: u32, segment_bytes: u64) -> Option<Lsn> {
    if segment < FIRST_SEGMENT {
        return None;
    }
    let start = u64::from(segment).checked_mul(segment_bytes)?;
    let offset = lsn.0.checked_sub(start)?;
    let len = disk_bytes(u64::from(body_bytes));
    // The last block of a segment is reserved for the segment end.
    let kept = if kind == BoxcarKind::SegmentEnd { 0 } else { BLOCK };
    let fits = offset.checked_add(len + kept)? <= segment_bytes;
    if offset < BLOCK || !offset.is_multiple_of(BLOCK) || !fits {
        return None;
    }
    let next_segment = u64::from(segment.checked_add(1)?).checked_mul(segment_bytes)?;
    match kind {
        BoxcarKind::SegmentEnd => next_segment.checked_add(BLOCK).map(Lsn),
        BoxcarKind::Data | BoxcarKind::Proof => lsn.0.checked_add(len).map(Lsn),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boxcar::{Builder, HEAD_BYTES};

    const ID: TrailId = TrailId(*b"0123456789abcdef");
    const SEGMENT_BYTES: u64 = 0x10000;

    fn built(kind: BoxcarKind, segment: u32, offset: u64, body: &[u8]) -> Arc<[u8]> {
        let mut builder = Builder::default();
        builder.begin();
        builder.push(body);
        let head = Head {
            proven: Lsn(0x1000),
            incarnation: 3,
            kind,
            epoch: Epoch(7),
            trail_id: ID,
            segment,
            lsn: Lsn((u64::from(segment) * SEGMENT_BYTES).wrapping_add(offset)),
            written_unix_ms: 1_700_000_000_000,
            body_bytes: 0,
            previous_checksum: 0xdead_beef,
            checksum: 0,
        };
        builder.finish(&head).0[SHIPPED..HEAD_BYTES + body.len()].into()
    }

    fn parse(bytes: &Arc<[u8]>) -> Result<Shipped, ShippedFlaw> {
        Shipped::parse(bytes.clone(), ID, SEGMENT_BYTES)
    }

    #[test]
    fn golden_bytes() {
        let bytes = built(BoxcarKind::Data, 1, 0x1000, b"hello");
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "4846424f584341520100010007000000303132333435363738396162636465660100000000100100000000000068e5cf8b010000\
             05000000efbeaddec699c55268656c6c6f"
        );
        let shipped = parse(&bytes).unwrap();
        assert_eq!((shipped.lsn, shipped.end, shipped.epoch), (Lsn(0x11000), Lsn(0x12000), Epoch(7)));
        assert_eq!(
            (shipped.kind, shipped.previous_checksum, shipped.body()),
            (BoxcarKind::Data, 0xdead_beef, &b"hello"[..])
        );
        assert_eq!(shipped.written_unix_ms(), 1_700_000_000_000);
    }

    #[test]
    fn with_another_body_it_is_still_a_boxcar() {
        let whole = parse(&built(BoxcarKind::Data, 1, 0x1000, &[7; 9000])).unwrap();
        let cut = whole.with_body(b"he", SEGMENT_BYTES).unwrap();
        assert_eq!((cut.lsn, cut.end, cut.body()), (whole.lsn, Lsn(0x12000), &b"he"[..]));
        assert_eq!((cut.previous_checksum, cut.epoch, cut.kind), (whole.previous_checksum, whole.epoch, whole.kind));
        assert_eq!(parse(&cut.bytes), Ok(cut));
        assert_eq!(whole.with_body(&vec![0; SEGMENT_BYTES as usize], SEGMENT_BYTES), None);
    }

    #[test]
    fn every_flipped_bit_and_every_other_length_is_refused() {
        let good = built(BoxcarKind::Data, 1, 0x1000, b"hello");
        for byte in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.to_vec();
                bytes[byte] ^= 1 << bit;
                assert!(parse(&bytes.into()).is_err(), "byte {byte} bit {bit}");
            }
        }
        for len in 0..good.len() {
            assert!(parse(&good[..len].into()).is_err(), "{len} bytes");
        }
        let longer: Arc<[u8]> = [&good[..], &[0]].concat().into();
        assert_eq!(parse(&longer), Err(ShippedFlaw::Length { claimed: 69, arrived: 70 }));
    }

    #[test]
    fn another_trail_and_impossible_places_are_refused() {
        let good = built(BoxcarKind::Data, 1, 0x1000, b"hello");
        let other = TrailId([9; 16]);
        assert_eq!(Shipped::parse(good.clone(), other, SEGMENT_BYTES), Err(ShippedFlaw::OtherTrail(ID)));
        let refused = |kind, segment, offset, body: &[u8]| {
            matches!(parse(&built(kind, segment, offset, body)), Err(ShippedFlaw::Position { .. }))
        };
        // Before the segment, in its header, off a block boundary, in its last block, after it; and invalid segments.
        assert!(refused(BoxcarKind::Data, 1, 0u64.wrapping_sub(0x1000), b""));
        assert!(refused(BoxcarKind::Data, 1, 0, b""));
        assert!(refused(BoxcarKind::Data, 1, 0x1200, b""));
        assert!(refused(BoxcarKind::Data, 1, 0xf000, b""));
        assert!(refused(BoxcarKind::Data, 1, 0xe000, &[0; 4096]));
        assert!(refused(BoxcarKind::SegmentEnd, 1, 0x10000, b""));
        assert!(refused(BoxcarKind::Data, 0, 0x1000, b""));
        assert!(refused(BoxcarKind::SegmentEnd, u32::MAX, 0x1000, b""));
        assert!(Shipped::parse(good.clone(), ID, 0).is_err() && Shipped::parse(good, ID, u64::MAX).is_err());
        let end = parse(&built(BoxcarKind::SegmentEnd, 1, 0xf000, b"")).unwrap();
        assert_eq!(end.end, Lsn(0x21000));
        let filled = parse(&built(BoxcarKind::SegmentEnd, 1, 0x1000, b"x"));
        assert!(matches!(filled, Err(ShippedFlaw::Length { .. })), "a segment end has no body");
    }
}
