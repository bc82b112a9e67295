//! `pg_stat_activity`: the connected sessions and what each is doing or waiting for, and the server's background work; and what
//! `pg_blocking_pids` returns.
//!
//! | wait_event_type | wait_event | while |
//! |---|---|---|
//! | Client | ClientRead | the session waits for its client |
//! | Lock | transactionid | it waits for a row or a key that another transaction has changed or locked |
//! | Lock | relation, advisory | it waits for LOCK TABLE's or an advisory lock |
//! | Lock | object | it waits to be the only writer, or for the only writer to end |
//! | IO | WALSync | it waits until its commit is durable here |
//! | IPC | SyncRep | it waits until a standby has its commit |
//!
//! As in PostgreSQL, a role sees what its own sessions do and those of roles whose privileges it has; of others it sees
//! database, process number, user and application, unless it has the privileges of `pg_read_all_stats`.

use super::live::{Doing, SessionRow};
use super::processes;
use super::table::{CatalogTable, array, int, moment, text};
use crate::types::more;
use holdfast_types::Value;
use holdfast_types::desc::oid;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_stat_activity",
    columns: &[
        ("datid", oid::OID),
        ("datname", oid::NAME),
        ("pid", oid::INT4),
        ("leader_pid", oid::INT4),
        ("usesysid", oid::OID),
        ("usename", oid::NAME),
        ("application_name", oid::TEXT),
        ("client_addr", oid::INET),
        ("client_hostname", oid::TEXT),
        ("client_port", oid::INT4),
        ("backend_start", oid::TIMESTAMPTZ),
        ("xact_start", oid::TIMESTAMPTZ),
        ("query_start", oid::TIMESTAMPTZ),
        ("state_change", oid::TIMESTAMPTZ),
        ("wait_event_type", oid::TEXT),
        ("wait_event", oid::TEXT),
        ("state", oid::TEXT),
        ("backend_xid", more::XID),
        ("backend_xmin", more::XID),
        ("query_id", oid::INT8),
        ("query", oid::TEXT),
        ("backend_type", oid::TEXT),
    ],
    always_empty: false,
    rows: |context| {
        let sees = |s: &SessionRow| context.viewer.sees_statistics_of(s.role);
        let sessions = context.live.sessions();
        let sessions = sessions.iter().map(|s| if sees(s) { row(s) } else { hidden(s) });
        sessions.chain(processes::rows(context)).collect()
    },
};

/// One row for each waiting session; `pg_blocking_pids` reads it.
pub const BLOCKING: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "hf_blocking_pids",
    columns: &[("pid", oid::INT4), ("blocked_by", more::INT4_ARRAY)],
    always_empty: false,
    rows: |context| {
        let line = |(pid, by): (i32, Vec<i32>)| vec![int(pid), array(by.into_iter().map(i64::from))];
        context.live.blocked().into_iter().map(line).collect()
    },
};

/// What every role may see of a session: the rest is NULL.
fn hidden(s: &SessionRow) -> Vec<Value> {
    let mut row = vec![int(s.database_oid), text(&s.database), int(s.pid), Value::Null, int(s.role), text(&s.user)];
    row.push(text(&s.application_name));
    row.extend(std::iter::repeat_n(Value::Null, 10));
    row.extend([transaction(s), Value::Null, Value::Null, text("<insufficient privilege>"), Value::Null]);
    row
}

fn row(s: &SessionRow) -> Vec<Value> {
    let optional = |t: Option<&str>| t.map_or(Value::Null, text);
    vec![
        int(s.database_oid),
        text(&s.database),
        int(s.pid),
        Value::Null,
        int(s.role),
        text(&s.user),
        text(&s.application_name),
        optional(s.client.as_deref()),
        Value::Null,
        s.client_port.map_or(Value::Null, int),
        moment(Some(s.backend_start_us)),
        moment(s.transaction_start_us),
        moment(s.query_start_us),
        moment(Some(s.state_change_us)),
        optional(s.wait_event.map(|w| w.0)),
        optional(s.wait_event.map(|w| w.1)),
        text(state(s.doing)),
        transaction(s),
        Value::Null,
        s.query_id.map_or(Value::Null, Value::Int),
        text(&s.query),
        text("client backend"),
    ]
}

/// For PostgreSQL's clients a transaction's number has 32 bits.
fn transaction(s: &SessionRow) -> Value {
    s.transaction.map_or(Value::Null, |id| int(id as u32))
}

fn state(doing: Doing) -> &'static str {
    match doing {
        Doing::Idle => "idle",
        Doing::Active => "active",
        Doing::IdleInTransaction => "idle in transaction",
        Doing::IdleInFailed => "idle in transaction (aborted)",
    }
}
