//! Every metric: its name without the unit, its help, where its value comes from. `docs/observing.md` lists them, which a test
//! compares.

use super::{Lags, Page};
use crate::figures::{DumpFigures, Figures, ServerRole, StandbyFigures};
use prometheus_client::registry::Unit::{Bytes, Seconds};
use std::fmt::Result;

/// Seconds for each microsecond.
const US: f64 = 1e-6;

fn seconds(us: u64) -> f64 {
    us as f64 * US
}

/// The role, and what it answers.
pub(super) fn server(page: &mut Page<'_>, of: &Figures) -> Result {
    let health = &of.health;
    let built = ("holdfast_build_info", "Always 1; the version that runs is a label.");
    page.gauges(built, None, [([("version", of.version), ("node", &*health.name)], 1_u64)].into_iter())?;
    let role = ("holdfast_role", "1 for the role that the server has, 0 for the others.");
    let rows = ServerRole::ALL.into_iter().map(|role| ([("role", role.name())], u64::from(role == health.role)));
    page.gauges(role, None, rows)?;
    page.gauge(("holdfast_serving", "1 while clients are admitted."), None, u64::from(health.serves))?;
    let writable = ("holdfast_writable", "1 while commits are acknowledged here: a master with its lease.");
    page.gauge(writable, None, u64::from(health.is_primary()))?;
    page.gauge(("holdfast_epoch", "Rises with every promotion and restart."), None, u64::from(health.epoch))?;
    let lease = ("holdfast_lease_held", "With a control plane: 1 while this server holds the lease.");
    page.gauges(lease, None, health.lease_held.map(|held| ([("node", &*health.name)], u64::from(held))).into_iter())?;

    page.counter(("holdfast_transactions", "Transactions that wrote."), None, of.engine.transactions)?;
    let requests = ("holdfast_request_duration", "From the arrival of a request to its answer.");
    page.histogram(requests, Some(Seconds), &of.requests, US)?;
    let commits =
        ("holdfast_commit_duration", "As holdfast_request_duration_seconds, of requests that committed a change.");
    page.histogram(commits, Some(Seconds), &of.commits, US)?;
    let errors = ("holdfast_statement_errors", "Errors sent to clients, by the class of their SQLSTATE.");
    page.counters(errors, of.errors.iter().map(|(class, count)| ([("class", &**class)], *count)))?;
    let slow = ("holdfast_slow_statements", "Statements longer than log_min_duration_statement.");
    page.counter(slow, None, of.slow_statements)?;
    let refused = ("holdfast_authentication_failures", "Refused attempts to log in.");
    page.counter(refused, None, of.authentication_failures)
}

/// The trail, its syncs, what a recovery would replay, memory.
pub(super) fn trail(page: &mut Page<'_>, of: &Figures) -> Result {
    let e = &of.engine;
    page.counter(("holdfast_boxcars", "Group commits of the trail: one write, one sync."), None, e.boxcars)?;
    let sizes = ("holdfast_boxcar_commits", "Transactions that waited for each boxcar.");
    page.histogram(sizes, None, &e.boxcar_commits, 1.0)?;
    page.counter(("holdfast_batches", "Batches that writers published."), None, e.batches)?;
    page.histogram(("holdfast_sync", "Write and sync of each boxcar."), Some(Seconds), &e.sync_times, US)?;
    let waits = ("holdfast_gate_wait", "How long batches waited for a standby, the mirror or the lease, if at all.");
    page.histogram(waits, Some(Seconds), &e.gate_waits, US)?;
    let waiting = ("holdfast_gate_waiting_batches", "Batches that are durable here and wait for their level.");
    page.gauge(waiting, None, e.gate_waiting)?;
    let held = ("holdfast_gate_held", "1 while this server may not acknowledge anything.");
    page.gauge(held, None, u64::from(e.held.is_some()))?;
    let delay = ("holdfast_commit_delay", "Total time the trail waited for more commits to share a sync.");
    page.counter(delay, Some(Seconds), seconds(e.commit_delay_us))?;
    let governed = ("holdfast_governor_wait", "Total time writers waited because a standby lagged.");
    page.counter(governed, Some(Seconds), seconds(e.governed_us))?;

    let records = ("holdfast_trail_record", "Bytes of records written to the trail.");
    page.counter(records, Some(Bytes), e.trail_body_bytes)?;
    let written = ("holdfast_trail_written", "Bytes written to the trail, padding included.");
    page.counter(written, Some(Bytes), e.trail_disk_bytes)?;
    page.gauge(("holdfast_trail_segments", "Segments of the trail, prepared ones included."), None, e.segments)?;
    let size = ("holdfast_trail_disk", "Disk space of the trail's segments.");
    page.gauge(size, Some(Bytes), e.segments * e.segment_bytes)?;
    let kept =
        ("holdfast_trail_retained", "Bytes of the trail that can be read: kept for recovery, standbys, the archive.");
    page.gauge(kept, Some(Bytes), e.retained_bytes)?;
    let waits = ("holdfast_trail_segment_waits", "Times the trail waited for a new segment.");
    page.counter(waits, None, e.segment_waits)?;
    page.gauge(("holdfast_durable_lsn", "Everything below is durable here."), None, of.health.durable_lsn)?;

    page.counter(("holdfast_checkpoints", "Checkpoints of volumes."), None, e.checkpoints)?;
    page.counter(("holdfast_checkpoint_pages", "Pages written by checkpoints."), None, e.checkpoint_pages)?;
    page.gauge(("holdfast_redo", "How long a recovery would replay."), Some(Seconds), seconds(e.redo_time_us))?;
    let max = ("holdfast_redo_max", "The limit of holdfast_redo_seconds: redo_time_max_ms.");
    page.gauge(max, Some(Seconds), seconds(e.redo_time_max_us))?;
    let debt = ("holdfast_redo_debt", "Bytes of the trail that a recovery would replay.");
    page.gauge(debt, Some(Bytes), e.redo_bytes)?;
    page.gauge(("holdfast_pages_memory", "Page versions in memory."), Some(Bytes), e.memory_bytes)?;
    let max =
        ("holdfast_pages_memory_max", "The limit of holdfast_pages_memory_bytes of each database: memory_bytes_max.");
    page.gauge(max, Some(Bytes), e.memory_bytes_max)?;
    page.gauge(("holdfast_pages_scratch", "Page versions in scratch files."), Some(Bytes), e.scratch_bytes)?;
    page.gauge(("holdfast_open_databases", "Databases that are open."), None, e.open_databases)?;
    page.counter(("holdfast_syncs", "Syncs of all files."), None, e.syncs)?;
    page.counter(("holdfast_disk_read", "Bytes read from files."), Some(Bytes), e.disk_read_bytes)?;
    page.counter(("holdfast_disk_written", "Bytes written to files."), Some(Bytes), e.disk_written_bytes)
}

/// Sessions, locks, snapshots.
pub(super) fn sessions(page: &mut Page<'_>, of: &Figures) -> Result {
    let sessions = ("holdfast_sessions", "Connected sessions, by database and state.");
    let rows = of.sessions.iter().map(|row| ([("database", &*row.database), ("state", row.state)], row.count));
    page.gauges(sessions, None, rows)?;
    page.gauge(("holdfast_sessions_max", "The limit of sessions: connections_max."), None, of.sessions_max)?;
    page.gauge(("holdfast_locks_waiting", "Transactions that wait for a lock now."), None, of.locks_waiting)?;
    page.counter(("holdfast_lock_waits", "Times a statement waited for a lock."), None, of.lock_waits)?;
    page.counter(("holdfast_lock_timeouts", "Waits for locks that timed out."), None, of.lock_timeouts)?;
    page.counter(("holdfast_deadlocks", "Deadlocks that were resolved by an error."), None, of.deadlocks)?;
    let conflicts = ("holdfast_serialization_conflicts", "Transactions that could not be serialized.");
    page.counter(conflicts, None, of.serialization_conflicts)?;
    let restarts = ("holdfast_statement_restarts", "Statements that began again on a newer snapshot.");
    page.counter(restarts, None, of.statement_restarts)?;
    let kept = ("holdfast_row_versions_kept", "Row versions kept for open transactions.");
    page.gauge(kept, None, of.row_versions_kept)?;
    let oldest = ("holdfast_oldest_snapshot_age", "Age of the oldest snapshot that a transaction holds; 0 for none.");
    page.gauge(oldest, Some(Seconds), of.oldest_snapshot_ms.unwrap_or_default() as f64 / 1e3)
}

/// Standbys, the link to a master, the archive, the mirror.
pub(super) fn replication(page: &mut Page<'_>, of: &Figures, lags: &Lags) -> Result {
    let connected = ("holdfast_standby_connected", "1 while the standby is connected.");
    page.gauges(connected, None, of.standbys.iter().map(|s| ([("standby", &*s.name)], u64::from(s.connected))))?;
    let synchronous = ("holdfast_standby_synchronous", "1 for a standby that commits wait for.");
    page.gauges(synchronous, None, of.standbys.iter().map(|s| ([("standby", &*s.name)], u64::from(s.synchronous))))?;
    let lag =
        ("holdfast_standby_lag", "How much the standby lacks, by level: received, on its disk, visible to readers.");
    let rows = of.standbys.iter().flat_map(|standby| {
        levels(standby).into_iter().filter_map(|(level, position)| {
            Some(([("standby", &*standby.name), ("level", level)], of.lag_bytes(position)?))
        })
    });
    page.gauges(lag, Some(Bytes), rows)?;
    let age =
        ("holdfast_standby_lag", "How old the first change is that the standby lacks, as the last but for the unit.");
    let rows = lags.seconds.iter().map(|((name, level), age)| ([("standby", &**name), ("level", *level)], *age));
    page.gauges(age, Some(Seconds), rows)?;
    let delay = ("holdfast_governor_delay", "What each boxcar waits because of this standby.");
    page.gauges(delay, Some(Seconds), of.standbys.iter().map(|s| ([("standby", &*s.name)], seconds(s.delay_us))))?;

    let health = &of.health;
    let is_standby = health.role == ServerRole::Standby;
    let follows = ("holdfast_following", "On a standby: 1 while it is connected to its master.");
    let labels = || [("node", &*health.name)];
    page.gauges(follows, None, is_standby.then(|| (labels(), u64::from(health.follows))).into_iter())?;
    let behind = ("holdfast_replay_lag", "On a standby: how much of what its master has reported readers do not see.");
    page.gauges(behind, Some(Bytes), health.lag_bytes.map(|lag| (labels(), lag)).into_iter())?;
    let age = ("holdfast_replay_lag", "On a standby: how old the last change is that readers see, while it lags.");
    page.gauges(age, Some(Seconds), health.lag_ms.map(|lag| (labels(), lag as f64 / 1e3)).into_iter())?;

    let archive = || of.archive.iter();
    let waiting = ("holdfast_archive_waiting", "Finished segments that are not archived.");
    page.gauges(waiting, Some(Bytes), archive().map(|a| ([("state", &*a.state)], a.waiting_bytes)))?;
    let max = ("holdfast_archive_keep_max", "The limit of holdfast_archive_waiting_bytes: archive_keep_bytes_max.");
    page.gauges(max, Some(Bytes), archive().map(|a| ([("place", &*a.place)], a.keep_bytes_max)))?;
    let done = ("holdfast_archived_segments", "Segments archived.");
    page.counters(done, archive().map(|a| ([("place", &*a.place)], a.archived)))?;
    let failed = ("holdfast_archive_failures", "Failed attempts to archive a segment.");
    page.counters(failed, archive().map(|a| ([("place", &*a.place)], a.failed)))?;
    let mirror = ("holdfast_mirror_behind", "What the mirror lacks; its state is a label.");
    page.gauges(mirror, Some(Bytes), of.mirror.iter().map(|(state, behind)| ([("state", &**state)], *behind)))
}

/// The server's own dumps and drills. Absent where it makes none.
pub(super) fn backups(page: &mut Page<'_>, of: &Figures) -> Result {
    let dump = || of.dump.iter();
    let place = |d: &DumpFigures| [("place", d.place.clone())];
    let age = |ms: u64| ms as f64 / 1e3;
    let done = ("holdfast_dumps", "Dumps that the server has made of itself, over restarts.");
    page.counters(done, dump().map(|d| (place(d), d.dumps)))?;
    let failed = ("holdfast_dump_failures", "Dumps that failed, over restarts.");
    page.counters(failed, dump().map(|d| (place(d), d.failed)))?;
    let old = ("holdfast_dump_age", "How old the last dump is.");
    page.gauges(old, Some(Seconds), dump().filter_map(|d| Some((place(d), age(d.age_ms?)))))?;
    let took = ("holdfast_dump_duration", "How long the last dump took.");
    page.gauges(took, Some(Seconds), dump().filter_map(|d| Some((place(d), d.seconds?))))?;
    let size = ("holdfast_dump_databases", "The databases in the last dump.");
    page.gauges(size, Some(Bytes), dump().filter_map(|d| Some((place(d), d.bytes?))))?;
    let stored = ("holdfast_dump_stored", "What the last dump stored: what had changed.");
    page.gauges(stored, Some(Bytes), dump().filter_map(|d| Some((place(d), d.stored_bytes?))))?;
    let drills = ("holdfast_drills", "Drills: restores of the newest dump to scratch, over restarts.");
    page.counters(drills, dump().map(|d| (place(d), d.drills)))?;
    let failed = ("holdfast_drill_failures", "Drills that failed, over restarts.");
    page.counters(failed, dump().map(|d| (place(d), d.drills_failed)))?;
    let ok = ("holdfast_drill_ok", "1 if the last drill succeeded, 0 if it failed.");
    page.gauges(ok, None, dump().filter_map(|d| Some((place(d), u64::from(d.drill_ok?)))))?;
    let old = ("holdfast_drill_age", "How long ago the last drill was.");
    page.gauges(old, Some(Seconds), dump().filter_map(|d| Some((place(d), age(d.drill_age_ms?)))))?;
    let took = ("holdfast_drill_restore", "How long the restore of the last drill took.");
    page.gauges(took, Some(Seconds), dump().filter_map(|d| Some((place(d), d.restore_seconds?))))?;
    let lost = (
        "holdfast_restorable_age",
        "How old the oldest change is that would be lost with this machine; 0: none would.",
    );
    page.gauges(lost, Some(Seconds), dump().filter_map(|d| Some((place(d), age(d.restorable_age_ms?)))))
}

/// A standby's positions by level.
pub(crate) fn levels(of: &StandbyFigures) -> [(&'static str, Option<u64>); 3] {
    [("warm", of.received_lsn), ("hot", of.durable_lsn), ("commit", of.applied_lsn)]
}

/// Disks, and the process as Prometheus's own libraries describe one.
pub(super) fn process(page: &mut Page<'_>, of: &Figures) -> Result {
    let free = ("holdfast_disk_free", "Free space of the file systems that the server uses.");
    let labels = |of: &'static str, path: &str| [("disk", of.to_owned()), ("path", path.to_owned())];
    page.gauges(free, Some(Bytes), of.disks.iter().map(|d| (labels(d.of, &d.path), d.free_bytes)))?;
    let size = ("holdfast_disk_size", "Size of the file systems that the server uses.");
    page.gauges(size, Some(Bytes), of.disks.iter().map(|d| (labels(d.of, &d.path), d.size_bytes)))?;
    let p = &of.process;
    page.counter(("process_cpu", "User and system time of the process."), Some(Seconds), p.cpu_seconds)?;
    page.gauge(("process_resident_memory", "Resident memory."), Some(Bytes), p.resident_bytes)?;
    page.gauge(("process_virtual_memory", "Virtual memory."), Some(Bytes), p.virtual_bytes)?;
    page.gauge(("process_open_fds", "Open file descriptors."), None, p.open_files)?;
    page.gauge(("process_max_fds", "Limit of open file descriptors."), None, p.open_files_max)?;
    page.gauge(("process_threads", "Threads."), None, p.threads)?;
    page.gauge(("process_start_time", "Start of the process, since 1970."), Some(Seconds), p.started_unix_s)
}
