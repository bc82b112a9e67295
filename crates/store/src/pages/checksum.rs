//! The checksum in the 16 reserved bytes of every page of a volume's file.
//!
//! | bytes in the page | content |
//! |---|---|
//! | 4080..4088 | XXH3-64 of bytes 0..4080 with the seed below, little endian |
//! | 4088..4096 | number of the checkpoint (the volume's batch number) that wrote the page, little endian; 0: a base copy |
//!
//! The seed is `page number | volume id << 32`, so that a page written to the wrong place or into the wrong file is
//! detected. The checkpoint number is covered because it is mixed into the stored sum. SQLite copies reserved bytes
//! without interpreting them: when another program changes a page, the old sum stays, and the change is detected
//! (guarantee 7). The sum is set when a page is written to the file and checked when it is read from the file.

use super::page::{PAGE_BYTES, RESERVED_BYTES};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// In place of the number of a checkpoint: a base copy wrote the page. No checkpoint has this number.
pub const BASE_COPY: u64 = 0;

const BODY: usize = PAGE_BYTES - RESERVED_BYTES;

fn sum(page: &[u8], number: u32, volume: u32, checkpoint: u64) -> u64 {
    let seed = u64::from(number) | u64::from(volume) << 32;
    xxh3_64_with_seed(&page[..BODY], seed) ^ checkpoint.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Writes the sum into the reserved bytes.
pub fn seal(page: &mut [u8], number: u32, volume: u32, checkpoint: u64) {
    let value = sum(page, number, volume, checkpoint);
    page[BODY..BODY + 8].copy_from_slice(&value.to_le_bytes());
    page[BODY + 8..].copy_from_slice(&checkpoint.to_le_bytes());
}

/// Whether the page is unchanged since it was sealed under this number in this volume.
pub fn holds(page: &[u8], number: u32, volume: u32) -> bool {
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| page[at + i]));
    word(BODY) == sum(page, number, volume, word(BODY + 8))
}

/// The checkpoint that wrote the page; meaningful only if the page has a valid sum.
pub fn checkpoint_of(page: &[u8]) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| page[BODY + 8 + i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_rot_and_misplacement() {
        let mut page = vec![7u8; PAGE_BYTES];
        seal(&mut page, 5, 2, 99);
        assert!(holds(&page, 5, 2));
        assert!(!holds(&page, 6, 2), "another place");
        assert!(!holds(&page, 5, 3), "another volume");
        for at in [0, 100, BODY - 1, BODY, PAGE_BYTES - 1] {
            page[at] ^= 1;
            assert!(!holds(&page, 5, 2), "flipped bit at {at}");
            page[at] ^= 1;
        }
    }

    #[test]
    fn golden() {
        let mut page = vec![0u8; PAGE_BYTES];
        seal(&mut page, 1, 1, 1);
        assert_eq!(page[BODY + 8..], 1u64.to_le_bytes());
        assert_eq!(u64::from_le_bytes(page[BODY..BODY + 8].try_into().unwrap()), GOLDEN);
    }

    const GOLDEN: u64 = 4_201_413_439_620_274_803;
}
