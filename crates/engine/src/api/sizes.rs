//! How large databases, tables and indexes are.

use crate::api::database::Database;
use crate::api::engine::Engine;
use crate::state::database::database_oid;
use holdfast_store::pages::{PAGE_BYTES, Sizes, sizes};
use holdfast_types::{SqlError, SqlResult, SqlState};

impl Database {
    /// Bytes of each table and index by its name in SQLite, with the number of the snapshot they are of. Reads the pages of
    /// every b-tree.
    pub fn object_sizes(&self) -> SqlResult<(u64, Sizes)> {
        sizes(self.state().volume().store()).map_err(|e| SqlError::new(SqlState::IO_ERROR, e.to_string()))
    }
}

impl Engine {
    /// Bytes of a database by its OID: the pages of its newest visible snapshot, or of its file while it is not open.
    pub fn database_bytes(&self, oid: u32) -> Option<u64> {
        let open = self.open_databases().into_iter().find(|database| database_oid(database.id) == oid);
        if let Some(database) = open {
            return Some(u64::from(database.volume().store().visible_pages()) * PAGE_BYTES as u64);
        }
        let listed = self.databases().into_iter().find(|database| database.oid == oid)?;
        std::fs::metadata(listed.path).ok().map(|file| file.len())
    }
}
