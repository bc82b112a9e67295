//! Opens a volume of a standby, for its readers.

use crate::background::recovery;
use crate::state::database::DatabaseState;
use crate::state::engine::EngineState;
use crate::state::error::OpenError;
use crate::state::manifest::Entry;
use crate::state::registry::{Open, Registry};
use holdfast_store::schema_map::{SchemaError, TableMap, read_map};
use holdfast_store::schema_read::read_schema;
use holdfast_types::schema::Schema;
use holdfast_types::{SqlError, SqlState};
use std::sync::Arc;

/// Opens a volume of a standby for readers; the caller holds the lock of the lifecycle.
pub fn open_volume(
    engine: &Arc<EngineState>,
    registry: &Arc<Registry>,
    entry: &Entry,
) -> Result<Arc<DatabaseState>, OpenError> {
    if let Some(database) = registry.get(entry.volume()) {
        return Ok(database);
    }
    let last = engine.follow.as_ref().and_then(|f| f.state.lock().last.get(&entry.volume()).map(|last| last.number));
    let redone = recovery::open_clean(engine, entry, last)?;
    recovery::list_again(engine, &redone);
    let number = redone.volume.store().visible();
    let database = DatabaseState::new(entry, engine.clone(), registry.peers(), redone.volume);
    let (map, schema) = read_published(&database)?;
    database.publish_schema(schema, map, number);
    let mut open = registry.lock();
    if open.closed {
        return Err(SqlError::new(SqlState::ADMIN_SHUTDOWN, "the server is stopping").into());
    }
    open.open.insert(entry.volume(), Open { database: database.clone(), writer: None });
    Ok(database)
}

/// Tables and schema of the newest published snapshot. Not on the connection that applies images (RULE 19).
pub fn read_published(database: &Arc<DatabaseState>) -> Result<(Arc<TableMap>, Arc<Schema>), OpenError> {
    let volume = database.volume();
    let (snapshot, _) = volume.store().acquire_newest();
    let read = || {
        let mut conn = volume.open_branch()?;
        conn.choose_snapshot(snapshot);
        database.register(&mut conn)?;
        let schema = |source: SchemaError| OpenError::Schema { name: database.name.clone(), source };
        let map = read_map(&mut conn).map_err(schema)?;
        let sqlite = |source| OpenError::Sqlite { name: database.name.clone(), source };
        let schema = read_schema(&mut conn, &map).map_err(sqlite)?;
        Ok((Arc::new(map), Arc::new(schema)))
    };
    let published = read();
    volume.store().release(snapshot);
    published
}
