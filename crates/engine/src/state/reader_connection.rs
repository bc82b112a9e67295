//! A connection that reads visible snapshots, kept by its database between two uses.

use crate::statement::cache::StatementCache;
use crate::statement::run::to_sql;
use holdfast_store::sqlite::{Conn, StmtId};
use holdfast_store::volume::Volume;
use holdfast_types::SqlResult;
use holdfast_types::schema::Schema;
use std::sync::Arc;

/// A reader's connection with its prepared statements; the database keeps it between uses.
pub struct Connection {
    pub conn: Conn,
    pub cache: StatementCache,
    pub control: Option<(StmtId, StmtId)>,
    /// Reads something, so that SQLite compares the schema.
    pub look: Option<StmtId>,
    /// Dropped after the connection, which uses its VFS.
    pub volume: Arc<Volume>,
}

impl Connection {
    pub fn new(conn: Conn, volume: Arc<Volume>) -> Connection {
        Connection { conn, cache: StatementCache::default(), control: None, look: None, volume }
    }

    pub fn control(&mut self) -> SqlResult<(StmtId, StmtId)> {
        if let Some(control) = self.control {
            return Ok(control);
        }
        let error = |e| to_sql(&e, "", &Schema::default());
        let control = (self.conn.prepare("begin").map_err(error)?, self.conn.prepare("rollback").map_err(error)?);
        self.control = Some(control);
        Ok(control)
    }
}
