//! The boxcar: one group commit, one write, one sync.
//!
//! It starts on a fresh block and is padded with zeros to whole blocks, so that an acknowledged block is never
//! rewritten. Padding counts in the LSN but is not shipped. Integers are little-endian.
//!
//! ```text
//! offset length
//!      0      8  proven: all bytes below this LSN were durable on this node when the boxcar was written
//!      8      4  incarnation: number of the open of the trail on this node that wrote it
//!     12      4  proof check: CRC-32C of bytes 0..12 and the checksum at 92
//!     16     16  zero
//! ---- from here on the bytes are equal on every node that has the boxcar ----
//!     32      8  magic "HFBOXCAR"
//!     40      2  format version, 1
//!     42      1  kind: 1 data, 2 proof (empty), 3 segment end (empty, the next boxcar is in the next segment)
//!     43      1  zero
//!     44      4  epoch
//!     48     16  trail id
//!     64      4  segment number
//!     68      8  LSN of this boxcar
//!     76      8  written, milliseconds since 1970-01-01 UTC
//!     84      4  body length
//!     88      4  previous checksum: that of the boxcar before, 0 in the trail's first
//!     92      4  checksum: CRC-32C of bytes 32..92 and the body
//!     96      n  body: whole records
//! ```
//! The proof is local because durability is: if it were among the shipped bytes, a standby would hold its master's
//! proof for blocks that its own disk never confirmed. The incarnation is local for that reason too. The proof's check
//! covers the boxcar's checksum, so that a proof left by an older boxcar in a torn sector proves nothing.

use std::fmt;

use holdfast_seams::{AlignedBuf, round_up_to_block};
use holdfast_types::{Epoch, Lsn};

use crate::bytes::{array, put, u16_at, u32_at, u64_at};
use crate::layout::{BLOCK, Layout, TrailId};

pub const HEAD_BYTES: usize = 96;
pub const FORMAT_VERSION: u16 = 1;
pub const MAGIC: [u8; 8] = *b"HFBOXCAR";
/// Offset of the format version.
pub const VERSION: usize = 40;
/// Offset of the first byte that is equal on every node.
pub const SHIPPED: usize = 32;
/// Length of the part of the head that is shipped.
pub const SHIPPED_HEAD_BYTES: usize = HEAD_BYTES - SHIPPED;
const CHECKSUM: usize = 92;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BoxcarKind {
    /// Carries records.
    Data,
    /// Empty; written when the trail falls idle or closes, so that the boxcar before it is proven durable.
    Proof,
    /// Empty; the rest of the segment is unused.
    SegmentEnd,
}

impl BoxcarKind {
    fn code(self) -> u8 {
        match self {
            BoxcarKind::Data => 1,
            BoxcarKind::Proof => 2,
            BoxcarKind::SegmentEnd => 3,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<BoxcarKind> {
        [BoxcarKind::Data, BoxcarKind::Proof, BoxcarKind::SegmentEnd].into_iter().find(|kind| kind.code() == code)
    }
}

/// The head: everything that precedes the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    pub proven: Lsn,
    pub incarnation: u32,
    pub kind: BoxcarKind,
    pub epoch: Epoch,
    pub trail_id: TrailId,
    pub segment: u32,
    pub lsn: Lsn,
    pub written_unix_ms: u64,
    pub body_bytes: u32,
    pub previous_checksum: u32,
    pub checksum: u32,
}

impl Head {
    /// Length on disk, padding included.
    pub fn disk_bytes(&self) -> u64 {
        disk_bytes(u64::from(self.body_bytes))
    }

    /// LSN at which the next boxcar of this segment starts.
    pub fn end(&self) -> Lsn {
        Lsn(self.lsn.0 + self.disk_bytes())
    }

    /// LSN at which the next boxcar starts; after a segment end, this is in the next segment.
    pub(crate) fn next(&self, layout: Layout) -> Lsn {
        match self.kind {
            BoxcarKind::SegmentEnd => layout.first_lsn(self.segment + 1),
            BoxcarKind::Data | BoxcarKind::Proof => self.end(),
        }
    }
}

/// What the next boxcar needs to know about a trail's last boxcar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Last {
    pub checksum: u32,
    pub epoch: Epoch,
}

/// Bytes on disk of a boxcar whose body has `body_bytes` bytes.
pub fn disk_bytes(body_bytes: u64) -> u64 {
    round_up_to_block(HEAD_BYTES as u64 + body_bytes)
}

/// Why the bytes at a position are not the boxcar that belongs there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// The block is all zeros: nothing was ever written here.
    Zero,
    /// No boxcar starts here: the bytes are something else, or the earlier content of a recycled segment.
    NoBoxcar,
    /// The boxcar belongs here, but its format is newer than this program.
    Newer(u16),
    /// The boxcar belongs here, but its length is impossible.
    Length(u32),
    /// The boxcar belongs here, but it is incomplete or damaged.
    Checksum,
    /// The boxcar is whole, but its proof is damaged.
    Proof,
    /// The boxcar is whole, but does not follow the one before it.
    Chain,
    /// Left by an earlier open of the trail, which was cut back to before this position.
    Incarnation(u32),
    /// The file ends here.
    EndOfFile,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::Zero => write!(f, "the block is zero where a boxcar must be"),
            Flaw::NoBoxcar => write!(f, "no boxcar starts here"),
            Flaw::Newer(version) => write!(f, "the boxcar has format {version}, which is newer than this program"),
            Flaw::Length(bytes) => write!(f, "the boxcar claims an impossible length of {bytes} bytes"),
            Flaw::Checksum => write!(f, "the boxcar's checksum does not match its bytes"),
            Flaw::Proof => write!(f, "the boxcar's durability proof is damaged"),
            Flaw::Chain => write!(f, "the boxcar does not follow the one before it"),
            Flaw::Incarnation(number) => write!(f, "the boxcar was left over by incarnation {number}"),
            Flaw::EndOfFile => write!(f, "the file is too short"),
        }
    }
}

/// What a boxcar at a position must have in its head.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    pub trail_id: TrailId,
    pub segment: u32,
    pub lsn: Lsn,
    /// Bytes from here to the segment's end.
    pub room_bytes: u64,
}

/// Reads a head without checking the body's checksum: whether a boxcar claims this position, and how long it is.
pub fn read_head(block: &[u8], expected: &Expected) -> Result<Head, Flaw> {
    let shipped_matches = array(block, SHIPPED) == MAGIC
        && array(block, 48) == expected.trail_id.0
        && u32_at(block, 64) == expected.segment
        && u64_at(block, 68) == expected.lsn.0;
    if !shipped_matches {
        return Err(if is_zero(block) { Flaw::Zero } else { Flaw::NoBoxcar });
    }
    let version = u16_at(block, VERSION);
    if version > FORMAT_VERSION {
        return Err(Flaw::Newer(version));
    }
    let body_bytes = u32_at(block, 84);
    if disk_bytes(u64::from(body_bytes)) > expected.room_bytes {
        return Err(Flaw::Length(body_bytes));
    }
    Ok(Head {
        proven: Lsn(u64_at(block, 0)),
        incarnation: u32_at(block, 8),
        kind: BoxcarKind::from_code(block[42]).ok_or(Flaw::Checksum)?,
        epoch: Epoch(u32_at(block, 44)),
        trail_id: expected.trail_id,
        segment: expected.segment,
        lsn: expected.lsn,
        written_unix_ms: u64_at(block, 76),
        body_bytes,
        previous_checksum: u32_at(block, 88),
        checksum: u32_at(block, CHECKSUM),
    })
}

pub fn is_zero(block: &[u8]) -> bool {
    static ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];
    block == ZEROS
}

/// Whether a boxcar could start at a block; a cheap check before it is read.
pub fn may_start(block: &[u8]) -> bool {
    block[SHIPPED..SHIPPED + MAGIC.len()] == MAGIC
}

/// Checks a whole boxcar, head and body in `bytes`: the checksum, then the proof.
pub fn check_whole(bytes: &[u8]) -> Result<(), Flaw> {
    if checksum(bytes) != u32_at(bytes, CHECKSUM) || bytes[43] != 0 {
        return Err(Flaw::Checksum);
    }
    if proof_check(bytes) != u32_at(bytes, 12) {
        return Err(Flaw::Proof);
    }
    Ok(())
}

fn checksum(bytes: &[u8]) -> u32 {
    shipped_checksum(&bytes[SHIPPED..])
}

/// Computes the checksum of shipped bytes.
pub fn shipped_checksum(shipped: &[u8]) -> u32 {
    let head = crc32c::crc32c(&shipped[..CHECKSUM - SHIPPED]);
    crc32c::crc32c_append(head, &shipped[SHIPPED_HEAD_BYTES..])
}

/// Fills `blocks`, which has the boxcar's length on disk, with shipped bytes, the proof of the node that received them,
/// and padding.
pub fn put_received(blocks: &mut [u8], shipped: &[u8], proven: Lsn, incarnation: u32) {
    blocks[..SHIPPED].fill(0);
    put(blocks, 0, &proven.0.to_le_bytes());
    put(blocks, 8, &incarnation.to_le_bytes());
    put(blocks, SHIPPED, shipped);
    blocks[SHIPPED + shipped.len()..].fill(0);
    let check = proof_check(blocks);
    put(blocks, 12, &check.to_le_bytes());
}

fn proof_check(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[CHECKSUM..HEAD_BYTES])
}

/// A boxcar under construction in an aligned buffer, ready for one write. The buffer is reused.
#[derive(Default)]
pub struct Builder {
    buf: AlignedBuf,
    used: usize,
}

impl Builder {
    pub fn begin(&mut self) {
        self.used = HEAD_BYTES;
        self.buf.grow_to(HEAD_BYTES);
    }

    pub fn push(&mut self, records: &[u8]) {
        let end = self.used + records.len();
        self.buf.grow_to(end);
        self.buf.as_mut_slice()[self.used..end].copy_from_slice(records);
        self.used = end;
    }

    pub fn body_bytes(&self) -> usize {
        self.used - HEAD_BYTES
    }

    /// Fills in the head (whose length and checksum are computed here) and the padding; returns the blocks to write
    /// and the checksum.
    pub fn finish(&mut self, head: &Head) -> (&[u8], u32) {
        let body_bytes = self.body_bytes() as u32;
        let whole = round_up_to_block(self.used as u64) as usize;
        let block = &mut self.buf.as_mut_slice()[..whole];
        block[self.used..].fill(0);
        block[..HEAD_BYTES].fill(0);
        put(block, 0, &head.proven.0.to_le_bytes());
        put(block, 8, &head.incarnation.to_le_bytes());
        put(block, SHIPPED, &MAGIC);
        put(block, VERSION, &FORMAT_VERSION.to_le_bytes());
        put(block, 42, &[head.kind.code()]);
        put(block, 44, &head.epoch.0.to_le_bytes());
        put(block, 48, &head.trail_id.0);
        put(block, 64, &head.segment.to_le_bytes());
        put(block, 68, &head.lsn.0.to_le_bytes());
        put(block, 76, &head.written_unix_ms.to_le_bytes());
        put(block, 84, &body_bytes.to_le_bytes());
        put(block, 88, &head.previous_checksum.to_le_bytes());
        let sum = checksum(&block[..self.used]);
        put(block, CHECKSUM, &sum.to_le_bytes());
        let check = proof_check(&block[..self.used]);
        put(block, 12, &check.to_le_bytes());
        debug_assert!((block.len() as u64).is_multiple_of(BLOCK));
        (block, sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TrailId = TrailId(*b"0123456789abcdef");

    fn head() -> Head {
        Head {
            proven: Lsn(0x11000),
            incarnation: 3,
            kind: BoxcarKind::Data,
            epoch: Epoch(7),
            trail_id: ID,
            segment: 1,
            lsn: Lsn(0x11000),
            written_unix_ms: 1_700_000_000_000,
            body_bytes: 5,
            previous_checksum: 0xdead_beef,
            checksum: 0,
        }
    }

    fn expected() -> Expected {
        Expected { trail_id: ID, segment: 1, lsn: Lsn(0x11000), room_bytes: 4096 }
    }

    fn built() -> Vec<u8> {
        let mut builder = Builder::default();
        builder.begin();
        builder.push(b"hello");
        builder.finish(&head()).0.to_vec()
    }

    #[test]
    fn golden_bytes() {
        let block = built();
        let hex: String = block[..104].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "00100100000000000300000059e3811b00000000000000000000000000000000\
             4846424f584341520100010007000000303132333435363738396162636465660100000000100100000000000068e5cf8b010000\
             05000000efbeaddec699c55268656c6c6f000000"
        );
        assert!(block[104..].iter().all(|byte| *byte == 0) && block.len() == 4096);
    }

    #[test]
    fn reads_back_what_was_built() {
        let block = built();
        let read = read_head(&block, &expected()).unwrap();
        assert_eq!(Head { checksum: 0, ..read }, head());
        assert_eq!(check_whole(&block[..HEAD_BYTES + 5]), Ok(()));
        assert_eq!(read.end(), Lsn(0x12000));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        for byte in (0..16).chain(SHIPPED..HEAD_BYTES + 5) {
            for bit in 0..8 {
                let mut block = built();
                block[byte] ^= 1 << bit;
                let verdict = read_head(&block, &expected())
                    .and_then(|head| check_whole(&block[..HEAD_BYTES + head.body_bytes as usize]));
                assert!(verdict.is_err(), "byte {byte} bit {bit}");
            }
        }
    }

    #[test]
    fn the_proof_is_not_shipped() {
        let mut builder = Builder::default();
        builder.begin();
        builder.push(b"hello");
        let other = Head { proven: Lsn(0x9000), incarnation: 99, ..head() };
        assert_eq!(builder.finish(&other).0[SHIPPED..], built()[SHIPPED..]);
    }

    #[test]
    fn a_receiver_puts_its_own_proof_in_front() {
        let mut builder = Builder::default();
        builder.begin();
        builder.push(b"hello");
        let theirs = builder.finish(&Head { proven: Lsn(0x9000), incarnation: 99, ..head() }).0;
        let mut blocks = vec![0xee; 4096];
        put_received(&mut blocks, &theirs[SHIPPED..HEAD_BYTES + 5], Lsn(0x11000), 3);
        assert_eq!(blocks, built());
    }
}
