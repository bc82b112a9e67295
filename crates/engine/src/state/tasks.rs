//! Threads for work that waits or takes its time: requests that the writer handed to a branch, and scans.

use std::future::Future;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// A runtime of the engine's own, so that the library needs no runtime of its caller.
pub struct Tasks(Option<Runtime>);

impl Tasks {
    /// `statements_max`: statements on branches that run at the same time; others wait for their turn.
    pub fn start(statements_max: usize) -> std::io::Result<Tasks> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(statements_max)
            .thread_name("holdfast-tasks")
            .enable_time()
            .build()?;
        Ok(Tasks(Some(runtime)))
    }

    fn runtime(&self) -> &Runtime {
        self.0.as_ref().expect("present until drop")
    }

    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime().spawn(task);
    }

    pub fn spawn_blocking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        self.runtime().spawn_blocking(work)
    }

    /// Runs a future on this thread, which must not belong to a runtime.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime().block_on(future)
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        // Waiting for threads here could stop a thread of the caller's runtime.
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}
