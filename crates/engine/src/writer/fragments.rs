//! From captured operations to records: one batch record, or fragments and a batch record that refers to them.
//!
//! | captured | trail |
//! |---|---|
//! | nothing, no row rewritten | no batch |
//! | up to `fragment_bytes` | one batch record |
//! | more | fragments of whole operations, each at most `fragment_bytes`, then a batch record of one reference |
//! | one operation above the largest batch | refused with 54000: a row this large cannot be logged |
//!
//! A branch's images, which nothing but the end of all can undo, are in the trail already where there are many
//! ([`crate::route::prewrite`]); else, and from the first difference on, they are sent ahead while they are put on: so the trail
//! writes them meanwhile, and what was captured of them is not in memory twice. (174 MiB: to let the capture's buffer grow and
//! then to copy it took half of the 1.9 s for which all other writers waited, most of it the kernel clearing pages.)
//!
//! The fragments and the batch record are appended one after the other; the writer waits for the durability of the last one
//! only, because the trail is durable in order.

use super::connection::{SentFragments, Writer};
use super::publish::Answer;
use crate::state::fragments::pieces;
use crate::state::prewritten::FragmentOwner;
use crate::state::submission::{Completion, OnCompletion};
use holdfast_trail::Span;
use holdfast_types::record::{Author, BatchBuilder, TxnHead, op, put_fragment};
use holdfast_types::{Level, SqlError, SqlResult, SqlState};
use std::time::Instant;

/// An upper bound of what a record adds around its operations.
const RECORD_OVERHEAD_BYTES: usize = 256;

impl Writer {
    /// Commits the open transaction, whose operations are in the capture's buffer without a record around them.
    pub(super) fn commit_captured(&mut self, started: Instant, author: Option<&Author>, answers: Vec<Answer>) {
        let (ops, unchanged) = (self.conn.capture().ops(), self.conn.capture().unchanged());
        if ops == 0 && unchanged == 0 {
            // Nothing to make durable: whatever SQLite dirtied as well is undone, as the trail would not know it.
            self.rollback();
            return self.answer_without_batch(answers);
        }
        let content = std::mem::take(self.conn.capture().buffer());
        match self.records(&content, author) {
            Ok(record) => self.commit_or_fail(record, started, answers),
            Err(error) => self.fail(error, answers),
        }
    }

    /// Commits the open transaction if everything succeeded so far, otherwise rolls it back; the answer leaves when
    /// that is durable.
    pub(crate) fn commit_or_back_out(
        &mut self,
        started: Instant,
        (level, author): (Level, Option<&Author>),
        done: OnCompletion,
        result: Completion,
    ) {
        let failed = result.result.is_err();
        let answer = Answer { done, result, lock_owner: None, level };
        if failed {
            self.back_out();
            return self.answer_without_batch(vec![answer]);
        }
        self.commit_captured(started, author, vec![answer]);
    }

    fn commit_or_fail(&mut self, record: BatchBuilder, started: Instant, answers: Vec<Answer>) {
        if let Err(failed) = self.commit(record, started, answers) {
            self.fail(failed.error, failed.answers);
        }
    }

    fn fail(&mut self, error: SqlError, answers: Vec<Answer>) {
        self.rollback();
        self.restore_schema();
        let answers = answers
            .into_iter()
            .map(|mut a| {
                a.result.result = Err(error.clone());
                a
            })
            .collect();
        self.answer_without_batch(answers);
    }

    /// Puts the batch record around `content`, or writes it ahead as fragments.
    pub(super) fn records(&mut self, content: &[u8], author: Option<&Author>) -> SqlResult<BatchBuilder> {
        let goes_ahead = self.ahead.is_some() || content.len() > self.sizes.fragment_bytes;
        let last = if goes_ahead { 0 } else { content.len() };
        self.reserve((last + RECORD_OVERHEAD_BYTES) as u64)?;
        if goes_ahead {
            self.send_ahead(content)?;
        }
        let head = self.head();
        let head = TxnHead { id: self.ahead.as_ref().map_or(head.id, |ahead| ahead.txn), ..head };
        let mut record = self.begin_record();
        let buf = self.conn.capture().buffer();
        record.begin_transaction(buf, head, author.map(Author::names));
        match &self.ahead {
            None => buf.extend_from_slice(content),
            Some(ahead) => op::put_fragments(buf, head.id, ahead.fragments),
        }
        record.end_transaction(buf);
        Ok(record)
    }

    /// Applies images, and writes ahead what was captured of them unless the same bytes were prewritten.
    pub(super) fn apply_images_ahead(&mut self, ops: &[u8]) -> SqlResult<()> {
        let as_sent = self.apply_as_sent(ops)?;
        for piece in pieces(&ops[as_sent..], self.sizes.fragment_bytes, usize::MAX)? {
            self.apply_images(piece)?;
            if self.conn.capture().len() > self.sizes.fragment_bytes {
                let mut captured = std::mem::take(self.conn.capture().buffer());
                self.send_ahead(&captured)?;
                captured.clear();
                *self.conn.capture().buffer() = captured;
            }
        }
        Ok(())
    }

    /// Applies what was prewritten while it equals what is captured; returns the length of the equal part. From the
    /// first difference on the fragments are useless.
    fn apply_as_sent(&mut self, ops: &[u8]) -> SqlResult<usize> {
        let ends = self.ahead.as_mut().map(|ahead| std::mem::take(&mut ahead.sent)).unwrap_or_default();
        let mut start = 0;
        for end in ends {
            let piece = &ops[start..end];
            self.apply_images(piece)?;
            if self.conn.capture().buffer() != piece {
                self.drop_fragments();
                self.send_ahead(&ops[..start])?;
                return Ok(end);
            }
            self.conn.capture().buffer().clear();
            start = end;
        }
        Ok(start)
    }

    /// Appends operations of the open transaction as fragments. If the trail has no room for all of them, the rollback
    /// that follows drops those already written.
    fn send_ahead(&mut self, content: &[u8]) -> SqlResult<()> {
        for piece in pieces(content, self.sizes.fragment_bytes, self.batch_bytes_max())? {
            let (txn, number) = match &self.ahead {
                Some(ahead) => (ahead.txn, ahead.fragments),
                None => (self.head().id, 0),
            };
            let mut body = Vec::with_capacity(piece.len() + RECORD_OVERHEAD_BYTES);
            put_fragment(&mut body, self.database.id, txn, number, piece);
            self.last_batch_bytes += body.len() as u64;
            let reservation = self.reservation(body.len() as u64)?;
            let database = self.database.clone();
            let on_durable = Box::new(move |span: Span| database.redo.fragment(txn.0, span.start));
            let appended = self.database.engine.trail.append(reservation.for_commits(0), body, on_durable);
            appended.map_err(|e| SqlError::new(SqlState::ADMIN_SHUTDOWN, e.to_string()))?;
            let bytes = self.ahead.as_ref().map_or(0, |ahead| ahead.bytes) + piece.len() as u64;
            self.ahead = Some(SentFragments { txn, fragments: number + 1, bytes, sent: Vec::new() });
        }
        Ok(())
    }

    /// Records in the trail that prewritten fragments will never be used.
    pub(super) fn drop_fragments(&mut self) {
        if let Some(SentFragments { txn, .. }) = self.ahead.take() {
            self.database.clone().drop_fragments(txn);
        }
    }

    fn batch_bytes_max(&self) -> usize {
        self.database.engine.trail.body_bytes_max() as usize - RECORD_OVERHEAD_BYTES
    }
}
