//! Stopping: cleanly, with every file brought up to date, or at once, so that the next start recovers.
//!
//! Failure: a database that cannot be checkpointed is told in the error and recovered by the next start; the rest is closed
//! all the same.

use super::*;

impl Engine {
    /// Clean stop: every database is checkpointed, the trail proves itself durable. Open interactive transactions are
    /// backed out; commits that wait for a standby stay in the trail and are not answered. Closing twice is no error.
    pub fn close(&self) -> Result<(), CloseError> {
        let shared = &self.0.shared;
        shared.close_gate();
        // The databases stay listed as open until each is checkpointed: their redo holds the trail's floor.
        let open: Vec<_> = {
            let _no_opening = shared.lifecycle.lock();
            let mut state = shared.state.lock();
            state.closed = true;
            state.open.values_mut().map(|o| (o.inner.clone(), o.main.take())).collect()
        };
        Engine::stop_following(shared);
        shared.checkpointer.stop();
        for thread in self.0.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("the checkpointer or the thread of applying panicked");
            }
        }
        let mut result = Ok(());
        let stopped: Vec<_> = open.into_iter().map(|(inner, main)| stop_main(main, inner)).collect();
        for inner in stopped {
            if let Err(e) = checkpointer::checkpoint(&inner) {
                result = Err(CloseError::Checkpoint { name: inner.name.clone(), message: e.to_string() });
            }
            inner.drop_readers();
            let path = std::path::PathBuf::from(inner.volume().store().path());
            if result.is_ok()
                && let Err(e) = holdfast_store::checkpoint::remove_wal(&*shared.options.disk, &path)
            {
                tracing::warn!(database = inner.name, "cannot remove the empty -wal file: {e}");
            }
        }
        shared.state.lock().open.clear();
        shared.trail.close()?;
        result
    }
}

/// Stops without checkpoints: the next start recovers. Nothing runs any more when it returns, so the directory may be
/// opened again or removed.
impl Drop for EngineInner {
    fn drop(&mut self) {
        self.shared.close_gate();
        Engine::stop_following(&self.shared);
        self.shared.checkpointer.stop();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("the checkpointer or the thread of applying panicked");
            }
        }
        let open = std::mem::take(&mut self.shared.state.lock().open);
        for Open { inner, main } in open.into_values() {
            stop_main(main, inner).drop_readers();
        }
        if let Err(e) = self.shared.trail.close() {
            tracing::error!("the trail was not closed cleanly, the next start recovers it: {e}");
        }
    }
}

/// Stops MAIN and waits until everything it published is durable and has reached its level, or never will.
pub(super) fn stop_main(thread: Option<JoinHandle<()>>, inner: Arc<Inner>) -> Arc<Inner> {
    if let Some(main) = inner.main.write().take() {
        // An error means that it has ended already.
        drop(main.send(Message::Stop));
    }
    if thread.is_some_and(|t| t.join().is_err()) {
        tracing::error!(database = inner.name, "MAIN panicked");
    }
    // On a standby nobody waits for what is applied, and the rest of a failed group never becomes durable.
    if inner.shared.follow.is_none() {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        let newest = inner.volume().store().newest();
        inner.when_durable(newest, Box::new(move || sender.send(()).unwrap_or_default()));
        receiver.recv().unwrap_or_default();
    }
    // They hold the database, which would never be let go. Their rows stay; nobody can take what they lock any more.
    let prepared = std::mem::take(&mut *inner.prepared.lock());
    drop(prepared);
    inner
}
