//! How the operations of a large transaction are cut into fragments.

use holdfast_types::record::Ops;
use holdfast_types::{Epoch, SqlError, SqlResult, SqlState, TxnId};

/// Whether fragments of a transaction in the trail of epoch `now` will never be used: the master that sent them is gone.
pub fn is_dead(txn: TxnId, now: Epoch) -> bool {
    txn.epoch() < now
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
