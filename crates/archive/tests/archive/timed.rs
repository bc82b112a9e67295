//! Stores that do not answer.

use crate::support::{put_one, recycle_up_to, store, trail_up_to};
use bytes::Bytes;
use holdfast_archive::{ArchiveError, History, Listed, Pending, Put, Store, TimedStore};
use holdfast_seams::testing::{FaultDisk, Patience};
use holdfast_types::Lsn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;

const SHORT: Duration = Duration::from_millis(50);

/// Passes requests on while it does not hang; those that come while it hangs end when it answers again.
struct Hanging {
    store: Arc<dyn Store>,
    hangs: watch::Receiver<bool>,
    under_way: AtomicUsize,
}

impl Hanging {
    fn when_it_answers<'a, T: Send + 'a>(&'a self, request: Pending<'a, T>) -> Pending<'a, T> {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let mut hangs = self.hangs.clone();
        Box::pin(async move {
            // An error means that the test is over.
            drop(hangs.wait_for(|hangs| !hangs).await);
            self.under_way.fetch_sub(1, Ordering::SeqCst);
            request.await
        })
    }
}

impl Store for Hanging {
    fn place(&self) -> &str {
        "/mnt/archive"
    }
    fn put_new<'a>(&'a self, name: &'a str, object: Bytes) -> Pending<'a, Put> {
        self.when_it_answers(self.store.put_new(name, object))
    }
    fn get<'a>(&'a self, name: &'a str, bytes_max: u64) -> Pending<'a, Option<Bytes>> {
        self.when_it_answers(self.store.get(name, bytes_max))
    }
    fn get_head<'a>(&'a self, name: &'a str, bytes: u64) -> Pending<'a, Option<Bytes>> {
        self.when_it_answers(self.store.get_head(name, bytes))
    }
    fn remove<'a>(&'a self, name: &'a str) -> Pending<'a, ()> {
        self.when_it_answers(self.store.remove(name))
    }
    fn list<'a>(&'a self, directory: &'a str) -> Pending<'a, Vec<Listed>> {
        self.when_it_answers(self.store.list(directory))
    }
}

/// A history behind a store that hangs while `hang` says so, with segments 1 to 3 in it; and where the second begins.
async fn hanging(hang: &watch::Sender<bool>) -> (History, Arc<Hanging>, Lsn) {
    let disk = FaultDisk::new(1);
    let trail = trail_up_to(&disk, "/trail", 4);
    let store: Arc<dyn Store> = Arc::new(store(&disk));
    for number in 1..4 {
        put_one(&*store, &trail, number).await;
    }
    recycle_up_to(&trail, 4);
    let hanging = Arc::new(Hanging { store, hangs: hang.subscribe(), under_way: AtomicUsize::new(0) });
    let timed = Arc::new(TimedStore::within(hanging.clone(), SHORT));
    (History::new(timed, trail.clone()), hanging, trail.start_of(2))
}

/// A slow machine may take longer than the limit of the test.
async fn until_answered<T>(ask: impl AsyncFn() -> Result<T, ArchiveError>) -> T {
    let mut patience = Patience::new();
    loop {
        match ask().await {
            Err(ArchiveError::NoAnswer { .. }) => patience.look("the store answers"),
            answered => return answered.unwrap(),
        }
    }
}

#[tokio::test]
async fn one_that_hangs_is_given_up_and_read_when_it_answers_again() {
    let hang = watch::Sender::new(true);
    let (history, _, lsn) = hanging(&hang).await;
    let error = history.has(lsn).await.unwrap_err();
    assert!(matches!(error, ArchiveError::NoAnswer { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("/mnt/archive") && text.contains("check that"), "{text}");
    assert!(!error.needs_operator(), "a try later may succeed");
    hang.send_replace(false);
    assert!(until_answered(async || history.has(lsn).await).await);
    // The object itself, behind a list that was answered.
    hang.send_replace(true);
    assert!(matches!(history.segment(lsn).await, Err(ArchiveError::NoAnswer { .. })));
    hang.send_replace(false);
    let segment = until_answered(async || history.segment(lsn).await).await;
    assert_eq!(segment.unwrap().manifest.first, lsn);
}

/// Each that hangs may keep a thread.
#[tokio::test]
async fn however_often_it_is_asked_few_requests_hang() {
    let hang = watch::Sender::new(true);
    let (history, hanging, lsn) = hanging(&hang).await;
    for _ in 0..40 {
        assert!(matches!(history.has(lsn).await, Err(ArchiveError::NoAnswer { .. })));
    }
    assert_eq!(hanging.under_way.load(Ordering::SeqCst), 16);
    hang.send_replace(false);
    assert!(until_answered(async || history.has(lsn).await).await);
}
