//! The writer's part in a transaction over several databases.
//!
//! | state | command | next |
//! |---|---|---|
//! | backed out, the reason reported | none | the writer is free |
//! | backed out, it has changed nothing | none | the writer is free |
//! | ready: all checks made, nothing published | commit | published, the record handed over; or backed out, the error reported |
//! | ready | none, the others could not | backed out; the writer is free |
//! | published | continue: one append took the records of all | the writer is free |
//! | published | none | broken: nothing may be written from here on |

use super::connection::Writer;
use crate::state::lock_owner::LockOwner;
use crate::state::queue::{Command, Participant, Published, Vote};
use holdfast_types::SqlResult;
use holdfast_types::record::{Author, BatchBuilder};
use std::time::Instant;

impl Writer {
    /// Participates to the end.
    pub(crate) fn participate(&mut self, part: Participant) {
        let Participant { images, lock_owner, author, commands, votes } = part;
        let started = Instant::now();
        // The coordinator waits for every vote it asked for; it never goes away before.
        let tell = |report| drop(votes.send(report));
        let record = match self.get_ready(images, lock_owner.as_ref(), author.as_deref()) {
            Ok(Some(record)) => record,
            nothing => {
                self.back_out();
                drop(lock_owner);
                return tell(nothing.map_or_else(Vote::Failed, |_| Vote::Nothing));
            }
        };
        tell(Vote::Ready(self.conn.capture().len() as u64));
        let Ok(Command::Commit(clock)) = commands.recv() else { return self.back_out() };
        record.set_clock(self.conn.capture().buffer(), clock);
        let number = self.number();
        let body = match self.publish(record) {
            Ok(body) => body,
            Err(e) => {
                let error = self.sql_error(&e);
                self.back_out();
                return tell(Vote::Failed(error));
            }
        };
        let (reservation, fragments) = (self.reserved.take(), self.ahead.take().map(|ahead| ahead.txn.0));
        let time_us = started.elapsed().as_micros() as u64;
        tell(Vote::Published(Published { number, body, reservation, fragments, time_us, lock_owner }));
        if commands.recv() != Ok(Command::Continue) {
            self.break_off("a transaction over several databases was published and could not be logged".into());
        }
    }

    fn get_ready(
        &mut self,
        images: Option<Vec<u8>>,
        lock_owner: Option<&LockOwner>,
        author: Option<&Author>,
    ) -> SqlResult<Option<BatchBuilder>> {
        if let Some(ops) = images {
            self.begin()?;
            self.changes_are_of(lock_owner.map(LockOwner::id));
            self.merge_in_savepoint(&ops)?;
        }
        self.finish_sole()?;
        if self.conn.capture().ops() == 0 && self.conn.capture().unchanged() == 0 {
            return Ok(None);
        }
        let content = std::mem::take(self.conn.capture().buffer());
        self.records(&content, author).map(Some)
    }
}
