//! Writes a large branch's images to the trail as fragments before the writer has them.
//!
//! They are sent at COMMIT, on a thread of their own, while others write: the writer then only puts them on, and what takes
//! longest, the disk of this node and of its standbys, keeps no other writer waiting. (174 MiB with a standby on the same disk: the writer
//! was taken for 1.4 to 2.8 s when it sent them itself, less than half of that working.) One fragment is under way at a
//! time, so others' batches pass between two of them, and the governor is asked before each.
//!
//! What the writer captures when it applies them is compared with what was sent, piece by piece: if foreign keys or anything
//! else make a difference, the fragments are dropped and the writer sends what it has captured ([`crate::writer`]).
//!
//! | sent | then | the trail |
//! |---|---|---|
//! | all | the writer commits | a batch record refers to them |
//! | all | the writer captures something else, or rolls back | they are dropped |
//! | some | no room, reservations refused, the disk hangs | they are dropped; the writer meets the same error and reports it to the client |
//! | some | crash | nothing refers to them: redo ignores them, and the next epoch drops them |
//!
//! Failure: none of its own. Without fragments the merge takes its usual way. A database that is closed meanwhile drops the
//! commit's ticket, as it does with what is queued.

use crate::state::database::DatabaseState;
use crate::state::fragments::pieces;
use crate::state::prewritten::Prewritten;
use holdfast_trail::Span;
use holdfast_types::TxnId;
use holdfast_types::record::put_fragment;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Size of one piece of the smallest transaction that is prewritten: other commits wait for at most one piece to be
/// written.
const PIECE_SHARE: usize = 8;

/// This many send at a time: each holds one of the threads that statements need, for as long as the disk or the governor
/// wants. What more there is goes the usual way.
const SENDING_MAX: usize = 4;

/// This part of a segment stays prepared for others.
const LEFT_OF_A_SEGMENT: u64 = 4;

/// A trail that takes longer for one piece has a more serious problem.
const HANGS: Duration = Duration::from_secs(10);

/// Writes all of a branch's images. `None` if that was not possible; they take the usual way.
pub fn prewrite(database: &Arc<DatabaseState>, images: &[u8]) -> Option<Prewritten> {
    let _permit = database.engine.prewriting.take(SENDING_MAX)?;
    let bytes_max = database.engine.trail.body_bytes_max() as usize;
    let piece_bytes = (database.engine.options.prewrite_bytes_min / PIECE_SHARE).min(bytes_max / 4);
    let txn = database.engine.next_txn();
    let mut sent = Prewritten::new(database.clone(), txn);
    let mut before_bytes = 0;
    for piece in pieces(images, piece_bytes, bytes_max / 2).ok()? {
        database.wait_for_governor(before_bytes);
        before_bytes = send_one(database, txn, &mut sent, piece)?;
    }
    Some(sent)
}

/// Sends one fragment and waits until it is durable; returns the bytes it took.
fn send_one(database: &Arc<DatabaseState>, txn: TxnId, sent: &mut Prewritten, piece: &[u8]) -> Option<u64> {
    let engine = &database.engine;
    let mut body = Vec::with_capacity(piece.len() + 64);
    put_fragment(&mut body, database.id, txn, sent.count(), piece);
    let bytes = body.len() as u64;
    // Other sessions do not wait until the next segment is prepared.
    let left_bytes = engine.trail.segment_bytes() / LEFT_OF_A_SEGMENT;
    let reservation = engine.trail.reserve_beside(bytes, left_bytes).ok()?;
    let (sender, receiver) = channel();
    let of = database.clone();
    let on_durable = Box::new(move |span: Span| {
        of.redo.fragment(txn.0, span.start);
        // The receiver is gone if it took too long.
        sender.send(()).unwrap_or_default();
    });
    sent.add(piece.len());
    engine.trail.append(reservation.for_commits(0), body, on_durable).ok()?;
    receiver.recv_timeout(HANGS).ok()?;
    Some(bytes)
}
