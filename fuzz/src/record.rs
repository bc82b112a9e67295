//! The trail's record format: a body decodes to its last operation or says what is wrong with it.

use holdfast_types::record::{Record, RecordReader};

pub fn run(data: &[u8]) {
    for record in RecordReader::new(data) {
        let Ok(record) = record else { return };
        match record {
            Record::Batch(batch) => {
                for transaction in batch.transactions() {
                    let Ok(transaction) = transaction else { return };
                    // Walked for its own sake.
                    let _ = transaction.ops.into_iter().take_while(Result::is_ok).count();
                }
            }
            Record::Fragment { ops, .. } => {
                // As above.
                let _ = ops.into_iter().take_while(Result::is_ok).count();
            }
            _ => {}
        }
    }
}
