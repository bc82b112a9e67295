//! A hasher for keys that are hashes or small numbers already: one multiplication a word.

use std::hash::{BuildHasherDefault, Hasher};

/// A map by what is locked.
pub type FastMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<Multiply>>;

#[derive(Default)]
pub struct Multiply(u64);

impl Multiply {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        // The table uses the upper bits for one thing and the lower ones for another.
        self.0 ^ (self.0 >> 32)
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.add(u64::from(*b)));
    }
    fn write_u8(&mut self, n: u8) {
        self.add(u64::from(n));
    }
    fn write_u32(&mut self, n: u32) {
        self.add(u64::from(n));
    }
    fn write_u64(&mut self, n: u64) {
        self.add(n);
    }
    fn write_i64(&mut self, n: i64) {
        self.add(n as u64);
    }
    fn write_isize(&mut self, n: isize) {
        self.add(n as u64);
    }
}
