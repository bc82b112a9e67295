//! One connection's prepared statements, by statement id. The cache is bounded in number and in bytes, and drops the least
//! recently used first. A large statement is not kept: it would stay with an idle connection after its session has ended.

use crate::statement::model::Statement;
use holdfast_store::sqlite::{Conn, SqliteError, StmtId};
use std::collections::HashMap;

/// Statements kept per connection, and the bytes of their texts.
const STATEMENTS_MAX: usize = 1000;
const BYTES_MAX: usize = 8 << 20;

/// The largest statement that is kept after it has run, in bytes.
const STATEMENT_BYTES_MAX: usize = 256 << 10;

struct Kept {
    id: StmtId,
    /// The count of its last use.
    used: u64,
    bytes: usize,
}

#[derive(Default)]
pub struct StatementCache {
    entries: HashMap<u64, Kept>,
    bytes: usize,
    /// Counts uses.
    clock: u64,
}

impl StatementCache {
    /// Returns the statement on this connection and prepares it if necessary.
    pub fn get(&mut self, conn: &mut Conn, stmt: &Statement) -> Result<StmtId, SqliteError> {
        self.clock += 1;
        if let Some(kept) = self.entries.get_mut(&stmt.id) {
            kept.used = self.clock;
            return Ok(kept.id);
        }
        let bytes = stmt.sql.len();
        while self.entries.len() >= STATEMENTS_MAX || (self.bytes + bytes > BYTES_MAX && !self.entries.is_empty()) {
            self.drop_older_half(conn);
        }
        let id = conn.prepare(&stmt.sql)?;
        self.entries.insert(stmt.id, Kept { id, used: self.clock, bytes });
        self.bytes += bytes;
        Ok(id)
    }

    /// The statement has run: it is dropped if it is too large to be kept.
    pub fn has_run(&mut self, conn: &mut Conn, stmt: &Statement) {
        if stmt.sql.len() > STATEMENT_BYTES_MAX
            && let Some(kept) = self.entries.remove(&stmt.id)
        {
            self.bytes -= kept.bytes;
            conn.finalize(kept.id);
        }
    }

    fn drop_older_half(&mut self, conn: &mut Conn) {
        let mut uses: Vec<u64> = self.entries.values().map(|kept| kept.used).collect();
        uses.sort_unstable();
        let median = uses[uses.len() / 2];
        let mut dropped = 0;
        self.entries.retain(|_, kept| {
            let keep = kept.used > median;
            if !keep {
                conn.finalize(kept.id);
                dropped += kept.bytes;
            }
            keep
        });
        self.bytes -= dropped;
    }

    /// Drops every statement, because the connection is about to be closed or its statements are stale.
    pub fn clear(&mut self, conn: &mut Conn) {
        self.entries.drain().for_each(|(_, kept)| conn.finalize(kept.id));
        self.bytes = 0;
    }
}
