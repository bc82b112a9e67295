//! How records stand in a file of the control directory. Little-endian; each begins at a multiple of 8.
//!
//! ```text
//! offset length
//!      0      4  magic "HFCJ"
//!      4      4  length of the text in bytes, at most 1 MiB
//!      8      8  number of this record, from 1, without gaps
//!     16      8  synced: every record up to this number was durable before this one was written
//!     24      4  checksum: CRC-32C of bytes 0..24 and of the text
//!     28      4  zero
//!     32      n  the text, JSON
//!   32+n      m  zeros up to a multiple of 8
//! ```
//! `synced` tells a torn tail from damage: an invalid record is a tail only if no valid record behind it proves that
//! it had been durable.

/// Longest text of a record.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
const MAGIC: [u8; 4] = *b"HFCJ";
const HEAD_BYTES: usize = 32;
const ALIGN: usize = 8;

/// A record read back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    pub number: u64,
    pub synced: u64,
    pub text: &'a [u8],
    /// Where the next one begins.
    pub end: usize,
}

/// Adds a record to `out`.
pub fn put(out: &mut Vec<u8>, number: u64, synced: u64, text: &[u8]) {
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&synced.to_le_bytes());
    let sum = checksum(&out[start..start + 24], text);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(text);
    out.resize(start + (out.len() - start).next_multiple_of(ALIGN), 0);
}

fn checksum(head: &[u8], text: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(head), text)
}

/// The record that begins at `offset`, if a valid one does.
pub fn get(bytes: &[u8], offset: usize) -> Option<Frame<'_>> {
    let head = bytes.get(offset..offset.checked_add(HEAD_BYTES)?)?;
    let len = u32::from_le_bytes(head[4..8].try_into().ok()?) as usize;
    if head[..4] != MAGIC || len > TEXT_BYTES_MAX {
        return None;
    }
    let text = bytes.get(offset + HEAD_BYTES..offset + HEAD_BYTES + len)?;
    if checksum(&head[..24], text) != u32::from_le_bytes(head[24..28].try_into().ok()?) {
        return None;
    }
    Some(Frame {
        number: u64::from_le_bytes(head[8..16].try_into().ok()?),
        synced: u64::from_le_bytes(head[16..24].try_into().ok()?),
        text,
        end: offset + (HEAD_BYTES + len).next_multiple_of(ALIGN),
    })
}

/// Every valid record at or behind `offset`, wherever it stands.
pub fn scan(bytes: &[u8], offset: usize) -> impl Iterator<Item = Frame<'_>> {
    (offset.next_multiple_of(ALIGN)..bytes.len()).step_by(ALIGN).filter_map(|at| get(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let mut bytes = Vec::new();
        put(&mut bytes, 3, 2, b"{\"x\":1}");
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "4846434a070000000300000000000000020000000000000048e5c239000000007b2278223a317d00");
        let frame = get(&bytes, 0).unwrap();
        assert_eq!(frame, Frame { number: 3, synced: 2, text: b"{\"x\":1}", end: 40 });
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let mut bytes = Vec::new();
        put(&mut bytes, 3, 2, b"{\"x\":1}");
        for bit in 0..39 * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let unread = (28..32).contains(&(bit / 8));
            assert_eq!(get(&changed, 0).is_some(), unread, "bit {bit}");
        }
        assert!((0..bytes.len() - 1).all(|len| get(&bytes[..len], 0).is_none()));
    }
}
