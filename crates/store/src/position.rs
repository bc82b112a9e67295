//! Writes a volume's position, the number and epoch of the last batch applied, into `holdfast_meta`
//! ([`crate::schema_map`]).
//!
//! Failure: SQLite's error is returned; the caller rolls the batch back.

use crate::capture::Mute;
use crate::sqlite::{Conn, SqliteError, StmtId};
use holdfast_types::{Epoch, ValueRef};

/// Writes the position of each batch.
#[derive(Debug)]
pub struct PositionWriter(StmtId);

impl PositionWriter {
    pub fn prepare(conn: &mut Conn) -> Result<PositionWriter, SqliteError> {
        let sql = "UPDATE main.holdfast_meta SET number = ?1, epoch = ?2 WHERE id = 1";
        conn.prepare(sql).map(PositionWriter)
    }

    /// Must be called within the batch's transaction.
    pub fn write(&self, conn: &mut Conn, number: u64, epoch: Epoch) -> Result<(), SqliteError> {
        let values = [ValueRef::Int(number as i64), ValueRef::Int(epoch.0.into())];
        if !conn.captures() {
            return conn.run_with(self.0, &values);
        }
        let before = conn.capture().set_mute(Mute::All);
        let written = conn.run_with(self.0, &values);
        conn.capture().set_mute(before);
        written
    }
}
