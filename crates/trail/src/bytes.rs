//! Little-endian fields of fixed headers.

pub fn put(block: &mut [u8], offset: usize, field: &[u8]) {
    block[offset..offset + field.len()].copy_from_slice(field);
}

pub fn array<const N: usize>(block: &[u8], offset: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&block[offset..offset + N]);
    field
}

pub fn u16_at(block: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(array(block, offset))
}

pub fn u32_at(block: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(array(block, offset))
}

pub fn u64_at(block: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(array(block, offset))
}
