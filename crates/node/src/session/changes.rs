//! `SHOW holdfast.transaction_changes`: every row that the open transaction has changed in its current database, also by
//! foreign keys and triggers. `holdfast trail undo` compares it with its plan before it commits.
//!
//! The answer is one column of text, in hexadecimal digits: concatenated, its rows are operations of the trail's format
//! (`holdfast_types::record::op`). The transaction becomes the exclusive writer: what a commit would write is known only there,
//! and nothing changes between this answer and the commit. A transaction that has written nothing has no rows.
//!
//! Failure: 42501 where the role may not read a table with changes; the transaction fails like after any error.

use super::node_session::NodeSession;
use super::state::{Phase, State};
use crate::cancel::{Target, with_reason};
use holdfast_types::access::needs::WHOLE_TABLE;
use holdfast_types::access::{Need, Privileges, TableNeed};
use holdfast_types::record::{Op, Ops};
use holdfast_types::{SqlError, SqlResult, SqlState, Value};
use std::collections::BTreeSet;

/// The name that is shown.
pub(super) const CHANGES: &str = "holdfast.transaction_changes";
/// The name of the number of the schema, as the transaction sees it: each schema change in the trail has a higher one.
pub(super) const SCHEMA_EPOCH: &str = "holdfast.schema_epoch";
/// Tables' OIDs begin here.
const FIRST_TABLE_OID: u32 = 16384;
/// Bytes of operations in one row of the answer.
const ROW_BYTES: usize = 32 << 10;

impl NodeSession {
    /// The operations.
    pub(super) async fn transaction_changes(&mut self) -> SqlResult<Vec<u8>> {
        let timeouts = self.settings.timeouts();
        let (db, canceller) = (self.served.db.clone(), self.canceller.clone());
        let State::Block(block) = &mut self.state else { return Ok(Vec::new()) };
        let Phase::Writing(txn) = &mut block.phase else { return Ok(Vec::new()) };
        txn.set_lock_timeout(timeouts.lock);
        let target = Target::Writer(db, txn.id());
        let (changes, timed_out) = canceller.during(target, timeouts.statement, txn.changes_so_far()).await;
        let changes = changes.map_err(|e| with_reason(e, timed_out))?;
        self.check_may_read(&changes)?;
        Ok(changes)
    }

    /// The images have values of rows that the statements may not have named.
    fn check_may_read(&self, changes: &[u8]) -> SqlResult<()> {
        let mut oids = BTreeSet::new();
        for op in Ops::new(changes) {
            let op = op.map_err(|e| SqlError::internal(format!("the transaction's images cannot be read: {e}")))?;
            if let Op::Insert { table, .. } | Op::Update { table, .. } | Op::Delete { table, .. } = op {
                oids.insert(FIRST_TABLE_OID + table.0);
            }
        }
        let schema = self.schema();
        let known = |oid: &u32| schema.tables.iter().any(|table| table.oid == *oid);
        if !oids.iter().all(known) && !self.roles().is_superuser(self.identity.current_role) {
            let message = "permission denied for a table of the server's own";
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        let select = BTreeSet::from([WHOLE_TABLE]);
        let need = |table: u32| TableNeed {
            table,
            privileges: Privileges::SELECT,
            select: select.clone(),
            ..TableNeed::default()
        };
        let needs: Vec<Need> = oids.into_iter().filter(known).map(|oid| Need::Table(need(oid))).collect();
        self.check_needs(&needs, &schema)
    }
}

/// The rows of the answer, made one by one.
pub(super) fn changes_as_rows(changes: &[u8]) -> impl Iterator<Item = Vec<Value>> {
    changes.chunks(ROW_BYTES).map(|bytes| vec![Value::Text(hex(bytes))])
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    digits.map(char::from).collect()
}
