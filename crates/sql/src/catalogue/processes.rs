//! The server's background work as PostgreSQL names its processes, for `pg_stat_activity`: checkpointer, walwriter, archiver, a
//! walsender for each connected standby, and on a standby walreceiver and startup.
//!
//! They are threads and tasks of one process, so they have no process numbers of their own. They are numbered from
//! `FIRST_PID`, far above the numbers of sessions, and no function signals them.

use super::live::Live;
use super::oids::OWNER_OID;
use super::standing::{FIRST_PID, walsenders};
use super::table::{CatalogContext, count, int, moment, text};
use holdfast_types::Value;

/// Rows of `pg_stat_activity`.
pub fn rows(context: &CatalogContext<'_>) -> Vec<Vec<Value>> {
    let live: &dyn Live = context.live;
    let standing = live.standing();
    let others = [
        ("checkpointer", true),
        ("walwriter", !standing.in_recovery),
        ("archiver", standing.archive.is_some()),
        ("startup", standing.in_recovery),
        ("walreceiver", standing.link.is_some()),
    ];
    let sees = |owner: u32| context.viewer.sees_statistics_of(owner);
    let started = moment(Some(live.started_us()).filter(|us| *us != 0));
    let mut rows = Vec::new();
    for (number, (kind, _)) in others.into_iter().enumerate().filter(|(_, (_, runs))| *runs) {
        let mut row = vec![Value::Null, Value::Null, Value::Int(FIRST_PID + number as i64)];
        row.extend(nulls(7));
        // Only a member of pg_read_all_stats has the privileges of no role.
        finish(&mut row, sees(0).then_some((kind, &started)));
        rows.push(row);
    }
    for (pid, standby) in walsenders(&standing.standbys) {
        let mut row = vec![Value::Null, Value::Null, Value::Int(pid), Value::Null, int(OWNER_OID), text("holdfast")];
        row.push(text(&*standby.name));
        let sees = sees(OWNER_OID);
        match standby.client.as_ref().filter(|_| sees) {
            Some((address, port)) => row.extend([text(address.as_str()), Value::Null, count(u64::from(*port))]),
            None => row.extend(nulls(3)),
        }
        finish(&mut row, sees.then_some(("walsender", &moment(standby.since_us))));
        if sees {
            row[16] = text("active");
        }
        rows.push(row);
    }
    rows
}

fn nulls(count: usize) -> impl Iterator<Item = Value> {
    std::iter::repeat_n(Value::Null, count)
}

/// The columns from `backend_start` on: its kind and when it began, for a role that may see them.
fn finish(row: &mut Vec<Value>, seen: Option<(&str, &Value)>) {
    row.push(seen.map_or(Value::Null, |(_, since)| since.clone()));
    row.extend(nulls(9));
    row.push(text(if seen.is_some() { "" } else { "<insufficient privilege>" }));
    row.push(seen.map_or(Value::Null, |(kind, _)| text(kind)));
}
