//! Stopping: cleanly, with every file brought up to date, or at once, so that the next start recovers.
//!
//! Failure: a database that cannot be checkpointed is reported in the error and recovered by the next start; the rest is closed
//! all the same.

use crate::api::engine::{Engine, EngineInner};
use crate::background::checkpointer;
use crate::state::database::DatabaseState;
use crate::state::error::CloseError;
use crate::state::follow::Follow;
use crate::state::queue::WriterCommand;
use crate::state::registry::Open;
use std::sync::Arc;
use std::thread::JoinHandle;

impl Engine {
    /// Clean stop: every database is checkpointed, the trail proves itself durable. Open interactive transactions are
    /// backed out; commits that wait for a standby stay in the trail and are not answered. Closing twice is no error.
    pub fn close(&self) -> Result<(), CloseError> {
        let engine = &self.0.engine;
        engine.close_gate();
        // The databases stay listed as open until each is checkpointed: their redo holds the trail's floor.
        let open: Vec<_> = {
            let _no_opening = engine.lifecycle.lock();
            let mut open = self.0.registry.lock();
            open.closed = true;
            open.open.values_mut().map(|o| (o.database.clone(), o.writer.take())).collect()
        };
        engine.follow.iter().for_each(Follow::stop);
        engine.checkpointer.stop();
        for thread in self.0.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("the checkpointer or the thread of applying panicked");
            }
        }
        let mut result = Ok(());
        let stopped: Vec<_> = open.into_iter().map(|(database, writer)| stop_writer(writer, database)).collect();
        for database in stopped {
            if let Err(e) = checkpointer::checkpoint(&database) {
                result = Err(CloseError::Checkpoint { name: database.name.clone(), message: e.to_string() });
            }
            database.drop_readers();
            let path = std::path::PathBuf::from(database.volume().store().path());
            if result.is_ok()
                && let Err(e) = holdfast_store::checkpoint::remove_wal(&*engine.options.disk, &path)
            {
                tracing::warn!(database = database.name, "cannot remove the empty -wal file: {e}");
            }
        }
        self.0.registry.lock().open.clear();
        if let Err(error) = engine.keep_clock() {
            tracing::warn!("the clock cannot be written to the data directory: {error}");
        }
        engine.trail.close()?;
        result
    }
}

/// Stops without checkpoints: the next start recovers. Nothing runs any more when it returns, so the directory may be
/// opened again or removed.
impl Drop for EngineInner {
    fn drop(&mut self) {
        self.engine.close_gate();
        self.engine.follow.iter().for_each(Follow::stop);
        self.engine.checkpointer.stop();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("the checkpointer or the thread of applying panicked");
            }
        }
        let open = std::mem::take(&mut self.registry.lock().open);
        for Open { database, writer } in open.into_values() {
            stop_writer(writer, database).drop_readers();
        }
        if let Err(e) = self.engine.trail.close() {
            tracing::error!("the trail was not closed cleanly, the next start recovers it: {e}");
        }
    }
}

/// Stops the writer and waits until everything it published is durable and has reached its level, or never will.
pub(crate) fn stop_writer(thread: Option<JoinHandle<()>>, database: Arc<DatabaseState>) -> Arc<DatabaseState> {
    if let Some(writer) = database.queue.write().take() {
        // An error means that it has ended already.
        drop(writer.send(WriterCommand::Stop));
    }
    if thread.is_some_and(|t| t.join().is_err()) {
        tracing::error!(database = database.name, "the writer panicked");
    }
    // On a standby no client waits for what is applied, and the rest of a failed group never becomes durable.
    if database.engine.follow.is_none() {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        let newest = database.volume().store().newest();
        database.when_visible(newest, Box::new(move || sender.send(()).unwrap_or_default()));
        receiver.recv().unwrap_or_default();
    }
    // Their rows stay, and no transaction can take any more what they lock.
    let prepared = std::mem::take(&mut *database.prepared.lock());
    drop(prepared);
    database
}
