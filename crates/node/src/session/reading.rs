//! Statements that only read: on the worker's own thread when they are bounded, else on another thread, from which rows
//! stream to the client.

use super::node_session::NodeSession;
use crate::cancel::{Target, canceled, with_reason};
use holdfast_engine::{Reader, Step as EngineStep};
use holdfast_types::{SessionContext, Sink, SqlError, SqlResult, SqlState};
use holdfast_wire::{Client, Failure, Reply};
use tokio::sync::mpsc;

/// Full buffers of a scan that may wait for the client.
const CHUNKS_MAX: usize = 4;

/// The largest unsent answer of a statement that runs on the worker's own thread, where nothing can be sent meanwhile.
const INLINE_BYTES_MAX: usize = 1 << 20;

/// Runs the steps on the reader; several steps see one snapshot. `here`: it is a network thread, where only so much may run.
/// The error comes with the index of the step that failed.
fn run(
    reader: &mut Reader,
    context: &SessionContext,
    steps: &[EngineStep],
    reply: &mut Reply,
    here: bool,
) -> Result<(), (usize, SqlError)> {
    let one_snapshot = steps.len() > 1 && !reader.in_transaction();
    if one_snapshot {
        reader.begin().map_err(|e| (0, e))?;
    }
    let ran = steps.iter().enumerate().try_for_each(|(i, step)| {
        let ran = match here {
            true => reader.run_on_a_network_thread(context, i, step, reply),
            false => reader.run(context, i, step, reply),
        };
        ran.map_err(|e| (i, e))
    });
    if one_snapshot { reader.end().map_err(|e| (steps.len() - 1, e)).and(ran) } else { ran }
}

/// Whether the step may run on a network thread, where other sessions wait for it.
fn may_run_here(step: &EngineStep) -> bool {
    step.stmt.class.is_read() && step.is_bounded()
}

/// Whether a step failed because it is too large for a network thread. Elsewhere it may fail likewise, or not.
fn was_too_large(error: &SqlError) -> bool {
    error.state() == SqlState::PROGRAM_LIMIT_EXCEEDED
}

impl NodeSession {
    /// Runs the steps on the reader and returns it, unless its thread was lost.
    pub(super) async fn read(
        &mut self,
        mut reader: Reader,
        first: usize,
        steps: Vec<EngineStep>,
        client: &mut Client,
    ) -> (Option<Reader>, Result<(), Failure>) {
        client.reply().start_at(first);
        if steps.iter().all(may_run_here) {
            let position = client.reply().position();
            // A statement that takes an advisory lock must not run twice.
            let may_repeat = steps.iter().all(|s| !s.stmt.report.advisory);
            client.reply().bound_unsent(may_repeat.then_some(INLINE_BYTES_MAX));
            let ran = run(&mut reader, &self.context(), &steps, client.reply(), true);
            let is_large = client.reply().has_overflowed() || ran.as_ref().is_err_and(|(_, e)| was_too_large(e));
            client.reply().bound_unsent(None);
            if is_large {
                client.reply().back_to(position);
                return self.scan(reader, first, steps, client).await;
            }
            if ran.is_ok() && self.canceller.is_asked() {
                // By the statement itself, or by another thread just now.
                client.reply().back_to(position);
                return (Some(reader), Err(Failure::at(first, canceled(false))));
            }
            return (Some(reader), ran.map_err(|(i, e)| Failure::at(first + i, e)));
        }
        self.scan(reader, first, steps, client).await
    }

    async fn scan(
        &mut self,
        mut reader: Reader,
        first: usize,
        steps: Vec<EngineStep>,
        client: &mut Client,
    ) -> (Option<Reader>, Result<(), Failure>) {
        let target = Target::Reader(reader.interrupt_handle());
        let context = self.context();
        let work = move |reply: &mut Reply| {
            let ran = run(&mut reader, &context, &steps, reply, false);
            (reader, ran)
        };
        match self.on_thread(target, client, work).await {
            Ok(((reader, ran), timed_out)) => {
                let failed = |(i, e)| Failure::at(first + i, with_reason(e, timed_out));
                (Some(reader), ran.map_err(failed))
            }
            Err(failure) => (None, Err(failure)),
        }
    }

    /// Runs work on another thread; what it puts into the reply goes to the client as buffers fill. Also returns whether
    /// `statement_timeout` interrupted it.
    pub(super) async fn on_thread<T: Send + 'static>(
        &mut self,
        target: Target,
        client: &mut Client,
        work: impl FnOnce(&mut Reply) -> T + Send + 'static,
    ) -> Result<(T, bool), Failure> {
        let (sender, mut chunks) = mpsc::channel::<Vec<u8>>(CHUNKS_MAX);
        let mut reply = client.lend_reply();
        reply.set_stream(Some(Box::new(move |full| send_chunk(&sender, full))));
        let timeout = self.settings.timeouts().statement;
        // The thread starts in `during`, which has set the target by then: a statement may cancel itself.
        let forward = async {
            let work = tokio::task::spawn_blocking(move || {
                let done = work(&mut reply);
                // Closes the channel, which ends the loop below.
                reply.set_stream(None);
                (reply, done)
            });
            while let Some(chunk) = chunks.recv().await {
                if client.send(&chunk).await.is_err() {
                    // The work finds the channel closed, and ends.
                    chunks.close();
                }
            }
            work.await
        };
        let (ended, timed_out) = self.canceller.during(target, timeout, forward).await;
        match ended {
            Ok((reply, done)) => {
                client.return_reply(reply);
                Ok((done, timed_out))
            }
            Err(error) => {
                client.replace_reply();
                let error = SqlError::internal(format!("the thread of a scan failed: {error}"));
                Err(Failure { step: None, error, fatal: true })
            }
        }
    }

    /// Runs one step into a sink that is not the client's. The reader is returned as by [`NodeSession::read`].
    pub(super) async fn read_into<S: Sink>(
        &mut self,
        mut reader: Reader,
        step: EngineStep,
        mut sink: S,
    ) -> (Option<Reader>, SqlResult<S>) {
        let context = self.context();
        if may_run_here(&step) {
            let ran = reader.run_on_a_network_thread(&context, 0, &step, &mut sink);
            if !ran.as_ref().is_err_and(was_too_large) {
                return (Some(reader), ran.map(|()| sink));
            }
            sink.reset();
        }
        let target = Target::Reader(reader.interrupt_handle());
        let work = move || {
            let ran = reader.run(&context, 0, &step, &mut sink);
            (reader, ran.map(|()| sink))
        };
        // The thread starts in `during`, as in `on_thread`.
        let scan = async { tokio::task::spawn_blocking(work).await };
        let timeout = self.settings.timeouts().statement;
        match self.canceller.during(target, timeout, scan).await {
            (Ok((reader, ran)), timed_out) => (Some(reader), ran.map_err(|e| with_reason(e, timed_out))),
            (Err(error), _) => (None, Err(SqlError::internal(format!("the thread of a scan failed: {error}")))),
        }
    }
}

fn send_chunk(sender: &mpsc::Sender<Vec<u8>>, full: &mut Vec<u8>) -> SqlResult<()> {
    let chunk = std::mem::replace(full, Vec::with_capacity(full.len()));
    sender
        .blocking_send(chunk)
        .map_err(|_| SqlError::new(SqlState::CONNECTION_DOES_NOT_EXIST, "the connection to the client was lost"))
}
