//! The whole engine on a simulated disk that fails: trail, the writer, branches, checkpoints, recovery and the store's files
//! together. (What a mere power cut leaves is the test `power_cut`.)
//!
//! Each seed injects one fault of each kind and proves that it fired. Afterwards everything acknowledged is there, or the
//! open, or the read, says loudly which file is damaged; never is there silently something else. What is there is compared
//! by a dump with plain SQLite that ran what was acknowledged.
//!
//! | kind | allowed |
//! |---|---|
//! | syncs, writes, reads that fail, once or from then on; a full disk | an error, or the process ends; at the next start, without the fault, all is there |
//! | the same while it opens | the open is refused and names a file; the next one has everything |
//! | a bit that flips on the way | the same |
//! | a bit that rots | refused, or an error of the read, naming the file; with the bit put right everything is there |
//! | a write that misses its place | the same, but see `unfaithful` for a page that is lost without a trace |
//! | a disk that lies | refused, or a beginning of what was acknowledged, but see `unfaithful` for lies about databases |
//!
//! `HOLDFAST_SEED=n cargo test -p holdfast-engine --test it faults` repeats one seed, `HOLDFAST_SEEDS=n` runs more, from
//! `HOLDFAST_SEED_FIRST` on. The seed decides work and fault; threads decide how the work is interleaved.

mod bed;
mod opening;
mod resting;
mod running;
mod unfaithful;

use crate::support::model::seeds;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SEEDS: u64 = 5;

/// What is counted over all seeds, by kind and by what came of it.
pub type Seen = Vec<&'static str>;

/// A kind of fault: its name, and a run that injects one.
type Kind = (&'static str, fn(u64) -> Seen);

const KINDS: [Kind; 18] = [
    ("a sync fails", running::a_sync_fails),
    ("syncs fail", running::syncs_fail),
    ("a write fails", running::a_write_fails),
    ("writes fail", running::writes_fail),
    ("a read fails", running::a_read_fails),
    ("reads fail", running::reads_fail),
    ("a read is flipped", running::a_read_is_flipped),
    ("the disk is full", running::the_disk_is_full),
    ("a sync fails while opening", opening::a_sync_fails),
    ("a write fails while opening", opening::a_write_fails),
    ("a read fails while opening", opening::a_read_fails),
    ("a read is flipped while opening", opening::a_read_is_flipped),
    ("the trail rots", resting::the_trail_rots),
    ("a volume rots", resting::a_volume_rots),
    ("a -wal rots", resting::a_wal_rots),
    ("a page is misdirected", unfaithful::a_page_is_misdirected),
    ("a boxcar is misdirected", unfaithful::a_boxcar_is_misdirected),
    ("the disk lies", unfaithful::the_disk_lies),
];

#[test]
fn faults() {
    let seeds = seeds(SEEDS);
    let only = std::env::var("HOLDFAST_FAULT").ok();
    let kinds: Vec<&Kind> = KINDS.iter().filter(|(name, _)| only.as_ref().is_none_or(|only| name == only)).collect();
    let runs: Vec<(u64, &Kind)> = seeds.flat_map(|seed| kinds.iter().map(move |kind| (seed, *kind))).collect();
    let next = AtomicU64::new(0);
    let (counts, failed) = (Mutex::new(BTreeMap::<(&str, &str), u64>::new()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((seed, (name, run))) = runs.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    match std::panic::catch_unwind(|| run(*seed)) {
                        Ok(seen) => {
                            seen.iter().for_each(|what| *counts.lock().unwrap().entry((name, what)).or_default() += 1)
                        }
                        Err(_) => failed.lock().unwrap().push(format!("{name}: HOLDFAST_SEED={seed}")),
                    }
                }
            });
        }
    });
    let (counts, failed) = (counts.into_inner().unwrap(), failed.into_inner().unwrap());
    counts.iter().for_each(|((name, what), times)| println!("{name}: {what} {times}"));
    assert!(failed.is_empty(), "{} of {} failed; repeat with {failed:#?}", failed.len(), runs.len());
}

/// The text names that file.
pub fn names(text: &str, file: &Path) -> bool {
    text.contains(&*file.file_name().unwrap_or_default().to_string_lossy())
}

/// Aims for faults.
pub mod aims {
    use std::path::Path;

    fn has(path: &Path, extension: &str) -> bool {
        path.extension().is_some_and(|e| e == extension)
    }

    pub fn anything(_: &Path) -> bool {
        true
    }

    pub fn segments(path: &Path) -> bool {
        has(path, "segment")
    }

    pub fn volumes(path: &Path) -> bool {
        has(path, "db")
    }

    pub fn wals(path: &Path) -> bool {
        has(path, "db-wal")
    }

    /// Volumes, their `-wal` files, and the directory they are in.
    pub fn databases(path: &Path) -> bool {
        volumes(path) || wals(path) || path.ends_with("volumes")
    }
}
