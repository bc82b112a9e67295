//! Prepares every SQLite connection: registers the functions that translated statements call, and the catalogue as virtual
//! tables in attached in-memory schemas.

use crate::activity::{Signal, Watcher};
use crate::admission::request_reload;
use crate::privilege_functions::Asked;
use holdfast_engine::{Connect, ConnectedDatabase, Engine, LockInfo, PreparedInfo};
use holdfast_sql::catalogue::{self, CatalogContext, CatalogTable, DatabaseRow, LockRow, PreparedRow, Viewer};
use holdfast_sql::{RESET_STATEMENTS_FUNCTION, SIGNAL_FUNCTION, SignalOp};
use holdfast_store::sqlite::{Conn, RowsTable, SqliteError};
use holdfast_types::access::Roles;
use holdfast_types::access::predefined::READ_ALL_SETTINGS_OID;
use holdfast_types::{Cost, Lsn, SettingRow, SqlError, SqlResult, SqlState, Value, ValueRef};
use std::sync::Arc;
use std::time::{Duration, Instant};

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
        conn.register_function(function.name, function.args, function.deterministic, call).map_err(internal)?;
        conn.set_cost(function.name, function.cost);
    }
    for parameters in [holdfast_sql::SET_CONFIG_FUNCTION, holdfast_sql::CURRENT_SETTING_FUNCTION] {
        conn.set_cost(parameters, Cost::Linear);
    }
    let of = watcher.clone();
    let wait = move |arguments: &[ValueRef<'_>]| Ok(wait_for_lsn(&of, arguments));
    conn.register_function(holdfast_sql::WAIT_SLICE_FUNCTION, 2, false, wait).map_err(internal)?;
    register_privileges(conn, db, watcher)?;
    let of = watcher.clone();
    let signal = move |arguments: &[ValueRef<'_>]| signal(&of, arguments);
    conn.register_function(SIGNAL_FUNCTION, -1, false, signal).map_err(internal)?;
    let of = watcher.clone();
    let reset = move |arguments: &[ValueRef<'_>]| reset_statements(&of, arguments);
    conn.register_function(RESET_STATEMENTS_FUNCTION, 3, false, reset).map_err(internal)?;
    let of = watcher.clone();
    let reload = move |arguments: &[ValueRef<'_>]| reload(&of, arguments);
    conn.register_function(holdfast_sql::RELOAD_FUNCTION, 1, false, reload).map_err(internal)?;
    let of = watcher.clone();
    let switch = move |_: &[ValueRef<'_>]| switch(&of);
    conn.register_function(holdfast_sql::SWITCH_FUNCTION, 0, false, switch).map_err(internal)?;
    conn.register_function(holdfast_sql::SET_CONFIG_FUNCTION, 3, false, set_config).map_err(internal)?;
    conn.register_function(holdfast_sql::CURRENT_SETTING_FUNCTION, 2, false, current_setting).map_err(internal)?;
    for schema in ["pg_catalog", "information_schema"] {
        conn.exec(&format!("ATTACH ':memory:' AS {schema}")).map_err(internal)?;
    }
    for table in catalogue::tables() {
        let (db, watcher) = (db.clone(), watcher.clone());
        let columns = table.columns.iter().map(|(name, _)| ((*name).to_owned(), String::new())).collect();
        let rows = Arc::new(move || rows(table, &*db, &watcher));
        let module = format!("{}.{}", table.schema, table.name);
        conn.register_rows_table(&module, RowsTable { columns, rows }).map_err(internal)?;
        conn.create_rows_table(table.schema, table.name, &module).map_err(internal)?;
    }
    Ok(())
}

/// Registers the functions that ask for privileges.
fn register_privileges(conn: &mut Conn, db: &Arc<dyn ConnectedDatabase>, watcher: &Watcher) -> SqlResult<()> {
    type Ask = fn(&Asked, &[ValueRef<'_>]) -> SqlResult<Value>;
    let functions: [(&str, i32, Ask); 6] = [
        (holdfast_sql::HAS_PRIVILEGE_FUNCTION, 5, Asked::has),
        (holdfast_sql::MAY_SEE_FUNCTION, 5, Asked::may_see),
        (holdfast_sql::ACL_DEFAULT_FUNCTION, 2, Asked::acl_default),
        (holdfast_sql::ACL_ITEMS_FUNCTION, 1, Asked::acl_items),
        (holdfast_sql::ACL_CONTAINS_FUNCTION, 2, Asked::acl_contains),
        (holdfast_sql::MAKE_ACL_ITEM_FUNCTION, 4, Asked::make_acl_item),
    ];
    for (name, arguments, ask) in functions {
        let (db, watcher) = (db.clone(), watcher.clone());
        let call = move |arguments: &[ValueRef<'_>]| {
            let schema = holdfast_engine::temp::session_schema().unwrap_or_else(|| db.schema());
            let engine = watcher.engine.read().clone();
            let roles = seen_roles(&watcher);
            let databases = engine.as_ref().map(Engine::databases).unwrap_or_default();
            let databases = databases.into_iter().map(|d| (d.name, d.oid)).collect();
            let asked = Asked { schema, roles, database_oid: db.oid(), databases };
            ask(&asked, arguments)
        };
        conn.register_function(name, arguments, false, call).map_err(internal)?;
    }
    Ok(())
}

fn no_settings() -> SqlError {
    SqlError::unsupported("a parameter of the session in this statement")
}

/// See [`holdfast_sql::SET_CONFIG_FUNCTION`]. A value that is NULL is the default; NULL for `is_local` is false.
fn set_config(arguments: &[ValueRef<'_>]) -> SqlResult<Value> {
    let [ValueRef::Text(name), value, local] = arguments else {
        return Err(SqlError::new(SqlState("22004"), "SET requires parameter name"));
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let value = if let ValueRef::Text(value) = value { Some(text(value)) } else { None };
    let settings = holdfast_engine::settings().ok_or_else(no_settings)?;
    let local = matches!(local, ValueRef::Int(1));
    settings.set(&text(name), value.as_deref(), local).map(Value::Text)
}

/// See [`holdfast_sql::CURRENT_SETTING_FUNCTION`].
fn current_setting(arguments: &[ValueRef<'_>]) -> SqlResult<Value> {
    let [ValueRef::Text(name), ValueRef::Int(missing_ok)] = arguments else { return Ok(Value::Null) };
    let settings = holdfast_engine::settings().ok_or_else(no_settings)?;
    let value = settings.get(&String::from_utf8_lossy(name), *missing_ok != 0)?;
    Ok(value.map_or(Value::Null, Value::Text))
}

/// How long `holdfast_wait_for_lsn` sleeps at a time: after each sleep SQLite checks whether it was interrupted.
const WAIT_SLICE_MS: i64 = 2;

/// How long `pg_switch_wal` waits for room.
const SWITCH_MAX: Duration = Duration::from_secs(10);

/// See [`holdfast_sql::WAIT_SLICE_FUNCTION`].
fn wait_for_lsn(watcher: &Watcher, arguments: &[ValueRef<'_>]) -> Value {
    let [ValueRef::Int(lsn), ValueRef::Int(remaining_ms)] = arguments else { return Value::Null };
    if i64::try_from(watcher.shown_lsn()).unwrap_or(i64::MAX) >= *lsn {
        return Value::Int(-1);
    }
    let slice = WAIT_SLICE_MS.min(*remaining_ms);
    std::thread::sleep(Duration::from_millis(slice.max(0).unsigned_abs()));
    Value::Int(remaining_ms - slice)
}

/// See [`SIGNAL_FUNCTION`].
fn signal(watcher: &Watcher, arguments: &[ValueRef<'_>]) -> SqlResult<Value> {
    let [ValueRef::Int(op), ValueRef::Int(pid), rest @ ..] = arguments else { return Ok(Value::Null) };
    let (Some(op), Ok(pid)) = (SignalOp::from_i64(*op), i32::try_from(*pid)) else { return Ok(Value::Null) };
    let time = if let [ValueRef::Int(ms)] = rest { *ms } else { 0 };
    if time < 0 {
        return Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "\"timeout\" must not be negative"));
    }
    let kind = match op {
        SignalOp::Cancel => Signal::Cancel,
        SignalOp::Terminate => Signal::Terminate,
        SignalOp::Wait => {
            if !watcher.activities.is_connected(pid) {
                return Ok(Value::Int(-1));
            }
            let slice = WAIT_SLICE_MS.min(time);
            std::thread::sleep(Duration::from_millis(slice.unsigned_abs()));
            return Ok(Value::Int(time - slice));
        }
    };
    let found = watcher.activities.signal(&seen_roles(watcher), holdfast_engine::viewer(), kind, pid)?;
    Ok(Value::Int(found.into()))
}

/// See [`RESET_STATEMENTS_FUNCTION`]. PostgreSQL lets superusers call it, unless it is granted.
fn reset_statements(watcher: &Watcher, arguments: &[ValueRef<'_>]) -> SqlResult<Value> {
    let roles = seen_roles(watcher);
    if !holdfast_engine::viewer().is_some_and(|role| roles.is_superuser(role)) {
        let message = "permission denied for function pg_stat_statements_reset";
        return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
    }
    let [ValueRef::Int(role), ValueRef::Int(database), ValueRef::Int(query)] = arguments else {
        return Ok(Value::Null);
    };
    let oid = |value: i64| u32::try_from(value).unwrap_or(u32::MAX);
    watcher.activities.statements.reset(oid(*role), oid(*database), *query);
    Ok(Value::Text(String::new()))
}

/// See [`holdfast_sql::RELOAD_FUNCTION`].
fn reload(watcher: &Watcher, arguments: &[ValueRef<'_>]) -> SqlResult<Value> {
    let roles = seen_roles(watcher);
    let is_superuser = match arguments {
        [ValueRef::Text(user)] => {
            std::str::from_utf8(user).ok().and_then(|user| roles.by_name(user)).is_some_and(|role| role.superuser)
        }
        _ => false,
    };
    if !is_superuser {
        let message = "permission denied for function pg_reload_conf";
        return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
    }
    match request_reload() {
        Ok(()) => Ok(Value::Int(1)),
        Err(error) => {
            tracing::warn!("the server cannot send SIGHUP to itself: {error}");
            Ok(Value::Int(0))
        }
    }
}

/// All roles as the running statement sees them: with what its own transaction has changed.
fn seen_roles(watcher: &Watcher) -> Arc<Roles> {
    holdfast_engine::own_roles().unwrap_or_else(|| watcher.roles())
}

/// See [`holdfast_sql::SWITCH_FUNCTION`].
fn switch(watcher: &Watcher) -> SqlResult<Value> {
    let roles = watcher.roles();
    if !holdfast_engine::viewer().is_some_and(|role| roles.is_superuser(role)) {
        let message = "permission denied for function pg_switch_wal";
        return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
    }
    let state = |message: &str| SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
    let Some(engine) = watcher.engine.read().clone() else { return Err(state("the server is starting")) };
    if engine.is_standby() {
        return Err(
            state("recovery is in progress").with_hint("WAL control functions cannot be executed during recovery.")
        );
    }
    let trail = engine.trail();
    let end = trail.durable();
    // A segment without content is not ended.
    if end == trail.start_of(trail.segment_of(end)) {
        return Ok(position(end));
    }
    let began = Instant::now();
    while trail.segment_of(trail.durable()) == trail.segment_of(end) {
        if began.elapsed() > SWITCH_MAX {
            return Err(state(
                "the segment of the trail cannot be ended now: transactions under way may need its room",
            )
            .with_hint("Run the function again."));
        }
        trail.end_segment();
        std::thread::sleep(Duration::from_millis(WAIT_SLICE_MS.unsigned_abs()));
    }
    Ok(position(end))
}

fn position(lsn: Lsn) -> Value {
    Value::Text(holdfast_sql::types::lsn_text(lsn.0))
}

fn rows(table: &CatalogTable, db: &dyn ConnectedDatabase, watcher: &Watcher) -> Vec<Vec<Value>> {
    let schema = holdfast_engine::temp::session_schema().unwrap_or_else(|| db.schema());
    let engine = watcher.engine.read().clone();
    let roles = seen_roles(watcher);
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
