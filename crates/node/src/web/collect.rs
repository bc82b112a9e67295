//! Collects the figures. It asks what the views of the catalogue ask, and nothing that a thread holds during I/O.

use super::machine;
use super::standing::{Now, Opened};
use crate::activity::Watcher;
use crate::backup::BackupReport;
use crate::clock::now_us;
use holdfast_engine::Engine;
use holdfast_replication::ReplicationReport;
use holdfast_sql::catalogue::{Doing, Live, SessionRow};
use holdfast_types::StandbyRow;
use holdfast_web::figures::{
    ArchiveFigures, DiskFigures, DumpFigures, Figures, Health, ServerRole, SessionCount, SessionShown, StandbyFigures,
};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What does not change while the process lives.
pub(super) struct Setup {
    pub name: String,
    pub version: &'static str,
    pub sessions_max: u64,
    /// Directories whose file systems are shown.
    pub disks: Vec<(&'static str, PathBuf)>,
}

fn engine(of: &Watcher) -> Option<Engine> {
    of.engine.read().clone()
}

/// What load balancers ask.
pub(super) fn health(setup: &Setup, now: &Now) -> Health {
    let role = now.role();
    let refused = Health { role, name: setup.name.clone(), why: reason(now), ..Health::default() };
    let Some(open) = &now.open else { return refused };
    let report = open.watcher.replication.report();
    let Some(engine) = engine(&open.watcher) else { return refused };
    let link = report.link.as_ref();
    let of_link = link.filter(|link| link.follows);
    Health {
        serves: now.refuses.is_none(),
        has_right: engine.has_right() && engine.gate().held.is_none(),
        lease_held: open.control.as_ref().map(|control| control.holds_lease()),
        epoch: report.epoch,
        durable_lsn: report.durable_lsn,
        applied_lsn: report.applied_lsn,
        follows: of_link.is_some(),
        lag_bytes: of_link.map(|link| link.master_durable_lsn.saturating_sub(report.applied_lsn)),
        lag_ms: of_link.and_then(|link| link.behind_ms),
        why: refused.why.or_else(|| engine.gate().held).or_else(|| link.and_then(|link| link.error.clone())),
        ..refused
    }
}

/// Why it does not serve, in words.
fn reason(now: &Now) -> Option<String> {
    let text = match now.role() {
        ServerRole::Starting => "the server is starting up, or changes its role",
        ServerRole::Waiting => "a majority of the control plane has not agreed that this server is the master",
        ServerRole::Stopping => "the server is shutting down",
        ServerRole::Deposed => "another server has become the master",
        ServerRole::Master | ServerRole::Standby => return None,
    };
    Some(text.to_owned())
}

/// Everything that metrics show.
pub(super) fn figures(setup: &Setup, now: &Now) -> Figures {
    let health = health(setup, now);
    let always = Figures {
        sent_lsn: health.durable_lsn,
        health,
        version: setup.version,
        sessions_max: setup.sessions_max,
        disks: setup.disks.iter().filter_map(|(of, path)| machine::disk(of, path)).collect::<Vec<DiskFigures>>(),
        process: machine::process(),
        ..Figures::default()
    };
    let Some(Opened { watcher, .. }) = &now.open else { return always };
    let Some(engine) = engine(watcher) else { return always };
    let (transactions, report) = (watcher.transactions(), watcher.replication.report());
    let activities = &watcher.activities;
    Figures {
        engine: engine.figures(),
        requests: activities.latencies.requests.figures(),
        commits: activities.latencies.commits.figures(),
        sessions: counted(&watcher.sessions()),
        errors: activities.totals.errors().into_iter().collect(),
        slow_statements: activities.totals.slow_statements(),
        locks_waiting: watcher.blocked().len() as u64,
        lock_waits: transactions.lock_waits,
        lock_timeouts: transactions.lock_timeouts,
        deadlocks: transactions.deadlocks,
        serialization_conflicts: transactions.serialization_conflicts,
        statement_restarts: transactions.statement_restarts,
        row_versions_kept: transactions.row_versions_kept,
        oldest_snapshot_ms: transactions.oldest_snapshot.map(|oldest| oldest.age_ms),
        sent_lsn: sent(&report),
        standbys: report.standbys.iter().map(standby).collect(),
        mirror: mirror(&report),
        archive: report.archive.map(|archive| ArchiveFigures {
            place: archive.place,
            state: archive.state,
            archived: archive.archived,
            archived_lsn: archive.archived_lsn,
            failed: archive.failed,
            waiting_bytes: archive.waiting_bytes,
            waiting_segments: archive.waiting_segments,
            keep_bytes_max: archive.keep_bytes_max,
            last_error: archive.last_error,
        }),
        dump: watcher.backups.report(Some(&engine)).map(dump),
        ..always
    }
}

fn dump(report: BackupReport) -> DumpFigures {
    let now = u64::try_from(now_us() / 1000).unwrap_or_default();
    let (done, drill) = (report.dump, report.drill);
    DumpFigures {
        place: report.place,
        state: report.state,
        dumps: report.dumps,
        failed: report.dump_failures,
        age_ms: done.as_ref().map(|done| now.saturating_sub(done.at_unix_ms)),
        seconds: done.as_ref().map(|done| done.seconds),
        bytes: done.as_ref().map(|done| done.bytes),
        stored_bytes: done.as_ref().map(|done| done.stored_bytes),
        drills: report.drills,
        drills_failed: report.drill_failures,
        drill_ok: drill.as_ref().map(|drill| drill.ok),
        drill_age_ms: drill.as_ref().map(|drill| now.saturating_sub(drill.at_unix_ms)),
        restore_seconds: drill.filter(|drill| drill.ok).map(|drill| drill.restore_seconds),
        restorable_age_ms: report.restorable_age_ms,
        last_error: report.last_failure.map(|failure| failure.text),
    }
}

/// A boxcar is sent while it is still being written here.
fn sent(report: &ReplicationReport) -> u64 {
    let sent = report.standbys.iter().filter(|row| row.connected).filter_map(|row| row.sent_lsn);
    sent.chain([report.durable_lsn]).max().unwrap_or_default()
}

fn standby(row: &StandbyRow) -> StandbyFigures {
    StandbyFigures {
        name: row.name.clone(),
        connected: row.connected,
        state: row.state.clone(),
        synchronous: row.synchronous,
        sent_lsn: row.sent_lsn,
        received_lsn: row.received_lsn,
        durable_lsn: row.durable_lsn,
        applied_lsn: row.applied_lsn,
        apply_bytes_per_s: row.apply_bytes_per_s,
        delay_us: row.delay_us,
        reason: row.reason.clone(),
    }
}

fn mirror(report: &ReplicationReport) -> Option<(String, u64)> {
    let row = report.mirror.as_ref()?;
    let behind = report.durable_lsn.saturating_sub(row.durable_lsn.unwrap_or_default());
    Some((row.state.clone(), behind))
}

fn state(doing: Doing) -> &'static str {
    match doing {
        Doing::Active => "active",
        Doing::Idle => "idle",
        Doing::IdleInTransaction => "idle in transaction",
        Doing::IdleInFailed => "idle in transaction (aborted)",
    }
}

fn counted(rows: &[SessionRow]) -> Vec<SessionCount> {
    let mut counts: BTreeMap<(&str, &'static str), u64> = BTreeMap::new();
    rows.iter().for_each(|row| *counts.entry((&row.database, state(row.doing))).or_default() += 1);
    let one = |((database, state), count): ((&str, _), _)| SessionCount { database: database.to_owned(), state, count };
    counts.into_iter().map(one).collect()
}

/// The sessions, for the console.
pub(super) fn sessions(now: &Now) -> Vec<SessionShown> {
    let Some(Opened { watcher, .. }) = &now.open else { return Vec::new() };
    let waits: BTreeMap<i32, Vec<i32>> = watcher.blocked().into_iter().collect();
    let mut held: BTreeMap<i32, u64> = BTreeMap::new();
    let locks = engine(watcher).map(|engine| engine.locks()).unwrap_or_default();
    locks.iter().filter(|lock| lock.granted).for_each(|lock| *held.entry(lock.pid).or_default() += 1);
    let shown = |row: SessionRow| SessionShown {
        pid: row.pid,
        state: state(row.doing),
        wait: row.wait_event.filter(|_| row.doing == Doing::Active).map(|(kind, name)| format!("{kind}: {name}")),
        client: match (row.client, row.client_port) {
            (Some(address), Some(port)) => format!("{address}:{port}"),
            (None, Some(_)) => "Unix socket".to_owned(),
            _ => String::new(),
        },
        waits_for: waits.get(&row.pid).cloned().unwrap_or_default(),
        locks_held: held.get(&row.pid).copied().unwrap_or_default(),
        database: row.database,
        user: row.user,
        application_name: row.application_name,
        query: row.query,
        started_us: row.backend_start_us,
        transaction_us: row.transaction_start_us,
        query_us: row.query_start_us,
        changed_us: row.state_change_us,
    };
    watcher.sessions().into_iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, connected: bool, sent: u64, durable: u64) -> StandbyRow {
        let (name, state) = (name.to_owned(), "streaming".to_owned());
        StandbyRow { name, connected, state, sent_lsn: Some(sent), durable_lsn: Some(durable), ..StandbyRow::default() }
    }

    #[test]
    fn the_mirror_has_figures_of_its_own() {
        let report = ReplicationReport {
            durable_lsn: 500,
            mirror: Some(row("mirror", true, 500, 480)),
            standbys: vec![row("b", true, 510, 500)],
            ..ReplicationReport::default()
        };
        assert_eq!(mirror(&report), Some(("streaming".to_owned(), 20)));
        assert_eq!(mirror(&ReplicationReport { mirror: None, ..report }), None, "a standby is none");
    }

    #[test]
    fn what_was_sent_before_it_was_durable_here_counts() {
        let standbys = vec![row("b", true, 510, 400), row("c", false, 900, 900)];
        let report = ReplicationReport { durable_lsn: 500, standbys, ..ReplicationReport::default() };
        assert_eq!(sent(&report), 510, "what was sent on a link that has ended says nothing");
        assert_eq!(sent(&ReplicationReport { standbys: Vec::new(), ..report }), 500);
    }
}
