//! The SQL functions that need the running server: one row of [`SERVER_FUNCTIONS`] each. Those that need only their arguments are
//! [`holdfast_sql::functions()`].

use crate::activity::{Signal, Watcher};
use crate::admission::request_reload;
use crate::privilege_functions::Asked;
use holdfast_engine::{ConnectedDatabase, Engine};
use holdfast_sql::SignalOp;
use holdfast_types::access::Roles;
use holdfast_types::schema::Schema;
use holdfast_types::{Cost, Lsn, SqlError, SqlResult, SqlState, Value, ValueRef};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the functions are answered from, in addition to the running statement's session.
pub struct Server {
    pub db: Arc<dyn ConnectedDatabase>,
    pub watcher: Watcher,
}

type Call = fn(&Server, &[ValueRef<'_>]) -> SqlResult<Value>;

/// A function that is registered on every connection. None is deterministic.
pub struct ServerFunction {
    pub name: &'static str,
    /// Their number, -1 for any.
    pub arguments: i32,
    pub cost: Cost,
    pub call: Call,
}

const fn f(name: &'static str, arguments: i32, cost: Cost, call: Call) -> ServerFunction {
    ServerFunction { name, arguments, cost, call }
}

use Cost::{Linear, Unbounded};

/// All of them. Each is described with its name in crate `sql`.
pub const SERVER_FUNCTIONS: &[ServerFunction] = &[
    f(holdfast_sql::SET_CONFIG_FUNCTION, 3, Linear, |_, arguments| set_config(arguments)),
    f(holdfast_sql::CURRENT_SETTING_FUNCTION, 2, Linear, |_, arguments| current_setting(arguments)),
    f(holdfast_sql::WAIT_SLICE_FUNCTION, 2, Unbounded, |server, arguments| {
        Ok(wait_for_lsn(&server.watcher, arguments))
    }),
    f(holdfast_sql::SIGNAL_FUNCTION, -1, Unbounded, signal),
    f(holdfast_sql::RESET_STATEMENTS_FUNCTION, 3, Unbounded, reset_statements),
    f(holdfast_sql::RELOAD_FUNCTION, 1, Unbounded, reload),
    f(holdfast_sql::SWITCH_FUNCTION, 0, Unbounded, |server, _| switch(&server.watcher)),
    f(holdfast_sql::HAS_PRIVILEGE_FUNCTION, 5, Unbounded, |server, arguments| server.asked().has(arguments)),
    f(holdfast_sql::MAY_SEE_FUNCTION, 5, Unbounded, |server, arguments| server.asked().may_see(arguments)),
    f(holdfast_sql::ACL_DEFAULT_FUNCTION, 2, Unbounded, |server, arguments| server.asked().acl_default(arguments)),
    f(holdfast_sql::ACL_ITEMS_FUNCTION, 1, Unbounded, |server, arguments| server.asked().acl_items(arguments)),
    f(holdfast_sql::ACL_CONTAINS_FUNCTION, 2, Unbounded, |server, arguments| server.asked().acl_contains(arguments)),
    f(holdfast_sql::MAKE_ACL_ITEM_FUNCTION, 4, Unbounded, |server, arguments| server.asked().make_acl_item(arguments)),
];

impl Server {
    /// The schema as the running statement sees it.
    pub fn schema(&self) -> Arc<Schema> {
        holdfast_engine::temp::session_schema().unwrap_or_else(|| self.db.schema())
    }

    /// All roles as the running statement sees them: with what its own transaction has changed.
    pub fn roles(&self) -> Arc<Roles> {
        holdfast_engine::own_roles().unwrap_or_else(|| self.watcher.roles())
    }

    fn asked(&self) -> Asked {
        let engine = self.watcher.engine.read().clone();
        let databases = engine.as_ref().map(Engine::databases).unwrap_or_default();
        Asked {
            schema: self.schema(),
            roles: self.roles(),
            database_oid: self.db.oid(),
            databases: databases.into_iter().map(|d| (d.name, d.oid)).collect(),
        }
    }
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

/// See [`holdfast_sql::SIGNAL_FUNCTION`].
fn signal(server: &Server, arguments: &[ValueRef<'_>]) -> SqlResult<Value> {
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
            if !server.watcher.activities.is_connected(pid) {
                return Ok(Value::Int(-1));
            }
            let slice = WAIT_SLICE_MS.min(time);
            std::thread::sleep(Duration::from_millis(slice.unsigned_abs()));
            return Ok(Value::Int(time - slice));
        }
    };
    let found = server.watcher.activities.signal(&server.roles(), holdfast_engine::viewer(), kind, pid)?;
    Ok(Value::Int(found.into()))
}

/// See [`holdfast_sql::RESET_STATEMENTS_FUNCTION`]. PostgreSQL lets superusers call it, unless it is granted.
fn reset_statements(server: &Server, arguments: &[ValueRef<'_>]) -> SqlResult<Value> {
    let roles = server.roles();
    if !holdfast_engine::viewer().is_some_and(|role| roles.is_superuser(role)) {
        let message = "permission denied for function pg_stat_statements_reset";
        return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
    }
    let [ValueRef::Int(role), ValueRef::Int(database), ValueRef::Int(query)] = arguments else {
        return Ok(Value::Null);
    };
    let oid = |value: i64| u32::try_from(value).unwrap_or(u32::MAX);
    server.watcher.activities.statements.reset(oid(*role), oid(*database), *query);
    Ok(Value::Text(String::new()))
}

/// See [`holdfast_sql::RELOAD_FUNCTION`].
fn reload(server: &Server, arguments: &[ValueRef<'_>]) -> SqlResult<Value> {
    let roles = server.roles();
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
