//! Changes of names that are not durable yet, and what each of them rests on.
//!
//! A change is atomic: both halves of a rename survive or neither. It rests on every earlier change of one of its own
//! names and on the creation of its directory; moving or removing a directory rests on everything before it, and
//! everything after rests on it. Apart from that changes survive a power cut independently of each other, so that a
//! later one may be kept where an earlier one was lost.

use std::ffi::OsString;

use crate::node::Ino;
use crate::random::Random;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub directory: Ino,
    pub name: OsString,
    pub was: Option<Ino>,
    pub now: Option<Ino>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameChange {
    pub entries: Vec<Entry>,
    /// It moves or removes a directory.
    pub moves_directory: bool,
}

impl NameChange {
    /// Whether it changes an entry of that directory.
    pub fn is_in(&self, directory: Ino) -> bool {
        self.entries.iter().any(|entry| entry.directory == directory)
    }

    /// Whether it gives that file a name.
    pub fn names(&self, ino: Ino) -> bool {
        self.entries.iter().any(|entry| entry.now == Some(ino))
    }

    pub fn involves(&self, ino: Ino) -> bool {
        self.is_in(ino) || self.entries.iter().any(|entry| entry.now == Some(ino) || entry.was == Some(ino))
    }

    fn rests_on(&self, earlier: &NameChange) -> bool {
        self.moves_directory
            || earlier.moves_directory
            || self.entries.iter().any(|mine| {
                let same = |e: &Entry| e.directory == mine.directory && e.name == mine.name;
                earlier.entries.iter().any(|e| same(e) || e.now == Some(mine.directory))
            })
    }
}

/// Takes out of `pending` all that `wanted` asks for and what that rests on, in order.
pub fn take_wanted(pending: &mut Vec<NameChange>, wanted: impl Fn(&NameChange) -> bool) -> Vec<NameChange> {
    let mut take = vec![false; pending.len()];
    for at in (0..pending.len()).rev() {
        take[at] = wanted(&pending[at])
            || (at + 1..pending.len()).any(|later| take[later] && pending[later].rests_on(&pending[at]));
    }
    let mut taken = Vec::new();
    let mut rest = Vec::new();
    for (change, take) in std::mem::take(pending).into_iter().zip(take) {
        if take { taken.push(change) } else { rest.push(change) }
    }
    *pending = rest;
    taken
}

/// Which changes survive a power cut: all, none, a beginning of them, or any that have what they rest on.
pub fn survivors(pending: Vec<NameChange>, random: &mut Random) -> (Vec<NameChange>, u64) {
    let count = pending.len();
    let beginning = random.below(count as u64 + 1) as usize;
    let style = random.below(4);
    let mut kept: Vec<bool> = Vec::with_capacity(count);
    for (at, change) in pending.iter().enumerate() {
        let wish = match style {
            0 => true,
            1 => at < beginning,
            2 => false,
            _ => random.percent(50),
        };
        let stands = (0..at).all(|earlier| kept[earlier] || !change.rests_on(&pending[earlier]));
        kept.push(wish && stands);
    }
    let survivors: Vec<NameChange> =
        pending.into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(change, _)| change).collect();
    let lost = (count - survivors.len()) as u64;
    (survivors, lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(entries: &[(Ino, &str, Option<Ino>)], moves_directory: bool) -> NameChange {
        let entry = |(directory, name, now): &(Ino, &str, Option<Ino>)| Entry {
            directory: *directory,
            name: OsString::from(name),
            was: None,
            now: *now,
        };
        NameChange { entries: entries.iter().map(entry).collect(), moves_directory }
    }

    #[test]
    fn a_sync_takes_what_it_rests_on() {
        let make_dir = change(&[(1, "d", Some(5))], false);
        let other = change(&[(1, "x", Some(6))], false);
        let create = change(&[(5, "a", Some(7))], false);
        let rename = change(&[(5, "a", None), (5, "b", Some(7))], false);
        let mut pending = vec![make_dir.clone(), other.clone(), create.clone(), rename.clone()];
        let taken = take_wanted(&mut pending, |change| change.names(7) && change.entries.len() == 2);
        assert_eq!((taken, pending), (vec![make_dir, create, rename], vec![other]));
    }

    #[test]
    fn any_order_survives_but_nothing_without_its_ground() {
        let create = change(&[(1, "a", Some(7))], false);
        let rename = change(&[(1, "a", None), (1, "b", Some(7))], false);
        let other = change(&[(1, "x", Some(6))], false);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let pending = vec![create.clone(), rename.clone(), other.clone()];
            let (kept, lost) = survivors(pending, &mut Random::new(seed));
            assert_eq!(kept.len() as u64 + lost, 3);
            let has = |change| kept.contains(change);
            assert!(has(&create) || !has(&rename));
            seen.insert((has(&create), has(&rename), has(&other)));
        }
        assert_eq!(seen.len(), 6, "every combination that can stand is seen");
    }
}
