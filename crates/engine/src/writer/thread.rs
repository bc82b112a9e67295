//! The writer's thread: takes commands from one queue, first in first out.

use super::commands::Commands;
use super::connection::{GiveBack, Writer};
use super::prepared::restore;
use crate::state::database::DatabaseState;
use crate::state::error::OpenError;
use crate::state::queue::WriterCommand;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Ends the process when the writer panics: what it had published but not handed to the trail must never be read.
struct EndsWithMain;

impl Drop for EndsWithMain {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("the writer panicked: the process ends; the next start recovers everything acknowledged");
            std::process::abort();
        }
    }
}

/// Serves the queue until it is stopped.
fn serve(mut writer: Writer, mut commands: Commands) {
    let _guard = EndsWithMain;
    while let Ok(command) = commands.next() {
        match command {
            WriterCommand::Run(waiting) => match waiting.take() {
                Some(request) if request.sole => writer.run_sole(request),
                Some(request) => writer.run_batch(request, &mut commands),
                None => {}
            },
            WriterCommand::Begin(begin) => writer.run_exclusive(begin, &mut commands),
            WriterCommand::Participate(participant) => writer.participate(participant),
            WriterCommand::Prepare { request, level, done } => writer.prepare_transaction(request, level, done),
            WriterCommand::FinishPrepared { request, level, done } => writer.finish_prepared(&request, level, done),
            WriterCommand::Vacuum { done } => drop(done.send(writer.vacuum())),
            WriterCommand::Stop => break,
        }
    }
}

/// Opens the writer on a database's volume, restores its prepared transactions, and starts its thread.
pub fn start(database: &Arc<DatabaseState>, give_back: GiveBack) -> Result<JoinHandle<()>, OpenError> {
    let mut writer = Writer::open(database.clone(), give_back)?;
    restore(database, &mut writer)?;
    let (sender, queue) = crossbeam_channel::unbounded();
    let thread = std::thread::Builder::new().name(format!("writer-{}", database.id));
    let thread = thread.spawn(move || serve(writer, Commands::new(queue))).map_err(|source| OpenError::Io {
        what: "start a thread for",
        path: database.volume().store().path().to_owned(),
        source,
    })?;
    *database.queue.write() = Some(sender);
    Ok(thread)
}
