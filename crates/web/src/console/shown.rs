//! What the console's page gets once a second, as JSON.

use crate::figures::{Figures, SessionShown, StandbyFigures};
use crate::limits::{EVENTS_SHOWN_MAX, SESSIONS_SHOWN_MAX};
use crate::metrics::levels;
use crate::routes::App;
use serde_json::{Map, Value, json};

pub(super) fn state(app: &App, figures: &Figures, points: u64, events: u64) -> Map<String, Value> {
    let mut sessions = app.source.sessions();
    let all = sessions.len();
    sessions.sort_by_key(|session| (session.state == "idle", session.pid));
    // What others wait for is shown in any case.
    let blockers: Vec<i32> = sessions.iter().flat_map(|session| session.waits_for.clone()).collect();
    sessions.sort_by_key(|session| !blockers.contains(&session.pid) && session.waits_for.is_empty());
    sessions.truncate(SESSIONS_SHOWN_MAX);
    let found = app.source.events(events);
    let skipped = found.len().saturating_sub(EVENTS_SHOWN_MAX);
    let mut body = Map::new();
    body.insert("server".to_owned(), server(app, figures));
    body.insert("points".to_owned(), app.history.json(points).into());
    body.insert("sessions".to_owned(), sessions.iter().map(session).collect());
    body.insert("sessions_all".to_owned(), all.into());
    body.insert("standbys".to_owned(), standbys(app, figures));
    body.insert("disks".to_owned(), disks(figures));
    let event = |event: &crate::figures::Event| json!({ "n": event.number, "at": event.unix_us / 1000, "level": event.level, "target": event.target, "text": event.text });
    body.insert("events".to_owned(), found.iter().skip(skipped).map(event).collect());
    body
}

fn server(app: &App, figures: &Figures) -> Value {
    let (health, e) = (app.source.health(), &figures.engine);
    let archive = figures.archive.as_ref().map(|archive| {
        json!({
            "place": archive.place, "state": archive.state, "waiting_bytes": archive.waiting_bytes,
            "waiting_segments": archive.waiting_segments, "failed": archive.failed, "error": archive.last_error,
        })
    });
    json!({
        "name": health.name, "version": app.version, "role": health.role.name(), "serves": health.serves,
        "writable": health.is_primary(), "epoch": health.epoch, "why": health.why, "lease": health.lease_held,
        "follows": health.follows, "lag_bytes": health.lag_bytes, "lag_ms": health.lag_ms,
        "started_ms": figures.process.started_unix_s * 1e3, "sessions_max": figures.sessions_max,
        "held": e.held, "gate_waiting": e.gate_waiting, "transactions": e.transactions,
        "deadlocks": figures.deadlocks, "lock_waits": figures.lock_waits, "checkpoints": e.checkpoints,
        "errors": figures.errors.iter().map(|(_, count)| count).sum::<u64>(),
        "authentication_failures": figures.authentication_failures,
        "redo_ms": e.redo_time_us / 1000, "redo_max_ms": e.redo_time_max_us / 1000,
        "redo_bytes": e.redo_bytes, "trail_segments": e.segments, "trail_bytes": e.segments * e.segment_bytes,
        "retained_bytes": e.retained_bytes, "memory_bytes": e.memory_bytes, "scratch_bytes": e.scratch_bytes,
        "resident_bytes": figures.process.resident_bytes, "oldest_snapshot_ms": figures.oldest_snapshot_ms,
        "durable_lsn": health.durable_lsn, "archive": archive,
        "mirror": figures.mirror.as_ref().map(|(state, behind)| json!({ "state": state, "behind_bytes": behind })),
    })
}

fn session(of: &SessionShown) -> Value {
    json!({
        "pid": of.pid, "database": of.database, "user": of.user, "application": of.application_name,
        "client": of.client, "state": of.state, "wait": of.wait, "query": of.query, "started": of.started_us / 1000,
        "transaction": of.transaction_us.map(|us| us / 1000), "asked": of.query_us.map(|us| us / 1000),
        "changed": of.changed_us / 1000, "waits_for": of.waits_for, "locks": of.locks_held,
    })
}

fn standbys(app: &App, figures: &Figures) -> Value {
    let lags = app.history.lags(figures);
    let row = |standby: &StandbyFigures| {
        let of = levels(standby).map(|(level, position)| {
            let seconds = lags.seconds.get(&(standby.name.clone(), level));
            (level.to_owned(), json!({ "bytes": figures.lag_bytes(position), "seconds": seconds }))
        });
        json!({
            "name": standby.name, "connected": standby.connected, "state": standby.state,
            "synchronous": standby.synchronous, "lag": Map::from_iter(of), "delay_us": standby.delay_us,
            "reason": standby.reason, "apply_bytes_per_s": standby.apply_bytes_per_s,
        })
    };
    figures.standbys.iter().map(row).collect()
}

fn disks(figures: &Figures) -> Value {
    let row = |disk: &crate::figures::DiskFigures| json!({ "of": disk.of, "path": disk.path, "size_bytes": disk.size_bytes, "free_bytes": disk.free_bytes });
    figures.disks.iter().map(row).collect()
}
