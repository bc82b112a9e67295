//! Applies the archive's trail to the directory of a dump, as a standby applies its master's.
//!
//! Objects are fetched and decoded ahead by a few threads while one thread hands boxcars to the engine, whose own thread
//! applies them. What is received and not yet applied is bounded.
//!
//! Failure: an object that is missing or damaged ends it, by name, with what was reached before.

use super::chain::{Chain, bound, read, runtime};
use super::error::RestoreError;
use super::options::{RestoreOptions, Step};
use super::target::{Clock, Extent, Target, extent};
use crate::error::DumpError;
use crate::manifest::Head;
use crate::moment::show_moment;
use holdfast_archive::{ArchiveError, Manifest, Segment, Store};
use holdfast_engine::{Engine, Options};
use holdfast_trail::{BoxcarKind, Shipped};
use holdfast_types::Lsn;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Objects that are fetched ahead.
const AHEAD_MAX: usize = 3;
/// Boxcars that are made durable together, in bytes.
const GROUP_BYTES: usize = 8 << 20;
/// Chunks that are fetched at a time for each thread that could work on one.
const FETCHES_PER_THREAD: usize = 4;
/// Boxcars for which pages are read ahead together: the more, the less often a part of a file is fetched again.
const READ_AHEAD_BYTES: usize = 64 << 20;
/// Trail that is received and not yet applied.
const UNAPPLIED_BYTES_MAX: u64 = 512 << 20;
/// How often to report and to check while waiting.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How fast pages of the databases' files are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reads {
    /// As from any file.
    Fast,
    /// They are fetched when they are read: what the trail touches is read ahead, in the order of the files.
    Fetched,
}

/// Threads that fetch pages: they wait for the store more than they work.
pub fn fetch_threads(threads: usize) -> usize {
    threads.saturating_mul(FETCHES_PER_THREAD)
}

/// Where a restore has come to.
#[derive(Clone, Copy, Debug)]
pub struct Reached {
    pub lsn: u64,
    pub clock_unix_ms: u64,
    /// Of boxcars.
    pub bytes: u64,
}

/// Applies the chain up to the target.
pub fn roll_forward(
    store: &dyn Store,
    chain: &Chain,
    (dump, head): (&str, &Head),
    options: &RestoreOptions<'_>,
    engine: &Options,
    (reads, progress): (Reads, &(dyn Fn(Step) + Sync)),
) -> Result<Reached, DumpError> {
    let runtime = runtime()?;
    let ahead = Ahead::new(chain.objects.len());
    let engine = Engine::open(options.dir, Options { standby: true, ..engine.clone() })?;
    let outcome = std::thread::scope(|scope| {
        for _ in 0..options.threads.clamp(1, AHEAD_MAX) {
            scope.spawn(|| ahead.fetch(&runtime, store, &chain.objects));
        }
        let end = chain.objects.last().map_or(0, |object| object.end.0);
        let from = chain.objects.first().map_or(0, |object| object.first.0);
        let (groups, group, clock) = (Vec::new(), Vec::new(), Clock::default());
        let (group_bytes, groups_bytes) = (0, 0);
        let engine = &engine;
        let mut roll = Roll {
            engine,
            dump,
            head,
            options,
            progress,
            reads,
            from,
            end,
            groups,
            groups_bytes,
            group,
            group_bytes,
            clock,
        };
        let outcome = roll.all(&ahead);
        ahead.stop();
        outcome
    });
    let reached = outcome?;
    engine.close()?;
    Ok(reached)
}

/// Segments on their way from the archive, by their place in the chain.
struct Ahead {
    state: Mutex<State>,
    changed: Condvar,
    count: usize,
}

#[derive(Default)]
struct State {
    /// The next one to fetch, and the next one to apply.
    fetch: usize,
    apply: usize,
    fetched: BTreeMap<usize, Result<Segment, ArchiveError>>,
    stopped: bool,
}

impl Ahead {
    fn new(count: usize) -> Ahead {
        Ahead { state: Mutex::default(), changed: Condvar::new(), count }
    }

    fn fetch(&self, runtime: &Runtime, store: &dyn Store, objects: &[Manifest]) {
        let mut state = self.state.lock();
        loop {
            while !state.stopped && state.fetch < self.count && state.fetch >= state.apply + AHEAD_MAX {
                self.changed.wait(&mut state);
            }
            if state.stopped || state.fetch >= self.count {
                return;
            }
            let place = state.fetch;
            state.fetch += 1;
            drop(state);
            let segment = read(runtime, store, objects[place].name());
            state = self.state.lock();
            state.fetched.insert(place, segment);
            self.changed.notify_all();
        }
    }

    fn take(&self, place: usize) -> Result<Segment, ArchiveError> {
        let mut state = self.state.lock();
        loop {
            if let Some(segment) = state.fetched.remove(&place) {
                state.apply = place + 1;
                self.changed.notify_all();
                return segment;
            }
            self.changed.wait(&mut state);
        }
    }

    fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }
}

struct Roll<'a> {
    engine: &'a Engine,
    dump: &'a str,
    head: &'a Head,
    options: &'a RestoreOptions<'a>,
    progress: &'a (dyn Fn(Step) + Sync),
    /// First and last position of the chain.
    from: u64,
    end: u64,
    reads: Reads,
    /// Groups that are complete, and wait for what they need to be read ahead.
    groups: Vec<Vec<Shipped>>,
    groups_bytes: usize,
    group: Vec<Shipped>,
    group_bytes: usize,
    clock: Clock,
}

impl Roll<'_> {
    fn all(&mut self, ahead: &Ahead) -> Result<Reached, DumpError> {
        let mut reached = Reached { lsn: 0, clock_unix_ms: 0, bytes: 0 };
        for place in 0..ahead.count {
            let segment = ahead.take(place).map_err(|error| self.stopped(error, &reached))?;
            let mut offset = 0;
            while let Some(read) = segment.boxcar_at(offset) {
                let name = segment.manifest.name().to_string();
                let damaged = |what: String| ArchiveError::Damaged { name: name.clone(), what };
                let (boxcar, behind) = read.map_err(|what| self.stopped(damaged(what), &reached))?;
                offset = behind;
                let wanted = extent(self.options.target, &boxcar, &mut self.clock);
                let wanted = wanted.map_err(|e| self.stopped(damaged(e.to_string()), &reached))?;
                let goes_on = self.take(boxcar, wanted, &mut reached)?;
                if !goes_on {
                    return self.finish(reached);
                }
            }
        }
        match self.options.target {
            Target::End => self.finish(reached),
            // The archive ends there.
            Target::Lsn(lsn) if reached.lsn == lsn || ahead.count == 0 => self.finish(reached),
            // It was written after that time, so nothing of it is later.
            Target::Time(_) => self.finish(reached),
            target => Err(RestoreError::NoTransaction { place: "of the dump's history".to_owned(), target }.into()),
        }
    }

    /// Takes what is wanted of a boxcar; false: the target is reached.
    fn take(&mut self, boxcar: Shipped, wanted: Extent, reached: &mut Reached) -> Result<bool, DumpError> {
        // What the dump has cannot be taken back: where it ends, or later.
        let (last, from) = match wanted {
            Extent::Whole => (None, boxcar.end),
            Extent::Last => (Some(Some(boxcar.clone())), boxcar.end),
            Extent::Part(body) => {
                let part = boxcar.with_body(&body, self.head.plan.segment_bytes);
                let part =
                    part.ok_or_else(|| RestoreError::Apply(format!("the boxcar at {} cannot be cut", boxcar.lsn)))?;
                (Some(Some(part)), boxcar.lsn)
            }
            Extent::Nothing => (Some(None), boxcar.lsn),
        };
        if last.is_some() && from < bound(self.head) {
            let (dump, lsn, target) = (self.dump.to_owned(), bound(self.head).0, self.options.target);
            return Err(RestoreError::BeforeDump { dump, lsn, target }.into());
        }
        let goes_on = last.is_none();
        if let Some(boxcar) = last.unwrap_or(Some(boxcar)) {
            reached.lsn = boxcar.end.0;
            reached.bytes += boxcar.bytes.len() as u64;
            self.group_bytes += boxcar.bytes.len();
            let ends_segment = boxcar.kind == BoxcarKind::SegmentEnd;
            self.group.push(boxcar);
            if ends_segment || self.group_bytes >= GROUP_BYTES || !goes_on {
                self.complete(reached)?;
            }
        }
        reached.clock_unix_ms = self.clock.0;
        Ok(goes_on)
    }

    /// The group is complete.
    fn complete(&mut self, reached: &Reached) -> Result<(), DumpError> {
        self.groups_bytes += std::mem::take(&mut self.group_bytes);
        self.groups.push(std::mem::take(&mut self.group));
        match self.reads {
            Reads::Fetched if self.groups_bytes < READ_AHEAD_BYTES => Ok(()),
            Reads::Fast | Reads::Fetched => self.flush(reached),
        }
    }

    /// Makes the groups durable one after the other, and lets the engine apply them.
    fn flush(&mut self, reached: &Reached) -> Result<(), DumpError> {
        if self.reads == Reads::Fetched {
            // What was received before is applied meanwhile.
            self.engine.read_ahead(self.groups.iter().flatten(), fetch_threads(self.options.threads));
        }
        self.groups_bytes = 0;
        for group in std::mem::take(&mut self.groups) {
            let Some(last) = group.last() else { continue };
            let end = last.end;
            self.engine.receive(&group)?;
            self.engine.allow_apply(end);
            self.wait(Lsn(end.0.saturating_sub(UNAPPLIED_BYTES_MAX)), reached)?;
        }
        Ok(())
    }

    /// Waits until everything below `lsn` is applied.
    fn wait(&self, lsn: Lsn, reached: &Reached) -> Result<(), DumpError> {
        loop {
            let is_applied = self.engine.wait_applied(lsn, LOOK_EVERY);
            (self.progress)(Step::Trail {
                lsn: self.engine.applied().0,
                end: self.end,
                from: self.from,
                unix_ms: reached.clock_unix_ms,
            });
            if let Some(why) = self.engine.apply_failure() {
                let lsn = self.engine.applied().0;
                let next = format!("What can be reached is LSN {lsn}: --to-lsn {lsn} ends there, or use a later dump");
                return Err(RestoreError::Apply(format!("{why}. {next}")).into());
            }
            if is_applied {
                return Ok(());
            }
        }
    }

    fn finish(&mut self, mut reached: Reached) -> Result<Reached, DumpError> {
        self.complete(&reached)?;
        self.flush(&reached)?;
        let end = self.engine.trail().tip().0;
        self.wait(end, &reached)?;
        reached.lsn = reached.lsn.max(self.head.lsn());
        reached.clock_unix_ms = reached.clock_unix_ms.max(self.head.clock_unix_ms());
        Ok(reached)
    }

    fn stopped(&self, error: ArchiveError, reached: &Reached) -> DumpError {
        let reached_lsn = reached.lsn.max(self.head.lsn());
        let moment = show_moment(reached.clock_unix_ms.max(self.head.clock_unix_ms()));
        RestoreError::Stopped { what: error.to_string(), reached: reached_lsn, moment }.into()
    }
}
