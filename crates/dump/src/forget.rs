//! Removes old dumps, by the rules that the operator gives, and then the chunks that no dump uses.
//!
//! A dump stays if any rule keeps it: the last N, or the last of each of the last N days, weeks (from Monday on) or months, in
//! UTC, that have a dump. Each trail is counted for itself, in the order of LSNs. The last dump of a trail always stays.
//!
//! With an archive its objects go, too, that no dump which stays can be rolled forward with: those of segments in front of the
//! first one that any dump of that trail needs, also in other places ([`crate::places`], [`holdfast_archive::remove_needless`]).
//!
//! A manifest that cannot be read stays, and then all chunks stay: what it uses is not known.
//!
//! Failure: after an interruption manifests are gone and chunks are left; the next run removes those. While a dump is being
//! made no chunk is removed, and nothing in the archive ([`crate::running`]).

use crate::archive_settings::ConfiguredArchive;
use crate::error::DumpError;
use crate::moment::calendar_numbers;
use crate::places::{Needs, Places};
use crate::repository::Repository;
use crate::running::{begin_forget, now_unix_ms};
use holdfast_archive::name::parse_trail_id;
use holdfast_archive::{ArchiveLocation, Needless, remove_needless};
use holdfast_seams::RealDisk;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// How many dumps stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Keep {
    pub last: usize,
    pub daily: usize,
    pub weekly: usize,
    pub monthly: usize,
}

/// What stays in the archive.
#[derive(Clone, Copy, Debug)]
pub struct ArchiveKeep<'a> {
    pub url: &'a str,
    /// Objects with younger changes stay although no dump needs them.
    pub younger_than: Duration,
}

/// What may go.
#[derive(Clone, Copy, Debug, Default)]
pub struct ForgetOptions<'a> {
    pub keep: Keep,
    /// Only dumps of this trail.
    pub trail: Option<&'a str>,
    pub archive: Option<ArchiveKeep<'a>>,
    /// Nothing is removed.
    pub only_shows: bool,
}

/// What was removed.
#[derive(Serialize, Debug, Default)]
pub struct Forgotten {
    pub kept: Vec<String>,
    pub removed: Vec<String>,
    pub removed_chunks: u64,
    pub removed_bytes: u64,
    /// Why chunks that no dump uses were left.
    pub chunks_left: Option<String>,
    pub archive_objects: u64,
    pub archive_bytes: u64,
    /// Why objects of the archive were left that no dump of this place needs.
    pub archive_left: Option<String>,
}

/// The dumps of one trail that stay, of names and times in the order of their LSNs. The clock of a machine may have been wrong: no
/// dump counts as later than one that has more of the trail, nor as later than now.
fn kept<'a>(dumps: &[(&'a str, u64)], now_unix_ms: u64, keep: Keep) -> BTreeSet<&'a str> {
    let mut latest = now_unix_ms;
    let times = dumps.iter().rev().map(|(name, taken)| {
        latest = latest.min(*taken);
        (*name, latest)
    });
    let newest_first: Vec<(&str, u64)> = times.collect();
    let mut kept: BTreeSet<&str> = newest_first.iter().take(keep.last.max(1)).map(|(name, _)| *name).collect();
    /// The number of a period, of those of a day, a week and a month.
    type Period = fn((i64, i64, i64)) -> i64;
    let rules: [(usize, Period); 3] = [(keep.daily, |of| of.0), (keep.weekly, |of| of.1), (keep.monthly, |of| of.2)];
    for (count, period) in rules {
        let mut seen = BTreeSet::new();
        for (name, taken) in &newest_first {
            if seen.len() < count && seen.insert(period(calendar_numbers(*taken))) {
                kept.insert(name);
            }
        }
    }
    kept
}

/// Removes what no rule keeps.
pub fn forget(repository: &Repository, options: &ForgetOptions<'_>) -> Result<Forgotten, DumpError> {
    let listed = repository.dumps()?;
    let mut trails: BTreeMap<[u8; 16], Vec<(u64, u64, &str)>> = BTreeMap::new();
    let mut forgotten = Forgotten::default();
    for dump in &listed {
        match &dump.head {
            Ok(head) if options.trail.is_some_and(|trail| trail != head.trail_id()) => {
                forgotten.kept.push(dump.name.clone());
            }
            Ok(head) => {
                let of = (head.lsn(), head.taken_unix_ms, dump.name.as_str());
                trails.entry(head.plan.trail_id).or_default().push(of);
            }
            Err(_) => forgotten.kept.push(dump.name.clone()),
        }
    }
    for dumps in trails.values_mut() {
        dumps.sort_unstable();
        let dumps: Vec<(&str, u64)> = dumps.iter().map(|(_, taken, name)| (*name, *taken)).collect();
        let kept = kept(&dumps, now_unix_ms(), options.keep);
        for (name, _) in &dumps {
            let list = if kept.contains(name) { &mut forgotten.kept } else { &mut forgotten.removed };
            list.push((*name).to_owned());
        }
    }
    if options.only_shows {
        shorten(repository, options, &mut forgotten)?;
        return Ok(forgotten);
    }
    forgotten.removed.iter().try_for_each(|name| repository.remove(name))?;
    remove_chunks(repository, &mut forgotten)?;
    shorten(repository, options, &mut forgotten)?;
    Ok(forgotten)
}

/// Removes from the archive what no dump needs that is kept.
fn shorten(repository: &Repository, options: &ForgetOptions<'_>, forgotten: &mut Forgotten) -> Result<(), DumpError> {
    let Some(ArchiveKeep { url, younger_than }) = options.archive else { return Ok(()) };
    let until_unix_ms = now_unix_ms().saturating_sub(younger_than.as_millis() as u64);
    // A dump under way may need more than those that are listed.
    let _running = match begin_forget(repository)? {
        Ok(running) => running,
        Err(why) => {
            forgotten.archive_left = Some(why);
            return Ok(());
        }
    };
    let (mut needed, mut newest) = (Needs::new(), None);
    for dump in repository.dumps()?.into_iter().filter(|dump| !forgotten.removed.contains(&dump.name)) {
        match dump.head {
            Ok(head) => {
                let first = needed.entry(head.trail_id()).or_insert(u32::MAX);
                *first = (*first).min(head.first_needed());
                newest = Some(head);
            }
            Err(error) => {
                forgotten.archive_left = Some(format!("what a dump needs is not known: {error}"));
                return Ok(());
            }
        }
    }
    let Some(location) = ArchiveLocation::parse(url)? else { return Ok(()) };
    let configured = newest.as_ref().map(ConfiguredArchive::of).transpose()?.unwrap_or_default();
    let keys = repository.archive_keys(configured.is_encrypted && configured.place == url);
    let store = location.open_with(Arc::new(RealDisk::new()), "forget", keys)?;
    let places = match Places::read(repository, &*store)? {
        Ok(places) => places,
        Err(why) => {
            forgotten.archive_left = Some(why);
            return Ok(());
        }
    };
    if !options.only_shows {
        places.replace(&needed)?;
    }
    for (trail, own) in &needed {
        if options.trail.is_some_and(|only| only != trail) {
            continue;
        }
        let Some(trail_id) = parse_trail_id(trail) else { continue };
        let others = places.needed_by_others(trail).filter(|(first, ..)| first < own);
        if let Some((first, place, object)) = others {
            forgotten.archive_left = Some(format!(
                "from segment {first} of trail {trail} on it is needed by the dumps in {place}; forget dumps there, or remove \
                 {object} from the archive if that place no longer exists"
            ));
        }
        let before_segment = others.map_or(*own, |(first, ..)| first);
        let needless = Needless { before_segment, until_unix_ms };
        let removed = repository.wait(remove_needless(&*store, trail_id, needless, options.only_shows))?;
        forgotten.archive_objects += removed.objects;
        forgotten.archive_bytes += removed.bytes;
    }
    Ok(())
}

fn remove_chunks(repository: &Repository, forgotten: &mut Forgotten) -> Result<(), DumpError> {
    let _running = match begin_forget(repository)? {
        Ok(running) => running,
        Err(why) => {
            forgotten.chunks_left = Some(why);
            return Ok(());
        }
    };
    // Read with the mark in place: a dump that ends after this has put its own mark before, and was seen.
    let mut used = HashSet::new();
    for dump in repository.dumps()? {
        match repository.manifest(&dump.name) {
            Ok(manifest) => used.extend(manifest.chunks.iter().map(|chunk| chunk.id)),
            Err(error @ (DumpError::Damaged { .. } | DumpError::Newer { .. } | DumpError::OtherKey(_))) => {
                forgotten.chunks_left = Some(format!("which chunks a dump uses is not known: {error}"));
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    for (id, bytes) in repository.chunks()?.into_iter().filter(|(id, _)| !used.contains(id)) {
        repository.remove(&id.name())?;
        forgotten.removed_chunks += 1;
        forgotten.removed_bytes += bytes;
    }
    // What a killed command had begun to write to a directory.
    for listed in repository.list(crate::chunk::DIRECTORY)?.into_iter().filter(|listed| listed.name.ends_with(".new")) {
        repository.remove(&listed.name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moment::parse_moment;

    fn names(dumps: &[&'static str], keep: Keep) -> Vec<String> {
        let dumps: Vec<(&str, u64)> = dumps.iter().map(|text| (*text, parse_moment(text).unwrap())).collect();
        kept(&dumps, u64::MAX, keep).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn a_clock_that_was_ahead_keeps_no_old_dump_in_place_of_new_ones() {
        let at = |text: &str| parse_moment(text).unwrap();
        let now = at("2026-11-24 12:00");
        // In the order of the trail: the second one was made with a clock that was set forward by years.
        let dumps = [
            ("a", at("2026-11-22 12:00")),
            ("ahead", at("2030-01-01 00:00")),
            ("b", at("2026-11-23 12:00")),
            ("c", at("2026-11-24 11:00")),
        ];
        let names = |keep| kept(&dumps, now, keep).into_iter().collect::<Vec<_>>();
        assert_eq!(names(Keep { last: 1, ..Keep::default() }), ["c"]);
        assert_eq!(names(Keep { daily: 2, ..Keep::default() }), ["b", "c"]);
        assert_eq!(names(Keep { daily: 3, ..Keep::default() }), ["a", "b", "c"]);
        assert_eq!(names(Keep { last: 1, monthly: 9, ..Keep::default() }), ["c"]);
        // While the clock is ahead, that dump is the last one.
        let alone = kept(&dumps[..2], now, Keep { daily: 2, ..Keep::default() });
        assert_eq!(alone.into_iter().collect::<Vec<_>>(), ["a", "ahead"]);
    }

    #[test]
    fn the_last_of_each_period_stays_and_always_the_last_of_all() {
        let dumps = [
            "2026-09-30 23:00",
            "2026-10-31 01:00",
            "2026-10-31 23:00",
            "2026-11-15 12:00",
            "2026-11-21 12:00",
            "2026-11-22 12:00",
            "2026-11-23 01:00",
            "2026-11-23 02:00",
        ];
        assert_eq!(names(&dumps, Keep::default()), ["2026-11-23 02:00"]);
        assert_eq!(names(&dumps, Keep { last: 2, ..Keep::default() }), ["2026-11-23 01:00", "2026-11-23 02:00"]);
        let daily = Keep { daily: 3, ..Keep::default() };
        assert_eq!(names(&dumps, daily), ["2026-11-21 12:00", "2026-11-22 12:00", "2026-11-23 02:00"]);
        let weekly = Keep { weekly: 3, ..Keep::default() };
        assert_eq!(names(&dumps, weekly), ["2026-11-15 12:00", "2026-11-22 12:00", "2026-11-23 02:00"]);
        let monthly = Keep { monthly: 9, ..Keep::default() };
        assert_eq!(names(&dumps, monthly), ["2026-09-30 23:00", "2026-10-31 23:00", "2026-11-23 02:00"]);
        assert_eq!(names(&[], monthly), [""; 0]);
    }
}
