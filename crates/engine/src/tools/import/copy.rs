//! Writing the copy.
//!
//! VACUUM INTO copies everything and keeps rowids (RULE 16), but not into another text encoding nor with fewer reserved
//! bytes than the file has. Such a file is copied row by row in the order VACUUM uses: plain tables (the shadow tables
//! of FTS5 and R-tree among them), rows, counters, indexes, and at last views, triggers and virtual tables as entries
//! of the schema, so that none of them runs while rows are written.
//!
//! The file has no name that a start looks at before the engine lists it: a crash leaves it to be removed.

use super::source::Source;
use super::{ImportError, ImportProgress, OnProgress, show, sqlite_error};
use crate::state::sqlite_uri::sqlite_uri;
use crossbeam_channel::RecvTimeoutError;
use holdfast_seams::{Create, Disk, OpenHow};
use holdfast_store::pages::RESERVED_BYTES;
use holdfast_store::schema_map::{RowKey, SchemaError, TableInfo, create_internal_tables};
use holdfast_store::sqlite::{Conn, OpenFlags, SqliteError, ffi};
use holdfast_store::volume::seal;
use holdfast_types::quoting::quote;
use holdfast_types::{Row, Value, VolumeId};
use std::path::Path;
use std::time::Duration;

/// Builds the volume file at `path`: complete, sealed and synced, or absent.
pub fn build(
    source: &mut Source,
    path: &Path,
    id: VolumeId,
    disk: &dyn Disk,
    total: u64,
    progress: &OnProgress,
) -> Result<(), ImportError> {
    let built = try_build(source, path, id, disk, total, progress);
    if built.is_err()
        && let Err(e) = disk.remove(path)
        && e.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!("cannot remove {}, the next start will: {e}", path.display());
    }
    built
}

fn try_build(
    source: &mut Source,
    path: &Path,
    id: VolumeId,
    disk: &dyn Disk,
    total: u64,
    progress: &OnProgress,
) -> Result<(), ImportError> {
    // Before SQLite, which would let other users read it.
    let new = OpenHow { create: Create::New, write: true, ..OpenHow::default() };
    disk.open(path, &new).map_err(|source| ImportError::Io { what: "create", path: show(path), source })?;
    let utf8 = source.is_utf8()?;
    reporting(path, total, progress, || if utf8 { vacuum_into(source, path) } else { copy_rows(source, path, id) })?;
    progress(ImportProgress::Sealing);
    add_internal_tables(source, path, id)?;
    seal(disk, path, id, 0).map_err(|e| ImportError::Failed { path: show(source.path()), message: e.to_string() })
}

/// Time between two reports of how large the copy is.
const REPORT_EVERY: Duration = Duration::from_millis(250);

/// Reports the size of the copy while `work` writes it: a single statement does, and calls nothing while it runs.
fn reporting<T>(path: &Path, total: u64, progress: &OnProgress, work: impl FnOnce() -> T) -> T {
    let (working, ended) = crossbeam_channel::bounded::<()>(0);
    let report = || {
        let written = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        progress(ImportProgress::Copying { done: written.min(total), total });
    };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            report();
            while ended.recv_timeout(REPORT_EVERY) == Err(RecvTimeoutError::Timeout) {
                report();
            }
        });
        let done = work();
        drop(working);
        done
    })
}

fn vacuum_into(source: &mut Source, path: &Path) -> Result<(), ImportError> {
    let from = source.path().to_owned();
    let conn = source.conn();
    let run = |conn: &mut Conn| {
        conn.exec("pragma page_size=4096; pragma auto_vacuum=none")?;
        // After the page size, which would set it back.
        conn.reserve_bytes(RESERVED_BYTES as u8)?;
        conn.exec(&format!("vacuum into '{}'", sqlite_uri(path, "vfs=unix")))
    };
    run(conn).map_err(|e| sqlite_error(&from, e))
}

/// Opens the unfinished copy. Nothing of it counts before it is sealed, so it needs no journal and no sync.
fn open_copy(path: &Path, is_new: bool) -> Result<Conn, SqliteError> {
    let mut conn = Conn::open(&sqlite_uri(path, "vfs=unix"), OpenFlags { write: true, create: false }, Some(c"unix"))?;
    if is_new {
        conn.exec("pragma page_size=4096; pragma encoding='UTF-8'; pragma auto_vacuum=none")?;
        conn.reserve_bytes(RESERVED_BYTES as u8)?;
    }
    conn.set_config(ffi::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    conn.set_config(ffi::SQLITE_DBCONFIG_DQS_DDL, true)?;
    conn.exec(
        "pragma journal_mode=off; pragma synchronous=off; pragma foreign_keys=off; \
               pragma ignore_check_constraints=on",
    )?;
    Ok(conn)
}

/// Gives the copy fresh internal tables; those of an imported volume belong to its old history.
fn add_internal_tables(source: &Source, path: &Path, id: VolumeId) -> Result<(), ImportError> {
    let schema = |source_error| ImportError::Schema { path: show(source.path()), source: source_error };
    let run = || -> Result<(), SchemaError> {
        let mut conn = open_copy(path, false)?;
        conn.exec(
            "begin; drop table if exists holdfast_meta; drop table if exists holdfast_tables;
             drop table if exists holdfast_prepared",
        )?;
        create_internal_tables(&mut conn, id)?;
        Ok(conn.exec("commit")?)
    };
    run().map_err(schema)
}

fn copy_rows(source: &mut Source, path: &Path, id: VolumeId) -> Result<(), ImportError> {
    let from = source.path().to_owned();
    let run = |source: &mut Source| -> Result<(), SchemaError> {
        let mut to = open_copy(path, true)?;
        to.exec("pragma writable_schema=on; begin")?;
        let plain = "type = 'table' and rootpage > 0 and name <> 'sqlite_sequence' \
                     and name not in ('holdfast_meta', 'holdfast_tables', 'holdfast_prepared')";
        create_all(source.conn(), &mut to, plain)?;
        // Only for the description of the tables; the lasting ones are made at the end.
        let map = create_internal_tables(&mut to, id)?;
        for table in map.tables() {
            copy_table(source.conn(), &mut to, table)?;
        }
        if map.has_sequences {
            // The inserts above have made counters, on rows of their own.
            to.exec("delete from sqlite_sequence")?;
            copy_query(
                source.conn(),
                &mut to,
                "select rowid, name, seq from sqlite_sequence",
                "insert into sqlite_sequence(rowid, name, seq) values(?1, ?2, ?3)",
            )?;
        }
        create_all(source.conn(), &mut to, "type = 'index'")?;
        copy_query(
            source.conn(),
            &mut to,
            "select type, name, tbl_name, 0, sql from sqlite_schema \
             where type in ('view', 'trigger') or (type = 'table' and coalesce(rootpage, 0) = 0) order by rowid",
            "insert into sqlite_schema(type, name, tbl_name, rootpage, sql) values(?1, ?2, ?3, ?4, ?5)",
        )?;
        to.exec("commit")?;
        for pragma in ["user_version", "application_id"] {
            if let Value::Int(n) = source.conn().query_value(&format!("pragma {pragma}"))? {
                to.exec(&format!("pragma {pragma}={n}"))?;
            }
        }
        Ok(())
    };
    run(source).map_err(|e| match e {
        SchemaError::Sqlite(e) => sqlite_error(&from, e),
        other => ImportError::Schema { path: show(&from), source: other },
    })
}

/// Runs the CREATE statements of the schema entries that meet `condition`, in order of creation.
fn create_all(from: &mut Conn, to: &mut Conn, condition: &str) -> Result<(), SqliteError> {
    let sql = format!("select sql from sqlite_schema where {condition} and sql is not null order by rowid");
    for row in from.query_rows(&sql)? {
        if let Some(Value::Text(sql)) = row.first() {
            to.exec(sql)?;
        }
    }
    Ok(())
}

fn copy_table(from: &mut Conn, to: &mut Conn, table: &TableInfo) -> Result<(), SqliteError> {
    let mut columns: Vec<String> = table.columns.iter().map(|c| quote(&c.name)).collect();
    if let RowKey::Rowid { name, alias: None } = &table.key {
        columns.push(name.clone());
    }
    let (marks, columns) = (vec!["?"; columns.len()].join(","), columns.join(","));
    let name = quote(&table.name);
    copy_query(
        from,
        to,
        &format!("select {columns} from main.{name}"),
        &format!("insert into main.{name}({columns}) values({marks})"),
    )
}

/// Runs `insert` with each row of `select`.
fn copy_query(from: &mut Conn, to: &mut Conn, select: &str, insert: &str) -> Result<(), SqliteError> {
    let (select, insert) = (from.prepare(select)?, to.prepare(insert)?);
    while from.step(select)? {
        let row = from.row(select);
        let values: Vec<_> = (0..row.len()).map(|i| row.get(i)).collect();
        to.run_with(insert, &values)?;
    }
    from.finalize(select);
    to.finalize(insert);
    Ok(())
}
