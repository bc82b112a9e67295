//! What databases, tables and columns are called.

use crate::state::manifest::Manifest;
use crate::state::options::Options;
use holdfast_store::pages::Limits;
use holdfast_store::schema_map::{RowKey, SchemaError, TableMap, read_map};
use holdfast_store::volume::Volume;
use holdfast_types::schema::Dialect;
use holdfast_types::{TableId, VolumeId};
use std::collections::HashMap;
use std::path::Path;

pub struct Names {
    databases: HashMap<VolumeId, (String, Dialect)>,
    tables: HashMap<VolumeId, TableMap>,
}

impl Names {
    /// Reads them from the volumes as the next start would make them, else from their files as they are; one that cannot be
    /// read just has no names.
    pub fn read(dir: &Path, options: &Options, manifest: &Manifest) -> Names {
        let mut started = crate::tools::check::as_started(dir, options, manifest);
        let mut names = Names { databases: HashMap::new(), tables: HashMap::new() };
        let limits =
            Limits { memory_bytes_max: options.memory_bytes_max, scratch_bytes_max: options.scratch_bytes_max };
        for entry in &manifest.databases {
            let id = entry.volume();
            names.databases.insert(id, (entry.name.clone(), entry.dialect.into()));
            if let Some(Ok(map)) = started.remove(&id).map(|volume| read_tables(&volume)) {
                names.tables.insert(id, map);
                continue;
            }
            let path = dir.join(&entry.file);
            let volume = Volume::open_to_look(&*options.disk, &path, &std::env::temp_dir(), id, limits);
            match volume.map_err(|e| e.to_string()).and_then(|v| read_tables(&v)) {
                Ok(map) => drop(names.tables.insert(id, map)),
                Err(e) => tracing::info!(database = entry.name, "its tables are shown by number: {e}"),
            }
        }
        names
    }

    pub fn database(&self, volume: VolumeId) -> Option<String> {
        self.databases.get(&volume).map(|(name, _)| name.clone())
    }

    /// Of a database that is not known any more: SQLite's, whose literals say most.
    pub fn dialect(&self, volume: VolumeId) -> Dialect {
        self.databases.get(&volume).map_or(Dialect::Sqlite, |(_, dialect)| *dialect)
    }

    /// What a row of the table is found by, in the key's order; none: its rowid, or it is not known.
    pub fn key(&self, volume: VolumeId, table: TableId) -> Vec<String> {
        let Some(info) = self.tables.get(&volume).and_then(|map| map.by_id(table)) else { return Vec::new() };
        let name = |position: &usize| info.columns.get(*position).map(|c| c.name.clone());
        match &info.key {
            RowKey::Rowid { alias, .. } => alias.iter().filter_map(name).collect(),
            RowKey::Columns(positions) => positions.iter().filter_map(name).collect(),
        }
    }

    pub fn table(&self, volume: VolumeId, table: TableId) -> String {
        let info = self.tables.get(&volume).and_then(|map| map.by_id(table));
        info.map_or_else(|| format!("table {table}"), |info| info.name.clone())
    }

    /// Of the stored column at `position`.
    pub fn column(&self, volume: VolumeId, table: TableId, position: usize) -> String {
        let info = self.tables.get(&volume).and_then(|map| map.by_id(table));
        let column = info.and_then(|info| info.columns.get(position));
        column.map_or_else(|| format!("column {position}"), |c| c.name.clone())
    }
}

fn read_tables(volume: &Volume) -> Result<TableMap, String> {
    let mut conn = volume.open_reader().map_err(|e| e.to_string())?;
    read_map(&mut conn).map_err(|e: SchemaError| e.to_string())
}
