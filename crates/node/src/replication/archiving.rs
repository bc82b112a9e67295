//! The role task "archive": finished segments go to the archive, and only what is there whole may be recycled.
//!
//! | this node is | for each finished segment, oldest first |
//! |---|---|
//! | a master | when the object archived last is still there, it is put into the archive, read back and compared |
//! | a master, and an earlier run has done that | it is looked up |
//! | a standby | it is looked up: its master archives it; what is not there yet stays in this trail as well, so that nothing is missing in the archive when this node is promoted |
//!
//! Looked up is: an object is listed whose last boxcar has the checksum that this trail's next one names.
//!
//! Failure: it is tried again with growing pauses, for ever, and logged each time; after a few times in a row the
//! operator's command is told, and again when it works. What happens to the trail meanwhile the engine decides
//! (`archive_keep_bytes_max`).

use super::Notify;
use holdfast_archive::{ArchiveError, Codec, Holdings, ObjectName, Store, check_still_there, is_archived, put};
use holdfast_engine::Engine;
use holdfast_sql::catalogue::ArchiveRow;
use holdfast_trail::Trail;
use parking_lot::Mutex;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// Between two looks at whether a segment was finished.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Between two listings by a node that does not archive itself.
const LIST_EVERY: Duration = Duration::from_secs(5);

/// Between two tries after a failure: doubled each time.
const RETRY: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// A step that takes longer is told of.
const SLOW_AFTER: Duration = Duration::from_secs(120);

/// So many failures in a row are told to the operator's command.
const FAILURES_TOLD: u32 = 3;

/// See the module.
pub struct Archiving {
    engine: Engine,
    store: Arc<dyn Store>,
    notify: Notify,
    keep_bytes_max: u64,
    progress: Mutex<Progress>,
}

#[derive(Clone, Copy, Default)]
enum Doing {
    /// Everything that is finished is archived.
    #[default]
    Idle,
    Archiving,
    /// The last try has failed.
    Failing,
    /// This node is a standby: it waits for its master to archive.
    Watching,
}

impl Doing {
    fn word(self) -> &'static str {
        match self {
            Doing::Idle => "idle",
            Doing::Archiving => "archiving",
            Doing::Failing => "failing",
            Doing::Watching => "watching",
        }
    }
}

/// Counted since the start.
#[derive(Default)]
struct Progress {
    doing: Doing,
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

/// What became of one segment.
enum Step {
    Archived,
    /// It is not finished, or not archived yet by the master.
    NotYet,
}

impl Archiving {
    pub fn new(engine: Engine, store: Arc<dyn Store>, notify: Notify, keep_bytes_max: u64) -> Arc<Archiving> {
        Arc::new(Archiving { engine, store, notify, keep_bytes_max, progress: Mutex::default() })
    }

    /// Until `stop`. What is under way then is given up: an object that got there all the same is found the next time.
    pub async fn run(self: Arc<Archiving>, mut stop: watch::Receiver<bool>) {
        tokio::select! {
            () = self.archive_all() => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    async fn archive_all(&self) {
        let trail = self.engine.trail();
        let mut next = trail.segment_of(trail.first());
        let (mut failures, mut pause) = (0, RETRY);
        tracing::info!(target: "holdfast::archive", place = self.store.place(), from = next, "archiving");
        loop {
            match self.step_in_sight(trail, next).await {
                Ok(Step::Archived) => {
                    next += 1;
                    self.recovered(failures);
                    (failures, pause) = (0, RETRY);
                }
                Ok(Step::NotYet) => {
                    let standby = self.engine.is_standby();
                    self.progress.lock().doing = if standby { Doing::Watching } else { Doing::Idle };
                    tokio::time::sleep(if standby { LIST_EVERY } else { LOOK_EVERY }).await;
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

    /// A step that takes long is told of: a mounted directory may hang without ever being an error.
    async fn step_in_sight(&self, trail: &Trail, number: u32) -> Result<Step, ArchiveError> {
        let mut step = pin!(self.step(trail, number));
        let mut told = false;
        loop {
            tokio::select! {
                done = &mut step => return done,
                () = tokio::time::sleep(SLOW_AFTER) => self.hangs(number, &mut told),
            }
        }
    }

    fn hangs(&self, number: u32, told: &mut bool) {
        let what = format!("the archive {} has not answered for {} s", self.store.place(), SLOW_AFTER.as_secs());
        let mut progress = self.progress.lock();
        progress.doing = Doing::Failing;
        progress.last_error = Some(what.clone());
        drop(progress);
        if !std::mem::replace(told, true) {
            self.notify
                .tell(&format!("segment {number} is not archived: {what}; it is waited for, and the trail is kept"));
        }
    }

    async fn step(&self, trail: &Trail, number: u32) -> Result<Step, ArchiveError> {
        let end = trail.start_of(number + 1);
        if trail.durable() < end {
            return Ok(Step::NotYet);
        }
        if self.engine.is_standby() || end <= self.engine.verified_in_archive() {
            if let Some(name) = self.find(trail, number).await? {
                return self.note(trail, number, name, None).map(|()| Step::Archived);
            }
            if self.engine.is_standby() {
                return Ok(Step::NotYet);
            }
        }
        self.check_place(trail, number).await?;
        self.progress.lock().doing = Doing::Archiving;
        let Some(kept) = put(&*self.store, trail, number, Codec::Zstd).await? else { return Ok(Step::NotYet) };
        self.note(trail, number, kept.name, Some(kept.object_bytes))?;
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

    /// Putting into another archive, or into the empty directory that one is mounted on, would be a gap that nobody is told
    /// of. What was archived before and was moved away since is put again where the segment before it is there.
    async fn check_place(&self, trail: &Trail, number: u32) -> Result<(), ArchiveError> {
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

    /// Everything up to this segment is archived, put by this node or found: the trail may recycle it.
    fn note(&self, trail: &Trail, number: u32, name: ObjectName, put_bytes: Option<u64>) -> Result<(), ArchiveError> {
        self.engine.set_archived(trail.start_of(number + 1), &name.to_string()).map_err(|error| {
            ArchiveError::Task(format!("its position cannot be noted in the data directory: {error}"))
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
            progress.doing = Doing::Failing;
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
        if failures == FAILURES_TOLD {
            self.notify.tell(&format!(
                "the trail cannot be archived: {error}; {} bytes wait, archive_keep_bytes_max is {}",
                waiting.bytes, self.keep_bytes_max
            ));
        }
    }

    fn recovered(&self, failures: u32) {
        if failures > 0 {
            tracing::info!(target: "holdfast::archive", failures, "the archive works again");
        }
        if failures >= FAILURES_TOLD {
            self.notify.tell("the trail is archived again");
        }
    }

    /// For the views.
    pub fn row(&self) -> ArchiveRow {
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
