//! Memory that the kernel accepts for `O_DIRECT`: it starts on a block boundary and its length is a multiple of the
//! block size.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The size of the blocks that Holdfast writes: at least the physical sector of every disk in use, and the memory page
/// to which `O_DIRECT` requires buffers to be aligned.
pub const BLOCK_BYTES: usize = 4096;

/// Rounds `bytes` up to whole blocks.
pub const fn round_up_to_block(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES as u64) * BLOCK_BYTES as u64
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK_BYTES]);

/// A growable buffer of whole, aligned, initialised blocks.
#[derive(Default, Clone)]
pub struct AlignedBuf {
    blocks: Vec<Block>,
}

impl AlignedBuf {
    /// Makes a zeroed buffer of at least `bytes`, rounded up to whole blocks.
    pub fn zeroed(bytes: usize) -> AlignedBuf {
        let mut buf = AlignedBuf::default();
        buf.grow_to(bytes);
        buf
    }

    /// Makes the buffer at least `bytes` long. New blocks are zero; old content stays.
    pub fn grow_to(&mut self, bytes: usize) {
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        if blocks > self.blocks.len() {
            self.blocks.resize_with(blocks, Block::new_zeroed);
        }
    }

    /// Length in bytes, a multiple of [`BLOCK_BYTES`].
    pub fn len(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub fn as_slice(&self) -> &[u8] {
        self.blocks.as_slice().as_bytes()
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.blocks.as_mut_slice().as_mut_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_whole_blocks_and_zero() {
        let mut buf = AlignedBuf::zeroed(5000);
        assert_eq!(buf.len(), 8192);
        assert_eq!(buf.as_slice().as_ptr() as usize % BLOCK_BYTES, 0);
        assert!(buf.as_slice().iter().all(|byte| *byte == 0));
        buf.as_mut_slice()[8191] = 7;
        buf.grow_to(8193);
        assert_eq!((buf.len(), buf.as_slice()[8191], buf.as_slice()[8192]), (12288, 7, 0));
    }

    #[test]
    fn rounding_up() {
        assert_eq!([0, 1, 4096, 4097].map(round_up_to_block), [0, 4096, 4096, 8192]);
    }
}
