//! Seeded mutations of a corpus: the same seed gives the same inputs.

use std::path::{Path, PathBuf};

use holdfast_seams::testing::Seeded;

/// Longest input made.
const BYTES_MAX: usize = 4096;

/// Where a target's corpus is.
pub fn corpus_dir(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// All inputs of a corpus, by name. Panics when there is none: a smoke over nothing proves nothing.
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    let dir = corpus_dir(target);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(&dir).expect("a corpus directory").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", dir.display());
    paths.iter().map(|path| std::fs::read(path).expect("an input")).collect()
}

/// One input: a member of the corpus with a few changes.
pub fn mutated(corpus: &[Vec<u8>], random: &mut Seeded) -> Vec<u8> {
    let pick = |random: &mut Seeded| corpus[random.below(corpus.len() as u64) as usize].clone();
    let mut bytes = pick(random);
    for _ in 0..1 + random.below(6) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        match random.below(7) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.draw() as u8),
            2 => bytes.extend_from_slice(&pick(random)),
            3 => {
                let value = [0u32, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, u32::MAX][random.below(7) as usize];
                let word = if random.one_in(2) { value.to_be_bytes() } else { value.to_le_bytes() };
                bytes.iter_mut().skip(at).zip(word).for_each(|(byte, new)| *byte = new);
            }
            4 => {
                let other = pick(random);
                let from = random.below(other.len() as u64 + 1) as usize;
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            5 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
            _ => bytes.iter_mut().skip(at).take(4).for_each(|byte| *byte = random.draw() as u8),
        }
        bytes.truncate(BYTES_MAX);
    }
    bytes
}
