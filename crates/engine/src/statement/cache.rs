//! One connection's prepared statements, by statement id. The cache is bounded and drops the least recently used first.

use crate::statement::model::Statement;
use holdfast_store::sqlite::{Conn, SqliteError, StmtId};
use std::collections::HashMap;

/// Statements kept per connection.
const STATEMENTS_MAX: usize = 1000;

#[derive(Default)]
pub struct StatementCache {
    entries: HashMap<u64, (StmtId, u64)>,
    /// Counts uses; an entry carries the count of its last use.
    clock: u64,
}

impl StatementCache {
    /// Returns the statement on this connection and prepares it if necessary.
    pub fn get(&mut self, conn: &mut Conn, stmt: &Statement) -> Result<StmtId, SqliteError> {
        self.clock += 1;
        if let Some((id, used)) = self.entries.get_mut(&stmt.id) {
            *used = self.clock;
            return Ok(*id);
        }
        if self.entries.len() >= STATEMENTS_MAX {
            self.drop_older_half(conn);
        }
        let id = conn.prepare(&stmt.sql)?;
        self.entries.insert(stmt.id, (id, self.clock));
        Ok(id)
    }

    fn drop_older_half(&mut self, conn: &mut Conn) {
        let mut uses: Vec<u64> = self.entries.values().map(|(_, used)| *used).collect();
        uses.sort_unstable();
        let median = uses[uses.len() / 2];
        self.entries.retain(|_, (id, used)| {
            let keep = *used > median;
            if !keep {
                conn.finalize(*id);
            }
            keep
        });
    }

    /// Drops every statement, because the connection is about to be closed or its statements are stale.
    pub fn clear(&mut self, conn: &mut Conn) {
        self.entries.drain().for_each(|(_, (id, _))| conn.finalize(id));
    }
}
