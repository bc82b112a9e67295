//! A store whose requests end: one that does not answer, as a network file system whose server is gone or an endpoint that accepts
//! connections and is silent, would hold its callers up indefinitely.
//!
//! What a request waits for cannot be ended: the thread that reads from a hanging file system stays until the kernel lets it go. So a
//! request runs apart from its caller, which stops waiting, and at most [`UNANSWERED_MAX`] are under way: a store that hangs for days
//! costs at most that many threads, and the requests after them wait for their turn as long as for an answer.
//!
//! Failure: [`ArchiveError::NoAnswer`]; the caller may try again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;

use crate::error::ArchiveError;
use crate::store::{Listed, Pending, Put, Store};

/// Longest wait for an answer, and, of a whole object, the pace at which its bytes come at least: over a slow link a segment takes minutes.
const ANSWER_MAX: Duration = Duration::from_secs(120);
const BYTES_PER_S_MIN: u64 = 128 << 10;

/// Requests that are under way at one time.
const UNANSWERED_MAX: usize = 16;

/// See the module.
pub struct TimedStore {
    store: Arc<dyn Store>,
    answer_max: Duration,
    turns: Arc<Semaphore>,
}

impl TimedStore {
    pub fn new(store: Arc<dyn Store>) -> TimedStore {
        TimedStore::within(store, ANSWER_MAX)
    }

    /// With another limit.
    pub fn within(store: Arc<dyn Store>, answer_max: Duration) -> TimedStore {
        TimedStore { store, answer_max, turns: Arc::new(Semaphore::new(UNANSWERED_MAX)) }
    }

    /// Runs a request that may bring up to `bytes_max`.
    async fn run<T: Send + 'static>(
        &self,
        what: &'static str,
        name: &str,
        bytes_max: u64,
        request: impl FnOnce(Arc<dyn Store>, String) -> Pending<'static, T>,
    ) -> Result<T, ArchiveError> {
        let within = self.answer_max + Duration::from_secs(bytes_max / BYTES_PER_S_MIN);
        let request = request(self.store.clone(), name.to_owned());
        let answered = tokio::time::timeout(within, async {
            // Nothing closes it.
            let turn = self.turns.clone().acquire_owned().await;
            let running = tokio::spawn(async move {
                let _turn = turn;
                request.await
            });
            running.await.unwrap_or_else(|error| Err(ArchiveError::Task(error.to_string())))
        });
        let no_answer = |_| ArchiveError::NoAnswer {
            what,
            name: name.to_owned(),
            place: self.store.place().to_owned(),
            seconds: within.as_secs(),
        };
        answered.await.unwrap_or_else(|elapsed| Err(no_answer(elapsed)))
    }
}

impl Store for TimedStore {
    fn place(&self) -> &str {
        self.store.place()
    }

    fn put_new<'a>(&'a self, name: &'a str, object: Bytes) -> Pending<'a, Put> {
        let bytes = object.len() as u64;
        let put = move |store: Arc<dyn Store>, name: String| -> Pending<'static, Put> {
            Box::pin(async move { store.put_new(&name, object).await })
        };
        Box::pin(self.run("put", name, bytes, put))
    }

    fn get<'a>(&'a self, name: &'a str, bytes_max: u64) -> Pending<'a, Option<Bytes>> {
        let get = move |store: Arc<dyn Store>, name: String| -> Pending<'static, Option<Bytes>> {
            Box::pin(async move { store.get(&name, bytes_max).await })
        };
        Box::pin(self.run("read", name, bytes_max, get))
    }

    fn get_head<'a>(&'a self, name: &'a str, bytes: u64) -> Pending<'a, Option<Bytes>> {
        let get = move |store: Arc<dyn Store>, name: String| -> Pending<'static, Option<Bytes>> {
            Box::pin(async move { store.get_head(&name, bytes).await })
        };
        Box::pin(self.run("read", name, bytes, get))
    }

    fn remove<'a>(&'a self, name: &'a str) -> Pending<'a, ()> {
        let remove = |store: Arc<dyn Store>, name: String| -> Pending<'static, ()> {
            Box::pin(async move { store.remove(&name).await })
        };
        Box::pin(self.run("remove", name, 0, remove))
    }

    fn list<'a>(&'a self, directory: &'a str) -> Pending<'a, Vec<Listed>> {
        let list = |store: Arc<dyn Store>, directory: String| -> Pending<'static, Vec<Listed>> {
            Box::pin(async move { store.list(&directory).await })
        };
        Box::pin(self.run("list", directory, 0, list))
    }

    fn list_from<'a>(&'a self, directory: &'a str, from: &'a str) -> Pending<'a, Vec<Listed>> {
        let from = from.to_owned();
        let list = |store: Arc<dyn Store>, directory: String| -> Pending<'static, Vec<Listed>> {
            Box::pin(async move { store.list_from(&directory, &from).await })
        };
        Box::pin(self.run("list", directory, 0, list))
    }
}
