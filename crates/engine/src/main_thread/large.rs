//! From captured operations to records: one batch record, or fragments and a batch record that refers to them.
//!
//! | captured | trail |
//! |---|---|
//! | nothing, no row rewritten | no boxcar |
//! | up to `fragment_bytes` | one batch record |
//! | more | fragments of whole operations, each at most `fragment_bytes`, then a batch record of one reference |
//! | one operation above the largest boxcar | refused with 54000: a row this large cannot be logged |
//!
//! The fragments and the batch record are appended one after the other; only the last one's durability is waited for,
//! as the trail is durable in order.

use super::exec::{Answer, Main};
use crate::batch::{BatchDone, OnDone};
use holdfast_trail::Span;
use holdfast_types::record::{BatchBuilder, Ops, op, put_fragment, put_fragment_drop};
use holdfast_types::{Level, SqlError, SqlResult, SqlState, TxnId};
use std::time::Instant;

/// What a record adds around its operations, generously.
const RECORD_OVERHEAD_BYTES: usize = 256;

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
        let head = self.head();
        let fragment_bytes = self.sizes.fragment_bytes;
        let fragments = match content.len() > fragment_bytes {
            true => pieces(content, fragment_bytes, self.boxcar_bytes_max())?,
            false => vec![],
        };
        let last = if fragments.is_empty() { content.len() } else { 0 };
        self.reserve((last + RECORD_OVERHEAD_BYTES) as u64)?;
        self.send_ahead(head.id, &fragments)?;
        let mut record = self.begin_record();
        let buf = self.conn.capture().buffer();
        record.begin_transaction(buf, head);
        if fragments.is_empty() {
            buf.extend_from_slice(content);
        } else {
            op::put_fragments(buf, head.id, fragments.len() as u32);
        }
        record.end_transaction(buf);
        Ok(record)
    }

    /// Appends the fragments of transaction `txn`. When the trail has no room for all of them, those already sent are
    /// dropped by the rollback that follows.
    fn send_ahead(&mut self, txn: TxnId, fragments: &[&[u8]]) -> SqlResult<()> {
        for (i, piece) in fragments.iter().enumerate() {
            let mut body = Vec::with_capacity(piece.len() + RECORD_OVERHEAD_BYTES);
            put_fragment(&mut body, self.inner.id, txn, i as u32, piece);
            self.last_boxcar_bytes += body.len() as u64;
            let reservation = self.reservation(body.len() as u64)?;
            let inner = self.inner.clone();
            let on_durable = Box::new(move |span: Span| inner.redo.fragment(txn.0, span.start));
            let appended = self.inner.shared.trail.append(reservation.for_commits(0), body, on_durable);
            appended.map_err(|e| SqlError::new(SqlState::ADMIN_SHUTDOWN, e.to_string()))?;
            self.fragments_of = Some(txn.0);
        }
        Ok(())
    }

    /// Tells the trail that fragments sent ahead will never be used.
    pub(super) fn drop_fragments(&mut self) {
        let Some(txn) = self.fragments_of.take() else { return };
        let mut body = Vec::new();
        put_fragment_drop(&mut body, self.inner.id, TxnId(txn));
        let inner = self.inner.clone();
        let on_durable = Box::new(move |_: Span| inner.redo.fragments_dropped(txn));
        if let Err(e) = self.inner.shared.trail.append_kept(body, on_durable) {
            // Redo ignores fragments that no commit refers to; the record only lets segments go sooner.
            tracing::warn!(database = self.inner.name, "cannot log the end of a transaction: {e}");
        }
    }

    fn boxcar_bytes_max(&self) -> usize {
        self.inner.shared.trail.body_bytes_max() as usize - RECORD_OVERHEAD_BYTES
    }
}

/// Cuts operations into pieces of at most `fragment_bytes`, or of one operation that is larger.
fn pieces(content: &[u8], fragment_bytes: usize, piece_bytes_max: usize) -> SqlResult<Vec<&[u8]>> {
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
