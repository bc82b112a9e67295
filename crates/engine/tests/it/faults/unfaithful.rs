//! Disks that say a thing and do another: a write that lands elsewhere in its file, syncs that are not done.
//!
//! A page that was not written where it belongs leaves an older one there, whose checksum is right: nothing in the file
//! says that it is old. The page that was hit instead is noticed by whoever reads it. So a misdirected page is noticed
//! unless a later write covers the place where it landed; and after lies about a database's file alone, pages of two
//! checkpoints may stand side by side. Both are counted here and cannot happen to the trail.

use super::bed::{Bed, End, NAMES};
use super::{Seen, aims, names};
use holdfast_store::pages::checksum;
use std::path::{Path, PathBuf};

const PAGE: usize = 4096;

pub fn a_page_is_misdirected(seed: u64) -> Seen {
    let (mut bed, engine) = Bed::new(seed);
    let nth = 1 + bed.random.below(3);
    let by = [-3, -2, -1, 1, 2, 3][bed.random.below(6) as usize] * PAGE as i64;
    while bed.fired().misdirected_writes == 0 {
        bed.work_in_peace(&engine, 10);
        bed.disk.aim(aims::volumes);
        bed.disk.misdirect_write(nth, by);
        for name in NAMES {
            if bed.fired().misdirected_writes == 0 {
                engine.database(name).unwrap().checkpoint().unwrap();
            }
        }
        bed.disk.heal();
    }
    let how = if bed.random.one_in(2) { End::Killed } else { End::PowerCut };
    bed.end(engine, how);
    let bad: Vec<PathBuf> = bed.files(".db").into_iter().map(|(path, _)| path).filter(|p| misplaced(&bed, p)).collect();
    let named =
        |text: &str| assert!(bad.iter().any(|file| names(text, file)), "seed {seed}: {bad:?} not named: {text}");
    let seen = match bed.open() {
        Err(e) => {
            named(&e.to_string());
            "refused"
        }
        Ok(engine) => {
            let seen = match bed.read(&engine) {
                Err(e) => {
                    named(&e);
                    "a read was refused"
                }
                Ok(there) => match bed.compare(&there) {
                    Ok(()) => "nothing was lost",
                    Err(e) => {
                        assert!(bad.is_empty(), "seed {seed}: {bad:?} were not noticed: {e}");
                        "covered by a later write, and not noticed"
                    }
                },
            };
            bed.end(engine, End::Killed);
            seen
        }
    };
    vec![seen]
}

/// Whether a page of the volume does not belong where it is.
fn misplaced(bed: &Bed, file: &Path) -> bool {
    let name = file.file_name().unwrap().to_string_lossy();
    let volume: u32 = name[..6].parse().unwrap();
    let content = bed.disk.contents(file).unwrap();
    let pages = u32::from_be_bytes(content[28..32].try_into().unwrap()) as usize;
    let belongs = |(i, page): (usize, &[u8])| checksum::holds(page, i as u32 + 1, volume);
    !belongs((0, &content[..PAGE])) || !content.chunks_exact(PAGE).take(pages).enumerate().all(belongs)
}

pub fn a_boxcar_is_misdirected(seed: u64) -> Seen {
    let (mut bed, engine) = Bed::new(seed);
    let by = [-3, -2, -1, 1, 2, 3][bed.random.below(6) as usize] * PAGE as i64;
    while bed.fired().misdirected_writes == 0 {
        bed.disk.aim(aims::segments);
        bed.disk.misdirect_write(1 + bed.random.below(6), by);
        bed.work_in_peace(&engine, 10);
    }
    // What follows proves it.
    while bed.work_with_fault(&engine, 10).acknowledged < 2 {}
    let how = bed.draw_end();
    bed.end(engine, how);
    let seen = match bed.open() {
        Err(e) => {
            assert!(e.to_string().contains(".segment"), "seed {seed}: not named: {e}");
            "refused"
        }
        Ok(engine) => {
            let there = bed.read(&engine).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            bed.compare(&there).unwrap_or_else(|e| panic!("seed {seed}: silently different: {e}"));
            bed.end(engine, End::Killed);
            "nothing was lost"
        }
    };
    vec![seen]
}

/// Syncs of everything, of the trail, or of databases are lies; then the power fails.
pub fn the_disk_lies(seed: u64) -> Seen {
    let (mut bed, engine) = Bed::new(seed);
    let which = bed.random.below(3);
    bed.disk.aim([aims::anything, aims::segments, aims::databases][which as usize]);
    bed.disk.lie(true);
    // Every state there has been since.
    let mut states: Vec<Vec<String>> = NAMES.iter().map(|_| Vec::new()).collect();
    let mut note = |bed: &mut Bed| {
        states.iter_mut().zip(&mut bed.models).for_each(|(states, model)| states.push(model.plain.dump()));
    };
    note(&mut bed);
    let transactions = 5 + bed.random.below(20);
    for _ in 0..transactions {
        bed.work_in_peace(&engine, 1);
        note(&mut bed);
    }
    if bed.fired().lied_syncs == 0 || bed.random.one_in(2) {
        for name in NAMES {
            engine.database(name).unwrap().checkpoint().unwrap();
        }
    }
    assert!(bed.fired().lied_syncs > 0, "seed {seed}: it never lied");
    bed.end(engine, End::PowerCut);
    bed.disk.heal();
    let seen = match bed.open() {
        Err(e) => {
            let dir = bed.dir().display().to_string();
            assert!(e.to_string().contains(&dir) || e.to_string().contains("database"), "seed {seed}: not named: {e}");
            "refused"
        }
        Ok(engine) => {
            let seen = match bed.read(&engine) {
                Err(_) => "a read was refused",
                Ok(there) if states.iter().zip(&there).all(|(states, there)| states.last() == Some(there)) => {
                    "nothing was lost"
                }
                Ok(there) if states.iter().zip(&there).all(|(states, there)| states.contains(there)) => {
                    "a beginning of it is there"
                }
                Ok(_) => {
                    assert!(which != 1, "seed {seed}: not a beginning of what was acknowledged");
                    "pages of two ages side by side"
                }
            };
            bed.end(engine, End::Killed);
            seen
        }
    };
    vec![seen]
}
