//! The archived segment: a header that says what it is, and the boxcars of one finished segment.
//!
//! Little-endian. The content is the boxcars one behind the other as they travel between nodes (the table in
//! `holdfast_trail`'s module `shipped`): without the padding and without the proof of the node that wrote them. So it is
//! the same whichever node archives it.
//!
//! ```text
//! offset length
//!      0      8  magic "HFARCHIV"
//!      8      2  format version, 1
//!     10      1  codec of the content: 0 as it is, 1 zstd
//!     11      1  zero
//!     12      4  segment number
//!     16     16  trail id
//!     32      8  the trail's segment size in bytes
//!     40      4  epoch of the first boxcar
//!     44      4  epoch of the last boxcar: that of the name
//!     48      8  LSN of the first boxcar
//!     56      8  end: the LSN of the next segment's first boxcar
//!     64      8  the first boxcar was written, milliseconds since 1970-01-01 UTC by its master's clock
//!     72      8  the last boxcar was written, the same
//!     80      4  checksum of the boxcar before the first, 0 in front of the trail's first
//!     84      4  checksum of the last boxcar
//!     88      4  boxcars
//!     92      4  CRC-32C of the content
//!     96      8  content length
//!    104      8  stored length: bytes behind this header
//!    112      4  CRC-32C of the stored bytes
//!    116      8  zero
//!    124      4  CRC-32C of bytes 0..124
//!    128      n  the content, coded
//! ```
//! Nothing in it is believed before it is checked: the header by its checksum and by what can be at all, the stored bytes
//! by theirs, the content by its own, each boxcar as if it had come over a wire, and that each follows the one before.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use holdfast_trail::{BoxcarKind, Shipped, TrailId};
use holdfast_types::{Epoch, Lsn};

use crate::error::ArchiveError;
use crate::name::ObjectName;

pub const HEADER_BYTES: usize = 128;
pub const FORMAT_VERSION: u16 = 1;
const MAGIC: [u8; 8] = *b"HFARCHIV";
/// Of a segment, as the trail allows.
pub const SEGMENT_BYTES_MAX: u64 = 4 << 30;
/// A boxcar starts on a block, and a segment's first block is its header.
const BLOCK: u64 = 4096;
/// Of a boxcar as it travels, and where its body's length stands.
const BOXCAR_HEAD_BYTES: usize = 64;
const BOXCAR_BODY_BYTES: usize = 52;
/// The level at which content is coded: what one processor does at a few hundred MB a second.
const ZSTD_LEVEL: i32 = 1;

/// How the content is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    Raw,
    Zstd,
}

/// What the header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Manifest {
    pub codec: Codec,
    pub trail_id: TrailId,
    pub segment: u32,
    pub segment_bytes: u64,
    pub first_epoch: Epoch,
    pub last_epoch: Epoch,
    pub first: Lsn,
    pub end: Lsn,
    pub first_written_unix_ms: u64,
    pub last_written_unix_ms: u64,
    pub previous_checksum: u32,
    pub last_checksum: u32,
    pub boxcars: u32,
    pub content_crc: u32,
    pub content_bytes: u64,
    pub stored_bytes: u64,
    pub stored_crc: u32,
}

/// Most bytes an object of a trail with such segments can have.
pub fn bytes_max(segment_bytes: u64) -> u64 {
    // What cannot be made shorter is stored as it is.
    HEADER_BYTES as u64 + segment_bytes
}

impl Manifest {
    pub fn name(&self) -> ObjectName {
        let Manifest { trail_id, last_epoch: epoch, segment, last_checksum, .. } = *self;
        ObjectName { trail_id, epoch, segment, last_checksum }
    }

    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |offset: usize, field: &[u8]| bytes[offset..offset + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(8, &FORMAT_VERSION.to_le_bytes());
        put(10, &[matches!(self.codec, Codec::Zstd).into()]);
        put(12, &self.segment.to_le_bytes());
        put(16, &self.trail_id.0);
        put(32, &self.segment_bytes.to_le_bytes());
        put(40, &self.first_epoch.0.to_le_bytes());
        put(44, &self.last_epoch.0.to_le_bytes());
        put(48, &self.first.0.to_le_bytes());
        put(56, &self.end.0.to_le_bytes());
        put(64, &self.first_written_unix_ms.to_le_bytes());
        put(72, &self.last_written_unix_ms.to_le_bytes());
        put(80, &self.previous_checksum.to_le_bytes());
        put(84, &self.last_checksum.to_le_bytes());
        put(88, &self.boxcars.to_le_bytes());
        put(92, &self.content_crc.to_le_bytes());
        put(96, &self.content_bytes.to_le_bytes());
        put(104, &self.stored_bytes.to_le_bytes());
        put(112, &self.stored_crc.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..124]);
        bytes[124..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads the header of the object `name`, checks it, and that it is what the name says.
    pub fn decode(name: &ObjectName, object: &[u8]) -> Result<Manifest, ArchiveError> {
        let damaged = |what: &str| ArchiveError::Damaged { name: name.to_string(), what: what.to_owned() };
        let header: &[u8; HEADER_BYTES] =
            object.first_chunk().ok_or_else(|| damaged("it is shorter than its header"))?;
        if header[..8] != MAGIC {
            return Err(damaged("it does not begin as an archived segment does"));
        }
        if crc32c::crc32c(&header[..124]) != u32_at(header, 124) {
            return Err(damaged("its header's checksum does not fit"));
        }
        let found = u16::from_le_bytes([header[8], header[9]]);
        if found > FORMAT_VERSION {
            return Err(ArchiveError::Newer { name: name.to_string(), found, known: FORMAT_VERSION });
        }
        let codec = match header[10] {
            0 => Codec::Raw,
            1 => Codec::Zstd,
            _ => return Err(damaged("its content is coded in a way that this program does not know")),
        };
        let manifest = Manifest::fields(codec, header);
        if manifest.name() != *name {
            return Err(damaged(&format!("it is {} by what it says itself", manifest.name())));
        }
        match manifest.is_possible() {
            true => Ok(manifest),
            false => Err(damaged("its header is invalid")),
        }
    }

    fn fields(codec: Codec, header: &[u8; HEADER_BYTES]) -> Manifest {
        let mut trail_id = [0; 16];
        trail_id.copy_from_slice(&header[16..32]);
        Manifest {
            codec,
            segment: u32_at(header, 12),
            trail_id: TrailId(trail_id),
            segment_bytes: u64_at(header, 32),
            first_epoch: Epoch(u32_at(header, 40)),
            last_epoch: Epoch(u32_at(header, 44)),
            first: Lsn(u64_at(header, 48)),
            end: Lsn(u64_at(header, 56)),
            first_written_unix_ms: u64_at(header, 64),
            last_written_unix_ms: u64_at(header, 72),
            previous_checksum: u32_at(header, 80),
            last_checksum: u32_at(header, 84),
            boxcars: u32_at(header, 88),
            content_crc: u32_at(header, 92),
            content_bytes: u64_at(header, 96),
            stored_bytes: u64_at(header, 104),
            stored_crc: u32_at(header, 112),
        }
    }

    /// Sizes that can be, and positions that follow from them.
    fn is_possible(&self) -> bool {
        let sized = self.segment_bytes.is_multiple_of(BLOCK) && (1..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes);
        let (size, number) = (self.segment_bytes, u64::from(self.segment));
        sized
            && number > 0
            && self.first.0 == number * size + BLOCK
            && self.end.0 == (number + 1) * size + BLOCK
            && self.content_bytes <= size
            && self.stored_bytes <= size
            && self.first_epoch <= self.last_epoch
            && self.boxcars > 0
    }
}

fn u32_at(bytes: &[u8; HEADER_BYTES], offset: usize) -> u32 {
    u32::from_le_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
}

fn u64_at(bytes: &[u8; HEADER_BYTES], offset: usize) -> u64 {
    u64::from(u32_at(bytes, offset)) | u64::from(u32_at(bytes, offset + 4)) << 32
}

/// A finished segment in memory: what its object says, and its boxcars.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Codec and stored bytes are those of the object it was read from; of one from a trail, those of the raw content.
    pub manifest: Manifest,
    content: Vec<u8>,
}

impl Segment {
    /// Of the boxcars of a segment, from its first to its end, that are known to be sound. `None`: the end is not there.
    pub fn gather<E>(
        trail_id: TrailId,
        segment_bytes: u64,
        boxcars: impl Iterator<Item = Result<Shipped, E>>,
    ) -> Result<Option<Segment>, E> {
        let mut walk = Walk::default();
        let mut content = Vec::new();
        for boxcar in boxcars {
            let boxcar = boxcar?;
            content.extend_from_slice(&boxcar.bytes);
            walk.step(&boxcar);
            if boxcar.kind == BoxcarKind::SegmentEnd {
                return Ok(walk
                    .manifest(trail_id, segment_bytes, &content)
                    .map(|manifest| Segment { manifest, content }));
            }
        }
        Ok(None)
    }

    /// The object.
    pub fn encode(&self, codec: Codec) -> Result<Bytes, ArchiveError> {
        let coded = match codec {
            Codec::Raw => None,
            Codec::Zstd => {
                let name = self.manifest.name().to_string();
                let coded = zstd::bulk::compress(&self.content, ZSTD_LEVEL);
                Some(coded.map_err(|error| ArchiveError::store("code", name, error))?)
            }
        };
        let shorter = coded.as_deref().filter(|coded| coded.len() < self.content.len());
        let (codec, stored) = shorter.map_or((Codec::Raw, &self.content[..]), |coded| (Codec::Zstd, coded));
        let (stored_bytes, stored_crc) = (stored.len() as u64, crc32c::crc32c(stored));
        let header = Manifest { codec, stored_bytes, stored_crc, ..self.manifest }.encode();
        Ok([&header[..], stored].concat().into())
    }

    /// Reads the object `name` and checks every byte of it.
    pub fn decode(name: &ObjectName, object: &[u8]) -> Result<Segment, ArchiveError> {
        let damaged = |what: String| ArchiveError::Damaged { name: name.to_string(), what };
        let manifest = Manifest::decode(name, object)?;
        let stored = &object[HEADER_BYTES..];
        if stored.len() as u64 != manifest.stored_bytes {
            let what = format!("{} bytes follow its header, which names {}", stored.len(), manifest.stored_bytes);
            return Err(damaged(what));
        }
        if crc32c::crc32c(stored) != manifest.stored_crc {
            return Err(damaged("its checksum does not fit its bytes".to_owned()));
        }
        let content = match manifest.codec {
            Codec::Raw => stored.to_vec(),
            Codec::Zstd => inflate(stored, manifest.content_bytes)
                .map_err(|error| damaged(format!("its content cannot be decoded: {error}")))?,
        };
        if content.len() as u64 != manifest.content_bytes || crc32c::crc32c(&content) != manifest.content_crc {
            return Err(damaged("its content is not what its header says".to_owned()));
        }
        let segment = Segment { manifest, content };
        segment.check().map_err(damaged)?;
        Ok(segment)
    }

    /// Every boxcar, and that they add up to what the header says.
    fn check(&self) -> Result<(), String> {
        let mut walk = Walk::default();
        let mut at = self.manifest.first;
        let mut last = self.manifest.previous_checksum;
        let mut ended = false;
        for boxcar in self.boxcars_from(self.manifest.first) {
            let boxcar = boxcar?;
            if ended || boxcar.lsn != at {
                return Err(format!("a boxcar for LSN {} stands where that for LSN {at} is due", boxcar.lsn));
            }
            if boxcar.previous_checksum != last || walk.last.is_some_and(|epoch| boxcar.epoch < epoch) {
                return Err(format!("the boxcar at LSN {at} does not follow the one before it"));
            }
            (at, last, ended) = (boxcar.end, boxcar.checksum, boxcar.kind == BoxcarKind::SegmentEnd);
            walk.step(&boxcar);
        }
        let found = walk.manifest(self.manifest.trail_id, self.manifest.segment_bytes, &self.content);
        let found = found.map(|found| Manifest {
            codec: self.manifest.codec,
            stored_bytes: self.manifest.stored_bytes,
            stored_crc: self.manifest.stored_crc,
            ..found
        });
        if found == Some(self.manifest) { Ok(()) } else { Err("its boxcars are not what its header says".to_owned()) }
    }

    /// The boxcars from a position on, in order; each is checked as if it had come over a wire.
    pub fn boxcars_from(&self, lsn: Lsn) -> impl Iterator<Item = Result<Shipped, String>> + '_ {
        Boxcars { segment: self, offset: 0 }.skip_while(move |boxcar| boxcar.as_ref().is_ok_and(|b| b.lsn < lsn))
    }

    /// The boxcar at an offset of the content, and the offset behind it; `None` behind the last.
    pub fn boxcar_at(&self, offset: usize) -> Option<Result<(Shipped, usize), String>> {
        let rest = self.content.get(offset..).filter(|rest| !rest.is_empty())?;
        let Manifest { trail_id, segment_bytes, .. } = self.manifest;
        let length = rest.get(BOXCAR_BODY_BYTES..BOXCAR_HEAD_BYTES).and_then(|field| field.first_chunk());
        let Some(length) = length else { return Some(Err(format!("its last {} bytes are no boxcar", rest.len()))) };
        let bytes = BOXCAR_HEAD_BYTES + u32::from_le_bytes(*length) as usize;
        let whole = rest.get(..bytes).unwrap_or(rest);
        let parsed = Shipped::parse(Arc::from(whole), trail_id, segment_bytes);
        Some(parsed.map(|boxcar| (boxcar, offset + bytes)).map_err(|flaw| format!("at byte {offset}: {flaw}")))
    }

    /// Whether both hold the same boxcars, however each is stored; if not, where they part.
    pub fn difference(&self, other: &Segment) -> Option<String> {
        if self.content == other.content {
            return None;
        }
        let (mut mine, mut theirs) = (self.boxcars_from(Lsn(0)), other.boxcars_from(Lsn(0)));
        loop {
            match (mine.next(), theirs.next()) {
                (Some(Ok(mine)), Some(Ok(theirs))) if mine == theirs => {}
                (Some(Ok(mine)), _) => return Some(format!("they part at LSN {}", mine.lsn)),
                _ => return Some("they are of different lengths".to_owned()),
            }
        }
    }
}

/// Memory grows with what comes out, never beyond one byte more than is claimed.
fn inflate(stored: &[u8], claimed_bytes: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    zstd::stream::read::Decoder::new(stored)?.take(claimed_bytes + 1).read_to_end(&mut content)?;
    Ok(content)
}

struct Boxcars<'a> {
    segment: &'a Segment,
    offset: usize,
}

impl Iterator for Boxcars<'_> {
    type Item = Result<Shipped, String>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(match self.segment.boxcar_at(self.offset)? {
            Ok((boxcar, behind)) => {
                self.offset = behind;
                Ok(boxcar)
            }
            Err(what) => {
                self.offset = self.segment.content.len();
                Err(what)
            }
        })
    }
}

/// What a manifest says of the boxcars, found out by going over them.
#[derive(Default)]
struct Walk {
    first: Option<Shipped>,
    /// The last one's epoch.
    last: Option<Epoch>,
    last_checksum: u32,
    last_written_unix_ms: u64,
    end: Lsn,
    boxcars: u32,
    ended: bool,
}

impl Walk {
    fn step(&mut self, boxcar: &Shipped) {
        if self.first.is_none() {
            // Only its head is asked for later.
            self.first = Some(boxcar.clone());
        }
        self.last = Some(boxcar.epoch);
        self.last_checksum = boxcar.checksum;
        self.last_written_unix_ms = boxcar.written_unix_ms();
        self.end = boxcar.end;
        self.boxcars += 1;
        self.ended = boxcar.kind == BoxcarKind::SegmentEnd;
    }

    /// `None` when the segment's end is not there.
    fn manifest(&self, trail_id: TrailId, segment_bytes: u64, content: &[u8]) -> Option<Manifest> {
        let first = self.first.as_ref().filter(|_| self.ended)?;
        let (content_bytes, content_crc) = (content.len() as u64, crc32c::crc32c(content));
        Some(Manifest {
            codec: Codec::Raw,
            trail_id,
            segment: u32::try_from(first.lsn.0 / segment_bytes).ok()?,
            segment_bytes,
            first_epoch: first.epoch,
            last_epoch: self.last?,
            first: first.lsn,
            end: self.end,
            first_written_unix_ms: first.written_unix_ms(),
            last_written_unix_ms: self.last_written_unix_ms,
            previous_checksum: first.previous_checksum,
            last_checksum: self.last_checksum,
            boxcars: self.boxcars,
            content_crc,
            content_bytes,
            stored_bytes: content_bytes,
            stored_crc: content_crc,
        })
    }
}

#[cfg(test)]
mod tests;
