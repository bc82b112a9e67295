//! The role task "archive": puts finished segments into the archive. Only segments that are there whole may be recycled.
//!
//! | this node is | for each finished segment, oldest first |
//! |---|---|
//! | a master | where the object archived last is still there: it is put into the archive, read back and compared |
//! | a master, and an earlier run archived it | it is looked up |
//! | a master, and `archive_timeout_ms` has passed since the segment under way got its first boxcar, or a dump needs it | that segment is ended first |
//! | a standby | it is looked up: its master archives it. A segment that is not there yet stays in this trail as well, so that nothing is missing in the archive when this node is promoted |
//!
//! A standby also goes past segments that are older than all that the archive has: its retention has removed them.
//!
//! A look-up finds a listed object whose last boxcar has the checksum that this trail's next boxcar names.
//!
//! Failure: archiving is retried with growing pauses, indefinitely, and each failure is logged. After a few failures in a row
//! the operator's command is run, and again when archiving works. What happens to the trail meanwhile is the engine's
//! decision (`archive_keep_bytes_max`).

use crate::notify::Notify;
use holdfast_archive::{
    ArchiveError, Codec, Holdings, ObjectName, Store, check_only_server, check_still_there, is_archived, put,
};
use holdfast_engine::Engine;
use holdfast_trail::Trail;
use holdfast_types::ArchiveRow;
use parking_lot::Mutex;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// How often to check whether a segment was finished.
const CHECK_EVERY: Duration = Duration::from_millis(200);

/// How often a node lists the archive that does not archive itself.
const LIST_EVERY: Duration = Duration::from_secs(5);

/// Pause before a retry; doubled with each failure.
const RETRY: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// A step that takes longer is reported.
const SLOW_AFTER: Duration = Duration::from_secs(120);

/// This many failures in a row are reported to the operator's command.
const FAILURES_REPORTED: u32 = 3;

/// Archives this node's trail.
pub struct Archiver {
    engine: Engine,
    store: Arc<dyn Store>,
    notify: Notify,
    keep_bytes_max: u64,
    /// A segment that is not full is ended after this; zero: never.
    timeout: Duration,
    /// The segment under way, and when it was seen to have a boxcar.
    under_way: Mutex<Option<(u32, Instant)>>,
    progress: Mutex<Progress>,
}

#[derive(Clone, Copy, Default)]
enum ArchiverState {
    /// Everything that is finished is archived.
    #[default]
    Idle,
    Archiving,
    /// The last attempt failed.
    Failing,
    /// This node is a standby: it waits for its master to archive.
    Watching,
}

impl ArchiverState {
    fn word(self) -> &'static str {
        match self {
            ArchiverState::Idle => "idle",
            ArchiverState::Archiving => "archiving",
            ArchiverState::Failing => "failing",
            ArchiverState::Watching => "watching",
        }
    }
}

/// Counted since the start.
#[derive(Default)]
struct Progress {
    doing: ArchiverState,
    archived: u64,
    archived_bytes: u64,
    last: Option<Event>,
    failed: u64,
    last_failed: Option<Event>,
    last_error: Option<String>,
}

struct Event {
    /// Of the object, without its directory.
    name: String,
    at_us: i64,
}

impl Event {
    fn now(name: &str) -> Event {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = name.rsplit('/').next().unwrap_or_default().to_owned();
        Event { name, at_us: i64::try_from(since.as_micros()).unwrap_or(i64::MAX) }
    }
}

/// The result for one segment.
enum Step {
    Archived,
    /// It is not finished, or the master has not archived it yet.
    NotYet,
}

impl Archiver {
    pub fn new(
        engine: Engine,
        store: Arc<dyn Store>,
        notify: Notify,
        keep_bytes_max: u64,
        timeout: Duration,
    ) -> Arc<Archiver> {
        let (under_way, progress) = (Mutex::default(), Mutex::default());
        Arc::new(Archiver { engine, store, notify, keep_bytes_max, timeout, under_way, progress })
    }

    /// Archives until `stop`. An upload under way is abandoned; if its object reaches the archive all the same, the next run
    /// finds it.
    pub async fn run(self: Arc<Archiver>, mut stop: watch::Receiver<bool>) {
        tokio::select! {
            () = self.archive_all() => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    async fn archive_all(&self) {
        let trail = self.engine.trail();
        let mut next = trail.segment_of(trail.first());
        let (mut failures, mut pause) = (0, RETRY);
        tracing::info!(target: "holdfast::archive", place = self.store.place(), from = next, "archiving started");
        loop {
            match self.watched_step(trail, next).await {
                Ok(Step::Archived) => {
                    next += 1;
                    self.recovered(failures);
                    (failures, pause) = (0, RETRY);
                }
                Ok(Step::NotYet) => {
                    let standby = self.engine.is_standby();
                    self.progress.lock().doing = if standby { ArchiverState::Watching } else { ArchiverState::Idle };
                    tokio::time::sleep(if standby { LIST_EVERY } else { CHECK_EVERY }).await;
                }
                Err(error) => {
                    failures += 1;
                    self.failed(next, failures, &error);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY_MAX);
                }
            }
        }
    }

    /// Runs a step, and reports when it takes long: a mounted directory may hang without an error.
    async fn watched_step(&self, trail: &Trail, number: u32) -> Result<Step, ArchiveError> {
        let mut step = pin!(self.step(trail, number));
        let mut reported = false;
        loop {
            tokio::select! {
                done = &mut step => return done,
                () = tokio::time::sleep(SLOW_AFTER) => self.report_hang(number, &mut reported),
            }
        }
    }

    fn report_hang(&self, number: u32, reported: &mut bool) {
        let what = format!("the archive {} has not answered for {} s", self.store.place(), SLOW_AFTER.as_secs());
        let mut progress = self.progress.lock();
        progress.doing = ArchiverState::Failing;
        progress.last_error = Some(what.clone());
        drop(progress);
        if !std::mem::replace(reported, true) {
            self.notify.warn(&format!(
                "segment {number} is not archived: {what}; archiving waits for it, and the trail is kept"
            ));
        }
    }

    async fn step(&self, trail: &Trail, number: u32) -> Result<Step, ArchiveError> {
        let end = trail.start_of(number + 1);
        if trail.durable() < end {
            self.end_when_due(trail, number);
            return Ok(Step::NotYet);
        }
        if self.engine.is_standby() || end <= self.engine.verified_in_archive() {
            if let Some(name) = self.find(trail, number).await? {
                return self.record_archived(trail, number, name, None).map(|()| Step::Archived);
            }
            if self.engine.is_standby() {
                return match self.find_later(trail, number).await? {
                    Some(name) => self.record_archived(trail, number, name, None).map(|()| Step::Archived),
                    None => Ok(Step::NotYet),
                };
            }
        }
        self.check_same_archive(trail, number).await?;
        check_only_server(&*self.store, trail, number).await?;
        self.progress.lock().doing = ArchiverState::Archiving;
        let Some(kept) = put(&*self.store, trail, number, Codec::Zstd).await? else { return Ok(Step::NotYet) };
        self.record_archived(trail, number, kept.name, Some(kept.object_bytes))?;
        tracing::info!(
            target: "holdfast::archive",
            object = %kept.name,
            bytes = kept.object_bytes,
            content_bytes = kept.manifest.content_bytes,
            was_there = kept.was_there,
            "archived up to LSN {}", kept.manifest.end
        );
        Ok(Step::Archived)
    }

    /// Ends the segment under way if it has waited long enough, or a dump needs it. A standby's master does that.
    fn end_when_due(&self, trail: &Trail, number: u32) {
        let begins = trail.start_of(number);
        if self.engine.is_standby() || trail.durable() <= begins {
            return;
        }
        let mut under_way = self.under_way.lock();
        let since = match *under_way {
            Some((segment, since)) if segment == number => since,
            _ => under_way.insert((number, Instant::now())).1,
        };
        let is_old = !self.timeout.is_zero() && since.elapsed() >= self.timeout;
        if is_old || self.engine.wanted_in_archive() > begins {
            trail.end_segment();
        }
    }

    /// Checks that this is the archive that has the segments before. Otherwise (another archive, or the empty directory that
    /// the archive is mounted on) the segment would leave a gap that is not reported. A segment that was archived before, and
    /// moved away since, is archived again where the segment before it is there.
    async fn check_same_archive(&self, trail: &Trail, number: u32) -> Result<(), ArchiveError> {
        let Some(last) = self.engine.last_archived() else { return Ok(()) };
        let is_put_again = trail.start_of(number + 1) <= self.engine.verified_in_archive();
        if is_put_again && number > 1 && self.find(trail, number - 1).await?.is_some() {
            return Ok(());
        }
        check_still_there(&*self.store, &last).await
    }

    async fn find(&self, trail: &Trail, number: u32) -> Result<Option<ObjectName>, ArchiveError> {
        let holdings = Holdings::of(&*self.store, trail.trail_id()).await?;
        is_archived(&*self.store, trail, number, &holdings).await
    }

    /// The oldest object of this history, where it is of a later segment: those before it were archived, and removed by the
    /// archive's retention while this standby was away.
    async fn find_later(&self, trail: &Trail, number: u32) -> Result<Option<ObjectName>, ArchiveError> {
        let holdings = Holdings::of(&*self.store, trail.trail_id()).await?;
        match holdings.first_segment().filter(|first| *first > number && trail.durable() >= trail.start_of(first + 1)) {
            Some(first) => is_archived(&*self.store, trail, first, &holdings).await,
            None => Ok(None),
        }
    }

    /// Records that everything up to this segment is archived, by this node or another: the trail may recycle it.
    fn record_archived(
        &self,
        trail: &Trail,
        number: u32,
        name: ObjectName,
        put_bytes: Option<u64>,
    ) -> Result<(), ArchiveError> {
        self.engine.set_archived(trail.start_of(number + 1), &name.to_string()).map_err(|error| {
            ArchiveError::Task(format!("cannot record the position in the data directory: {error}"))
        })?;
        if let Some(bytes) = put_bytes {
            let mut progress = self.progress.lock();
            progress.archived += 1;
            progress.archived_bytes += bytes;
            progress.last = Some(Event::now(&name.to_string()));
        }
        Ok(())
    }

    fn failed(&self, number: u32, failures: u32, error: &ArchiveError) {
        {
            let mut progress = self.progress.lock();
            progress.doing = ArchiverState::Failing;
            progress.failed += 1;
            progress.last_failed = Some(Event::now(&format!("segment {number:08x}")));
            progress.last_error = Some(error.to_string());
        }
        let waiting = self.engine.waiting_for_archive().unwrap_or_default();
        tracing::error!(
            target: "holdfast::archive",
            place = self.store.place(),
            failures,
            waiting_bytes = waiting.bytes,
            keep_bytes_max = self.keep_bytes_max,
            "segment {number} cannot be archived, the trail keeps it: {error}"
        );
        if failures == FAILURES_REPORTED {
            self.notify.warn(&format!(
                "the trail cannot be archived: {error}; {} bytes wait for the archive, archive_keep_bytes_max is {}",
                waiting.bytes, self.keep_bytes_max
            ));
        }
    }

    fn recovered(&self, failures: u32) {
        if failures > 0 {
            tracing::info!(target: "holdfast::archive", failures, "archiving works again");
        }
        if failures >= FAILURES_REPORTED {
            self.notify.info("the trail is archived again");
        }
    }

    /// The archiver's state, for the views.
    pub fn report(&self) -> ArchiveRow {
        let progress = self.progress.lock();
        let waiting = self.engine.waiting_for_archive().unwrap_or_default();
        let (name, at_us) = (|e: &Event| e.name.clone(), |e: &Event| e.at_us);
        ArchiveRow {
            place: self.store.place().to_owned(),
            state: progress.doing.word().to_owned(),
            archived: progress.archived,
            archived_bytes: progress.archived_bytes,
            last_archived: progress.last.as_ref().map(name),
            last_archived_us: progress.last.as_ref().map(at_us),
            archived_lsn: waiting.archived.0,
            failed: progress.failed,
            last_failed: progress.last_failed.as_ref().map(name),
            last_failed_us: progress.last_failed.as_ref().map(at_us),
            last_error: progress.last_error.clone(),
            waiting_segments: waiting.bytes / self.engine.trail().segment_bytes(),
            waiting_bytes: waiting.bytes,
            keep_bytes_max: self.keep_bytes_max,
            is_beyond: waiting.is_beyond,
        }
    }
}
