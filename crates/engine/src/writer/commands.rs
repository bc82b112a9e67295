//! The commands that wait for the writer, first in first out, and what becomes of them while an exclusive transaction has it.
//!
//! | a command that arrives meanwhile | what becomes of it |
//! |---|---|
//! | a one-message transaction that others may overtake | it goes to a branch and waits there for the database's lock: with lock_timeout, visible to others, and a cancel ends it |
//! | any other | it is put off until the exclusive transaction has ended |
//!
//! While a statement of the exclusive transaction runs, the writer takes no command. So what is submitted from its beginning on goes
//! to a branch at once (`DatabaseState::only_writer`), and here arrives only what came before.

use super::connection::Writer;
use crate::state::queue::{ExclusiveRequest, WriterCommand};
use crossbeam_channel::{Receiver, RecvError, RecvTimeoutError, never, select};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The writer's queue.
pub(super) struct Commands {
    queue: Receiver<WriterCommand>,
    /// Taken from the queue already; older than everything in it.
    put_off: VecDeque<WriterCommand>,
}

impl Commands {
    pub fn new(queue: Receiver<WriterCommand>) -> Commands {
        Commands { queue, put_off: VecDeque::new() }
    }

    /// Waits for the next command; an error means that the database is closed.
    pub fn next(&mut self) -> Result<WriterCommand, RecvError> {
        self.put_off.pop_front().map_or_else(|| self.queue.recv(), Ok)
    }

    /// The next command, if one waits.
    pub fn try_next(&mut self) -> Option<WriterCommand> {
        self.put_off.pop_front().or_else(|| self.queue.try_recv().ok())
    }

    /// The command is the next one again.
    pub fn put_back(&mut self, command: WriterCommand) {
        self.put_off.push_front(command);
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.put_off.len() + self.queue.len()
    }
}

impl Writer {
    /// Waits for the next request of an exclusive transaction, for at most `idle`, and makes way for others meanwhile.
    pub(super) fn next_request(
        &mut self,
        requests: &Receiver<ExclusiveRequest>,
        idle: Duration,
        commands: &mut Commands,
    ) -> Result<ExclusiveRequest, RecvTimeoutError> {
        let end = Instant::now() + idle;
        let closed = never();
        loop {
            let is_closed = matches!(commands.put_off.back(), Some(WriterCommand::Stop));
            let queue = if is_closed { &closed } else { &commands.queue };
            let command = select! {
                recv(requests) -> request => return request.map_err(|_| RecvTimeoutError::Disconnected),
                recv(queue) -> command => command,
                default(end.saturating_duration_since(Instant::now())) => return Err(RecvTimeoutError::Timeout),
            };
            match command.unwrap_or(WriterCommand::Stop) {
                WriterCommand::Run(waiting) if waiting.may_wait_elsewhere => {
                    if let Some(request) = waiting.take() {
                        (self.give_back)(&self.database, request);
                    }
                }
                other => commands.put_off.push_back(other),
            }
        }
    }
}
