//! Which pages the dump before has, and how the pages of a range become a chunk and a part of a map.
//!
//! A range is [`CHUNK_PAGES`] consecutive pages of a volume. Pages that the dump before has at the same place with the same
//! hash are not stored again. The others of a range form one chunk, so that an interrupted dump finds the same chunks again.
//!
//! A chunk of which few pages are still in use costs its whole size as long as any dump uses it. Where less than a quarter of
//! a chunk was used by the dump before, its pages are stored again, and the chunk goes with the last dump that uses it.

use crate::chunk::{CHUNK_PAGES, ChunkId};
use crate::manifest::{Manifest, PAGE_HASH_BYTES, Run, UsedChunk, VolumeMap, page_hash};
use holdfast_standby::limits::PAGE_BYTES;
use std::collections::HashMap;

/// Where a page of an earlier dump is.
#[derive(Clone, Copy)]
struct Place {
    chunk: u32,
    slot: u32,
}

/// The dump before, by volume.
#[derive(Default)]
pub struct Base {
    chunks: Vec<UsedChunk>,
    /// Chunks whose pages are not stored again.
    usable: Vec<bool>,
    volumes: HashMap<u32, (Vec<Place>, Vec<u8>)>,
}

impl Base {
    /// `is_there`: which chunks are in the place.
    pub fn of(manifest: &Manifest, is_there: impl Fn(&ChunkId) -> bool) -> Base {
        let mut used = vec![0u64; manifest.chunks.len()];
        let mut volumes = HashMap::new();
        for (plan, map) in manifest.head.plan.volumes.iter().zip(&manifest.volumes) {
            let mut places = Vec::with_capacity(plan.pages as usize);
            for run in &map.runs {
                used[run.chunk as usize] += u64::from(run.pages);
                places.extend((0..run.pages).map(|n| Place { chunk: run.chunk, slot: run.slot + n }));
            }
            volumes.insert(plan.volume, (places, map.hashes.clone()));
        }
        let is_usable = |(chunk, used): (&UsedChunk, &u64)| used * 4 >= u64::from(chunk.pages) && is_there(&chunk.id);
        let usable = manifest.chunks.iter().zip(&used).map(is_usable).collect();
        Base { chunks: manifest.chunks.clone(), usable, volumes }
    }

    fn find(&self, volume: u32, page: u32, hash: &[u8; PAGE_HASH_BYTES]) -> Option<Place> {
        let (places, hashes) = self.volumes.get(&volume)?;
        let place = *places.get(page as usize)?;
        let at = page as usize * PAGE_HASH_BYTES;
        (self.usable[place.chunk as usize] && hashes.get(at..at + PAGE_HASH_BYTES)? == hash).then_some(place)
    }
}

/// The place of a page in a range: in a chunk of the dump before, or in the range's own chunk.
#[derive(Clone, Copy)]
enum Piece {
    Before(Place),
    New(u32),
}

/// A range, divided into what is there and what is new.
pub struct Divided {
    pieces: Vec<Piece>,
    pub hashes: Vec<u8>,
    /// The pages that are not there, one behind the other.
    pub new: Vec<u8>,
}

/// Divides the pages of a range; `first_page` counts from 0.
pub fn divide(base: &Base, volume: u32, first_page: u32, pages: &[u8]) -> Divided {
    let mut divided = Divided { pieces: Vec::new(), hashes: Vec::new(), new: Vec::new() };
    for (number, page) in (first_page..).zip(pages.chunks(PAGE_BYTES)) {
        let hash = page_hash(page);
        divided.hashes.extend_from_slice(&hash);
        divided.pieces.push(match base.find(volume, number, &hash) {
            Some(place) => Piece::Before(place),
            None => {
                divided.new.extend_from_slice(page);
                Piece::New((divided.new.len() / PAGE_BYTES) as u32 - 1)
            }
        });
    }
    divided
}

/// A range that is stored.
pub struct Stored {
    pieces: Vec<Piece>,
    hashes: Vec<u8>,
    /// Its own chunk; `None` if nothing was new.
    chunk: Option<UsedChunk>,
}

impl Stored {
    pub fn new(divided: Divided, id: Option<ChunkId>) -> Stored {
        let pages = (divided.new.len() / PAGE_BYTES) as u32;
        Stored { pieces: divided.pieces, hashes: divided.hashes, chunk: id.map(|id| UsedChunk { id, pages }) }
    }
}

/// How many ranges a volume has.
pub fn ranges(pages: u32) -> u32 {
    pages.div_ceil(CHUNK_PAGES)
}

/// The chunks of a manifest while it is made: each once.
#[derive(Default)]
pub struct Chunks {
    pub list: Vec<UsedChunk>,
    places: HashMap<ChunkId, u32>,
}

impl Chunks {
    fn place(&mut self, chunk: UsedChunk) -> u32 {
        *self.places.entry(chunk.id).or_insert_with(|| {
            self.list.push(chunk);
            self.list.len() as u32 - 1
        })
    }
}

/// The map of a volume from its ranges, in their order.
pub fn map<'a>(base: &Base, ranges: impl Iterator<Item = &'a Stored>, chunks: &mut Chunks) -> VolumeMap {
    let mut map = VolumeMap::default();
    for stored in ranges {
        map.hashes.extend_from_slice(&stored.hashes);
        for piece in &stored.pieces {
            let (chunk, slot) = match (piece, stored.chunk) {
                (Piece::Before(place), _) => (base.chunks[place.chunk as usize], place.slot),
                (Piece::New(slot), Some(chunk)) => (chunk, *slot),
                // Without new pages there is no such piece.
                (Piece::New(_), None) => continue,
            };
            let chunk = chunks.place(chunk);
            match map.runs.last_mut().filter(|run| run.chunk == chunk && run.slot + run.pages == slot) {
                Some(run) => run.pages += 1,
                None => map.runs.push(Run { chunk, slot, pages: 1 }),
            }
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk;
    use crate::manifest::{Head, tests::plan};

    fn page(n: u32) -> Vec<u8> {
        (0..PAGE_BYTES as u32 / 4).flat_map(|i| (n * 7 + i).to_le_bytes()).collect()
    }

    fn dump(base: &Base, pages: &[u32], objects: &mut HashMap<ChunkId, Vec<u8>>) -> (Manifest, usize) {
        let content: Vec<u8> = pages.iter().flat_map(|n| page(*n)).collect();
        let mut new = 0;
        let mut stored = Vec::new();
        for (range, bytes) in content.chunks(CHUNK_PAGES as usize * PAGE_BYTES).enumerate() {
            let divided = divide(base, 1, range as u32 * CHUNK_PAGES, bytes);
            new += divided.new.len() / PAGE_BYTES;
            let id =
                (!divided.new.is_empty()).then(|| chunk::encode(&chunk::Naming::default(), &divided.new).unwrap().0);
            id.into_iter().for_each(|id| _ = objects.insert(id, divided.new.clone()));
            stored.push(Stored::new(divided, id));
        }
        let mut chunks = Chunks::default();
        let volumes = vec![map(base, stored.iter(), &mut chunks)];
        let plan = plan(&[pages.len() as u32]);
        let head = Head {
            program: String::new(),
            node: String::new(),
            taken_unix_ms: 0,
            plan,
            shown_checksum: 0,
            files: Default::default(),
            bytes: 0,
            stored_bytes: 0,
            stored_chunks: 0,
        };
        (Manifest { head, chunks: chunks.list, volumes }, new)
    }

    /// The pages as a restore puts them together.
    fn restored(manifest: &Manifest, objects: &HashMap<ChunkId, Vec<u8>>) -> Vec<u8> {
        let bytes = |run: &Run| {
            let chunk = &objects[&manifest.chunks[run.chunk as usize].id];
            chunk[run.slot as usize * PAGE_BYTES..][..run.pages as usize * PAGE_BYTES].to_vec()
        };
        manifest.volumes[0].runs.iter().flat_map(bytes).collect()
    }

    #[test]
    fn the_next_dump_stores_what_changed_and_both_are_whole() {
        let mut objects = HashMap::new();
        let mut pages: Vec<u32> = (0..3000).collect();
        let (mut manifest, new) = dump(&Base::default(), &pages, &mut objects);
        assert_eq!((new, manifest.chunks.len(), manifest.volumes[0].runs.len()), (3000, 3, 3));
        let mut all = vec![(pages.clone(), manifest.clone())];
        for round in 1..12u32 {
            // A few pages anywhere, and the file grows.
            let changed: Vec<usize> = (0..40).map(|i| (i * 61 + round as usize * 17) % pages.len()).collect();
            changed.iter().for_each(|at| pages[*at] = 10_000 * round + *at as u32);
            pages.extend((0..5).map(|n| 900_000 + 10 * round + n));
            let (next, new) = dump(&Base::of(&manifest, |_| true), &pages, &mut objects);
            assert!((45..45 + 400).contains(&new), "{new} in round {round}");
            all.push((pages.clone(), next.clone()));
            manifest = next;
        }
        for (pages, manifest) in &all {
            let content: Vec<u8> = pages.iter().flat_map(|n| page(*n)).collect();
            assert!(restored(manifest, &objects) == content);
        }
    }

    #[test]
    fn chunks_of_which_little_is_used_or_that_are_missing_are_not_built_on() {
        let mut objects = HashMap::new();
        let (first, _) = dump(&Base::default(), &(0..1000).collect::<Vec<_>>(), &mut objects);
        let changed: Vec<u32> = (0..1000).map(|n| if n < 800 { n + 5000 } else { n }).collect();
        let (second, new) = dump(&Base::of(&first, |_| true), &changed, &mut objects);
        assert_eq!(new, 800);
        let (_, new) = dump(&Base::of(&second, |_| true), &changed, &mut objects);
        assert_eq!(new, 200, "of the first chunk a fifth is used");
        let gone = second.chunks[0].id;
        let (_, new) = dump(&Base::of(&second, |id| *id != gone), &changed, &mut objects);
        assert_eq!(new, 1000);
    }
}
