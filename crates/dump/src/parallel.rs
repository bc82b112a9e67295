//! The same work on many items by a few threads.
//!
//! Failure: the first error ends the work, and is returned; a panic is an error.

use crate::error::DumpError;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Does `work` on all items, `threads` at a time, in their order as far as they begin.
pub fn for_each<T: Send>(
    threads: usize,
    items: impl IntoIterator<Item = T, IntoIter: Send>,
    work: impl Fn(T) -> Result<(), DumpError> + Sync,
) -> Result<(), DumpError> {
    let (items, failed, ended) = (Mutex::new(items.into_iter()), Mutex::new(None), AtomicBool::new(false));
    let serve = || {
        while !ended.load(Ordering::Acquire) {
            let Some(item) = items.lock().next() else { return };
            if let Err(error) = work(item) {
                ended.store(true, Ordering::Release);
                failed.lock().get_or_insert(error);
            }
        }
    };
    let panicked = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(serve)).collect();
        threads.into_iter().map(|thread| thread.join().is_err()).fold(false, |any, one| any | one)
    });
    match failed.into_inner() {
        Some(error) => Err(error),
        None if panicked => Err(DumpError::Thread("it has panicked".to_owned())),
        None => Ok(()),
    }
}
