//! The rows of a suspended portal: Execute with a row limit runs the whole statement, and what is beyond the limit stays
//! here, as messages, until it is fetched.
//!
//! They count against the session's memory: a result that does not fit fails with 53200.

use crate::backend;
use crate::memory::{Kept, SessionMemory};
use holdfast_types::{SqlResult, Tag};
use std::collections::VecDeque;
use std::sync::Arc;

/// Rows of a suspended portal that have not been sent yet.
#[derive(Debug)]
pub struct Held {
    /// DataRow messages.
    rows: VecDeque<u8>,
    count: u64,
    verb: &'static str,
    kept: Kept,
}

/// How far a fetch has got.
#[derive(Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The buffer has reached its size; the fetch continues after it was sent.
    Part,
    All,
}

impl Held {
    pub fn new(memory: &Arc<SessionMemory>) -> Held {
        Held { rows: VecDeque::new(), count: 0, verb: "", kept: Kept::new(memory) }
    }

    /// Appends a DataRow message. 53200 where the session's memory does not permit that.
    pub fn push(&mut self, message: impl ExactSizeIterator<Item = u8>) -> SqlResult<()> {
        self.kept.add(message.len())?;
        self.rows.extend(message);
        self.count += 1;
        Ok(())
    }

    /// The statement has ended; its command tag begins with `verb`.
    pub fn ended(mut self, verb: &'static str) -> Held {
        self.verb = verb;
        self
    }

    /// Moves rows to `out` until `rows_max` (0: all) have been moved, `moved` of them before, or `out` has `bytes_max`
    /// bytes. After the last one PortalSuspended or CommandComplete follows.
    pub fn fetch(&mut self, out: &mut Vec<u8>, rows_max: usize, moved: &mut u64, bytes_max: usize) -> Fetched {
        while self.count > 0 && (rows_max == 0 || *moved < rows_max as u64) {
            if out.len() >= bytes_max {
                return Fetched::Part;
            }
            // Written by the reply: a letter, then the length of the rest.
            let length = [self.rows[1], self.rows[2], self.rows[3], self.rows[4]];
            let bytes = 1 + u32::from_be_bytes(length) as usize;
            out.extend(self.rows.drain(..bytes));
            self.count -= 1;
            *moved += 1;
        }
        if rows_max != 0 && *moved == rows_max as u64 {
            backend::portal_suspended(out);
        } else {
            backend::command_complete(out, &Tag { verb: self.verb, rows: Some(*moved) });
        }
        Fetched::All
    }
}
