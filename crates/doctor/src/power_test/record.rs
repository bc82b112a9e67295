//! A record: one block of the file.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | `HFPOWER1` |
//! | 8..16 | the run's id, little-endian |
//! | 16..24 | the sequence number, little-endian, from 1 |
//! | 24..4092 | bytes that follow from the number, so that half a block is not taken for a whole |
//! | 4092..4096 | CRC32C of what is before it |
//!
//! Number N is in block (N - 1) modulo the number of blocks.

use holdfast_seams::{AlignedBuf, BLOCK_BYTES};

/// The number of blocks in the file, which is written round and round.
pub const BLOCKS: u64 = 4096;

const MAGIC: &[u8; 8] = b"HFPOWER1";
const CHECKSUM_AT: usize = BLOCK_BYTES - 4;

pub fn offset_of(number: u64) -> u64 {
    (number - 1) % BLOCKS * BLOCK_BYTES as u64
}

pub fn write(block: &mut AlignedBuf, run: u64, number: u64) {
    let bytes = block.as_mut_slice();
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&run.to_le_bytes());
    bytes[16..24].copy_from_slice(&number.to_le_bytes());
    bytes[24..CHECKSUM_AT].fill(number as u8);
    let checksum = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
    bytes[CHECKSUM_AT..BLOCK_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

/// The run and number of a whole record.
pub fn read(bytes: &[u8]) -> Option<(u64, u64)> {
    let word = |from: usize| Some(u64::from_le_bytes(bytes.get(from..from + 8)?.try_into().ok()?));
    let checksum = u32::from_le_bytes(bytes.get(CHECKSUM_AT..BLOCK_BYTES)?.try_into().ok()?);
    let whole = bytes.starts_with(MAGIC) && crc32c::crc32c(&bytes[..CHECKSUM_AT]) == checksum;
    if whole { Some((word(8)?, word(16)?)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_and_a_torn_one_does_not() {
        let mut block = AlignedBuf::zeroed(BLOCK_BYTES);
        assert_eq!(read(block.as_slice()), None);
        write(&mut block, 7, BLOCKS + 3);
        assert_eq!(read(block.as_slice()), Some((7, BLOCKS + 3)));
        assert_eq!(offset_of(BLOCKS + 3), 2 * BLOCK_BYTES as u64);
        block.as_mut_slice()[2048..].fill(0);
        assert_eq!(read(block.as_slice()), None);
    }
}
