//! The manifest: what a dump is, and where each page of it is. It is put last, so a dump that has one is whole.
//!
//! `dumps/TIME-LSN-HASH.hfd`: when the dump was taken, the LSN that it shows in 16 hexadecimal digits, and the first 16
//! digits of the hash at its end. Little-endian.
//!
//! ```text
//! offset length
//!      0      8  magic "HFDUMP01"
//!      8      2  format version, 1
//!     10      2  zero
//!     12      4  head length h
//!     16      8  body length
//!     24      8  stored body length s
//!     32      h  head: JSON ([`Head`])
//!   32+h      4  CRC-32C of everything before, so that a list needs only the head
//!   36+h      s  body, coded with zstd
//! 36+h+s     32  BLAKE3 of everything before
//! ```
//! The body:
//!
//! ```text
//!      4  number of chunks; for each:
//!     32  its hash
//!      4  its pages
//! for each volume of the head, in order:
//!      4  number of runs; for each run of pages, in the order of the volume's pages:
//!      4  chunk, by its place above
//!      4  first page in the chunk, from 0
//!      4  pages
//! 16 each  the first half of each page's BLAKE3 hash: the next dump compares its pages with them
//! ```

use crate::chunk::{CHUNK_PAGES, ChunkId};
use crate::error::DumpError;
use crate::moment::compact;
use bytes::Bytes;
use holdfast_engine::CopyPlan;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read;

pub const FORMAT_VERSION: u16 = 1;
const MAGIC: [u8; 8] = *b"HFDUMP01";
const HEADER_BYTES: usize = 32;
const HASH_BYTES: usize = 32;
/// Bytes of a page's hash.
pub const PAGE_HASH_BYTES: usize = 16;
const HEAD_BYTES_MAX: u64 = 64 << 20;
/// 400 million pages.
const BODY_BYTES_MAX: u64 = 16 << 30;
pub const OBJECT_BYTES_MAX: u64 = BODY_BYTES_MAX + HEAD_BYTES_MAX;
/// What is read of a manifest at first for its head.
pub const HEAD_READ_BYTES: u64 = 64 << 10;
const ZSTD_LEVEL: i32 = 3;
/// A body that is longer than the second is at most so many times as long as its compressed form.
const COMPRESSED_MAX: u64 = 64;
const SMALL_BODY_BYTES: u64 = 1 << 20;

/// The folder of manifests.
pub const DIRECTORY: &str = "dumps";

/// What a dump is.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The release that made it.
    pub program: String,
    /// The server that it was taken of.
    pub node: String,
    /// When it was taken, by the clock of the machine that took it, milliseconds since 1970-01-01 UTC.
    pub taken_unix_ms: u64,
    /// The plan of its copy: trail, positions, list of databases, volumes.
    pub plan: CopyPlan,
    /// Of the boxcar that ends at the dump's LSN.
    pub shown_checksum: u32,
    /// Settings, by name of the file.
    pub files: BTreeMap<String, String>,
    /// Bytes of the databases.
    pub bytes: u64,
    /// Bytes of the chunks that this dump has stored.
    pub stored_bytes: u64,
    pub stored_chunks: u64,
}

impl Head {
    /// Everything below is in the dump, and nothing else.
    pub fn lsn(&self) -> u64 {
        self.plan.shown
    }

    /// The first segment of which a restore needs the archive's object, to apply it or to find the dump's history.
    pub fn first_needed(&self) -> u32 {
        let own = (self.plan.shown / self.plan.segment_bytes.max(1)) as u32;
        self.plan.first_segment.min(own)
    }

    /// The reading of the commit clock that no commit in the dump is later than, milliseconds since 1970-01-01 UTC.
    pub fn clock_unix_ms(&self) -> u64 {
        holdfast_types::Hlc(self.plan.clock).unix_ms()
    }

    /// The trail's id as in names of the archive.
    pub fn trail_id(&self) -> String {
        holdfast_trail::TrailId(self.plan.trail_id).to_string()
    }
}

/// A chunk that a dump uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UsedChunk {
    pub id: ChunkId,
    pub pages: u32,
}

/// Consecutive pages of a volume that are consecutive in a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The chunk's place in the manifest.
    pub chunk: u32,
    /// The first page's place in the chunk.
    pub slot: u32,
    pub pages: u32,
}

/// Where a volume's pages are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VolumeMap {
    pub runs: Vec<Run>,
    /// [`PAGE_HASH_BYTES`] for each page.
    pub hashes: Vec<u8>,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    pub head: Head,
    pub chunks: Vec<UsedChunk>,
    /// In the order of the plan's volumes.
    pub volumes: Vec<VolumeMap>,
}

/// What a dump's next one compares a page with.
pub fn page_hash(page: &[u8]) -> [u8; PAGE_HASH_BYTES] {
    let mut hash = [0; PAGE_HASH_BYTES];
    hash.copy_from_slice(&blake3::hash(page).as_bytes()[..PAGE_HASH_BYTES]);
    hash
}

impl Manifest {
    /// Its name and the object.
    pub fn encode(&self) -> Result<(String, Bytes), DumpError> {
        let failed = |what: String| DumpError::Encode(what);
        let head = serde_json::to_vec(&self.head).map_err(|e| failed(e.to_string()))?;
        let body = self.body();
        let stored = zstd::bulk::compress(&body, ZSTD_LEVEL).map_err(|e| failed(e.to_string()))?;
        if head.len() as u64 > HEAD_BYTES_MAX || body.len() as u64 > BODY_BYTES_MAX {
            return Err(failed(format!("it has {} and {} bytes, which is more than is read", head.len(), body.len())));
        }
        let mut object = Vec::with_capacity(HEADER_BYTES + head.len() + stored.len() + HASH_BYTES + 4);
        object.extend_from_slice(&MAGIC);
        object.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        object.extend_from_slice(&[0; 2]);
        object.extend_from_slice(&(head.len() as u32).to_le_bytes());
        object.extend_from_slice(&(body.len() as u64).to_le_bytes());
        object.extend_from_slice(&(stored.len() as u64).to_le_bytes());
        object.extend_from_slice(&head);
        object.extend_from_slice(&crc32c::crc32c(&object).to_le_bytes());
        object.extend_from_slice(&stored);
        let hash = blake3::hash(&object);
        object.extend_from_slice(hash.as_bytes());
        Ok((name(&self.head, &hash), object.into()))
    }

    fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let number = |body: &mut Vec<u8>, n: u32| body.extend_from_slice(&n.to_le_bytes());
        number(&mut body, self.chunks.len() as u32);
        for chunk in &self.chunks {
            body.extend_from_slice(&chunk.id.0);
            number(&mut body, chunk.pages);
        }
        for volume in &self.volumes {
            number(&mut body, volume.runs.len() as u32);
            for run in &volume.runs {
                [run.chunk, run.slot, run.pages].into_iter().for_each(|n| number(&mut body, n));
            }
            body.extend_from_slice(&volume.hashes);
        }
        body
    }

    /// Reads the object `name` and checks every byte of it.
    pub fn decode(name_given: &str, object: &[u8]) -> Result<Manifest, DumpError> {
        let damaged = |what: &str| DumpError::Damaged { name: name_given.to_owned(), what: what.to_owned() };
        let (head, head_end) = decode_head(name_given, object)?;
        let (content, hash) =
            object.split_last_chunk::<HASH_BYTES>().ok_or_else(|| damaged("it is shorter than its hash"))?;
        let found = blake3::hash(content);
        if found.as_bytes() != hash {
            return Err(damaged("its hash does not fit its bytes"));
        }
        if name(&head, &found) != name_given {
            return Err(damaged(&format!("it is {} by what it says itself", name(&head, &found))));
        }
        let (body_bytes, stored_bytes) = (u64_at(object, 16), u64_at(object, 24));
        let stored = content.get(head_end..).filter(|stored| stored.len() as u64 == stored_bytes);
        let stored = stored.ok_or_else(|| damaged("its length is not what its header says"))?;
        if body_bytes > BODY_BYTES_MAX.min(possible_body_bytes(&head, stored_bytes)) {
            return Err(damaged("its header is not possible"));
        }
        let mut body = Vec::new();
        let decoder = zstd::stream::read::Decoder::new(stored);
        let read = decoder.and_then(|decoder| decoder.take(body_bytes + 1).read_to_end(&mut body));
        if read.is_err() || body.len() as u64 != body_bytes {
            return Err(damaged("its content cannot be decoded"));
        }
        let parsed = Body(&body).parse(&head).filter(|(chunks, volumes)| is_possible(&head, chunks, volumes));
        let (chunks, volumes) = parsed.ok_or_else(|| damaged("its content is not possible"))?;
        Ok(Manifest { head, chunks, volumes })
    }
}

/// No body is longer: by the pages that the head has, each in a chunk and a run of its own at most, and by its compressed form, as
/// hashes are hardly compressed. A few bytes that claim more would fill the memory.
fn possible_body_bytes(head: &Head, stored_bytes: u64) -> u64 {
    const PAGE: u64 = 32 + 4 + 12 + PAGE_HASH_BYTES as u64;
    let pages = head.plan.volumes.iter().map(|volume| u64::from(volume.pages)).sum::<u64>();
    let by_head = pages.saturating_mul(PAGE).saturating_add(4 + 4 * head.plan.volumes.len() as u64);
    by_head.min(stored_bytes.saturating_mul(COMPRESSED_MAX).saturating_add(SMALL_BODY_BYTES))
}

fn name(head: &Head, hash: &blake3::Hash) -> String {
    format!("{DIRECTORY}/{}-{:016x}-{}.hfd", compact(head.taken_unix_ms), head.lsn(), &hash.to_hex()[..16])
}

/// How many bytes of an object its head takes, by the first [`HEADER_BYTES`]; `None` if that is not possible.
pub fn head_bytes(object: &[u8]) -> Option<u64> {
    let length = object.get(12..16)?.first_chunk().map(|bytes| u64::from(u32::from_le_bytes(*bytes)))?;
    (length <= HEAD_BYTES_MAX).then_some(HEADER_BYTES as u64 + length + 4)
}

/// How long an object is by its header.
pub fn object_bytes(object: &[u8]) -> Option<u64> {
    head_bytes(object)?.checked_add(u64_at(object, 24))?.checked_add(HASH_BYTES as u64)
}

/// Reads the head of an object of which the beginning is there. Returns where it ends, too.
pub fn decode_head(name: &str, object: &[u8]) -> Result<(Head, usize), DumpError> {
    let damaged = |what: &str| DumpError::Damaged { name: name.to_owned(), what: what.to_owned() };
    if object.len() < HEADER_BYTES {
        return Err(damaged("it is shorter than its header"));
    }
    if object[..8] != MAGIC {
        return Err(damaged("it does not begin as a manifest does"));
    }
    let found = u16::from_le_bytes([object[8], object[9]]);
    if found > FORMAT_VERSION {
        return Err(DumpError::Newer { name: name.to_owned(), found, known: FORMAT_VERSION });
    }
    let end = head_bytes(object).ok_or_else(|| damaged("its header is not possible"))? as usize;
    let whole = object.get(..end).ok_or_else(|| damaged("it is shorter than its head"))?;
    let (head, sum) = whole.split_last_chunk::<4>().ok_or_else(|| damaged("it is shorter than its head"))?;
    if crc32c::crc32c(head) != u32::from_le_bytes(*sum) {
        return Err(damaged("the checksum of its head does not fit"));
    }
    let parsed = serde_json::from_slice(&head[HEADER_BYTES..]);
    let head: Head = parsed.map_err(|e| damaged(&format!("its head cannot be read: {e}")))?;
    let plan = &head.plan;
    let last_segment = plan.shown.checked_div(plan.segment_bytes).and_then(|segment| u32::try_from(segment).ok());
    if last_segment.is_none() {
        return Err(damaged("its head names a place that no trail has"));
    }
    // They are shown on a terminal.
    if [&head.node, &head.program].into_iter().any(|text| text.contains(char::is_control)) {
        return Err(damaged("the name of its node has control characters"));
    }
    Ok((head, end))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |field| u64::from_le_bytes(*field))
}

/// The body's bytes that are not read yet.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn parse(mut self, head: &Head) -> Option<(Vec<UsedChunk>, Vec<VolumeMap>)> {
        let count = self.number()?;
        // A number is trusted only as far as its bytes are there.
        let mut chunks = Vec::new();
        for _ in 0..count {
            let id = ChunkId(*self.take(32)?.first_chunk()?);
            chunks.push(UsedChunk { id, pages: self.number()? });
        }
        let mut volumes = Vec::new();
        for volume in &head.plan.volumes {
            let mut runs = Vec::new();
            for _ in 0..self.number()? {
                runs.push(Run { chunk: self.number()?, slot: self.number()?, pages: self.number()? });
            }
            let hashes = self.take((volume.pages as usize).checked_mul(PAGE_HASH_BYTES)?)?.to_vec();
            volumes.push(VolumeMap { runs, hashes });
        }
        self.0.is_empty().then_some((chunks, volumes))
    }
}

/// Every page is somewhere, once, in a chunk that has it.
fn is_possible(head: &Head, chunks: &[UsedChunk], volumes: &[VolumeMap]) -> bool {
    let in_chunk = |run: &Run| {
        let chunk = chunks.get(run.chunk as usize);
        chunk.is_some_and(|chunk| run.pages > 0 && u64::from(run.slot) + u64::from(run.pages) <= u64::from(chunk.pages))
    };
    let sized = chunks.iter().all(|chunk| (1..=CHUNK_PAGES).contains(&chunk.pages));
    sized
        && head.plan.volumes.iter().zip(volumes).all(|(volume, map)| {
            let pages: u64 = map.runs.iter().map(|run| u64::from(run.pages)).sum();
            pages == u64::from(volume.pages) && map.runs.iter().all(in_chunk)
        })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use holdfast_engine::VolumePlan;

    pub fn plan(pages: &[u32]) -> CopyPlan {
        let volume = |(place, pages): (usize, &u32)| VolumePlan {
            volume: place as u32 + 1,
            number: 7,
            pages: *pages,
            redo_start: 0x11000,
        };
        CopyPlan {
            trail_id: *b"0123456789abcdef",
            segment_bytes: 1 << 20,
            first_segment: 1,
            epoch: 3,
            manifest: "format = 1\nnext_id = 3\n".to_owned(),
            listed_to: 0x12000,
            whole_from: 0x12000,
            volumes: pages.iter().enumerate().map(volume).collect(),
            shown: 0x12000,
            clock: 1_700_000_000_000 << 16,
        }
    }

    pub fn manifest() -> Manifest {
        let chunk = |n: u8, pages| UsedChunk { id: ChunkId([n; 32]), pages };
        let run = |chunk, slot, pages| Run { chunk, slot, pages };
        Manifest {
            head: Head {
                program: "0.1.0".to_owned(),
                node: "a".to_owned(),
                taken_unix_ms: 1_700_000_000_123,
                plan: plan(&[5, 2]),
                shown_checksum: 0xdead_beef,
                files: [("holdfast.toml".to_owned(), "port = 1\n".to_owned())].into(),
                bytes: 7 * 4096,
                stored_bytes: 100,
                stored_chunks: 1,
            },
            chunks: vec![chunk(1, 4), chunk(2, 1024)],
            volumes: vec![
                VolumeMap { runs: vec![run(0, 0, 3), run(1, 1022, 2)], hashes: vec![9; 5 * PAGE_HASH_BYTES] },
                VolumeMap { runs: vec![run(0, 3, 1), run(1, 0, 1)], hashes: vec![8; 2 * PAGE_HASH_BYTES] },
            ],
        }
    }

    #[test]
    fn golden() {
        let (name, object) = manifest().encode().unwrap();
        let head = r#"{"program":"0.1.0","node":"a","taken_unix_ms":1700000000123,"plan":{"trail_id":[48,49,50,51,52,53,54,55,56,57,97,98,99,100,101,102],"segment_bytes":1048576,"first_segment":1,"epoch":3,"manifest":"format = 1\nnext_id = 3\n","listed_to":73728,"whole_from":73728,"volumes":[{"volume":1,"number":7,"pages":5,"redo_start":69632},{"volume":2,"number":7,"pages":2,"redo_start":69632}],"shown":73728,"clock":111411200000000000000},"shown_checksum":3735928559,"files":{"holdfast.toml":"port = 1\n"},"bytes":28672,"stored_bytes":100,"stored_chunks":1}"#;
        let head = head.replace("111411200000000000000", &(1_700_000_000_000u64 << 16).to_string());
        let end = HEADER_BYTES + head.len();
        assert_eq!(std::str::from_utf8(&object[HEADER_BYTES..end]).unwrap(), head);
        let hex: String = object[..12].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "484644554d50303101000000");
        assert_eq!(u32::from_le_bytes(object[end..end + 4].try_into().unwrap()), crc32c::crc32c(&object[..end]));
        assert_eq!(u64_at(&object, 16), 4 + 2 * 36 + (4 + 24 + 80) + (4 + 24 + 32));
        assert!(name.starts_with("dumps/20231114T221320123Z-0000000000012000-") && name.ends_with(".hfd"), "{name}");
        assert_eq!(Manifest::decode(&name, &object).unwrap(), manifest());
        let (head, at) = decode_head(&name, &object[..end + 4]).unwrap();
        assert_eq!((head, at), (manifest().head, end + 4));
    }

    #[test]
    fn every_damage_is_refused_by_name() {
        let (name, object) = manifest().encode().unwrap();
        let refused = |name: &str, bytes: &[u8]| {
            let error = Manifest::decode(name, bytes).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        };
        for at in 0..object.len() {
            let mut bytes = object.to_vec();
            bytes[at] ^= 0x10;
            refused(&name, &bytes);
            refused(&name, &object[..at]);
        }
        refused(&name, &[&object[..], &[0]].concat());
        let mut other = manifest();
        other.head.node = "b".to_owned();
        let (other_name, other) = other.encode().unwrap();
        refused(&name, &other);
        refused(&other_name, &object);
        let mut hostile = manifest();
        hostile.head.node = "\u{1b}[2J".to_owned();
        let (hostile_name, hostile) = hostile.encode().unwrap();
        let error = Manifest::decode(&hostile_name, &hostile).unwrap_err().to_string();
        assert!(error.contains("control characters") && !error.contains('\u{1b}'), "{error}");
        let mut newer = object.to_vec();
        newer[8] = 2;
        assert!(matches!(Manifest::decode(&name, &newer), Err(DumpError::Newer { found: 2, .. })));
    }

    /// A few bytes that say that they decompress to gigabytes are refused before memory is taken for them.
    #[test]
    fn a_body_that_is_longer_than_its_head_and_its_compressed_form_allow_is_refused() {
        let zeros = zstd::bulk::compress(&vec![0; 40 << 20], ZSTD_LEVEL).unwrap();
        for pages in [5, u32::MAX] {
            let mut bomb = manifest();
            bomb.head.plan = plan(&[pages]);
            let head = serde_json::to_vec(&bomb.head).unwrap();
            let mut object = MAGIC.to_vec();
            object.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
            object.extend_from_slice(&[0; 2]);
            object.extend_from_slice(&(head.len() as u32).to_le_bytes());
            object.extend_from_slice(&(40u64 << 20).to_le_bytes());
            object.extend_from_slice(&(zeros.len() as u64).to_le_bytes());
            object.extend_from_slice(&head);
            object.extend_from_slice(&crc32c::crc32c(&object).to_le_bytes());
            object.extend_from_slice(&zeros);
            let hash = blake3::hash(&object);
            object.extend_from_slice(hash.as_bytes());
            let error = Manifest::decode(&name(&bomb.head, &hash), &object).unwrap_err().to_string();
            assert!(error.contains("its header is not possible"), "{pages}: {error}");
        }
    }

    #[test]
    fn maps_that_are_not_possible_are_refused() {
        let run = |chunk, slot, pages| Run { chunk, slot, pages };
        for runs in [
            vec![run(0, 0, 3)],
            vec![run(0, 0, 5)],
            vec![run(0, 0, 3), run(2, 0, 2)],
            vec![run(0, 0, 3), run(1, 1023, 2)],
            vec![run(0, u32::MAX, 3), run(1, 0, 2)],
            vec![run(0, 0, 3), run(1, 0, 2), run(1, 0, 0)],
        ] {
            let mut bad = manifest();
            bad.volumes[0].runs = runs.clone();
            let (name, object) = bad.encode().unwrap();
            assert!(matches!(Manifest::decode(&name, &object), Err(DumpError::Damaged { .. })), "{runs:?}");
        }
    }

    #[test]
    fn a_plan_with_impossible_numbers_is_damaged() {
        for (segment_bytes, shown) in [(0, 0x12000), (1, u64::MAX), (4096, u64::MAX)] {
            let mut manifest = manifest();
            (manifest.head.plan.segment_bytes, manifest.head.plan.shown) = (segment_bytes, shown);
            let (name, object) = manifest.encode().unwrap();
            assert!(matches!(decode_head(&name, &object), Err(DumpError::Damaged { .. })), "{segment_bytes} {shown}");
        }
    }
}
