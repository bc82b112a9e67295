//! From captured operations to records: one batch record, or fragments and a batch record that refers to them.
//!
//! | captured | trail |
//! |---|---|
//! | nothing, no row rewritten | no boxcar |
//! | up to `fragment_bytes` | one batch record |
//! | more | fragments of whole operations, each at most `fragment_bytes`, then a batch record of one reference |
//! | one operation above the largest boxcar | refused with 54000: a row this large cannot be logged |
//!
//! A branch's images, which nothing but the end of all can undo, are in the trail already where there are many
//! ([`crate::sent_ahead`]); else, and from the first difference on, they are sent ahead while they are put on: so the trail
//! writes them meanwhile, and what was captured of them is not in memory once more. (174 MiB: to let the capture's buffer grow and
//! then to copy it took half of the 1.9 s for which everybody else waited, most of it the kernel clearing pages.)
//!
//! The fragments and the batch record are appended one after the other; only the last one's durability is waited for,
//! as the trail is durable in order.

use super::exec::{Answer, Main};
use crate::batch::{BatchDone, OnDone};
use crate::database::Inner;
use crate::sent_ahead::SentAhead;
use holdfast_trail::Span;
use holdfast_types::record::{BatchBuilder, Ops, TxnHead, op, put_fragment, put_fragment_drop};
use holdfast_types::{Level, SqlError, SqlResult, SqlState, TxnId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// What a record adds around its operations, generously.
const RECORD_OVERHEAD_BYTES: usize = 256;

/// What of the open transaction has travelled ahead.
pub(super) struct Ahead {
    pub txn: TxnId,
    pub fragments: u32,
    /// Of operations.
    pub bytes: u64,
    /// What was sent before the merge: where each fragment ends in the images. Emptied when they are put on.
    sent: Vec<usize>,
}

impl Ahead {
    pub fn of(sent: SentAhead) -> Ahead {
        let (txn, sent) = sent.take();
        Ahead { txn, fragments: sent.len() as u32, bytes: sent.last().map_or(0, |end| *end as u64), sent }
    }
}

impl Main {
    /// Commits the open transaction, whose operations are in the capture's buffer without a record around them.
    pub(super) fn commit_captured(&mut self, started: Instant, answers: Vec<Answer>) {
        let (ops, unchanged) = (self.conn.capture().ops(), self.conn.capture().unchanged());
        if ops == 0 && unchanged == 0 {
            // Nothing to make durable: whatever SQLite dirtied besides is undone, as the trail would not know it.
            self.rollback();
            return self.answer_without_boxcar(answers);
        }
        let content = std::mem::take(self.conn.capture().buffer());
        match self.records(&content) {
            Ok(record) => self.commit_or_fail(record, started, answers),
            Err(error) => self.fail(error, answers),
        }
    }

    /// Commits the open transaction where all went well so far, else backs it out; the answer leaves when that is
    /// durable.
    pub(crate) fn commit_or_back_out(&mut self, started: Instant, level: Level, done: OnDone, result: BatchDone) {
        let failed = result.result.is_err();
        let answer = Answer { done, result, presence: None, level };
        if failed {
            self.back_out();
            return self.answer_without_boxcar(vec![answer]);
        }
        self.commit_captured(started, vec![answer]);
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
        self.answer_without_boxcar(answers);
    }

    /// Puts the batch record around `content`, or sends it ahead as fragments.
    pub(super) fn records(&mut self, content: &[u8]) -> SqlResult<BatchBuilder> {
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
        record.begin_transaction(buf, head);
        match &self.ahead {
            None => buf.extend_from_slice(content),
            Some(ahead) => op::put_fragments(buf, head.id, ahead.fragments),
        }
        record.end_transaction(buf);
        Ok(record)
    }

    /// Applies images, and sends ahead what was captured of them unless the same was sent before.
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

    /// Applies what was sent before the merge, for as long as it is also what is captured; returns how much that was. From
    /// the first difference on the fragments are of no use.
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

    /// Appends operations of the open transaction as fragments. When the trail has no room for all of them, those already
    /// sent are dropped by the rollback that follows.
    fn send_ahead(&mut self, content: &[u8]) -> SqlResult<()> {
        for piece in pieces(content, self.sizes.fragment_bytes, self.boxcar_bytes_max())? {
            let (txn, number) = match &self.ahead {
                Some(ahead) => (ahead.txn, ahead.fragments),
                None => (self.head().id, 0),
            };
            let mut body = Vec::with_capacity(piece.len() + RECORD_OVERHEAD_BYTES);
            put_fragment(&mut body, self.inner.id, txn, number, piece);
            self.last_boxcar_bytes += body.len() as u64;
            let reservation = self.reservation(body.len() as u64)?;
            let inner = self.inner.clone();
            let on_durable = Box::new(move |span: Span| inner.redo.fragment(txn.0, span.start));
            let appended = self.inner.shared.trail.append(reservation.for_commits(0), body, on_durable);
            appended.map_err(|e| SqlError::new(SqlState::ADMIN_SHUTDOWN, e.to_string()))?;
            let bytes = self.ahead.as_ref().map_or(0, |ahead| ahead.bytes) + piece.len() as u64;
            self.ahead = Some(Ahead { txn, fragments: number + 1, bytes, sent: Vec::new() });
        }
        Ok(())
    }

    /// Tells the trail that fragments sent ahead will never be used.
    pub(super) fn drop_fragments(&mut self) {
        if let Some(Ahead { txn, .. }) = self.ahead.take() {
            drop_fragments(&self.inner, txn);
        }
    }

    fn boxcar_bytes_max(&self) -> usize {
        self.inner.shared.trail.body_bytes_max() as usize - RECORD_OVERHEAD_BYTES
    }
}

/// Tells the trail that a transaction's fragments will never be used.
pub fn drop_fragments(inner: &Arc<Inner>, txn: TxnId) {
    // A deposed master writes nothing more.
    if inner.shared.deposed.load(Ordering::Acquire) {
        return;
    }
    let mut body = Vec::new();
    put_fragment_drop(&mut body, inner.id, txn);
    let dropped = inner.clone();
    let on_durable = Box::new(move |_: Span| dropped.redo.fragments_dropped(txn.0));
    if let Err(e) = inner.shared.trail.append_kept(body, on_durable) {
        // Redo ignores fragments that no commit refers to; the record only lets segments go sooner.
        tracing::warn!(database = inner.name, "cannot log the end of a transaction: {e}");
    }
}

/// Cuts operations into pieces of at most `fragment_bytes`, or of one operation that is larger.
pub fn pieces(content: &[u8], fragment_bytes: usize, piece_bytes_max: usize) -> SqlResult<Vec<&[u8]>> {
    let mut pieces = Vec::new();
    let (mut start, mut end) = (0, 0);
    let mut ops = Ops::new(content);
    while let Some(op) = ops.next() {
        op.map_err(|e| SqlError::internal(format!("a captured operation cannot be read back: {e}")))?;
        let next = ops.offset();
        if next - start > fragment_bytes && end > start {
            pieces.push(&content[start..end]);
            start = end;
        }
        if next - start > piece_bytes_max {
            let message =
                format!("a changed row takes {} bytes in the trail, more than {piece_bytes_max}", next - start);
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
                .with_hint("Store such large values in pieces, or raise segment_bytes for a new directory."));
        }
        end = next;
    }
    if end > start {
        pieces.push(&content[start..end]);
    }
    Ok(pieces)
}
