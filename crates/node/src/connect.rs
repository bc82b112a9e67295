//! Prepares every SQLite connection: registers the functions that translated statements call, and the catalogue as virtual
//! tables in attached in-memory schemas.

use crate::activity::Watcher;
use crate::server_functions::{SERVER_FUNCTIONS, Server, ServerFunction};
use holdfast_engine::{Connect, ConnectedDatabase, Engine, LockInfo, PreparedInfo};
use holdfast_sql::Function;
use holdfast_sql::catalogue::{self, CatalogContext, CatalogTable, DatabaseRow, LockRow, PreparedRow, Viewer};
use holdfast_store::sqlite::{Conn, RowsTable, SqliteError};
use holdfast_types::access::Roles;
use holdfast_types::access::predefined::READ_ALL_SETTINGS_OID;
use holdfast_types::{SettingRow, SqlError, SqlResult, Value, ValueRef};
use std::sync::Arc;

/// The hook that the engine calls for each new connection.
pub fn hook(watcher: Watcher) -> Connect {
    Arc::new(move |conn, db| register(conn, db, &watcher))
}

fn internal(error: SqliteError) -> SqlError {
    SqlError::internal(format!("a connection cannot be prepared: {error}"))
}

fn register(conn: &mut Conn, db: &Arc<dyn ConnectedDatabase>, watcher: &Watcher) -> SqlResult<()> {
    for function in holdfast_sql::functions() {
        let call = move |arguments: &[ValueRef<'_>]| function.call(arguments);
        let Function { name, args, deterministic, cost, .. } = *function;
        conn.register_function(name, args, deterministic, cost, call).map_err(internal)?;
    }
    let server = Arc::new(Server { db: db.clone(), watcher: watcher.clone() });
    for ServerFunction { name, arguments, cost, call } in SERVER_FUNCTIONS {
        let server = server.clone();
        let call = move |arguments: &[ValueRef<'_>]| call(&server, arguments);
        conn.register_function(name, *arguments, false, *cost, call).map_err(internal)?;
    }
    for schema in ["pg_catalog", "information_schema"] {
        conn.exec(&format!("ATTACH ':memory:' AS {schema}")).map_err(internal)?;
    }
    for table in catalogue::tables() {
        let server = server.clone();
        let columns = table.columns.iter().map(|(name, _)| ((*name).to_owned(), String::new())).collect();
        let rows = Arc::new(move || rows(table, &server));
        let module = format!("{}.{}", table.schema, table.name);
        conn.register_rows_table(&module, RowsTable { columns, rows }).map_err(internal)?;
        conn.create_rows_table(table.schema, table.name, &module).map_err(internal)?;
    }
    Ok(())
}

fn rows(table: &CatalogTable, server: &Server) -> Vec<Vec<Value>> {
    let Server { db, watcher } = server;
    let (schema, roles) = (server.schema(), server.roles());
    let engine = watcher.engine.read().clone();
    let databases = engine.as_ref().map(Engine::databases).unwrap_or_default();
    let context = CatalogContext {
        schema: &schema,
        dialect: db.dialect(),
        database: db.name(),
        database_oid: db.oid(),
        user: "holdfast",
        viewer: Viewer { roles: roles.clone(), role: holdfast_engine::viewer() },
        databases: databases
            .into_iter()
            .map(|d| DatabaseRow {
                parameters: engine.as_ref().map(|e| e.database_parameters(&d.name)).unwrap_or_default(),
                oid: d.oid,
                name: d.name,
                dialect: d.dialect,
                volume: d.volume,
            })
            .collect(),
        parameters_of_all: engine.as_ref().map(Engine::parameters_of_all).unwrap_or_default(),
        roles: &roles,
        settings: visible_settings(&roles),
        counters: engine.as_ref().map(Engine::stats).unwrap_or_default(),
        automatic: watcher.automatic.list(),
        locks: engine.as_ref().map(Engine::locks).unwrap_or_default().into_iter().map(lock_row).collect(),
        prepared: engine.as_ref().map(Engine::prepared).unwrap_or_default().into_iter().map(prepared_row).collect(),
        live: watcher,
    };
    (table.rows)(&context)
}

/// The settings that the running statement's role may see.
fn visible_settings(roles: &Roles) -> Vec<SettingRow> {
    if let Some(own) = holdfast_engine::settings() {
        return own.rows();
    }
    let sees_all = holdfast_engine::viewer().is_some_and(|role| roles.has_privileges_of(role, READ_ALL_SETTINGS_OID));
    let mut settings = crate::settings::defaults();
    settings.retain(|row| sees_all || !crate::settings::is_hidden(&row.name));
    settings
}

fn prepared_row(of: PreparedInfo) -> PreparedRow {
    let PreparedInfo { gid, owner, database, prepared_unix_us } = of;
    PreparedRow { gid, prepared_unix_us, owner, database }
}

fn lock_row(lock: LockInfo) -> LockRow {
    LockRow {
        kind: lock.kind,
        database: lock.database_oid,
        relation: lock.relation_oid,
        advisory: lock.advisory.map(|(space, key)| ((key >> 32) as u32, key as u32, u32::from(space) + 1)),
        pid: lock.pid,
        mode: lock.mode,
        granted: lock.granted,
    }
}
