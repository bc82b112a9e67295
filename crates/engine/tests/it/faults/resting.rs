//! Bits that rot while nobody looks. What notices names the file and changes nothing: with the bit put right everything is
//! there.

use super::bed::{Bed, End};
use super::{Seen, names};
use std::path::{Path, PathBuf};

/// What is proven: a clean stop's trail, or one that was proven at a start and killed before its first append.
pub fn the_trail_rots(seed: u64) -> Seen {
    let (mut bed, engine) = Bed::new(seed);
    let how = bed.draw_end();
    bed.end(engine, how);
    if how != End::Closed {
        let engine = bed.open().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        bed.end(engine, End::PowerCut);
    }
    rots(&mut bed, ".segment")
}

pub fn a_volume_rots(seed: u64) -> Seen {
    let (mut bed, engine) = Bed::new(seed);
    if bed.random.one_in(2) {
        let db = engine.database("one").unwrap();
        db.checkpoint().unwrap();
        bed.work_in_peace(&engine, 10);
    }
    let how = bed.draw_end();
    bed.end(engine, how);
    rots(&mut bed, ".db")
}

/// The power fails within a checkpoint, until it leaves a `-wal`.
pub fn a_wal_rots(seed: u64) -> Seen {
    let (mut bed, mut engine) = Bed::new(seed);
    loop {
        bed.work_in_peace(&engine, 8);
        let db = engine.database("one").unwrap();
        bed.disk.cut_power_after(1 + bed.random.below(9));
        let done = db.checkpoint();
        bed.disk.do_not_cut();
        drop(db);
        let cut = bed.disk.power_is_off();
        assert!(cut || done.is_ok(), "seed {seed}: {done:?}");
        bed.end(engine, End::PowerCut);
        let begun = |(path, _): &(PathBuf, u64)| {
            bed.disk.contents(path).is_some_and(|bytes| bytes.len() > 32 && bytes[..32] != [0; 32])
        };
        if bed.files(".db-wal").iter().any(begun) {
            return rots(&mut bed, ".db-wal");
        }
        engine = bed.open().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let there = bed.read(&engine).unwrap();
        bed.compare(&there).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

/// One bit of one such file, where something is written.
fn rots(bed: &mut Bed, ending: &str) -> Seen {
    let seed = bed.seed;
    let files = bed.files(ending);
    let (file, offset) = loop {
        let (file, bytes) = &files[bed.random.below(files.len() as u64) as usize];
        let (offset, block) = (bed.random.below(*bytes), |offset: u64| offset as usize / 512 * 512);
        let content = bed.disk.contents(file).unwrap();
        if content[block(offset)..].iter().take(512).any(|byte| *byte != 0) {
            break (file.clone(), offset);
        }
    };
    let bit = bed.random.below(8) as u8;
    bed.disk.rot(&file, offset, bit);
    assert_eq!(bed.fired().rotten_bits, 1);
    let rotten = bed.disk.contents(&file).unwrap();
    let place = format!("seed {seed}, {} at {offset}", file.display());
    let seen = match bed.open() {
        Err(e) => {
            assert!(names(&e.to_string(), &file), "{place}: not named: {e}");
            assert!(bed.disk.contents(&file).unwrap() == rotten, "{place}: changed by an open that refused");
            bed.begin_again(End::Killed);
            "refused"
        }
        Ok(engine) => {
            let seen = match bed.read(&engine) {
                Err(e) => {
                    assert!(names(&e, &file), "{place}: not named: {e}");
                    "a read was refused"
                }
                Ok(there) => {
                    bed.compare(&there).unwrap_or_else(|e| panic!("{place}: silently different: {e}"));
                    "nothing was lost"
                }
            };
            bed.end(engine, End::Killed);
            seen
        }
    };
    if seen != "nothing was lost" {
        put_right(bed, &file, offset, bit, &rotten);
    }
    bed.must_be_whole();
    vec![seen]
}

fn put_right(bed: &Bed, file: &Path, offset: u64, bit: u8, rotten: &[u8]) {
    let now = bed.disk.contents(file).unwrap();
    let page = offset as usize / 4096 * 4096;
    let same = now.len() == rotten.len() && now[page..].iter().zip(&rotten[page..]).take(4096).all(|(a, b)| a == b);
    assert!(same, "seed {}: {} was written over at {offset}", bed.seed, file.display());
    bed.disk.rot(file, offset, bit);
}
