//! When to checkpoint, and what is logged of it.
//!
//! One thread serves all volumes. It checks ten times a second, or when woken:
//!
//! | observed | done |
//! |---|---|
//! | this master is deposed | no checkpoint: its record would reach standbys that follow the new master's trail |
//! | redo debt of all volumes beyond half its limit | checkpoint of the volume with the largest debt |
//! | a volume's pages fill three quarters of its memory and it has an eighth of the debt allowed | checkpoint of it |
//! | a volume with debt had no batch for IDLE | checkpoint of it, so that it pins nothing (RULE 6) |
//! | the archive has advanced | the lower end of the trail is moved |
//! | more waits for the archive than allowed, or no longer | what is configured for that ([`crate::background::archiving`]) |
//!
//! After each checkpoint the lower end of the trail is moved: below every redo start, below what standbys and the archive lack
//! ([`crate::state::retention`]), below what readers see, and below each volume's last checkpoint record; volumes whose record would hold old segments
//! get a new one.
//!
//! Failure: a checkpoint that cannot be written is retried a second later and logged; one whose database file may be
//! half written ends the process, because the `-wal` then holds what only a start can complete.

use crate::state::database::DatabaseState;
use crate::state::database::Peers;
use crate::state::engine::EngineState;
use crate::state::follow::Follow;
use holdfast_seams::points::reached;
use holdfast_store::checkpoint::{CheckpointError, Checkpointed, run};
use holdfast_store::volume::stamp_of;
use holdfast_trail::Span;
use holdfast_types::Lsn;
use holdfast_types::record::{Checkpoint, put_checkpoint};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The point between listing the pages that the file lacks, of which there are none, and recording that.
pub const NOTHING_TO_WRITE: &str = "a checkpoint has nothing to write";

const IDLE: Duration = Duration::from_secs(3);
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The thread's body.
pub fn serve(engine: &Arc<EngineState>, databases: &dyn Peers) {
    while engine.checkpointer.wait() {
        if engine.archiving.take_news() {
            advance_floor(engine, databases);
        }
        engine.check_archive();
        if let Some(database) = choose(engine, databases.all())
            && let Err(e) = checkpoint(&database)
        {
            tracing::error!(database = database.name, "{e}");
            engine.checkpointer.pause(RETRY_AFTER);
        }
    }
}

/// The volume that needs a checkpoint most, by the table above.
fn choose(engine: &EngineState, open: Vec<Arc<DatabaseState>>) -> Option<Arc<DatabaseState>> {
    if engine.deposed.load(Ordering::Acquire) {
        return None;
    }
    let with_debt: Vec<_> = open.into_iter().filter(|d| !d.redo.is_empty()).collect();
    if engine.redo_used() > 0.5
        && let Some(largest) = with_debt.iter().max_by_key(|d| d.redo.time_us())
    {
        return Some(largest.clone());
    }
    // Pages the file has count as memory in use, too: so there must be some debt as well, or a warm store would be
    // checkpointed without end.
    let worth_us = engine.options.redo_time_max.as_micros() as u64 / 8;
    let full = |d: &&Arc<DatabaseState>| {
        let stats = d.volume().store().stats();
        stats.memory_pages * 4096 > engine.options.memory_bytes_max / 4 * 3 && d.redo.time_us() > worth_us
    };
    let idle = |d: &&Arc<DatabaseState>| d.redo.idle_for() > IDLE;
    with_debt.iter().find(full).or_else(|| with_debt.iter().find(idle)).cloned()
}

/// Checkpoints one volume now.
pub fn checkpoint(database: &Arc<DatabaseState>) -> Result<(), CheckpointError> {
    let _one_at_a_time = database.checkpointing.lock();
    if database.dropped.load(Ordering::Relaxed) {
        return Ok(());
    }
    let started = Instant::now();
    let volume = database.volume();
    let engine = &database.engine;
    // Read first: what becomes durable while the pages are listed is not in the file.
    let number = volume.store().visible();
    match run(&*engine.options.disk, volume.store(), |done| record(database, done)) {
        Ok(None) => {
            reached(NOTHING_TO_WRITE);
            record_if_behind(database, number);
            database.redo.settled(number);
            Ok(())
        }
        Ok(Some(done)) => {
            database.redo.settled(done.number);
            engine.stats.checkpoint(done.pages_written);
            advance_floor(engine, &**database);
            let took_ms = started.elapsed().as_millis() as u64;
            tracing::debug!(
                database = database.name,
                number = done.number,
                pages = done.pages_written,
                took_ms,
                "checkpoint"
            );
            Ok(())
        }
        Err(e @ CheckpointError::Fatal { .. }) => {
            tracing::error!(database = database.name, "{e}");
            engine.fail(&e.to_string());
            Err(e)
        }
        Err(e) => Err(e),
    }
}

/// The file has everything up to batch `number`. The trail must say so before its batches are recycled, else the file counts as ahead
/// of it at a start. A number that is too high has the start refuse the file as an older one.
fn record_if_behind(database: &Arc<DatabaseState>, number: u64) {
    let (engine, volume) = (&database.engine, database.volume());
    if engine.last_checkpoint(database.id).is_some_and(|last| last.number >= number) {
        return;
    }
    match stamp_of(&*engine.options.disk, Path::new(volume.store().path())) {
        Ok(stamp) => record(
            database,
            &Checkpointed {
                number,
                pages_written: 0,
                file_bytes: stamp.bytes,
                file_modified_unix_ns: stamp.modified_unix_ns,
            },
        ),
        Err(error) => tracing::warn!("a checkpoint record cannot be logged: {error}"),
    }
}

/// Logs that the volume's file is at `done.number`, and waits until that is durable.
fn record(database: &Arc<DatabaseState>, done: &Checkpointed) {
    // Read before the debt, as [`Totals::counted_to`] requires.
    let counted_to = database.engine.redo.counted_to();
    let redo_start = database.redo.start_after(done.number).unwrap_or(counted_to);
    let checkpoint = Checkpoint {
        volume: database.id,
        number: done.number,
        redo_start,
        file_size_bytes: done.file_bytes,
        file_mtime_ns: done.file_modified_unix_ns as i64,
    };
    log(&database.engine, &[checkpoint]);
}

/// Appends checkpoint records, waits for them, and remembers them as the volumes' last. A standby records them in a
/// file.
pub fn log(engine: &Arc<EngineState>, checkpoints: &[Checkpoint]) {
    let _in_order = engine.listing.lock();
    match &engine.follow {
        // The trail's records are the master's.
        Some(follow) => engine.list_locally(follow, checkpoints),
        None => append(engine, checkpoints),
    }
}

fn append(engine: &Arc<EngineState>, checkpoints: &[Checkpoint]) {
    if engine.deposed.load(Ordering::Acquire) {
        return; // as if it could not be logged: redo begins earlier
    }
    let mut body = Vec::new();
    checkpoints.iter().for_each(|c| put_checkpoint(&mut body, c));
    let (sender, receiver) = crossbeam_channel::bounded(1);
    let redo = engine.redo.clone();
    let on_durable = move |span: Span| {
        redo.appended(span.start);
        sender.send(span.start).unwrap_or_default();
    };
    let appended = engine.trail.append_kept(body, Box::new(on_durable));
    if let Err(e) = appended {
        tracing::warn!("a checkpoint record cannot be logged: {e}");
        return;
    }
    if let Ok(lsn) = receiver.recv() {
        checkpoints.iter().for_each(|c| engine.listed(*c, lsn));
    }
}

/// Lets the trail recycle what is no longer needed.
fn advance_floor(engine: &Arc<EngineState>, databases: &dyn Peers) {
    if engine.keeps_trail || engine.follow.as_ref().is_some_and(Follow::is_unwritten) {
        return;
    }
    give_up_standbys(engine);
    // A dump names the boxcar in front of what readers see. Checkpoints move redo past it, but not what is seen.
    let shown = *engine.shown.lock();
    // A base copy finds its start under the same lock.
    let held = engine.retention.lock();
    let needed = held.lowest().into_iter().chain([redo_starts(engine, databases), shown]).min();
    let needed = needed.unwrap_or_default();
    if engine.follow.is_none() {
        // Under the lock: the older record of a volume must not follow the newer one.
        let _in_order = engine.listing.lock();
        let stale = engine.listed_below(Lsn(needed.0.saturating_sub(engine.options.segment_bytes)));
        if !stale.is_empty() {
            append(engine, &stale);
        }
    }
    let needed = needed.min(engine.oldest_listing().unwrap_or(needed));
    let recycles = engine.trail.segment_of(needed) > engine.trail.segment_of(engine.trail.first());
    match if recycles { engine.keep_clock() } else { Ok(()) } {
        Ok(()) => engine.trail.retain_from(needed),
        Err(error) => tracing::warn!("the trail is kept: the clock cannot be written to the data directory: {error}"),
    }
    drop(held);
}

/// Where redo of any volume would have to start if the power failed now.
pub fn redo_starts(engine: &EngineState, databases: &dyn Peers) -> Lsn {
    // Read before the debt, as [`Totals::counted_to`] requires.
    let counted_to = engine.redo.counted_to();
    databases.all().into_iter().filter_map(|d| d.redo.start()).min().unwrap_or(counted_to).min(counted_to)
}

/// Standbys that are too far behind no longer hold the trail.
fn give_up_standbys(engine: &EngineState) {
    let (disk, end, max) = (&*engine.options.disk, engine.trail.durable(), engine.options.standby_keep_bytes_max);
    let given_up = engine.retention.lock().give_up(disk, &engine.dir, end, max);
    match given_up {
        Ok(names) => names.iter().for_each(|name| (engine.options.on_given_up)(name)),
        Err(e) => tracing::warn!("the list of standbys cannot be written: {e}"),
    }
    let max = engine.options.slot_keep_bytes_max;
    match engine.retention.lock().give_up_feeds(disk, &engine.dir, end, max) {
        Ok(names) => names.iter().for_each(|name| match engine.options.archive {
            Some(_) => tracing::info!(
                "the trail is no longer kept for replication slot {name}: it lags more than slot_keep_bytes_max = {max} bytes. Its \
                 subscriber is sent from the archive what the trail then lacks"
            ),
            None => tracing::warn!(
                "the trail is no longer kept for replication slot {name}: it lags more than slot_keep_bytes_max = {max} bytes. Its \
                 subscriber has to copy the tables again"
            ),
        }),
        Err(e) => tracing::warn!("the list of feeds cannot be written: {e}"),
    }
}
