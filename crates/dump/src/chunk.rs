//! The chunk: pages of databases, compressed, in an object that is named by their hash.
//!
//! `chunks/HASH.hfc`, where HASH is the BLAKE3 hash of the pages in hexadecimal; in an encrypted place the hash is keyed
//! ([`Naming`]). Little-endian.
//!
//! ```text
//! offset length
//!      0      8  magic "HFCHUNK1"
//!      8      2  format version, 1
//!     10      1  codec of the pages: 0 as they are, 1 zstd
//!     11      1  zero
//!     12      4  pages, of 4096 bytes
//!     16     32  BLAKE3 of the pages: that of the name
//!     48      8  stored length: bytes behind this header
//!     56      4  CRC-32C of the stored bytes
//!     60      4  zero
//!     64      n  the pages, coded
//! ```
//! Nothing in it is believed before it is checked: the header is compared with the name and with what is possible, and the
//! decoded pages have to have the hash.

use crate::error::DumpError;
use bytes::Bytes;
use holdfast_standby::limits::PAGE_BYTES;
use std::io;

pub const FORMAT_VERSION: u16 = 1;
const MAGIC: [u8; 8] = *b"HFCHUNK1";
pub const HEADER_BYTES: usize = 64;
/// Most pages of a chunk; chunks end where a multiple of it ends in the database.
pub const CHUNK_PAGES: u32 = 1024;
/// The level at which pages are coded: what one processor does at a few hundred MB a second.
const ZSTD_LEVEL: i32 = 1;
/// Most bytes of an object: pages that cannot be made shorter are stored as they are.
pub const OBJECT_BYTES_MAX: u64 = HEADER_BYTES as u64 + CHUNK_PAGES as u64 * PAGE_BYTES as u64;

/// The folder of chunks.
pub const DIRECTORY: &str = "chunks";

/// The hash of a chunk's pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ChunkId(pub [u8; 32]);

/// How chunks of a place are named: under a key where the place is encrypted, so that a name shows nothing of the content.
#[derive(Clone, Copy, Default)]
pub struct Naming(pub Option<[u8; 32]>);

impl Naming {
    /// The name of these pages.
    pub fn id(&self, pages: &[u8]) -> ChunkId {
        let hash = self.0.map_or_else(|| blake3::hash(pages), |key| blake3::keyed_hash(&key, pages));
        ChunkId(*hash.as_bytes())
    }
}

impl ChunkId {
    /// The object's name.
    pub fn name(&self) -> String {
        format!("{DIRECTORY}/{}.hfc", blake3::Hash::from_bytes(self.0).to_hex())
    }

    /// Reads a name; `None` for any other object.
    pub fn parse(name: &str) -> Option<ChunkId> {
        let hex = name.strip_prefix(DIRECTORY)?.strip_prefix('/')?.strip_suffix(".hfc")?;
        // One spelling only.
        let plain = hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        blake3::Hash::from_hex(hex).ok().filter(|_| plain).map(|hash| ChunkId(*hash.as_bytes()))
    }
}

/// The object of these pages, at most [`CHUNK_PAGES`].
pub fn encode(naming: &Naming, pages: &[u8]) -> io::Result<(ChunkId, Bytes)> {
    let id = naming.id(pages);
    let coded = zstd::bulk::compress(pages, ZSTD_LEVEL)?;
    let (codec, stored) = if coded.len() < pages.len() { (1, &coded[..]) } else { (0, pages) };
    let mut object = Vec::with_capacity(HEADER_BYTES + stored.len());
    object.extend_from_slice(&MAGIC);
    object.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    object.extend_from_slice(&[codec, 0]);
    object.extend_from_slice(&((pages.len() / PAGE_BYTES) as u32).to_le_bytes());
    object.extend_from_slice(&id.0);
    object.extend_from_slice(&(stored.len() as u64).to_le_bytes());
    object.extend_from_slice(&crc32c::crc32c(stored).to_le_bytes());
    object.extend_from_slice(&[0; 4]);
    object.extend_from_slice(stored);
    Ok((id, object.into()))
}

/// The pages of the object named for `id`.
pub fn decode(naming: &Naming, id: &ChunkId, object: &[u8]) -> Result<Vec<u8>, DumpError> {
    let damaged = |what: &str| DumpError::Damaged { name: id.name(), what: what.to_owned() };
    let header: &[u8; HEADER_BYTES] = object.first_chunk().ok_or_else(|| damaged("it is shorter than its header"))?;
    if header[..8] != MAGIC {
        return Err(damaged("it does not begin as a chunk does"));
    }
    let found = u16::from_le_bytes([header[8], header[9]]);
    if found > FORMAT_VERSION {
        return Err(DumpError::Newer { name: id.name(), found, known: FORMAT_VERSION });
    }
    if header[16..48] != id.0 {
        let own = header.get(16..48).and_then(|hash| hash.first_chunk()).map(|hash| ChunkId(*hash).name());
        return Err(damaged(&format!("it is {} by what it says itself", own.unwrap_or_default())));
    }
    let pages = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
    let stored_bytes = header[48..56].first_chunk().map(|length| u64::from_le_bytes(*length));
    let stored = &object[HEADER_BYTES..];
    if stored_bytes != Some(stored.len() as u64) {
        return Err(damaged(&format!(
            "{} bytes follow its header, which names {}",
            stored.len(),
            stored_bytes.unwrap_or_default()
        )));
    }
    if header[56..60] != crc32c::crc32c(stored).to_le_bytes() {
        return Err(damaged("its checksum does not fit its bytes"));
    }
    if found == 0 || pages == 0 || pages > CHUNK_PAGES || header[11] != 0 || header[60..] != [0; 4] {
        return Err(damaged("its header is not possible"));
    }
    let bytes = pages as usize * PAGE_BYTES;
    let content = match header[10] {
        0 => stored.to_vec(),
        1 => inflate(stored, bytes).map_err(|error| damaged(&format!("its pages cannot be decoded: {error}")))?,
        _ => return Err(damaged("its pages are coded in a way that this program does not know")),
    };
    if content.len() != bytes || naming.id(&content) != *id {
        return Err(damaged("its pages do not have the hash of its name"));
    }
    Ok(content)
}

/// At most what is claimed, which is at most [`CHUNK_PAGES`] pages: more is an error.
fn inflate(stored: &[u8], claimed_bytes: usize) -> io::Result<Vec<u8>> {
    zstd::bulk::decompress(stored, claimed_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Naming = Naming(None);

    fn encode(pages: &[u8]) -> io::Result<(ChunkId, Bytes)> {
        super::encode(&PLAIN, pages)
    }

    fn decode(id: &ChunkId, object: &[u8]) -> Result<Vec<u8>, DumpError> {
        super::decode(&PLAIN, id, object)
    }

    /// The same pages have another name under each key, and only under theirs are they what the name says.
    #[test]
    fn names_under_a_key_tell_nothing() {
        let keyed = [Naming(Some([1; 32])), Naming(Some([2; 32])), PLAIN];
        let ids = keyed.map(|naming| naming.id(&pages(1)));
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
        let (id, object) = super::encode(&keyed[0], &pages(1)).unwrap();
        assert_eq!(super::decode(&keyed[0], &id, &object).unwrap(), pages(1));
        assert!(matches!(super::decode(&keyed[1], &id, &object), Err(DumpError::Damaged { .. })));
    }

    fn pages(count: usize) -> Vec<u8> {
        (0..count * PAGE_BYTES).map(|at| (at / 512 + at % 7) as u8).collect()
    }

    #[test]
    fn golden_bytes() {
        let (id, object) = encode(&[0x5a; PAGE_BYTES]).unwrap();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(&object[..16]), "48464348554e4b310100010001000000");
        assert_eq!(object[16..48], id.0);
        assert_eq!(u64::from_le_bytes(object[48..56].try_into().unwrap()), object.len() as u64 - 64);
        assert_eq!(id.name(), format!("chunks/{}.hfc", hex(&id.0)));
        assert_eq!(ChunkId::parse(&id.name()), Some(id));
        assert_eq!(hex(&id.0), blake3::hash(&[0x5a; PAGE_BYTES]).to_hex().to_string());
    }

    #[test]
    fn pages_come_back() {
        let noise: Vec<u8> =
            (0..PAGE_BYTES).flat_map(|i| blake3::hash(&i.to_le_bytes()).as_bytes()[..8].to_vec()).collect();
        for pages in [pages(1), pages(CHUNK_PAGES as usize), noise] {
            let (id, object) = encode(&pages).unwrap();
            assert!(object.len() as u64 <= OBJECT_BYTES_MAX);
            assert_eq!(decode(&id, &object).unwrap(), pages);
        }
    }

    #[test]
    fn every_damage_is_refused_by_name() {
        let (id, object) = encode(&pages(2)).unwrap();
        let refused = |bytes: &[u8]| {
            let error = decode(&id, bytes).map(|pages| pages.len()).unwrap_err().to_string();
            assert!(error.contains(&id.name()), "{error}");
        };
        for at in 0..object.len() {
            for bit in 0..8 {
                let mut bytes = object.to_vec();
                bytes[at] ^= 1 << bit;
                refused(&bytes);
            }
        }
        (0..object.len()).for_each(|length| refused(&object[..length]));
        refused(&[&object[..], &[0]].concat());
        // Another whole chunk in its place.
        refused(&encode(&pages(3)).unwrap().1);
        let mut newer = object.to_vec();
        newer[8] = 2;
        assert!(matches!(decode(&id, &newer), Err(DumpError::Newer { found: 2, .. })));
        for name in ["chunks/00.hfc", "chunks/", &id.name().to_uppercase(), &format!("{}.x.new", id.name()), "x"] {
            assert_eq!(ChunkId::parse(name), None, "{name}");
        }
    }

    /// A length that is only claimed takes no memory.
    #[test]
    fn what_decodes_to_more_than_it_claims_is_refused() {
        let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 19).unwrap();
        let (id, mut object) = encode(&pages(1)).map(|(id, object)| (id, object[..HEADER_BYTES].to_vec())).unwrap();
        object[10] = 1;
        object[48..56].copy_from_slice(&(bomb.len() as u64).to_le_bytes());
        object[56..60].copy_from_slice(&crc32c::crc32c(&bomb).to_le_bytes());
        object.extend_from_slice(&bomb);
        assert!(matches!(decode(&id, &object), Err(DumpError::Damaged { .. })));
    }
}
