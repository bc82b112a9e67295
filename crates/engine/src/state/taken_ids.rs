//! The row ids that one statement, or one request of several, has taken so far, so that the server can run it again
//! without a gap in the ids that the client sees.
//!
//! | event | ids taken | spare ids |
//! |---|---|---|
//! | an id from the counter | added | |
//! | an id, while there are spare ones | the lowest spare one is added | without it |
//! | a new attempt begins: what the earlier one did is undone | none | all that were taken, as long as no other change could meet them |
//! | the statement stands, and another of its request follows | none | unchanged |
//!
//! Each list belongs to one [`Taken`], so no id goes to two transactions. Spare ids that are never used are a gap, as are
//! those of a statement that fails.

use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

thread_local! {
    /// That of the statement which runs on this thread.
    static CURRENT: RefCell<Option<Arc<Taken>>> = const { RefCell::new(None) };
}

/// The ids of one counter. Ranges are ascending: a counter only grows, and the spare ids are used from the lowest on.
#[derive(Default)]
struct OfCounter {
    taken: Vec<RangeInclusive<i64>>,
    /// The lowest is the last.
    spare: Vec<RangeInclusive<i64>>,
}

impl OfCounter {
    fn take(&mut self, id: i64) {
        match self.taken.last_mut() {
            Some(last) if last.end().checked_add(1) == Some(id) => *last = *last.start()..=id,
            _ => self.taken.push(id..=id),
        }
    }

    fn take_spare(&mut self) -> Option<i64> {
        let lowest = self.spare.pop()?;
        let id = *lowest.start();
        if id < *lowest.end() {
            self.spare.push(id + 1..=*lowest.end());
        }
        self.take(id);
        Some(id)
    }

    fn has(&self, id: i64) -> bool {
        let after = self.taken.partition_point(|range| *range.start() <= id);
        after > 0 && self.taken[after - 1].contains(&id)
    }

    /// All that it has taken is spare again. What is spare already is higher.
    fn undone(&mut self) {
        self.spare.extend(std::mem::take(&mut self.taken).into_iter().rev());
    }
}

/// The ids of a statement or a request, by the number of the counter that they come from.
#[derive(Default)]
pub struct Taken(Mutex<BTreeMap<u64, OfCounter>>);

impl Taken {
    /// An attempt begins on this thread; whatever an earlier one did is undone.
    pub fn attempt(self: &Arc<Taken>) -> Attempting {
        self.0.lock().values_mut().for_each(OfCounter::undone);
        Attempting(CURRENT.replace(Some(self.clone())))
    }

    /// What was done so far stands: a new attempt is one at what follows.
    pub fn stands(&self) {
        self.0.lock().values_mut().for_each(|of| of.taken.clear());
    }
}

/// The statement on this thread takes ids as long as the value lives.
pub struct Attempting(Option<Arc<Taken>>);

impl Drop for Attempting {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// The id that the counter with this number gives to the statement on this thread: a spare one, or the one that `next`
/// returns.
pub fn choose<E>(counter: u64, next: impl FnOnce() -> Result<i64, E>) -> Result<i64, E> {
    CURRENT.with_borrow(|current| {
        let Some(current) = current else { return next() };
        let mut all = current.0.lock();
        let of = all.entry(counter).or_default();
        if let Some(id) = of.take_spare() {
            return Ok(id);
        }
        let id = next()?;
        of.take(id);
        Ok(id)
    })
}

/// Whether a statement runs on this thread that has not got this id from the counter with this number. Where none runs
/// images are replayed: the statement that they come from was asked.
pub fn is_chosen_here(counter: u64, id: i64) -> bool {
    CURRENT.with_borrow(|current| {
        current.as_ref().is_some_and(|current| current.0.lock().get(&counter).is_none_or(|of| !of.has(id)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(counter: u64, from: &mut i64) -> i64 {
        choose::<()>(counter, || {
            *from += 1;
            Ok(*from)
        })
        .unwrap()
    }

    #[test]
    fn a_new_attempt_takes_the_same_ids_from_the_lowest_on() {
        let (first, mut last) = (Arc::new(Taken::default()), 5);
        let attempt = first.attempt();
        assert_eq!([take(7, &mut last), take(7, &mut last)], [6, 7]);
        last = 9;
        assert_eq!((take(7, &mut last), take(8, &mut 0)), (10, 1));
        assert_eq!([6, 8, 10].map(|id| is_chosen_here(7, id)), [false, true, false]);
        assert!(is_chosen_here(9, 6), "of another counter");
        drop(attempt);
        assert!(!is_chosen_here(7, 8), "no statement runs here");
        let attempt = first.attempt();
        assert_eq!([take(7, &mut last), take(7, &mut last)], [6, 7]);
        drop(attempt);
        // It was stopped earlier than the first time.
        let attempt = first.attempt();
        let again: Vec<i64> = (0..4).map(|_| take(7, &mut last)).collect();
        assert_eq!(again, [6, 7, 10, 11]);
        first.stands();
        drop(attempt);
        let _attempt = first.attempt();
        assert_eq!((take(7, &mut last), take(8, &mut 1)), (12, 1));
    }
}
