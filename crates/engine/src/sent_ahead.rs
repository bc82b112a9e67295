//! A large branch's images, sent to the trail as fragments before MAIN has them.
//!
//! Whoever commits sends them, on a thread of its own, while others write: MAIN then only puts them on, and what takes
//! longest, the disk of this node and of its standbys, keeps nobody waiting. (174 MiB with a standby on the same disk: MAIN
//! was taken for 1.4 to 2.8 s when it sent them itself, less than half of that working.) One fragment is under way at a
//! time, so others' boxcars pass between two of them, and the governor is asked before each.
//!
//! What MAIN captures when it puts them on is compared with what was sent, piece by piece: where foreign keys or anything
//! else make a difference, the fragments are dropped and MAIN sends what it has captured
//! ([`crate::main_thread`], `large.rs`).
//!
//! | sent | then | the trail |
//! |---|---|---|
//! | all | MAIN commits | a batch record refers to them |
//! | all | MAIN captures something else, or backs out | they are dropped |
//! | some | no room, reservations refused, the disk hangs | they are dropped; MAIN meets the same and tells the client |
//! | some | crash | nothing refers to them: redo ignores them, and the next epoch drops them |
//!
//! Failure: none of its own. Without fragments the merge goes its usual way. A database that is closed meanwhile drops the
//! commit's ticket, as it does with what is queued.

use crate::database::Inner;
use crate::main_thread::{drop_fragments, governed, next_txn, pieces};
use holdfast_trail::Span;
use holdfast_types::TxnId;
use holdfast_types::record::put_fragment;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Of the least that is sent ahead, one piece is so much: others' commits wait for no more than one to be written.
const PIECE_SHARE: usize = 8;

/// So many send at a time: each holds one of the threads that statements need, for as long as the disk or the governor
/// wants. What more there is goes the usual way.
const SENDING_MAX: usize = 4;

/// Such a part of a segment stays prepared for others.
const LEFT_OF_A_SEGMENT: u64 = 4;

/// A trail that takes longer for one piece has other worries.
const HANGS: Duration = Duration::from_secs(10);

/// Fragments in the trail that no batch record refers to yet. Dropped there unless taken.
pub struct SentAhead {
    inner: Arc<Inner>,
    txn: TxnId,
    /// Where each fragment's operations end in the images.
    ends: Vec<usize>,
}

impl SentAhead {
    /// Sends all of them. `None`: that could not be.
    pub fn send(inner: &Arc<Inner>, images: &[u8]) -> Option<SentAhead> {
        let _place = inner.shared.sending_ahead.take(SENDING_MAX)?;
        let bytes_max = inner.shared.trail.body_bytes_max() as usize;
        let piece_bytes = (inner.shared.options.sent_ahead_bytes_min / PIECE_SHARE).min(bytes_max / 4);
        let mut sent = SentAhead { inner: inner.clone(), txn: next_txn(&inner.shared), ends: Vec::new() };
        let mut before_bytes = 0;
        for piece in pieces(images, piece_bytes, bytes_max / 2).ok()? {
            governed(inner, before_bytes);
            before_bytes = sent.one(piece)?;
        }
        Some(sent)
    }

    /// Sends one and waits until it is durable; returns the bytes it took.
    fn one(&mut self, piece: &[u8]) -> Option<u64> {
        let (shared, txn) = (&self.inner.shared, self.txn);
        let mut body = Vec::with_capacity(piece.len() + 64);
        put_fragment(&mut body, self.inner.id, txn, self.ends.len() as u32, piece);
        let bytes = body.len() as u64;
        // Others do not wait until the next segment is prepared.
        let left_bytes = shared.trail.segment_bytes() / LEFT_OF_A_SEGMENT;
        let reservation = shared.trail.reserve_beside(bytes, left_bytes).ok()?;
        let (tell, told) = channel();
        let inner = self.inner.clone();
        let on_durable = Box::new(move |span: Span| {
            inner.redo.fragment(txn.0, span.start);
            // Nobody listens any more: it took too long.
            tell.send(()).unwrap_or_default();
        });
        // From here on it may be in the trail.
        self.ends.push(self.ends.last().unwrap_or(&0) + piece.len());
        shared.trail.append(reservation.for_commits(0), body, on_durable).ok()?;
        told.recv_timeout(HANGS).ok()?;
        Some(bytes)
    }

    /// Whose they are, and where each ends in the images. The caller drops them, or refers to them.
    pub fn take(mut self) -> (TxnId, Vec<usize>) {
        (self.txn, std::mem::take(&mut self.ends))
    }
}

impl Drop for SentAhead {
    fn drop(&mut self) {
        if !self.ends.is_empty() {
            drop_fragments(&self.inner, self.txn);
        }
    }
}
